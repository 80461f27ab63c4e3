"""What is asked of the machine that delays the messages of one partition, and what it wants done."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.delays.entries import Entry


class Begin(NamedTuple):
    """From this offset of the topic on, records with a delay are held back: said once, when the setting is new."""

    offset: int


class Message(NamedTuple):
    """A delayed record that is committed."""

    offset: int
    due_ms: int
    timestamp_ms: int
    key: bytes | None
    raw: bytes


class Copy(NamedTuple):
    """Keep these messages: they are all that there are below an offset, and have not been kept before."""

    messages: Sequence[Message]
    copied_to: int
    now_ms: int = 0
    """By the clock on the wall."""


class Take(NamedTuple):
    """Which messages are to be delivered now? They come as a Deliver, once all that was decided is committed."""

    now_ms: int
    """By the clock on the wall: that is what producers set times by."""
    count_max: int


class Fired(NamedTuple):
    """These messages are in the topic, and committed there; who looks for more begins at an offset."""

    offsets: Sequence[int]
    """Those that were taken, from the first on; or, of who has taken over, what it has found in the topic."""
    scan_from: int


class GiveBack(NamedTuple):
    """What was taken could not be delivered yet."""


class Cancel(NamedTuple):
    """These messages are not to be delivered. The reply says of each whether it waited until now."""

    offsets: Sequence[int]


class Rewind(NamedTuple):
    """The topic ends here: an unclean election has taken back what was copied from behind."""

    end: int


class Began(NamedTuple):
    """Effect: from here on records with a delay may be taken in."""

    since: int


class Deliver(NamedTuple):
    """Effect: append these to the topic, in this order, and say so by Fired. Cancelled ones only need to be said."""

    entries: tuple[Entry, ...]
