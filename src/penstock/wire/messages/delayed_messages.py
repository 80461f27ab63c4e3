"""Penstock's API 30020, DelayedMessages: lists and cancels the pending delayed messages of a partition."""

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
"""Returns pending messages in order of due time, a page at a time."""
CANCEL: Final = 1
"""Cancels the messages at the given offsets."""
CANCEL_KEY: Final = 2
"""Cancels all messages with a key."""

PAGE_MAX: Final = 1000
OFFSETS_MAX: Final = 1000


@request(ApiKey.DELAYED_MESSAGES, versions="0", flexible="0+")
class DelayedMessagesRequest:
    action: Int8
    topic: String
    partition: Int32
    after_due_ms: Int64 = field(default=-1)
    after_offset: Int64 = field(default=-1)
    """For LIST: the page starts after this message."""
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
    """False if it was delivered or cancelled before, or never existed."""


@response(ApiKey.DELAYED_MESSAGES, versions="0", flexible="0+")
class DelayedMessagesResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    pending: Int64 = field(default=0)
    """Number of pending messages of this partition."""
    messages: Array[WaitingMessage] = field(default=())
    """For LIST: as many as requested, if there are as many."""
    cancelled: Array[CancelledMessage] = field(default=())
