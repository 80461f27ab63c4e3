"""Kafka API 75, DescribeTopicPartitions."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Int16, Int32, String, Uuid, field, request, response, struct


@struct
class TopicRequest:
    name: String


@struct
class Cursor:
    topic_name: String
    partition_index: Int32


@request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: Array[TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    eligible_leader_replicas: Array[Int32] | None = field(default=None)
    last_known_elr: Array[Int32] | None = field(default=None)
    offline_replicas: Array[Int32]


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: String | None
    topic_id: Uuid
    is_internal: Bool = field(default=False)
    partitions: Array[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-2147483648)


@response(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32
    topics: Array[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(default=None)
