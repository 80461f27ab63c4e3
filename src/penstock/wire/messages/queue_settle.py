"""Penstock's API 30004, QueueSettle: what becomes of messages that somebody holds, for a broker that leads them."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Int32, Int64, String, Uuid, field, request, response, struct


@struct
class QueueSettlement:
    partition: Int32
    offset: Int64
    holder: String
    verdict: String
    delay_ms: Int64 = field(default=0)


@request(ApiKey.QUEUE_SETTLE, versions="0", flexible="0+")
class QueueSettleRequest:
    queue: String
    topic_id: Uuid
    items: Array[QueueSettlement]


@struct
class QueueSettled:
    error: String = field(default="")
    error_message: String = field(default="")


@response(ApiKey.QUEUE_SETTLE, versions="0", flexible="0+")
class QueueSettleResponse:
    results: Array[QueueSettled]
