"""Penstock's API 30002, QueueReceive: receives messages of a queue from the partitions that one broker leads."""

from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_send import QueueHeader
from penstock.wire.schema import Array, Bool, Bytes, Int32, Int64, String, Uuid, field, request, response, struct


@request(ApiKey.QUEUE_RECEIVE, versions="0", flexible="0+")
class QueueReceiveRequest:
    queue: String
    topic_id: Uuid
    holder: String
    max_messages: Int32
    visibility_ms: Int64
    repeat: Bool = field(default=False)
    wait_ms: Int32 = field(default=0)
    """Long poll: if there are no messages, the broker sends messages that arrive within this time by QueueDeliver."""
    node_id: Int32 = field(default=-1)
    ticket: Int64 = field(default=-1)
    """Id of the long poll: brokers send it in QueueDeliver, with the messages that arrive during the long poll."""


@struct
class QueueMessage:
    partition: Int32
    offset: Int64
    holder: String
    message_id: String
    count: Int32
    first_received_ms: Int64
    timestamp_ms: Int64
    key: Bytes | None
    value: Bytes
    headers: Array[QueueHeader]
    is_repeat: Bool = field(default=False, tag=0)
    """Whether the consumer had the message in flight already, and gets it again because it has repeated its request.
    Such a delivery is not undone if the response is lost."""


@response(ApiKey.QUEUE_RECEIVE, versions="0", flexible="0+")
class QueueReceiveResponse:
    error: String = field(default="")
    error_message: String = field(default="")
    messages: Array[QueueMessage] = field(default=())
