"""Kafka API 55, DescribeQuorum (KIP-595, KIP-836, KIP-853)."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, UInt16, Uuid, field, request, response, struct

NO_ID = bytes(16)


@struct
class QuorumPartition:
    partition_index: Int32


@struct
class QuorumTopic:
    topic_name: String
    partitions: Array[QuorumPartition]


@request(ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: Array[QuorumTopic]


@struct
class QuorumReplica:
    replica_id: Int32
    replica_directory_id: Uuid = field("2+", default=NO_ID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field("1+", default=-1)
    last_caught_up_timestamp: Int64 = field("1+", default=-1)


@struct
class QuorumPartitionResult:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field("2+", default=None)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: Array[QuorumReplica]
    observers: Array[QuorumReplica]


@struct
class QuorumTopicResult:
    topic_name: String
    partitions: Array[QuorumPartitionResult]


@struct
class QuorumListener:
    name: String
    host: String
    port: UInt16


@struct
class QuorumNode:
    node_id: Int32
    listeners: Array[QuorumListener]


@response(ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: Int16
    error_message: String | None = field("2+", default=None)
    topics: Array[QuorumTopicResult]
    nodes: Array[QuorumNode] = field("2+", default=[])
