"""What is remembered of a message that waits: an entry of 32 bytes, and the records that it is made of.

An entry begins with its due time and its offset, most significant byte first: entries sort as bytes do.
"""

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

ENTRY_BYTES: Final = 32
RANK_BYTES: Final = 16
"""Due time and offset: the order in which messages are delivered."""

CANCELLED: Final = 1
"""Set in the state of a message that is not to be delivered. The rest of the state is its generation."""
GENERATION_MAX: Final = 127

_ENTRY: Final = struct.Struct(">qqB7sq")
_RANK: Final = struct.Struct(">qq")
_KEPT: Final = struct.Struct(">Bq7sq")
_OFFSET: Final = struct.Struct(">q")

BEGAN: Final = (30_101).to_bytes(2, "big")
COPIED: Final = (30_102).to_bytes(2, "big")
FIRED: Final = (30_103).to_bytes(2, "big")
MESSAGE: Final = (30_110).to_bytes(2, "big")
"""Kinds of records: the first bytes of their keys."""


class Rank(NamedTuple):
    """A message's place among all that wait."""

    due_ms: int
    offset: int

    def pack(self) -> bytes:
        return _RANK.pack(*self)


NOT_ONE: Final = Rank(0, -1)
"""Before every message that there could be."""


class Entry(NamedTuple):
    due_ms: int
    offset: int
    state: int
    key_hash: bytes
    kept_at: int
    """Where the message itself lies in the companion log."""

    @property
    def rank(self) -> Rank:
        return Rank(self.due_ms, self.offset)

    @property
    def is_live(self) -> bool:
        return not self.state & CANCELLED

    @property
    def generation(self) -> int:
        return self.state >> 1

    def cancelled(self) -> "Entry":
        return self._replace(state=self.state | CANCELLED)

    def pack(self) -> bytes:
        return _ENTRY.pack(*self)


Ranks = dict[int, Rank]
"""One of each generation."""


def last_ranks(entries: Iterable[Entry]) -> Ranks:
    """Of each generation that is among these."""
    found: Ranks = {}
    for entry in entries:
        found[entry.generation] = max(found.get(entry.generation, NOT_ONE), entry.rank)
    return found


def read_entry(data: bytes, at: int = 0) -> Entry:
    return Entry._make(_ENTRY.unpack_from(data, at))


def rank_at(data: bytes, at: int = 0) -> Rank:
    return Rank._make(_RANK.unpack_from(data, at))


def hash_of(key: bytes | None) -> bytes:
    """What messages with a key are found by; whoever looks compares the keys themselves."""
    return bytes(7) if key is None else blake2b(key, digest_size=7).digest()


def message_key(offset: int) -> bytes:
    return MESSAGE + _OFFSET.pack(offset)


class Kept(NamedTuple):
    """A message in the companion log."""

    state: int
    due_ms: int
    key_hash: bytes
    timestamp_ms: int
    raw: bytes
    """The record as it was produced: see records/delayed.py. Empty once it is cancelled."""

    def pack(self) -> bytes:
        return _KEPT.pack(self.state, self.due_ms, self.key_hash, self.timestamp_ms) + self.raw


def read_kept(value: bytes) -> Kept:
    state, due_ms, key_hash, timestamp_ms = _KEPT.unpack_from(value)
    return Kept(state, due_ms, key_hash, timestamp_ms, bytes(value[_KEPT.size :]))
