"""What delivery state is in the companion log: records of fixed layouts, each with its version.

A key begins with its kind, a value with its version. Whoever reads them back takes nothing that it does not know:
to guess would be to lose messages.
"""

import struct
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.foundation.decision import StateRecord
from penstock.queues.commands import Destination
from penstock.queues.errors import DamagedState

POSITION: Final = 1
"""Of a group: where it has not looked yet."""
PARCEL: Final = 2
"""Of a group: messages that are not finished."""
ROUTE: Final = 3
"""Of a destination: under which epoch and sequence the next message is moved there. With NOWHERE in place of a
partition, of a group: up to where it was purged (`purge_record`)."""
PRODUCER: Final = 4
"""Of the partition: the producer that its messages are moved away by."""

VERSION: Final = 0
KEY_ERRORS: Final = "surrogateescape"
"""How a message group stands for a record's key that is no text."""
NO_SEQUENCE: Final = -1
NOWHERE: Final = -1
EPOCH_MAX: Final = 2**15 - 1

_NAMED: Final = struct.Struct(">BH")  # kind, length of the group's name
_FIRST: Final = struct.Struct(">q")
_PLACE: Final = struct.Struct(">16si")
_POSITION: Final = struct.Struct(">Bq")
_PARCEL: Final = struct.Struct(">BBqIqqHH")  # version, flags, last, count, due, first received, holder, message group
_NUMBERED: Final = struct.Struct(">qhi")  # producer id, epoch, sequence
_ROUTE: Final = struct.Struct(">Bqhi")
_GROUPED: Final = 1
_MOVING: Final = 2
_UNDER_WAY: Final = 4


class Move(NamedTuple):
    """Where a message is going. Without a sequence it has not set out."""

    destination: Destination
    producer_id: int = -1
    epoch: int = -1
    sequence: int = NO_SEQUENCE


class Parcel(NamedTuple):
    """Consecutive messages with one fate. An offset below the group's end that is in no parcel is done."""

    first: int
    last: int
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is not used
    """Deliveries so far."""
    due_ms: int = 0
    """With a holder: until when it is in flight. Without: when it is available."""
    holder: str = ""
    first_received_ms: int = 0
    group: str | None = None
    """The message group in a FIFO queue, where every parcel is one message."""
    move: Move | None = None

    @property
    def size(self) -> int:
        """How many messages it is."""
        return self.last - self.first + 1

    def is_like(self, other: "Parcel") -> bool:
        """Whether both have the same fate."""
        return self[2:] == other[2:]

    def part(self, first: int, last: int) -> "Parcel":
        return Parcel(
            first, last, self.count, self.due_ms, self.holder, self.first_received_ms, self.group, self.move
        )


class Route(NamedTuple):
    """How the next message will be numbered that is moved to a destination."""

    producer_id: int
    epoch: int
    sequence: int


class ParcelKey(NamedTuple):
    group: str
    first: int


# -- written


def parcel_prefix(group: str) -> bytes:
    """How the keys of all parcels of a group begin."""
    name = group.encode()
    return _NAMED.pack(PARCEL, len(name)) + name


def parcel_record(prefix: bytes, group: str, parcel: Parcel) -> StateRecord:
    first, last, count, due_ms, holder, received_ms, message_group, move = parcel
    held = holder.encode()
    if message_group is None and move is None:
        value = _PARCEL.pack(VERSION, 0, last, count, due_ms, received_ms, len(held), 0) + held
    else:
        value = _special_parcel(parcel, held)
    return StateRecord(key=prefix + _FIRST.pack(first), value=value, parsed=(ParcelKey(group, first), parcel))


def _special_parcel(parcel: Parcel, held: bytes) -> bytes:
    """One that is being moved, or is of a FIFO queue."""
    grouped = (parcel.group or "").encode(errors=KEY_ERRORS)
    flags = _GROUPED if parcel.group is not None else 0
    tail = b""
    if parcel.move is not None:
        destination, producer_id, epoch, sequence = parcel.move
        flags |= _MOVING
        tail = _PLACE.pack(*destination)
        if sequence != NO_SEQUENCE:
            flags |= _UNDER_WAY
            tail += _NUMBERED.pack(producer_id, epoch, sequence)
    head = _PARCEL.pack(
        VERSION,
        flags,
        parcel.last,
        parcel.count,
        parcel.due_ms,
        parcel.first_received_ms,
        len(held),
        len(grouped),
    )
    return head + held + grouped + tail


