"""Decodes Protobuf payloads into columns in pure Python: the twin of `_protobuf_decode.pxi`.

A message is read in two steps. First its values are collected by field: the last one of a singular field, all of a
repeated field, and all parts of a message, which are merged. Then each column gets its value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from penstock.foundation.errors import CorruptMessage
from penstock.records.layout import BinaryColumn
from penstock.schemas.columns._builders_pure import Table
from penstock.schemas.columns.layout import NOT_THERE, BadRow, Column, FilledColumn
from penstock.schemas.columns.layout import Kind as ColumnKind
from penstock.schemas.columns.protobuf.plan import (
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
from penstock.schemas.columns.protobuf.program import Program
from penstock.schemas.columns.protobuf.wire import BadPayload, WireReader
from penstock.schemas.formats.protobuf.message_indexes import read_message_indexes

_Span = tuple[int, int]
_MICROS: Final = 1_000_000
_INT64_MAX: Final = 2**63 - 1


def decode_protobuf(
    program: Program, payloads: BinaryColumn, count: int, header_bytes: int
) -> tuple[list[FilledColumn], dict[int, BadRow]]:
    """See `kernel.Kernel`."""
    table = Table(program.layout)
    bad: dict[int, BadRow] = {}
    for row, payload in enumerate(_payloads(payloads, count)):
        value = None
        if payload is not None:
            try:
                at = _start(payload, header_bytes, program.indexes)
                value = _message(program.plan, payload, [(at, len(payload))])
            except BadPayload as error:
                field = program.paths.index(error.path) if error.path else NOT_THERE
                bad[row] = BadRow(error.problem, error.at, field)
        _put(table, program.layout.root, value)
    return table.finish(), bad


def _payloads(column: BinaryColumn, count: int) -> Iterator[bytes | None]:
    offsets = memoryview(column.offsets).cast("i")
    for row in range(column.offset, column.offset + count):
        is_null = column.validity is not None and not column.validity[row >> 3] >> (row & 7) & 1
        yield None if is_null else bytes(column.data[offsets[row] : offsets[row + 1]])


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


def _put(table: Table, column: Column, value: Any) -> None:
    """Appends the value of a column and those of its fields or items."""
    if value is None:
        table.put_null(column.index)
        return
    match column.kind:
        case ColumnKind.STRUCT:
            for child, each in zip(column.children, value, strict=True):
                _put(table, child, each)
            table.put_struct(column.index)
        case ColumnKind.LIST:
            for item in value:
                # The items of a map are pairs of the values of its two children.
                parts = item if len(column.children) == 2 else (item,)
                for child, each in zip(column.children, parts, strict=True):
                    _put(table, child, each)
            table.put_list(column.index)
        case ColumnKind.BIT:
            table.put_bit(column.index, value)
        case ColumnKind.BYTES:
            table.put_bytes(column.index, value.encode() if isinstance(value, str) else value)
        case _ if isinstance(value, float):
            table.put_raw(column.index, struct.pack("<f" if column.type.bit_width == 32 else "<d", value))
        case _:
            table.put_raw(column.index, value.to_bytes(column.type.bit_width // 8, "little", signed=True))


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
    values = {number: _column(field, found.get(number), data, end) for number, field in plan.by_number.items()}
    return tuple(values[field.number] for field in plan.columns)


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
            elif field.shape is not Shape.SINGULAR:
                return _nested(field, reader.data, [(start, end)])
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
    if field.shape is not Shape.SINGULAR:
        return values or []
    if values is None and not (field.is_in_map and field.kind in MESSAGE_KINDS):
        if field.is_required:
            raise BadPayload(Problem.REQUIRED, end, field.path)
        return field.default
    if field.kind is Kind.EMPTY:
        return None
    if field.kind not in MESSAGE_KINDS:
        assert values is not None
        return values[-1] if field.has_presence or not _is_zero(field, values[-1]) else field.default
    return _nested(field, data, values or [(end, end)])


def _is_zero(field: FieldPlan, value: Any) -> bool:
    """Whether it is the value that a field without presence has if it is missing."""
    if field.enum is not None:
        return bool(value == field.enum.name_of(0))
    return not value and not (isinstance(value, float) and math.copysign(1, value) < 0)


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
