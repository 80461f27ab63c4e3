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
"""Action: return a page of the pending delayed messages, in order of due time."""
CANCEL: Final = 1
"""Action: cancel the delayed messages at `offsets`."""
CANCEL_KEY: Final = 2
"""Action: cancel all pending delayed messages with the key `key`."""

PAGE_MAX: Final = 1000
OFFSETS_MAX: Final = 1000


@request(ApiKey.DELAYED_MESSAGES, versions="0", flexible="0+")
class DelayedMessagesRequest:
    action: Int8
    topic: String
    partition: Int32
    after_due_ms: Int64 = field(default=-1)
    after_offset: Int64 = field(default=-1)
    """For the action LIST: the page starts after the message with this offset and the due time `after_due_ms`."""
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
    """False if the message was delivered or cancelled before, or never existed."""


@response(ApiKey.DELAYED_MESSAGES, versions="0", flexible="0+")
class DelayedMessagesResponse:
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    pending: Int64 = field(default=0)
    """Number of pending messages of this partition."""
    messages: Array[WaitingMessage] = field(default=())
    """For the action LIST: a page of the pending messages, with `count_max` messages unless fewer are left."""
    cancelled: Array[CancelledMessage] = field(default=())
