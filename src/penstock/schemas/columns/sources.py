"""Splits an Arrow array into the columns of a layout, which encoders read."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from penstock.schemas.columns.codec import IncompatibleTypes
from penstock.schemas.columns.layout import Column, Kind, Layout, SourceColumn


def source_columns(values: pa.Array, layout: Layout) -> list[SourceColumn]:
    """Returns the columns of an array, whose type may differ from that of the layout: fields of structs may have
    another order, nullable ones may be missing, and types may be narrower. Raises IncompatibleTypes.
    """
    return list(_columns(values, layout.root))


def _columns(values: pa.Array, column: Column) -> Iterator[SourceColumn]:
    if types.is_null(values.type) and column.kind != Kind.NULL:
        values = pa.nulls(len(values), column.type)
    if column.kind == Kind.STRUCT:
        children = _fields(values, column)
    elif column.kind == Kind.LIST:
        values, children = _items(values, column)
    else:
        values, children = _leaf(values, column), []
    yield _source(values, column.kind)
    for child, part in zip(children, column.children, strict=True):
        yield from _columns(child, part)


def _source(values: pa.Array, kind: Kind) -> SourceColumn:
    if kind == Kind.NULL:
        return SourceColumn(0, len(values), None, None, None)
    buffers = [None if buffer is None else memoryview(buffer) for buffer in values.buffers()[:3]]
    validity, offsets, data = buffers[0], None, None
    if kind == Kind.BYTES:
        offsets, data = buffers[1], buffers[2]
    elif kind == Kind.LIST:
        offsets = buffers[1]
    elif kind != Kind.STRUCT:
        data = buffers[1]
    return SourceColumn(values.offset, len(values), validity if values.null_count else None, offsets, data)


def _fields(values: pa.Array, column: Column) -> list[pa.Array]:
    if not types.is_struct(values.type):
        raise _wrong(values, column)
    numbers = {field.name: number for number, field in enumerate(values.type)}
    wanted = {field.name: field for field in column.type}
    unknown = [name for name in numbers if name not in wanted]
    missing = [name for name, field in wanted.items() if name not in numbers and not field.nullable]
    where = column.path or "The column"
    if unknown or len(numbers) < values.type.num_fields:
        raise IncompatibleTypes(f"{where} has fields that the schema does not have: {', '.join(unknown)}")
    if missing:
        raise IncompatibleTypes(f"{where} lacks fields that the schema requires: {', '.join(missing)}")
    return [
        values.field(numbers[name]) if name in numbers else pa.nulls(len(values), field.type)
        for name, field in wanted.items()
    ]


def _items(values: pa.Array, column: Column) -> tuple[pa.Array, list[pa.Array]]:
    if types.is_map(column.type):
        if types.is_map(values.type):
            return values, [values.keys, values.items]
    elif types.is_list(values.type):
        return values, [values.values]
    elif types.is_large_list(values.type) or types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_field))
        return values, [values.values]
    raise _wrong(values, column)


def _leaf(values: pa.Array, column: Column) -> pa.Array:
    if values.type == column.type:
        return values
    if not _is_narrower(values.type, column.type):
        raise _wrong(values, column)
    return values.cast(column.type)


def _is_narrower(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a type is one of another type."""
    is_narrower = False
    if types.is_signed_integer(wanted):
        is_narrower = types.is_signed_integer(kind) and kind.bit_width < wanted.bit_width
    elif types.is_float64(wanted):
        is_narrower = types.is_float32(kind)
    elif types.is_string(wanted):
        is_narrower = types.is_large_string(kind) or types.is_string_view(kind)
    elif types.is_binary(wanted):
        is_narrower = types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind)
    elif types.is_decimal128(wanted):
        is_narrower = types.is_decimal128(kind) and kind.scale == wanted.scale and kind.precision < wanted.precision
    elif types.is_timestamp(wanted):
        is_narrower = types.is_timestamp(kind) and (kind.tz is None) == (wanted.tz is None) and kind.unit != "ns"
    elif types.is_time(wanted):
        is_narrower = types.is_time(kind)
    return is_narrower


def _wrong(values: pa.Array, column: Column) -> IncompatibleTypes:
    return IncompatibleTypes(f"{column.path or 'The column'} has the type {values.type}; expected {column.type}")