def parcel_gone(prefix: bytes, group: str, first: int) -> StateRecord:
    return StateRecord(key=prefix + _FIRST.pack(first), value=None, parsed=(ParcelKey(group, first), None))


def position_key(group: str) -> bytes:
    name = group.encode()
    return _NAMED.pack(POSITION, len(name)) + name


def position_record(key: bytes, group: str, end: int | None) -> StateRecord:
    """None: the group is gone."""
    value = None if end is None else _POSITION.pack(VERSION, end)
    return StateRecord(key=key, value=value, parsed=(group, end))


def route_record(destination: Destination, route: Route | None) -> StateRecord:
    return StateRecord(
        key=bytes((ROUTE,)) + _PLACE.pack(*destination),
        value=None if route is None else _ROUTE.pack(VERSION, *route),
        parsed=(destination, route),
    )


def purge_mark(group: str) -> Destination:
    """Stands for a group's purges where routes are kept."""
    return Destination(blake2b(group.encode(), digest_size=16).digest(), NOWHERE)


def purge_record(group: str, end: int | None) -> StateRecord:
    """The deduplication ids of messages below `end` are forgotten; None: the group is gone.

    It has the form of a route, to a partition that does not exist: older brokers keep it and use it for nothing. A
    record of another kind would keep them from reading the delivery state at all (decision 34).
    """
    return route_record(purge_mark(group), None if end is None else Route(end, 0, 0))


def producer_record(producer_id: int | None) -> StateRecord:
    """None: its epochs are used up."""
    value = None if producer_id is None else _POSITION.pack(VERSION, producer_id)
    return StateRecord(key=bytes((PRODUCER,)), value=value, parsed=(None, producer_id))


# -- read back


def read_position(record: StateRecord) -> tuple[str, int | None]:
    if record.parsed is not None:
        return record.parsed
    group, at = _read_name(record.key)
    if at != len(record.key):
        raise _damaged(record, "its key has a tail")
    return group, _read_number(record)


def read_parcel(record: StateRecord) -> tuple[ParcelKey, Parcel | None]:
    if record.parsed is not None:
        return record.parsed
    group, at = _read_name(record.key)
    if len(record.key) != at + _FIRST.size:
        raise _damaged(record, "its key names no offset")
    (first,) = _FIRST.unpack_from(record.key, at)
    key = ParcelKey(group, first)
    if record.value is None:
        return key, None
    try:
        return key, _read_parcel(first, record.value)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise _damaged(record, str(error)) from error


def _read_parcel(first: int, value: bytes) -> Parcel:
    version, flags, last, count, due_ms, received_ms, held, grouped = _PARCEL.unpack_from(value)
    if version != VERSION:
        raise ValueError(f"version {version}, expected {VERSION}")
    if flags & ~(_GROUPED | _MOVING | _UNDER_WAY) or flags & (_MOVING | _UNDER_WAY) == _UNDER_WAY:
        raise ValueError(f"flags {flags:#x}")
    if not 0 <= first <= last or (flags & (_GROUPED | _UNDER_WAY) and first != last):
        raise ValueError(f"offsets {first} to {last}")
    if not flags & _GROUPED and grouped:
        raise ValueError("a message group where there is none")
    at = _PARCEL.size
    holder = value[at : at + held].decode()
    at += held
    group = value[at : at + grouped].decode(errors=KEY_ERRORS)
    at += grouped
    move = None
    if flags & _MOVING:
        move = Move(Destination(*_PLACE.unpack_from(value, at)))
        at += _PLACE.size
        if flags & _UNDER_WAY:
            move = Move(move.destination, *_NUMBERED.unpack_from(value, at))
            at += _NUMBERED.size
    if at != len(value):
        raise ValueError(f"{len(value)} bytes, expected {at}")
    return Parcel(first, last, count, due_ms, holder, received_ms, group if flags & _GROUPED else None, move)


def read_route(record: StateRecord) -> tuple[Destination, Route | None]:
    if record.parsed is not None:
        return record.parsed
    if len(record.key) != 1 + _PLACE.size:
        raise _damaged(record, "its key names no destination")
    destination = Destination(*_PLACE.unpack_from(record.key, 1))
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
    """The group that a key names, and where the name ends."""
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
        raise _damaged(record, f"it says {number}")
    return number


def _damaged(record: StateRecord, why: str) -> DamagedState:
    return DamagedState(
        f"delivery state {record.key.hex()} cannot be read: {why}; it is damaged, or a later broker has written it"
    )
