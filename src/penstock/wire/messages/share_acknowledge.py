"""Kafka API 79, ShareAcknowledge."""

from penstock.wire.keys import ApiKey
from penstock.wire.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from penstock.wire.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    String,
    Uuid,
    field,
    request,
    response,
    struct,
)


@struct
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: Array[AcknowledgementBatch]


@struct
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: Array[AcknowledgePartition]


@request(ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    is_renew_ack: Bool = field("2+", default=False)
    topics: Array[AcknowledgeTopic]


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: Array[PartitionData]


@response(ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0)
    responses: Array[ShareAcknowledgeTopicResponse]
    node_endpoints: Array[NodeEndpoint]
