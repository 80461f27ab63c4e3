"""Commands and effects (outputs) of the delayed-message state machine of one partition."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.delays.entries import Entry


class Begin(NamedTuple):
    """Starts delaying records from this offset of the topic on. Sent once, when delays are enabled for the topic."""

    offset: int


class Message(NamedTuple):
    """A committed delayed record."""

    offset: int
    due_ms: int
    timestamp_ms: int
    key: bytes | None
    raw: bytes


class Copy(NamedTuple):
    """Copies messages to the companion log: all delayed messages below `copied_to` that are not there yet."""

    messages: Sequence[Message]
    copied_to: int
    now_ms: int = 0
    """Current wall-clock time."""


class Take(NamedTuple):
    """Takes due messages for delivery. A Deliver effect with them follows once all earlier records are committed."""

    now_ms: int
    """Current wall-clock time; messages due by then are taken."""
    count_max: int


class ConfirmDelivered(NamedTuple):
    """Records that messages are delivered and committed. A new leader scans the topic only from `scan_from` on."""

    offsets: Sequence[int]
    """Offsets of the delivered messages, including unrecorded deliveries that a new leader found in the topic."""
    scan_from: int


class Release(NamedTuple):
    """Command: messages that Take selected for delivery, but that were not delivered, become pending again."""


class Cancel(NamedTuple):
    """Cancels messages. The reply is a dict from offset to whether the message was pending."""

    offsets: Sequence[int]


class Rewind(NamedTuple):
    """Removes pending messages from topic offset `end` on: an unclean election has truncated the topic to `end`."""

    end: int


class Began(NamedTuple):
    """Effect: start to accept and deliver delayed records. Records before offset `since` are never delayed."""

    since: int


class Deliver(NamedTuple):
    """Effect: append these messages to the topic in order, except cancelled messages; then send ConfirmDelivered."""

    entries: tuple[Entry, ...]
