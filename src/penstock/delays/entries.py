"""The 32-byte entry of a pending delayed message, and the records in which the companion log stores messages.

The companion log is a second log of the partition. An entry starts with due time and offset, big-endian, so entries
sorted as bytes are in delivery order.
"""

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

ENTRY_BYTES: Final = 32
RANK_BYTES: Final = 16
"""Size, in bytes, of a rank: due time and offset, which define the delivery order."""

CANCELLED: Final = 1
"""Bit of an entry's `state` that marks a cancelled message. The other bits are its generation, a number that grows
when the clock is set back (see machine.py)."""
GENERATION_MAX: Final = 127

_ENTRY: Final = struct.Struct(">qqB7sq")
_RANK: Final = struct.Struct(">qq")
_STORED: Final = struct.Struct(">Bq7sq")
_OFFSET: Final = struct.Struct(">q")

BEGAN: Final = (30_101).to_bytes(2, "big")
COPIED: Final = (30_102).to_bytes(2, "big")
DELIVERED: Final = (30_103).to_bytes(2, "big")
MESSAGE: Final = (30_110).to_bytes(2, "big")
"""Key prefix of a record with one delayed message; the rest of the key is its topic offset. BEGAN, COPIED and
DELIVERED are the keys of the other records of the state machine."""


class Rank(NamedTuple):
    """The position of a message in delivery order: due time, then offset."""

    due_ms: int
    offset: int

    def pack(self) -> bytes:
        return _RANK.pack(*self)


BEFORE_ALL: Final = Rank(0, -1)
"""A rank before that of every possible message."""


class Entry(NamedTuple):
    due_ms: int
    offset: int
    state: int
    key_hash: bytes
    stored_at: int
    """The offset at which the message is stored in the companion log, the partition's second log. `offset` is its
    offset in the topic."""

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
"""A rank (due time and offset) by generation, a number that grows when the clock is set back (see machine.py)."""


def last_ranks(entries: Iterable[Entry]) -> Ranks:
    """Returns the highest rank (due time and offset) among the entries of each generation. A new generation starts
    when the clock is set back (see machine.py)."""
    found: Ranks = {}
    for entry in entries:
        found[entry.generation] = max(found.get(entry.generation, BEFORE_ALL), entry.rank)
    return found


def read_entry(data: bytes, at: int = 0) -> Entry:
    return Entry._make(_ENTRY.unpack_from(data, at))


def rank_at(data: bytes, at: int = 0) -> Rank:
    return Rank._make(_RANK.unpack_from(data, at))


def hash_of(key: bytes | None) -> bytes:
    """Returns the hash of a key. Different keys may have the same hash, so the caller must also compare the keys."""
    return bytes(7) if key is None else blake2b(key, digest_size=7).digest()


def message_key(offset: int) -> bytes:
    return MESSAGE + _OFFSET.pack(offset)


class StoredMessage(NamedTuple):
    """The value of a record in the companion log (second log of the partition) that stores one delayed message."""

    state: int
    due_ms: int
    key_hash: bytes
    timestamp_ms: int
    raw: bytes
    """The record as it was produced: see records/delayed.py. Empty once the message is cancelled."""

    def pack(self) -> bytes:
        return _STORED.pack(self.state, self.due_ms, self.key_hash, self.timestamp_ms) + self.raw


def read_stored_message(value: bytes) -> StoredMessage:
    state, due_ms, key_hash, timestamp_ms = _STORED.unpack_from(value)
    return StoredMessage(state, due_ms, key_hash, timestamp_ms, bytes(value[_STORED.size :]))
