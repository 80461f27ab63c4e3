"""Kafka API 88, StreamsGroupHeartbeat."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    field,
    request,
    response,
    struct,
)


@struct
class KeyValue:
    key: String
    value: String


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


@struct
class Topology:
    epoch: Int32
    subtopologies: Array[Subtopology]


@struct
class TaskIds:
    subtopology_id: String
    partitions: Array[Int32]


@struct
class Endpoint:
    host: String
    port: UInt16


@struct
class TaskOffset:
    subtopology_id: String
    partition: Int32
    offset: Int64


@request(ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: String
    member_id: String
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology: Topology | None = field(default=None)
    active_tasks: Array[TaskIds] | None = field(default=None)
    standby_tasks: Array[TaskIds] | None = field(default=None)
    warmup_tasks: Array[TaskIds] | None = field(default=None)
    process_id: String | None = field(default=None)
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: Array[KeyValue] | None = field(default=None)
    task_offsets: Array[TaskOffset] | None = field(default=None)
    task_end_offsets: Array[TaskOffset] | None = field(default=None)
    shutdown_application: Bool = field(default=False)


@struct
class Status:
    status_code: Int8
    status_detail: String


@struct
class TopicPartition:
    topic: String
    partitions: Array[Int32]


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint
    active_partitions: Array[TopicPartition]
    standby_partitions: Array[TopicPartition]


@response(ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag_legacy: Int32 = field("0", default=0)
    task_offset_interval_ms: Int32 = field(default=0)
    acceptable_recovery_lag: Int64 = field("1+", default=-1)
    status: Array[Status] | None = field(default=None)
    active_tasks: Array[TaskIds] | None = field(default=None)
    standby_tasks: Array[TaskIds] | None = field(default=None)
    warmup_tasks: Array[TaskIds] | None = field(default=None)
    topology_description_required: Bool = field("1+", default=False)
    endpoint_information_epoch: Int32 = field(default=0)
    partitions_by_user_endpoint: Array[EndpointToPartitions] | None = field(default=None)
