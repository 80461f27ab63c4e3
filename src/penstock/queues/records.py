"""Records of delivery state in the companion log: fixed binary layouts, each with a version.

A record's key begins with the kind of record, its value with a version. Unknown kinds and versions are rejected: to
misread them would lose messages.
"""

import struct
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.foundation.decision import StateRecord
from penstock.queues.commands import Destination
from penstock.queues.errors import DamagedState

POSITION: Final = 1
"""Record kind: the end offset of a share group. No message at or above it was delivered yet."""
DELIVERY_RANGE: Final = 2
"""Record kind: consecutive unfinished messages of a share group."""
ROUTE: Final = 3
"""Record kind: producer id, epoch and sequence of the next message moved to a destination partition. If the
partition in the key is NOWHERE, the record is a purge record instead: see `purge_record`."""
PRODUCER: Final = 4
"""Record kind: the producer id with which messages of this partition are copied to other partitions."""

VERSION: Final = 0
KEY_ERRORS: Final = "surrogateescape"
"""Error handler for decoding record keys that are not UTF-8, so that any key can be a message group."""
NO_SEQUENCE: Final = -1
NOWHERE: Final = -1
EPOCH_MAX: Final = 2**15 - 1

_NAMED: Final = struct.Struct(">BH")  # kind, length of the group's name
_FIRST: Final = struct.Struct(">q")
_DESTINATION: Final = struct.Struct(">16si")
_POSITION: Final = struct.Struct(">Bq")
_RANGE: Final = struct.Struct(">BBqIqqHH")  # version, flags, last, count, due, first received, holder, message group
_NUMBERED: Final = struct.Struct(">qhi")  # producer id, epoch, sequence
_ROUTE: Final = struct.Struct(">Bqhi")
_GROUPED: Final = 1
_MOVING: Final = 2
_STARTED: Final = 4


class Move(NamedTuple):
    """Where a message is moved to; with producer id, epoch and sequence once its copy is being written."""

    destination: Destination
    producer_id: int = -1
    epoch: int = -1
    sequence: int = NO_SEQUENCE


class DeliveryRange(NamedTuple):
    """Consecutive messages in one state. Messages below the share group's end offset without a range are finished."""

    first: int
    last: int
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Number of times that each message was delivered so far."""
    due_ms: int = 0
    """If a consumer holds the messages: end of the visibility timeout; else: when they become available."""
    holder: str = ""
    first_received_ms: int = 0
    group: str | None = None
    """The message group in a FIFO queue, where every range is one message; None in other queues."""
    move: Move | None = None

    @property
    def size(self) -> int:
        """Number of messages."""
        return self.last - self.first + 1

    def is_like(self, other: "DeliveryRange") -> bool:
        """Whether both ranges are in the same state: all fields except their offsets are equal."""
        return self[2:] == other[2:]

    def part(self, first: int, last: int) -> "DeliveryRange":
        return DeliveryRange(
            first, last, self.count, self.due_ms, self.holder, self.first_received_ms, self.group, self.move
        )


class Route(NamedTuple):
    """Producer id, epoch and sequence for the next message that is moved to a destination."""

    producer_id: int
    epoch: int
    sequence: int


class DeliveryRangeKey(NamedTuple):
    group: str
    first: int


# -- encode


def range_prefix(group: str) -> bytes:
    """Returns the key prefix of all delivery ranges of a share group."""
    name = group.encode()
    return _NAMED.pack(DELIVERY_RANGE, len(name)) + name


def range_record(prefix: bytes, group: str, delivery_range: DeliveryRange) -> StateRecord:
    first, last, count, due_ms, holder, received_ms, message_group, move = delivery_range
    held = holder.encode()
    if message_group is None and move is None:
        value = _RANGE.pack(VERSION, 0, last, count, due_ms, received_ms, len(held), 0) + held
    else:
        value = _special_range(delivery_range, held)
    return StateRecord(
        key=prefix + _FIRST.pack(first), value=value, parsed=(DeliveryRangeKey(group, first), delivery_range)
    )


def _special_range(delivery_range: DeliveryRange, held: bytes) -> bytes:
    """Encodes a range of a FIFO queue, or one being moved to another queue. `held`: the holder's encoded name."""
    grouped = (delivery_range.group or "").encode(errors=KEY_ERRORS)
    flags = _GROUPED if delivery_range.group is not None else 0
    tail = b""
    if delivery_range.move is not None:
        destination, producer_id, epoch, sequence = delivery_range.move
        flags |= _MOVING
        tail = _DESTINATION.pack(*destination)
        if sequence != NO_SEQUENCE:
            flags |= _STARTED
            tail += _NUMBERED.pack(producer_id, epoch, sequence)
    head = _RANGE.pack(
        VERSION,
        flags,
        delivery_range.last,
        delivery_range.count,
        delivery_range.due_ms,
        delivery_range.first_received_ms,
        len(held),
        len(grouped),
    )
    return head + held + grouped + tail


def range_tombstone(prefix: bytes, group: str, first: int) -> StateRecord:
    return StateRecord(key=prefix + _FIRST.pack(first), value=None, parsed=(DeliveryRangeKey(group, first), None))


def position_key(group: str) -> bytes:
    name = group.encode()
    return _NAMED.pack(POSITION, len(name)) + name


def position_record(key: bytes, group: str, end: int | None) -> StateRecord:
    """Returns the record of a share group's end offset; if `end` is None, the tombstone that deletes the group."""
    value = None if end is None else _POSITION.pack(VERSION, end)
    return StateRecord(key=key, value=value, parsed=(group, end))


