"""Penstock's API 30004, QueueAcknowledge: acknowledges or releases messages at the broker that leads them."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int32, Int64, String, Uuid, field, request, response, struct


@struct
class QueueAcknowledgement:
    partition: Int32
    offset: Int64
    holder: String
    ack_type: String
    delay_ms: Int64 = field(default=0)


@request(ApiKey.QUEUE_ACKNOWLEDGE, versions="0", flexible="0+")
class QueueAcknowledgeRequest:
    queue: String
    topic_id: Uuid
    items: Array[QueueAcknowledgement]


@struct
class QueueAcknowledged:
    error: String = field(default="")
    error_message: String = field(default="")


@response(ApiKey.QUEUE_ACKNOWLEDGE, versions="0", flexible="0+")
class QueueAcknowledgeResponse:
    results: Array[QueueAcknowledged]
