"""Kafka API 0, Produce."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    NIL_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class PartitionProduceData:
    index: Int32
    records: Records | None


@struct
class TopicProduceData:
    name: String = field("3-12", default="")
    topic_id: Uuid = field("13+", default=NIL_UUID)
    partition_data: Array[PartitionProduceData]


@request(ApiKey.PRODUCE, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: String | None = field(default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[TopicProduceData]


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32
    batch_index_error_message: String | None = field(default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1)
    record_errors: Array[BatchIndexAndErrorMessage] = field("8+", default=())
    error_message: String | None = field("8+", default=None)
    current_leader: LeaderIdAndEpoch | None = field("10+", nullable="none", tag=0, default=None)


@struct
class TopicProduceResponse:
    name: String = field("3-12", default="")
    topic_id: Uuid = field("13+", default=NIL_UUID)
    partition_responses: Array[PartitionProduceResponse]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)


@response(ApiKey.PRODUCE, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: Array[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0)
    node_endpoints: Array[NodeEndpoint] = field("10+", tag=0, default=())
