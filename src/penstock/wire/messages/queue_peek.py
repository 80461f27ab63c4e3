"""Penstock's API 30012, QueuePeek: shows a queue's messages on one broker without receiving them."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_receive import QueueMessage
from penstock.wire.schema import Array, Bool, Int8, Int32, String, Uuid, field, request, response, struct

MESSAGES_MAX: Final = 1000
"""Maximum number of messages in a QueuePeek response."""
BYTES_MAX: Final = 4 << 20
"""Maximum message bytes in a QueuePeek response; the first message is returned even if it is larger."""

VISIBLE: Final = 0
IN_FLIGHT: Final = 1
"""State of a message that is in flight, or that waits for an in-flight message of its message group."""
DELAYED: Final = 2


@request(ApiKey.QUEUE_PEEK, versions="0", flexible="0+")
class QueuePeekRequest:
    queue: String
    topic_id: Uuid
    max_messages: Int32
    max_bytes: Int32
    shows_in_flight: Bool = field(default=False)
    shows_delayed: Bool = field(default=False)


@struct
class QueuePeeked:
    state: Int8
    message: QueueMessage
    """The message; its `holder` is empty, because a peek does not acquire messages."""


@response(ApiKey.QUEUE_PEEK, versions="0", flexible="0+")
class QueuePeekResponse:
    error: String = field(default="")
    error_message: String = field(default="")
    messages: Array[QueuePeeked] = field(default=())
    has_more: Bool = field(default=False)
    """Whether there may be more messages: not all were examined, or not all fit into the response."""
