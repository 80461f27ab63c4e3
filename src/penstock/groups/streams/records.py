"""Schemas of streams group records in `__consumer_offsets`, in Kafka's layout; functions to build and read them."""

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from penstock.groups.modern.records import Change, GroupRecords
from penstock.groups.records import GroupKey, MemberKey
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


class StreamsRecords(GroupRecords[Any, Task]):
    group_kind = STREAMS_GROUP_METADATA
    member_kind = STREAMS_GROUP_MEMBER_METADATA
    target_epoch_kind = STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA
    target_kind = STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER
    current_kind = STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT
    topology_kind = STREAMS_GROUP_TOPOLOGY
    kinds: ClassVar = {
        group_kind: (GroupKey, StreamsGroupMetadataValue),
        member_kind: (MemberKey, StreamsGroupMemberMetadataValue),
        target_epoch_kind: (GroupKey, StreamsGroupTargetAssignmentMetadataValue),
        target_kind: (MemberKey, StreamsGroupTargetAssignmentMemberValue),
        current_kind: (MemberKey, StreamsGroupCurrentMemberAssignmentValue),
        topology_kind: (GroupKey, StreamsGroupTopologyValue),
    }

    def group_metadata(
        self, epoch: int, metadata_hash: int, validated_epoch: int, configs: Iterable[tuple[str, str]]
    ) -> Change:
        return self.group_epoch(
            epoch,
            metadata_hash,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=[KeyValue(key=key, value=text) for key, text in configs],
        )

    def topology(self, value: StreamsGroupTopologyValue) -> Change:
        return Change(self.topology_kind, GroupKey(group=self._group_id), value)

    def encode_target(self, target: Tasks) -> StreamsGroupTargetAssignmentMemberValue:
        def ids(role: Role) -> list[TargetTaskIds]:
            return [
                TargetTaskIds(subtopology_id=subtopology_id, partitions=numbers)
                for subtopology_id, numbers in by_subtopology(role, target).items()
            ]

        return StreamsGroupTargetAssignmentMemberValue(
            active_tasks=ids(Role.ACTIVE), standby_tasks=ids(Role.STANDBY), warmup_tasks=()
        )

    @staticmethod
    def decode_target(value: StreamsGroupTargetAssignmentMemberValue) -> Tasks:
        return tasks_of(Role.ACTIVE, value.active_tasks) | tasks_of(Role.STANDBY, value.standby_tasks)
