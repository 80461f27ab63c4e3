"""Penstock's API 30011, QueueClaim: messages that are chosen by their offsets, for who examines before it takes."""

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
"""Which topic a queue is on, and what kind of queue it is. Any broker answers."""
PREPARE: Final = 1
"""A group that is no queue's is to have delivery state on a topic, from its start. Any broker sees to it."""
SURVEY: Final = 2
"""What of a partition is not finished, from an offset on."""
CLAIM: Final = 3
"""Take messages in hand, as far as they are available."""
FINISH: Final = 4
"""What the holder has of these ranges is done."""
UNDO: Final = 5
"""What the holder has of these ranges is as if it had never been claimed."""

RANGES_MAX: Final = 2000
"""Of one request."""
RANGES_SHOWN_MAX: Final = 5000
"""Of one answer to SURVEY; `next_offset` says where to go on."""

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
    """A queue's name, or a group that is no queue's."""
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
    """Deliveries so far."""
    holder: String
    due_in_ms: Int64
    """How long it is in flight or delayed for."""


@response(ApiKey.QUEUE_CLAIM, versions="0", flexible="0+")
class QueueClaimResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    topic: String = field(default="")
    topic_id: Uuid
    is_queue: Bool = field(default=False)
    is_fifo: Bool = field(default=False)
    delivery_ranges: Array[QueueDeliveryRange] = field(default=())
    """Of SURVEY: what was looked at and is not finished. Of CLAIM: what is the holder's now."""
    next_offset: Int64 = field(default=-1)
    """Of SURVEY: where to go on; -1: these were all."""
    start_offset: Int64 = field(default=-1)
    looked_to: Int64 = field(default=-1)
    """Of SURVEY: from here on nothing was ever looked at, and all waits."""
    end_offset: Int64 = field(default=-1)
    """Of SURVEY: where committed messages end now."""
    finished: Int64 = field(default=0)
    """Of FINISH and UNDO: messages that this was done with, now or before."""
    lost: Array[QueueRange] = field(default=())
    """Of FINISH and UNDO: ranges of which somebody else has a part by now; nothing was done with them."""
