"""Decodes Protobuf payloads into columns in pure Python: the counterpart of the compiled decoder.

A message is read in two steps. First its values are collected by field: the last one of a singular field, all of a
repeated field, and all parts of a message, which are merged. Then each column gets its value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.foundation.errors import CorruptMessage
from penstock.schemas.columns.protobuf.plan import (
    INT32_KINDS,
    INT64_KINDS,
    MESSAGE_KINDS,
    WIRE,
    FieldPlan,
    Kind,
    MessagePlan,
    Shape,
    Wire,
)
from penstock.schemas.columns.protobuf.problems import Problem
from penstock.schemas.columns.protobuf.wire_pure import BadPayload, WireReader
from penstock.schemas.formats.protobuf.message_indexes import read_message_indexes

if TYPE_CHECKING:
    import pyarrow as pa

_Span = tuple[int, int]
_ZERO: Final[dict[Kind, Any]] = {Kind.STRING: "", Kind.BYTES: b"", Kind.BOOL: False, Kind.FLOAT: 0.0, Kind.DOUBLE: 0.0}
_MICROS: Final = 1_000_000
_INT64_MAX: Final = 2**63 - 1

Bad = tuple[int, int, int, str]
"""Row, problem, position in the payload, and path of the field."""


def decode(
    plan: MessagePlan, indexes: Sequence[int], payloads: pa.Array, header_bytes: int
) -> tuple[pa.Array, list[Bad]]:
    """Returns the column, and what is wrong with payloads that cannot be decoded."""
    import pyarrow as pa

    rows: list[tuple[Any, ...] | None] = []
    bad: list[Bad] = []
    for row, payload in enumerate(payloads.to_pylist()):
        value = None
        if payload is not None:
            try:
                at = _start(payload, header_bytes, indexes)
                value = _message(plan, payload, [(at, len(payload))])
            except BadPayload as error:
                bad.append((row, error.problem, error.at, error.path))
        rows.append(value)
    return pa.array(rows, plan.type), bad


def _start(payload: bytes, header_bytes: int, indexes: Sequence[int]) -> int:
    """Returns the position of the message."""
    if header_bytes > len(payload):
        raise BadPayload(Problem.TRUNCATED, len(payload))
    try:
        found, at = read_message_indexes(payload, header_bytes)
    except CorruptMessage:
        raise BadPayload(Problem.INDEXES, header_bytes) from None
    if found != tuple(indexes):
        raise BadPayload(Problem.MESSAGE, header_bytes)
    return at


def _message(plan: MessagePlan, data: bytes, parts: Iterable[_Span]) -> tuple[Any, ...]:
    """Returns the values of the columns of a message that consists of `parts`."""
    found: dict[int, list[Any]] = {}
    in_one_ofs: dict[int, int] = {}
    end = 0
    for start, end in parts:
        reader = WireReader(data, start, end)
        while reader.at < end:
            number, wire = reader.tag()
            field = plan.by_number.get(number)
            if field is None or not _read_field(field, wire, reader, found):
                reader.skip(number, wire)
            elif field.one_of >= 0:
                previous = in_one_ofs.get(field.one_of, number)
                if previous != number:
                    del found[previous]
                in_one_ofs[field.one_of] = number
    return tuple(_column(field, found.get(field.number), data, end) for field in plan.columns)


def _read_field(field: FieldPlan, wire: int, reader: WireReader, found: dict[int, list[Any]]) -> bool:
    """Adds the values of a field. Returns False, and reads nothing, for a value that counts as an unknown field."""
    start = reader.at
    if wire == WIRE[field.kind]:
        value = _value(field, reader)
        if value is None:
            reader.at = start
            return False
        values = found.setdefault(field.number, [])
        if field.shape is Shape.SINGULAR and field.kind not in MESSAGE_KINDS:
            values.clear()
        values.append(value)
        return True
    if wire != Wire.BYTES or field.shape is not Shape.REPEATED:
        return False
    found.setdefault(field.number, []).extend(_packed(field, reader))
    return True


def _packed(field: FieldPlan, reader: WireReader) -> Iterator[Any]:
    start, end = reader.span()
    inner = WireReader(reader.data, start, end)
    while inner.at < end:
        value = _value(field, inner)
        if value is not None:
            yield value


def _value(field: FieldPlan, reader: WireReader) -> Any:
    """Reads a value of the field's own wire type. None: a number that a closed enum does not have."""
    kind = field.kind
    if WIRE[kind] is Wire.BYTES:
        start, end = reader.span()
        if kind in MESSAGE_KINDS:
            if kind is Kind.EMPTY:
                WireReader(reader.data, start, end).skip_rest()
            return start, end
        value = reader.data[start:end]
        if kind is Kind.BYTES:
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise BadPayload(Problem.TEXT, start, field.path) from None
    at = reader.at
    number = _number(field, _raw(kind, reader))
    if number is None and field.is_in_root:  # in nested messages, Spark takes it for an unknown field
        raise BadPayload(Problem.ENUM, at, field.path)
    return number