def route_record(destination: Destination, route: Route | None) -> StateRecord:
    return StateRecord(
        key=bytes((ROUTE,)) + _DESTINATION.pack(*destination),
        value=None if route is None else _ROUTE.pack(VERSION, *route),
        parsed=(destination, route),
    )


def purge_mark(group: str) -> Destination:
    """Returns the key of a queue's purge record: a Destination made of a hash of its name, and partition NOWHERE."""
    return Destination(blake2b(group.encode(), digest_size=16).digest(), NOWHERE)


def purge_record(group: str, end: int | None) -> StateRecord:
    """Returns the record of a purge: deduplication ids of messages below offset `end` can be used again. If `end`
    is None, returns the record's tombstone. The record has the kind and layout of `route_record`: older brokers
    ignore it, but could not load a new kind of record (decision 34)."""
    return route_record(purge_mark(group), None if end is None else Route(end, 0, 0))


def producer_record(producer_id: int | None) -> StateRecord:
    """Returns the record of the producer id with which this partition copies messages to other partitions. If
    `producer_id` is None (the last one has no more epochs), returns the tombstone."""
    value = None if producer_id is None else _POSITION.pack(VERSION, producer_id)
    return StateRecord(key=bytes((PRODUCER,)), value=value, parsed=(None, producer_id))


# -- decode


def read_position(record: StateRecord) -> tuple[str, int | None]:
    if record.parsed is not None:
        return record.parsed
    group, at = _read_name(record.key)
    if at != len(record.key):
        raise _damaged(record, "its key has a tail")
    return group, _read_number(record)


def read_range(record: StateRecord) -> tuple[DeliveryRangeKey, DeliveryRange | None]:
    if record.parsed is not None:
        return record.parsed
    group, at = _read_name(record.key)
    if len(record.key) != at + _FIRST.size:
        raise _damaged(record, "its key names no offset")
    (first,) = _FIRST.unpack_from(record.key, at)
    key = DeliveryRangeKey(group, first)
    if record.value is None:
        return key, None
    try:
        return key, _read_range(first, record.value)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise _damaged(record, str(error)) from error


def _read_range(first: int, value: bytes) -> DeliveryRange:
    version, flags, last, count, due_ms, received_ms, held, grouped = _RANGE.unpack_from(value)
    if version != VERSION:
        raise ValueError(f"version {version}, expected {VERSION}")
    if flags & ~(_GROUPED | _MOVING | _STARTED) or flags & (_MOVING | _STARTED) == _STARTED:
        raise ValueError(f"flags {flags:#x}")
    if not 0 <= first <= last or (flags & (_GROUPED | _STARTED) and first != last):
        raise ValueError(f"offsets {first} to {last}")
    if not flags & _GROUPED and grouped:
        raise ValueError("a message group without its flag")
    at = _RANGE.size
    holder = value[at : at + held].decode()
    at += held
    group = value[at : at + grouped].decode(errors=KEY_ERRORS)
    at += grouped
    move = None
    if flags & _MOVING:
        move = Move(Destination(*_DESTINATION.unpack_from(value, at)))
        at += _DESTINATION.size
        if flags & _STARTED:
            move = Move(move.destination, *_NUMBERED.unpack_from(value, at))
            at += _NUMBERED.size
    if at != len(value):
        raise ValueError(f"{len(value)} bytes, expected {at}")
    return DeliveryRange(first, last, count, due_ms, holder, received_ms, group if flags & _GROUPED else None, move)


def read_route(record: StateRecord) -> tuple[Destination, Route | None]:
    if record.parsed is not None:
        return record.parsed
    if len(record.key) != 1 + _DESTINATION.size:
        raise _damaged(record, "its key names no destination")
    destination = Destination(*_DESTINATION.unpack_from(record.key, 1))
    if record.value is None:
        return destination, None
    if len(record.value) != _ROUTE.size or record.value[0] != VERSION:
        raise _damaged(record, f"its value is not of version {VERSION}")
    return destination, Route(*_ROUTE.unpack(record.value)[1:])


def read_producer(record: StateRecord) -> int | None:
    if record.parsed is not None:
        producer_id: int | None = record.parsed[1]
        return producer_id
    if len(record.key) != 1:
        raise _damaged(record, "its key has a tail")
    return _read_number(record)


def _read_name(key: bytes) -> tuple[str, int]:
    """Returns the share group that a key names, and the byte position after the name."""
    try:
        _, length = _NAMED.unpack_from(key)
        end = _NAMED.size + length
        if end > len(key):
            raise ValueError("the name is cut off")
        return key[_NAMED.size : end].decode(), end
    except (struct.error, ValueError) as error:
        raise DamagedState(f"a key of delivery state, {key.hex()}, names no group: {error}") from error


def _read_number(record: StateRecord) -> int | None:
    if record.value is None:
        return None
    if len(record.value) != _POSITION.size or record.value[0] != VERSION:
        raise _damaged(record, f"its value is not of version {VERSION}")
    number: int = _POSITION.unpack(record.value)[1]
    if number < 0:
        raise _damaged(record, f"its value is {number}")
    return number


def _damaged(record: StateRecord, why: str) -> DamagedState:
    return DamagedState(
        f"delivery state {record.key.hex()} cannot be read: {why}; it is damaged, or a later broker has written it"
    )
