"""Penstock's API 30011, QueueClaim: acquires messages by offset, after the client has examined them (redrive)."""

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
"""Action: return the topic and the type of a queue. Any broker answers."""
PREPARE: Final = 1
"""Action, sent to the group coordinator before CLAIM: register that a share group has delivery state in a topic, so
that the state is deleted with the group."""
SURVEY: Final = 2
"""Action: list the unfinished (not yet acknowledged) messages of a partition, from `offset` on."""
CLAIM: Final = 3
"""Action: acquire those messages in `ranges` that are available."""
FINISH: Final = 4
"""Action: acknowledge the messages in `ranges` that `holder` has acquired."""
UNDO: Final = 5
"""Action: release the messages in `ranges` that `holder` has acquired, as if they had never been acquired."""

RANGES_MAX: Final = 2000
"""Maximum number of offset ranges in a QueueClaim request."""
RANGES_SHOWN_MAX: Final = 5000
"""Maximum number of offset ranges in the response to a SURVEY; the next request continues at its `next_offset`."""

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
    """The name of a queue or share group."""
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
    """Number of times that the messages were delivered so far."""
    holder: String
    due_in_ms: Int64
    """Time until messages that are in flight or delayed are available again."""


@response(ApiKey.QUEUE_CLAIM, versions="0", flexible="0+")
class QueueClaimResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    topic: String = field(default="")
    topic_id: Uuid
    is_queue: Bool = field(default=False)
    is_fifo: Bool = field(default=False)
    delivery_ranges: Array[QueueDeliveryRange] = field(default=())
    """For the action SURVEY: ranges of unfinished messages. For CLAIM: the ranges that were acquired."""
    next_offset: Int64 = field(default=-1)
    """For the action SURVEY (list unfinished messages): the `offset` of the next request; -1 if none are left."""
    start_offset: Int64 = field(default=-1)
    undelivered_from: Int64 = field(default=-1)
    """For the action SURVEY: messages from this offset on were never delivered, and are not in the response."""
    end_offset: Int64 = field(default=-1)
    """For the action SURVEY, which lists unfinished messages: the partition's last stable offset. Otherwise -1."""
    finished: Int64 = field(default=0)
    """For the actions FINISH and UNDO: number of messages acknowledged or released, or acknowledged before."""
    lost: Array[QueueRange] = field(default=())
    """For the actions FINISH and UNDO: ranges left unchanged because `holder` does not hold all of their messages any
    more."""
