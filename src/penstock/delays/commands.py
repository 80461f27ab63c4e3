"""Commands and effects of the delayed-message state machine of one partition."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.delays.entries import Entry


class Begin(NamedTuple):
    """Starts delaying records from this offset of the topic on: sent once, when the setting is new."""

    offset: int


class Message(NamedTuple):
    """A committed delayed record."""

    offset: int
    due_ms: int
    timestamp_ms: int
    key: bytes | None
    raw: bytes


class Copy(NamedTuple):
    """Stores these messages: all delayed ones below `copied_to` that are not stored yet."""

    messages: Sequence[Message]
    copied_to: int
    now_ms: int = 0
    """Wall clock time."""


class Take(NamedTuple):
    """Takes messages that are due. They arrive as a Deliver effect, once all earlier decisions are committed."""

    now_ms: int
    """Wall clock time, by which producers set delivery times."""
    count_max: int


class ConfirmDelivered(NamedTuple):
    """These messages are committed in the topic; the next search for unrecorded deliveries starts at `scan_from`."""

    offsets: Sequence[int]
    """A prefix of the messages taken; from a new leader, the deliveries that it found in the topic."""
    scan_from: int


class Release(NamedTuple):
    """Releases the messages taken, because they could not be delivered yet."""


class Cancel(NamedTuple):
    """Cancels messages. The reply tells for each whether it was pending until now."""

    offsets: Sequence[int]


class Rewind(NamedTuple):
    """Truncates the copied messages to the end of the topic, after an unclean election."""

    end: int


class Began(NamedTuple):
    """Effect: delayed records may be accepted from here on."""

    since: int


class Deliver(NamedTuple):
    """Effect: append these to the topic in order, then send ConfirmDelivered, also for cancelled ones."""

    entries: tuple[Entry, ...]
