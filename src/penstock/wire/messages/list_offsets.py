"""Kafka API 2, ListOffsets."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int8, Int16, Int32, Int64, String, field, request, response, struct


@struct
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = field("4+", default=-1)
    timestamp: Int64


@struct
class ListOffsetsTopic:
    name: String
    partitions: Array[ListOffsetsPartition]


@request(ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: Int32
    isolation_level: Int8 = field("2+", default=0)
    topics: Array[ListOffsetsTopic]
    timeout_ms: Int32 = field("10+", default=0)


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: String
    partitions: Array[ListOffsetsPartitionResponse]


@response(ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: Int32 = field("2+", default=0)
    topics: Array[ListOffsetsTopicResponse]
