"""Kafka API 89, StreamsGroupDescribe."""

from penstock.wire.keys import ApiKey
from penstock.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from penstock.wire.schema import Array, Bool, Int8, Int16, Int32, String, field, request, response, struct


@request(ApiKey.STREAMS_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: Array[String]
    include_authorized_operations: Bool
    include_topology_description: Bool = field("1+", default=False)


@struct
class Subtopology:
    subtopology_id: String
    source_topics: Array[String]
    repartition_sink_topics: Array[String]
    state_changelog_topics: Array[TopicInfo]
    repartition_source_topics: Array[TopicInfo]


@struct
class Topology:
    epoch: Int32
    subtopologies: Array[Subtopology] | None


@struct
class Assignment:
    active_tasks: Array[TaskIds]
    standby_tasks: Array[TaskIds]
    warmup_tasks: Array[TaskIds]


@struct
class Member:
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    client_id: String
    client_host: String
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: Array[KeyValue]
    task_offsets: Array[TaskOffset]
    task_end_offsets: Array[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Bool


@struct
class TopologyDescriptionNode:
    name: String
    node_type: Int8
    source_topics: Array[String]
    sink_topic: String | None
    stores: Array[String]
    successors: Array[String]


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: String
    nodes: Array[TopologyDescriptionNode]


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


@struct
class TopologyDescription:
    """The application's own description of its topology (KIP-1331). Penstock does not store it."""

    subtopologies: Array[TopologyDescriptionSubtopology]
    global_stores: Array[TopologyDescriptionGlobalStore]


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Topology | None
    members: Array[Member]
    authorized_operations: Int32 = field(default=-2147483648)
    topology_description: TopologyDescription | None = field("1+", default=None)
    topology_description_status: Int8 = field("1+", default=0)
    assignor_name: String | None = field("1+", default=None)


@response(ApiKey.STREAMS_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32
    groups: Array[DescribedGroup]
