"""Kafka API 23, OffsetForLeaderEpoch."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int16, Int32, Int64, String, field, request, response, struct


@struct
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    topic: String
    partitions: Array[OffsetForLeaderPartition]


@request(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = field("3+", default=-2)
    topics: Array[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: String
    partitions: Array[EpochEndOffset]


@response(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32
    topics: Array[OffsetForLeaderTopicResult]
