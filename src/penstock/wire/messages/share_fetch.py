"""Kafka API 78, ShareFetch."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    Array,
    Bool,
    Int8,
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
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: Array[Int8]


@struct
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: Array[AcknowledgementBatch]


@struct
class FetchTopic:
    topic_id: Uuid
    partitions: Array[FetchPartition]


@struct
class ForgottenTopic:
    topic_id: Uuid
    partitions: Array[Int32]


@request(ApiKey.SHARE_FETCH, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2147483647)
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field("2+", default=0)
    is_renew_ack: Bool = field("2+", default=False)
    topics: Array[FetchTopic]
    forgotten_topics_data: Array[ForgottenTopic]


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class AcquiredRecords:
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: Array[AcquiredRecords]


@struct
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: Array[PartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)


@response(ApiKey.SHARE_FETCH, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32
    responses: Array[ShareFetchableTopicResponse]
    node_endpoints: Array[NodeEndpoint]
