"""Builds and reads the records of a share group in `__consumer_offsets` (KIP-932)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.foundation.decision import StateRecord
from penstock.foundation.ids import TopicIdPartition
from penstock.groups import records
from penstock.groups.changes import Change, Writers, to_state_record
from penstock.groups.consumer.members import MemberState, by_topic
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
"""Key class and value class of each kind of share group record."""


class DeliveryTopics(NamedTuple):
    """By topic id, the topics in which a share group has delivery state, and those whose state is being deleted."""

    topics: Mapping[bytes, tuple[str, int]]
    """Name and number of partitions of each topic with delivery state, by topic id."""
    deleting: Mapping[bytes, str]


NO_TOPICS: Final = DeliveryTopics({}, {})


def to_record(change: Change) -> StateRecord:
    """Returns the encoded record of a change to a share group."""
    return to_state_record(change, _WRITERS)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Change:
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Change(records.SHARE_GROUP_METADATA, GroupKey(group=group_id), value)


def target_epoch(group_id: str, epoch: int, at_ms: int) -> Change:
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=at_ms)
    return Change(records.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, GroupKey(group=group_id), value)


def target(group_id: str, member_id: str, tps: Iterable[TopicIdPartition]) -> Change:
    key = MemberKey(group=group_id, member_id=member_id)
    return Change(records.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, key, frozenset(tps))


def member_metadata(group_id: str, member: ShareMember) -> Change:
    key = MemberKey(group=group_id, member_id=member.member_id)
    return Change(records.SHARE_GROUP_MEMBER_METADATA, key, member)


def current_assignment(group_id: str, member: ShareMember) -> Change:
    key = MemberKey(group=group_id, member_id=member.member_id)
    return Change(records.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, member)


def delivery_topics(group_id: str, value: DeliveryTopics) -> Change:
    return Change(records.SHARE_GROUP_STATE_PARTITION_METADATA, GroupKey(group=group_id), value)


def member_tombstones(group_id: str, member_ids: Collection[str]) -> list[Change]:
    """Returns tombstones of members: assignments first, so that no partition is replayed without its member."""
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


def group_tombstones(group_id: str) -> list[Change]:
    kinds = (
        records.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        records.SHARE_GROUP_STATE_PARTITION_METADATA,
        records.SHARE_GROUP_METADATA,
    )
    return [Change(kind, GroupKey(group=group_id), None) for kind in kinds]


# -- encoding


def _write_partitions(tps: Iterable[TopicIdPartition]) -> list[TargetTopicPartitions]:
    return [
        TargetTopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(tps).items()
    ]


def _write_target(tps: frozenset[TopicIdPartition]) -> ShareGroupTargetAssignmentMemberValue:
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_write_partitions(tps))


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
        state=MemberState.STABLE,  # nothing has to be revoked first
        assigned_partitions=_write_partitions(member.assigned),
    )


def _write_delivery_topics(value: DeliveryTopics) -> ShareGroupStatePartitionMetadataValue:
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
    records.SHARE_GROUP_STATE_PARTITION_METADATA: _write_delivery_topics,
}


def read_metadata(member: ShareMember, value: ShareGroupMemberMetadataValue | ShareMember) -> ShareMember:
    """Returns the member updated with the metadata of a record."""
    if isinstance(value, ShareMember):
        return member.with_metadata_of(value)
    return member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
    )


def read_current(member: ShareMember, value: ShareGroupCurrentMemberAssignmentValue | ShareMember) -> ShareMember:
    """Returns the member updated with the current assignment of a record."""
    if isinstance(value, ShareMember):
        return member.with_assignment_of(value)
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=_read_partitions(value.assigned_partitions),
    )


def read_target(
    value: ShareGroupTargetAssignmentMemberValue | frozenset[TopicIdPartition],
) -> frozenset[TopicIdPartition]:
    return value if isinstance(value, frozenset) else _read_partitions(value.topic_partitions)


def read_delivery_topics(value: ShareGroupStatePartitionMetadataValue | DeliveryTopics | None) -> DeliveryTopics:
    if value is None:
        return NO_TOPICS
    if isinstance(value, DeliveryTopics):
        return value
    # A topic that another broker was initializing has delivery state as soon as a member fetches from it.
    found = [*value.initializing_topics, *value.initialized_topics]
    return DeliveryTopics(
        {topic.topic_id: (topic.topic_name, len(topic.partitions)) for topic in found},
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )


def _read_partitions(topics: Sequence[TargetTopicPartitions]) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions)