def _raw(kind: Kind, reader: WireReader) -> int:
    match WIRE[kind]:
        case Wire.FIXED32:
            return reader.fixed(4)
        case Wire.FIXED64:
            return reader.fixed(8)
    return reader.varint()


def _number(field: FieldPlan, raw: int) -> Any:
    match field.kind:
        case Kind.BOOL:
            return raw != 0
        case Kind.FLOAT:
            return struct.unpack("<f", raw.to_bytes(4, "little"))[0]
        case Kind.DOUBLE:
            return struct.unpack("<d", raw.to_bytes(8, "little"))[0]
        case Kind.SINT32:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1)
        case Kind.SINT64:
            return (raw >> 1) ^ -(raw & 1)
        case Kind.ENUM:
            assert field.enum is not None
            number = _signed(raw, 32)
            return None if field.enum.is_closed and number not in field.enum.names else field.enum.name_of(number)
    return _signed(raw, 64 if field.kind in INT64_KINDS else 32)


def _signed(raw: int, bits: int) -> int:
    half = 1 << (bits - 1)
    raw &= 2 * half - 1
    return raw - 2 * half if raw >= half else raw


def _column(field: FieldPlan, values: list[Any] | None, data: bytes, end: int) -> Any:
    """Returns the value of a column. `values`: what was found, `end`: the end of the message."""
    match field.shape:
        case Shape.MAP:
            assert field.message is not None
            return [_entry(field.message, data, part) for part in values or ()]
        case Shape.REPEATED if field.kind in MESSAGE_KINDS:
            return [_nested(field, data, [part]) for part in values or ()]
        case Shape.REPEATED:
            return values or []
    if not values:
        if field.is_required:
            raise BadPayload(Problem.REQUIRED, end, field.path)
        return field.default
    return _nested(field, data, values) if field.kind in MESSAGE_KINDS else values[-1]


def _nested(field: FieldPlan, data: bytes, parts: list[_Span]) -> Any:
    """Returns the value of a message, or of a point in time or duration in microseconds."""
    assert field.message is not None
    values = _message(field.message, data, parts)
    if field.kind is Kind.MESSAGE:
        return values
    seconds, nanos = (each or 0 for each in values)
    # Truncated as in Java, towards zero.
    micros = seconds * _MICROS + (nanos // 1000 if nanos >= 0 else -(-nanos // 1000))
    if not -_INT64_MAX - 1 <= micros <= _INT64_MAX:
        raise BadPayload(Problem.TIME, parts[0][0], field.path)
    return micros


def _entry(plan: MessagePlan, data: bytes, part: _Span) -> tuple[Any, Any]:
    """Returns key and value of the entry of a map. What is missing has its default value."""
    key, value = (
        _missing(field, data, part[1]) if each is None else each
        for field, each in zip(plan.columns, _message(plan, data, [part]), strict=True)
    )
    return key, value


def _missing(field: FieldPlan, data: bytes, end: int) -> Any:
    if field.kind in MESSAGE_KINDS:
        return _nested(field, data, [(end, end)])
    if field.enum is not None:
        return next(iter(field.enum.names.values()))
    assert field.kind in INT32_KINDS or field.kind in INT64_KINDS or field.kind in _ZERO
    return _ZERO.get(field.kind, 0)
