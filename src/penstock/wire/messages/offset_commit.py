"""Kafka API 8, OffsetCommit."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import NIL_UUID, Array, Int16, Int32, Int64, String, Uuid, field, request, response, struct


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("6+", default=-1)
    committed_metadata: String | None


@struct
class OffsetCommitRequestTopic:
    name: String = field("2-9", default="")
    topic_id: Uuid = field("10+", default=NIL_UUID)
    partitions: Array[OffsetCommitRequestPartition]


@request(ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1)
    topics: Array[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetCommitResponseTopic:
    name: String = field("2-9", default="")
    topic_id: Uuid = field("10+", default=NIL_UUID)
    partitions: Array[OffsetCommitResponsePartition]


@response(ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: Int32 = field("3+", default=0)
    topics: Array[OffsetCommitResponseTopic]
