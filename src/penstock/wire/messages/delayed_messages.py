"""Penstock's API 30020, DelayedMessages: which messages of a partition wait for their time, and which shall not."""

from typing import Final

from penstock.wire.keys import ApiKey
from penstock.wire.schema import (
    Array,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    field,
    request,
    response,
    struct,
)

LIST: Final = 0
"""Those that wait, in the order in which they are due, a page at a time."""
CANCEL: Final = 1
"""Those of the offsets that the request names."""
CANCEL_KEY: Final = 2
"""All with a key."""

PAGE_MAX: Final = 1000
OFFSETS_MAX: Final = 1000


@request(ApiKey.DELAYED_MESSAGES, versions="0", flexible="0+")
class DelayedMessagesRequest:
    action: Int8
    topic: String
    partition: Int32
    after_due_ms: Int64 = field(default=-1)
    after_offset: Int64 = field(default=-1)
    """Of LIST: the page begins behind this message."""
    count_max: Int32 = field(default=100)
    offsets: Array[Int64] = field(default=())
    key: Bytes | None = field(default=None)


@struct
class WaitingMessage:
    offset: Int64
    due_ms: Int64
    timestamp_ms: Int64
    key: Bytes | None
    value_bytes: Int32


@struct
class CancelledMessage:
    offset: Int64
    was_pending: Bool
    """Whether it waited until now: if not, it was delivered or cancelled before, or never was."""


@response(ApiKey.DELAYED_MESSAGES, versions="0", flexible="0+")
class DelayedMessagesResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    pending: Int64 = field(default=0)
    """How many wait, of this partition."""
    messages: Array[WaitingMessage] = field(default=())
    """Of LIST; as many as were asked for, unless there are no more."""
    cancelled: Array[CancelledMessage] = field(default=())
