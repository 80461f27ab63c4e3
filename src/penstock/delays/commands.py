"""Commands and effects (outputs) of the delayed-message state machine of one partition."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.delays.entries import Entry


class Begin(NamedTuple):
    """Command: delays records from this topic offset on; earlier ones are delivered at once, even with delay headers.
    Sent each time a leader starts; only the first one, after delays were enabled, has an effect."""

    offset: int


class Message(NamedTuple):
    """A committed delayed record, read from the topic."""

    offset: int
    due_ms: int
    timestamp_ms: int
    key: bytes | None
    raw: bytes


class Copy(NamedTuple):
    """Command: copies delayed messages from the topic to the partition's companion log (second log). `messages` are
    all those below topic offset `copied_to` that are not copied yet."""

    messages: Sequence[Message]
    copied_to: int
    now_ms: int = 0
    """Current wall-clock time."""


class Take(NamedTuple):
    """Command: selects due messages for delivery. Once all earlier records are committed, the effect Deliver follows:
    the broker appends these messages to the topic."""

    now_ms: int
    """Current wall-clock time; messages due by then are taken."""
    count_max: int


class ConfirmDelivered(NamedTuple):
    """Command: records that due messages were appended to the topic and are committed. To find appended messages that
    are not recorded, a new leader need only scan the topic from `scan_from` on."""

    offsets: Sequence[int]
    """Original offsets of the messages. When a new leader starts, these are messages that its predecessor appended to
    the topic without recording it."""
    scan_from: int


class Release(NamedTuple):
    """Command: messages that Take selected for delivery, but that were not delivered, become pending again."""


class Cancel(NamedTuple):
    """Command: cancels delayed messages that are still pending. The reply is a dict from offset to whether the
    message was pending."""

    offsets: Sequence[int]


class Rewind(NamedTuple):
    """Command: removes pending messages at topic offset `end` and above, because an unclean election has truncated
    the topic to `end`."""

    end: int


class Began(NamedTuple):
    """Effect: start to accept and deliver delayed records. Records before offset `since` are never delayed."""

    since: int


class Deliver(NamedTuple):
    """Effect: append these messages to the topic in order, except cancelled messages; then send ConfirmDelivered."""

    entries: tuple[Entry, ...]
