"""A share group's records, made of what the group knows and read back into it (KIP-932)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.foundation.decision import StateRecord
from penstock.groups import records
from penstock.groups.changes import Change, Writers, written
from penstock.groups.consumer.members import MemberState, TopicIdPartition, by_topic
from penstock.groups.records import (
    GroupKey,
    MemberKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    TargetTopicPartitions,
    TopicInfo,
    TopicPartitionsInfo,
)
from penstock.groups.share.members import ShareMember

KINDS: Final[Mapping[int, tuple[type, type]]] = {
    records.SHARE_GROUP_METADATA: (GroupKey, ShareGroupMetadataValue),
    records.SHARE_GROUP_MEMBER_METADATA: (MemberKey, ShareGroupMemberMetadataValue),
    records.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: (GroupKey, ShareGroupTargetAssignmentMetadataValue),
    records.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: (MemberKey, ShareGroupTargetAssignmentMemberValue),
    records.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: (MemberKey, ShareGroupCurrentMemberAssignmentValue),
    records.SHARE_GROUP_STATE_PARTITION_METADATA: (GroupKey, ShareGroupStatePartitionMetadataValue),
}
"""Kinds of records that are a share group's own, with the classes of their keys and values."""


class Delivering(NamedTuple):
    """The topics that a group has delivery state of, and those whose state is being removed, by their ids."""

    topics: Mapping[bytes, tuple[str, int]]
    """Name, and number of partitions."""
    deleting: Mapping[bytes, str]


NOWHERE: Final = Delivering({}, {})


def to_record(change: Change) -> StateRecord:
    """As it is persisted."""
    return written(change, _WRITERS)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Change:
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Change(records.SHARE_GROUP_METADATA, GroupKey(group=group_id), value)


def target_epoch(group_id: str, epoch: int, at_ms: int) -> Change:
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=at_ms)
    return Change(records.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, GroupKey(group=group_id), value)


def target(group_id: str, member_id: str, places: Iterable[TopicIdPartition]) -> Change:
    key = MemberKey(group=group_id, member_id=member_id)
    return Change(records.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, key, frozenset(places))


def member_metadata(group_id: str, member: ShareMember) -> Change:
    key = MemberKey(group=group_id, member_id=member.member_id)
    return Change(records.SHARE_GROUP_MEMBER_METADATA, key, member)


def current_assignment(group_id: str, member: ShareMember) -> Change:
    key = MemberKey(group=group_id, member_id=member.member_id)
    return Change(records.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, member)


def delivering(group_id: str, value: Delivering) -> Change:
    return Change(records.SHARE_GROUP_STATE_PARTITION_METADATA, GroupKey(group=group_id), value)


def without_members(group_id: str, member_ids: Collection[str]) -> list[Change]:
    """First what they have, last who they are: what is read back never has partitions for nobody."""
    kinds = (
        records.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        records.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
        records.SHARE_GROUP_MEMBER_METADATA,
    )
    return [
        Change(kind, MemberKey(group=group_id, member_id=member_id), None)
        for kind in kinds
        for member_id in member_ids
    ]


def without_group(group_id: str) -> list[Change]:
    kinds = (
        records.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        records.SHARE_GROUP_STATE_PARTITION_METADATA,
        records.SHARE_GROUP_METADATA,
    )
    return [Change(kind, GroupKey(group=group_id), None) for kind in kinds]


# -- what is written, and read back


def _write_places(places: Iterable[TopicIdPartition]) -> list[TargetTopicPartitions]:
    return [
        TargetTopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(places).items()
    ]


def _write_target(places: frozenset[TopicIdPartition]) -> ShareGroupTargetAssignmentMemberValue:
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_write_places(places))


def _write_metadata(member: ShareMember) -> ShareGroupMemberMetadataValue:
    return ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )


def _write_current(member: ShareMember) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=MemberState.STABLE,  # there is nothing to give up first
        assigned_partitions=_write_places(member.assigned),
    )


def _write_delivering(value: Delivering) -> ShareGroupStatePartitionMetadataValue:
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=(),
        initialized_topics=[
            TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=range(count))
            for topic_id, (name, count) in sorted(value.topics.items())
        ],
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(value.deleting.items())
        ],
    )


_WRITERS: Final[Writers] = {
    records.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: _write_target,
    records.SHARE_GROUP_MEMBER_METADATA: _write_metadata,
    records.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: _write_current,
    records.SHARE_GROUP_STATE_PARTITION_METADATA: _write_delivering,
}


def read_metadata(member: ShareMember, value: ShareGroupMemberMetadataValue | ShareMember) -> ShareMember:
    """The member with what it says about itself."""
    if isinstance(value, ShareMember):
        return member.saying(value)
    return member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
    )


def read_current(member: ShareMember, value: ShareGroupCurrentMemberAssignmentValue | ShareMember) -> ShareMember:
    """The member with what it has."""
    if isinstance(value, ShareMember):
        return member.having(value)
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=_read_places(value.assigned_partitions),
    )


def read_target(
    value: ShareGroupTargetAssignmentMemberValue | frozenset[TopicIdPartition],
) -> frozenset[TopicIdPartition]:
    return value if isinstance(value, frozenset) else _read_places(value.topic_partitions)


def read_delivering(value: ShareGroupStatePartitionMetadataValue | Delivering | None) -> Delivering:
    if value is None:
        return NOWHERE
    if isinstance(value, Delivering):
        return value
    # What another broker was about to initialise has delivery state as soon as someone fetches from it.
    found = [*value.initializing_topics, *value.initialized_topics]
    return Delivering(
        {topic.topic_id: (topic.topic_name, len(topic.partitions)) for topic in found},
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )


def _read_places(topics: Sequence[TargetTopicPartitions]) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions)
