"""Penstock's API 30011, QueueClaim: acquires messages by offset, for clients that examine them first (redrive)."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    Array,
    Bool,
    Int8,
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

FIND: Final = 0
"""Returns the topic and the type of a queue. Any broker answers."""
PREPARE: Final = 1
"""Creates delivery state on a topic, from its start, for a group without a queue. Any broker answers."""
SURVEY: Final = 2
"""Returns the messages of a partition that are not finished, from an offset on."""
CLAIM: Final = 3
"""Acquires messages, as far as they are available."""
FINISH: Final = 4
"""Finishes (acknowledges) the holder's messages in these ranges."""
UNDO: Final = 5
"""Releases the holder's messages in these ranges as if they had never been acquired."""

RANGES_MAX: Final = 2000
"""Maximum per request."""
RANGES_SHOWN_MAX: Final = 5000
"""Maximum per SURVEY response; `next_offset` is where to continue."""

AVAILABLE: Final = 0
IN_FLIGHT: Final = 1
DELAYED: Final = 2
MOVING: Final = 3


@struct
class QueueRange:
    first: Int64
    last: Int64


@request(ApiKey.QUEUE_CLAIM, versions="0", flexible="0+")
class QueueClaimRequest:
    action: Int8
    group: String
    """A queue's name, or a group without a queue."""
    topic_id: Uuid
    partition: Int32 = field(default=-1)
    offset: Int64 = field(default=0)
    holder: String = field(default="")
    visibility_ms: Int64 = field(default=0)
    ranges: Array[QueueRange] = field(default=())


@struct
class QueueDeliveryRange:
    first: Int64
    last: Int64
    state: Int8
    count: Int32
    """Number of deliveries so far."""
    holder: String
    due_in_ms: Int64
    """Time until it is available again: it is in flight or delayed."""


@response(ApiKey.QUEUE_CLAIM, versions="0", flexible="0+")
class QueueClaimResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    topic: String = field(default="")
    topic_id: Uuid
    is_queue: Bool = field(default=False)
    is_fifo: Bool = field(default=False)
    delivery_ranges: Array[QueueDeliveryRange] = field(default=())
    """For SURVEY: ranges examined and not finished. For CLAIM: ranges acquired by the holder."""
    next_offset: Int64 = field(default=-1)
    """For SURVEY: where to continue; -1: there are no more."""
    start_offset: Int64 = field(default=-1)
    looked_to: Int64 = field(default=-1)
    """For SURVEY: messages from here on were never delivered, and are all available."""
    end_offset: Int64 = field(default=-1)
    """For SURVEY: the end of the committed messages."""
    finished: Int64 = field(default=0)
    """For FINISH and UNDO: number of messages, including those done before."""
    lost: Array[QueueRange] = field(default=())
    """For FINISH and UNDO: ranges that another holder has acquired in part; they were not changed."""
