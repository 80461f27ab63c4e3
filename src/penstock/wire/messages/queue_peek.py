"""Penstock's API 30012, QueuePeek: shows a queue's messages on one broker without receiving them."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.messages.queue_receive import QueueMessage
from penstock.wire.schema import Array, Bool, Int8, Int32, String, Uuid, field, request, response, struct

MESSAGES_MAX: Final = 1000
"""Maximum per response."""
BYTES_MAX: Final = 4 << 20
"""Maximum message bytes per response; the first message is returned however large."""

VISIBLE: Final = 0
IN_FLIGHT: Final = 1
"""Also for a message whose message group has others in flight."""
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
    """Its holder is empty."""


@response(ApiKey.QUEUE_PEEK, versions="0", flexible="0+")
class QueuePeekResponse:
    error: String = field(default="")
    error_message: String = field(default="")
    messages: Array[QueuePeeked] = field(default=())
    has_more: Bool = field(default=False)
    """There are more messages than were examined, or than fit into a response."""
