"""Encodes columns as Protobuf payloads in pure Python: the twin of `_protobuf_encode.pxi`."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from penstock.schemas.columns._builders_pure import Table
from penstock.schemas.columns.layout import FilledColumn, Layout
from penstock.schemas.columns.protobuf.encoding_plan import EncodingPlan, FieldSource
from penstock.schemas.columns.protobuf.plan import WIRE, Kind, Shape, Wire

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.schemas.columns.protobuf.encoding_program import EncodingProgram

_MICROS: Final = 1_000_000


class _Unfit(Exception):
    """A value that does not fit its field."""


def encode_protobuf(program: EncodingProgram, values: pa.Array, header: bytes) -> FilledColumn | int:
    """See `kernel.Kernel`."""
    import pyarrow as pa

    table = Table(Layout(pa.binary()))
    for row, value in enumerate(_rows(values)):
        if value is None:
            table.put_null(0)
            continue
        try:
            table.put_bytes(0, header + _message(program.plan.fields, value))
        except _Unfit:
            return row
    return table.finish()[0]


def reason(plan: EncodingPlan, values: pa.Array) -> str:
    """Returns why the only row of a column cannot be encoded."""
    [value] = _rows(values)
    try:
        _message(plan.fields, value)
    except _Unfit as error:
        return str(error)
    raise AssertionError("the row can be encoded")


def _rows(values: pa.Array) -> list[Any]:
    """Returns values as Python objects: structs as tuples, maps as lists of pairs, times as microseconds."""
    import pyarrow as pa

    type, is_a = values.type, pa.types
    rows: list[Any]
    if is_a.is_struct(type):
        columns = [_rows(values.field(at)) for at in range(type.num_fields)]
        rows = list(zip(*columns, strict=True)) if columns else [()] * len(values)
    elif is_a.is_list(type) or is_a.is_map(type):
        items = _rows(values.values)
        offsets = values.offsets.to_pylist()
        rows = [items[start:end] for start, end in pairwise(offsets)]
    elif is_a.is_timestamp(type) or is_a.is_duration(type):
        return list(values.cast(pa.int64()).to_pylist())
    elif is_a.is_decimal(type):
        return [None if each is None else int(each) for each in values.to_pylist()]
    else:
        return list(values.to_pylist())
    if values.null_count:
        valid = values.is_valid().to_pylist()
        return [each if is_valid else None for each, is_valid in zip(rows, valid, strict=True)]
    return rows


def _message(fields: tuple[FieldSource, ...], row: tuple[Any, ...]) -> bytes:
    parts: list[bytes] = []
    in_one_ofs: dict[int, str] = {}
    for source in fields:
        value = row[source.column]
        field = source.field
        if value is None:
            if field.is_required:
                raise _Unfit(f"field {field.path!r} is required, and must not be null")
            continue
        if field.one_of >= 0:
            other = in_one_ofs.setdefault(field.one_of, field.path)
            if other != field.path:
                raise _Unfit(f"fields {other!r} and {field.path!r} of the same oneof both have values")
        parts.append(_field(source, value))
    return b"".join(parts)


def _field(source: FieldSource, value: Any) -> bytes:
    field = source.field
    if field.shape is Shape.SINGULAR:
        encoded = _value(source, value)
        if not field.has_presence and not any(encoded):
            return b""  # zero, which proto3 leaves out; a length of zero is one zero byte
        return _tag(field.number, WIRE[source.kind]) + encoded
    if None in value:
        raise _Unfit(f"an element of field {field.path!r} is null")
    if field.shape is Shape.MAP:
        # Both key and value are always written, as by Protobuf's libraries.
        return b"".join(
            _tag(field.number, Wire.BYTES)
            + _sized(b"".join(_entry_part(part, each) for part, each in zip(source.message, entry, strict=True)))
            for entry in value
        )
    encoded_values = [_value(source, each) for each in value]
    if field.is_packed and value:
        return _tag(field.number, Wire.BYTES) + _sized(b"".join(encoded_values))
    tag = _tag(field.number, WIRE[source.kind])
    return b"".join(tag + each for each in encoded_values)


def _entry_part(source: FieldSource, value: Any) -> bytes:
    if value is None:
        raise _Unfit(f"field {source.field.path!r} of a map is null")
    return _tag(source.field.number, WIRE[source.kind]) + _value(source, value)


def _value(source: FieldSource, value: Any) -> bytes:
    match source.kind:
        case Kind.MESSAGE:
            return _sized(_message(source.message, value))
        case Kind.TIMESTAMP:
            return _sized(_time(*divmod(value, _MICROS)))
        case Kind.DURATION:
            seconds = abs(value) // _MICROS
            micros = abs(value) % _MICROS
            return _sized(_time(seconds, micros) if value >= 0 else _time(-seconds, -micros))
        case Kind.STRING:
            return _sized(value.encode())
        case Kind.BYTES:
            return _sized(value)
        case Kind.FLOAT:
            return struct.pack("<f", value)
        case Kind.DOUBLE:
            return struct.pack("<d", value)
        case Kind.ENUM:
            return _varint(_enum_number(source, value))
    return _number(source, int(value))


def _number(source: FieldSource, value: int) -> bytes:
    kind = source.kind
    if source.bounds is not None and not source.bounds[0] <= value <= source.bounds[1]:
        raise _Unfit(f"field {source.field.path!r} is of type {kind.name.lower()}, and cannot be {value}")
    if WIRE[kind] is Wire.FIXED32:
        return (value & 0xFFFFFFFF).to_bytes(4, "little")
    if WIRE[kind] is Wire.FIXED64:
        return (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
    if kind is Kind.SINT32 or kind is Kind.SINT64:
        return _varint((value << 1) ^ (value >> 63))
    return _varint(value & 0xFFFFFFFF if kind is Kind.UINT32 else value)


def _enum_number(source: FieldSource, value: str | int) -> int:
    enum = source.field.enum
    assert enum is not None
    if isinstance(value, int):
        if value in enum.names:
            return value
    elif value in enum.numbers:
        return enum.numbers[value]
    raise _Unfit(f"field {source.field.path!r}: enum {enum.name} has no value {value!r}")


def _time(seconds: int, micros: int) -> bytes:
    """Encodes google.protobuf.Timestamp or Duration: seconds are field 1, nanoseconds field 2."""
    parts = [b"\x08" + _varint(seconds)] if seconds else []
    if micros:
        parts.append(b"\x10" + _varint(micros * 1000))
    return b"".join(parts)


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
