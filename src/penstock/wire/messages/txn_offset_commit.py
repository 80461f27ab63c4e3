"""Kafka API 28, TxnOffsetCommit."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    NIL_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    String,
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("2+", default=-1)
    committed_metadata: String | None


@struct
class TxnOffsetCommitRequestTopic:
    name: String = field("0-5", default="")
    topic_id: Uuid = field("6+", default=NIL_UUID)
    partitions: Array[TxnOffsetCommitRequestPartition]


@request(ApiKey.TXN_OFFSET_COMMIT, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: Array[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class TxnOffsetCommitResponseTopic:
    name: String = field("0-5", default="")
    topic_id: Uuid = field("6+", default=NIL_UUID)
    partitions: Array[TxnOffsetCommitResponsePartition]


@response(ApiKey.TXN_OFFSET_COMMIT, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: Int32
    topics: Array[TxnOffsetCommitResponseTopic]
