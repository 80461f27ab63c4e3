"""Penstock's API 30001, QueueSend: sends messages of a queue to the broker that leads their partition."""

from penstock.wire.keys import ApiKey
from penstock.wire.schema import Array, Bool, Bytes, Int32, Int64, String, Uuid, field, request, response, struct


@struct
class QueueHeader:
    name: String
    value: Bytes | None


@struct
class QueueNewMessage:
    key: Bytes | None
    value: Bytes
    headers: Array[QueueHeader]
    deduplication_id: String = field(default="")


@request(ApiKey.QUEUE_SEND, versions="0", flexible="0+")
class QueueSendRequest:
    queue: String
    topic_id: Uuid
    partition: Int32
    messages: Array[QueueNewMessage]


@struct
class QueueSentMessage:
    offset: Int64 = field(default=-1)
    is_duplicate: Bool = field(default=False)
    message_id: String = field(default="")


@response(ApiKey.QUEUE_SEND, versions="0", flexible="0+")
class QueueSendResponse:
    error: String = field(default="")
    """The name of an error that applies to all messages; empty if there is none."""
    error_message: String = field(default="")
    messages: Array[QueueSentMessage] = field(default=())
