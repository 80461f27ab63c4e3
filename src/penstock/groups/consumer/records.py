"""Builds and reads the records of a consumer group in `__consumer_offsets` (KIP-848)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from penstock.foundation.decision import StateRecord
from penstock.foundation.ids import TopicIdPartition
from penstock.groups import records
from penstock.groups.changes import Change, Writers, to_state_record
from penstock.groups.consumer.members import Held, Member, MemberState, by_topic
from penstock.groups.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    GroupKey,
    MemberKey,
    RegularExpressionKey,
    TargetTopicPartitions,
)

KINDS: Final[Mapping[int, tuple[type, type]]] = {
    records.CONSUMER_GROUP_METADATA: (GroupKey, ConsumerGroupMetadataValue),
    records.CONSUMER_GROUP_MEMBER_METADATA: (MemberKey, ConsumerGroupMemberMetadataValue),
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: (
        GroupKey,
        ConsumerGroupTargetAssignmentMetadataValue,
    ),
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: (
        MemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
    ),
    records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: (
        MemberKey,
        ConsumerGroupCurrentMemberAssignmentValue,
    ),
    records.CONSUMER_GROUP_REGULAR_EXPRESSION: (
        RegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
    ),
}
"""Key class and value class of each kind of consumer group record."""


def to_record(change: Change) -> StateRecord:
    """Returns the encoded record of a change to a consumer group."""
    return to_state_record(change, _WRITERS)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Change:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return Change(records.CONSUMER_GROUP_METADATA, GroupKey(group=group_id), value)


def target_epoch(group_id: str, epoch: int, at_ms: int) -> Change:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=at_ms)
    return Change(records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, GroupKey(group=group_id), value)


def target(group_id: str, member_id: str, tps: Iterable[TopicIdPartition]) -> Change:
    key = MemberKey(group=group_id, member_id=member_id)
    return Change(records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, key, frozenset(tps))


def member_metadata(group_id: str, member: Member) -> Change:
    key = MemberKey(group=group_id, member_id=member.member_id)
    return Change(records.CONSUMER_GROUP_MEMBER_METADATA, key, member)


def current_assignment(group_id: str, member: Member) -> Change:
    key = MemberKey(group=group_id, member_id=member.member_id)
    return Change(records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, member)


def regex(group_id: str, text: str, topics: Iterable[str], version: int, at_ms: int) -> Change:
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=at_ms)
    key = RegularExpressionKey(group=group_id, regular_expression=text)
    return Change(records.CONSUMER_GROUP_REGULAR_EXPRESSION, key, value)


def regex_tombstone(group_id: str, text: str) -> Change:
    key = RegularExpressionKey(group=group_id, regular_expression=text)
    return Change(records.CONSUMER_GROUP_REGULAR_EXPRESSION, key, None)


def member_tombstones(group_id: str, member_ids: Collection[str]) -> list[Change]:
    """Returns tombstones of members: assignments first, so that no partition is replayed without its member."""
    kinds = (
        records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        records.CONSUMER_GROUP_MEMBER_METADATA,
    )
    return [
        Change(kind, MemberKey(group=group_id, member_id=member_id), None)
        for kind in kinds
        for member_id in member_ids
    ]


def group_tombstones(group_id: str) -> list[Change]:
    kinds = (records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, records.CONSUMER_GROUP_METADATA)
    return [Change(kind, GroupKey(group=group_id), None) for kind in kinds]


# -- encoding


def _write_target(tps: frozenset[TopicIdPartition]) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(tps).items()
        ]
    )


def _write_metadata(member: Member) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=member.classic,
    )


def _write_current(member: Member) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_write_held(member.assigned),
        partitions_pending_revocation=_write_held(member.revoking),
    )


_WRITERS: Final[Writers] = {
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _write_target,
    records.CONSUMER_GROUP_MEMBER_METADATA: _write_metadata,
    records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _write_current,
}


def read_metadata(member: Member, value: ConsumerGroupMemberMetadataValue | Member) -> Member:
    """Returns the member updated with the metadata of a record."""
    if isinstance(value, Member):
        return member.with_metadata_of(value)
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def read_current(member: Member, value: ConsumerGroupCurrentMemberAssignmentValue | Member) -> Member:
    """Returns the member updated with the current assignment of a record."""
    if isinstance(value, Member):
        return member.with_assignment_of(value)
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_read_held(value.assigned_partitions, value.member_epoch),
        revoking=_read_held(value.partitions_pending_revocation, value.member_epoch),
    )


def read_target(
    value: ConsumerGroupTargetAssignmentMemberValue | frozenset[TopicIdPartition],
) -> frozenset[TopicIdPartition]:
    if isinstance(value, frozenset):
        return value
    return frozenset(
        TopicIdPartition(topic.topic_id, number) for topic in value.topic_partitions for number in topic.partitions
    )


def _write_held(held: Held) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[held[TopicIdPartition(topic_id, number)] for number in numbers],
        )
        for topic_id, numbers in by_topic(held).items()
    ]


def _read_held(topics: Sequence[CurrentTopicPartitions], member_epoch: int) -> Held:
    """Decodes partitions and their epochs. Records from before KIP-1251 have no epochs: `member_epoch` is used."""
    held: dict[TopicIdPartition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        for number, epoch in zip(topic.partitions, epochs, strict=True):
            held[TopicIdPartition(topic.topic_id, number)] = epoch
    return held
