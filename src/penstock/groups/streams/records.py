"""Schemas of streams group records in `__consumer_offsets`, in Kafka's layout; functions to build and read them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from penstock.foundation.decision import StateRecord
from penstock.groups.changes import Change, Writers, to_state_record
from penstock.groups.consumer.members import MemberState
from penstock.groups.records import GroupKey, MemberKey
from penstock.groups.streams.members import Endpoint, HeldTasks, StreamsMember
from penstock.groups.streams.tasks import Role, Task, Tasks, by_subtopology, tasks_of
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, UInt16, field, record, struct

STREAMS_GROUP_METADATA: Final = 17
STREAMS_GROUP_MEMBER_METADATA: Final = 19
STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: Final = 20
STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = 21
STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = 22
STREAMS_GROUP_TOPOLOGY: Final = 23


@struct
class KeyValue:
    key: String
    value: String


@record(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(tag=0, default=-1)
    last_assignment_configs: Array[KeyValue] | None = field(tag=1, default=None)


@struct
class EndpointValue:
    host: String
    port: UInt16


@record(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32
    topology_epoch: Int32
    process_id: String
    user_endpoint: EndpointValue | None
    client_tags: Array[KeyValue]


@record(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@struct
class TargetTaskIds:
    subtopology_id: String
    partitions: Array[Int32]


@record(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: Array[TargetTaskIds]
    standby_tasks: Array[TargetTaskIds]
    warmup_tasks: Array[TargetTaskIds]
    """Warm-up tasks; always empty, as in Kafka 4.4."""


@struct
class CurrentTaskIds:
    subtopology_id: String
    partitions: Array[Int32]
    assignment_epochs: Array[Int32] | None = field(tag=0, default=None)


@record(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: Array[CurrentTaskIds]
    standby_tasks: Array[CurrentTaskIds]
    warmup_tasks: Array[CurrentTaskIds]
    active_tasks_pending_revocation: Array[CurrentTaskIds]
    standby_tasks_pending_revocation: Array[CurrentTaskIds]
    warmup_tasks_pending_revocation: Array[CurrentTaskIds]


@struct
class TopicInfo:
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: Array[KeyValue]


@struct
class CopartitionGroup:
    source_topics: Array[Int16]
    source_topic_regex: Array[Int16]
    repartition_source_topics: Array[Int16]


@struct
class Subtopology:
    subtopology_id: String
    source_topics: Array[String]
    source_topic_regex: Array[String]
    state_changelog_topics: Array[TopicInfo]
    repartition_sink_topics: Array[String]
    repartition_source_topics: Array[TopicInfo]
    copartition_groups: Array[CopartitionGroup]


@record(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    epoch: Int32
    subtopologies: Array[Subtopology]


KINDS: Final[Mapping[int, tuple[type, type]]] = {
    STREAMS_GROUP_METADATA: (GroupKey, StreamsGroupMetadataValue),
    STREAMS_GROUP_MEMBER_METADATA: (MemberKey, StreamsGroupMemberMetadataValue),
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: (GroupKey, StreamsGroupTargetAssignmentMetadataValue),
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: (MemberKey, StreamsGroupTargetAssignmentMemberValue),
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: (MemberKey, StreamsGroupCurrentMemberAssignmentValue),
    STREAMS_GROUP_TOPOLOGY: (GroupKey, StreamsGroupTopologyValue),
}
"""Key class and value class of each kind of streams group record."""


# -- changes


def to_record(change: Change) -> StateRecord:
    """Returns the encoded record of a change to a streams group."""
    return to_state_record(change, _WRITERS)


def group_metadata(
    group_id: str, epoch: int, metadata_hash: int, validated_epoch: int, configs: Iterable[tuple[str, str]]
) -> Change:
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=[KeyValue(key=key, value=text) for key, text in configs],
    )
    return Change(STREAMS_GROUP_METADATA, GroupKey(group=group_id), value)


def topology(group_id: str, value: StreamsGroupTopologyValue) -> Change:
    return Change(STREAMS_GROUP_TOPOLOGY, GroupKey(group=group_id), value)


def target_epoch(group_id: str, epoch: int, at_ms: int) -> Change:
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=at_ms)
    return Change(STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, GroupKey(group=group_id), value)


def target(group_id: str, member_id: str, tasks: Tasks) -> Change:
    key = MemberKey(group=group_id, member_id=member_id)
    return Change(STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, key, tasks)


def member_metadata(group_id: str, member: StreamsMember) -> Change:
    key = MemberKey(group=group_id, member_id=member.member_id)
    return Change(STREAMS_GROUP_MEMBER_METADATA, key, member)


def current_assignment(group_id: str, member: StreamsMember) -> Change:
    key = MemberKey(group=group_id, member_id=member.member_id)
    return Change(STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, key, member)


def member_tombstones(group_id: str, member_ids: Collection[str]) -> list[Change]:
    """Returns tombstones that remove members: assignments first, so that no task is replayed without its member."""
    kinds = (
        STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        STREAMS_GROUP_MEMBER_METADATA,
    )
    return [
        Change(kind, MemberKey(group=group_id, member_id=member_id), None)
        for kind in kinds
        for member_id in member_ids
    ]


def group_tombstones(group_id: str) -> list[Change]:
    kinds = (STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, STREAMS_GROUP_TOPOLOGY, STREAMS_GROUP_METADATA)
    return [Change(kind, GroupKey(group=group_id), None) for kind in kinds]


# -- encoding


def _write_target(tasks: Tasks) -> StreamsGroupTargetAssignmentMemberValue:
    def ids(role: Role) -> list[TargetTaskIds]:
        return [
            TargetTaskIds(subtopology_id=subtopology_id, partitions=numbers)
            for subtopology_id, numbers in by_subtopology(role, tasks).items()
        ]

    return StreamsGroupTargetAssignmentMemberValue(
        active_tasks=ids(Role.ACTIVE), standby_tasks=ids(Role.STANDBY), warmup_tasks=()
    )


def _write_metadata(member: StreamsMember) -> StreamsGroupMemberMetadataValue:
    endpoint = member.user_endpoint
    return StreamsGroupMemberMetadataValue(
        instance_id=None,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=EndpointValue(host=endpoint.host, port=endpoint.port) if endpoint else None,
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags],
    )


def _write_current(member: StreamsMember) -> StreamsGroupCurrentMemberAssignmentValue:
    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_write_held(Role.ACTIVE, member.assigned),
        standby_tasks=_write_held(Role.STANDBY, member.assigned),
        warmup_tasks=(),
        active_tasks_pending_revocation=_write_held(Role.ACTIVE, member.revoking),
        standby_tasks_pending_revocation=_write_held(Role.STANDBY, member.revoking),
        warmup_tasks_pending_revocation=(),
    )


def _write_held(role: Role, held: HeldTasks) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(
            subtopology_id=subtopology_id,
            partitions=numbers,
            assignment_epochs=[held[Task(role, subtopology_id, number)] for number in numbers],
        )
        for subtopology_id, numbers in by_subtopology(role, held).items()
    ]


_WRITERS: Final[Writers] = {
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: _write_target,
    STREAMS_GROUP_MEMBER_METADATA: _write_metadata,
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: _write_current,
}


def read_metadata(member: StreamsMember, value: StreamsGroupMemberMetadataValue | StreamsMember) -> StreamsMember:
    """Returns the member updated with the metadata of a record."""
    if isinstance(value, StreamsMember):
        return member.with_metadata_of(value)
    endpoint = value.user_endpoint
    return member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=Endpoint(endpoint.host, endpoint.port) if endpoint else None,
        client_tags=tuple((entry.key, entry.value) for entry in value.client_tags),
    )


def read_current(
    member: StreamsMember, value: StreamsGroupCurrentMemberAssignmentValue | StreamsMember
) -> StreamsMember:
    """Returns the member updated with the current assignment of a record."""
    if isinstance(value, StreamsMember):
        return member.with_assignment_of(value)
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_read_held(value.active_tasks, value.standby_tasks, value.member_epoch),
        revoking=_read_held(
            value.active_tasks_pending_revocation, value.standby_tasks_pending_revocation, value.member_epoch
        ),
    )


def _read_held(active: Iterable[CurrentTaskIds], standby: Iterable[CurrentTaskIds], member_epoch: int) -> HeldTasks:
    """Decodes tasks and their epochs. Kafka writes no epochs for standby tasks: `member_epoch` is used."""
    held: dict[Task, int] = {}
    for role, ids in ((Role.ACTIVE, active), (Role.STANDBY, standby)):
        for entry in ids:
            epochs = entry.assignment_epochs
            if epochs is None or len(epochs) != len(entry.partitions):
                epochs = [max(member_epoch, 0)] * len(entry.partitions)
            for number, epoch in zip(entry.partitions, epochs, strict=True):
                held[Task(role, entry.subtopology_id, number)] = epoch
    return held


def read_target(value: StreamsGroupTargetAssignmentMemberValue | Tasks) -> Tasks:
    if isinstance(value, frozenset):
        return value
    return tasks_of(Role.ACTIVE, value.active_tasks) | tasks_of(Role.STANDBY, value.standby_tasks)
