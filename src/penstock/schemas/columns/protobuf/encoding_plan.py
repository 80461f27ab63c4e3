"""The plan to encode a column as a Protobuf message: which part of the column each field takes its values from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.schemas.columns.codec import IncompatibleTypes
from penstock.schemas.columns.protobuf.plan import (
    INT32_KINDS,
    INT64_KINDS,
    MESSAGE_KINDS,
    UNSIGNED_KINDS,
    FieldPlan,
    Kind,
    MessagePlan,
    Shape,
)

if TYPE_CHECKING:
    import pyarrow as pa

_INT_BOUNDS: Final = {
    (False, 32): (-(2**31), 2**31 - 1),
    (True, 32): (0, 2**32 - 1),
    (False, 64): (-(2**63), 2**63 - 1),
    (True, 64): (0, 2**64 - 1),
}


class FieldSource(NamedTuple):
    """A field, and where its values are."""

    field: FieldPlan
    column: int
    """Index in the struct."""
    kind: Kind
    """The field's kind; MESSAGE also for a point in time or a duration whose column is a struct."""
    type: pa.DataType
    """Type of one value, in the normal form."""
    bounds: tuple[int, int] | None
    """Smallest and largest integer that fits. None: all do, or there are no integers."""
    message: tuple[FieldSource, ...]
    """Fields of a message, or of the entries of a map, by number."""


class EncodingPlan(NamedTuple):
    fields: tuple[FieldSource, ...]
    type: pa.DataType
    """The normal form of the column's type: cast to it first. Small integers and dates have 32 bits, strings, bytes
    and lists 32-bit offsets."""


def encoding_plan(plan: MessagePlan, type: pa.DataType) -> EncodingPlan:
    """Matches fields and columns by name. Raises IncompatibleTypes if the column's type does not fit the message."""
    normal = _normal(type)
    return EncodingPlan(_message(plan, normal, ""), normal)


def _normal(type: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_struct(type):
        return pa.struct([pa.field(each.name, _normal(each.type), each.nullable) for each in type])
    if is_a.is_map(type):
        return pa.map_(_normal(type.key_type), _normal(type.item_type))
    if is_a.is_list(type) or is_a.is_large_list(type) or is_a.is_fixed_size_list(type):
        return pa.list_(_normal(type.value_type))
    if is_a.is_int8(type) or is_a.is_int16(type) or is_a.is_date32(type):
        return pa.int32()
    if is_a.is_timestamp(type) and type.unit == "us" and type.tz is not None:
        return pa.timestamp("us", "UTC")
    if is_a.is_large_string(type):
        return pa.string()
    return pa.binary() if is_a.is_large_binary(type) or is_a.is_fixed_size_binary(type) else type


def _message(plan: MessagePlan, type: pa.DataType, path: str) -> tuple[FieldSource, ...]:
    import pyarrow as pa

    if not pa.types.is_struct(type):
        raise _mismatch(path, f"message {plan.name}", type)
    by_name = {each.name: each for each in plan.fields}
    sources = []
    for column, each in enumerate(type):
        if each.name not in by_name:
            raise IncompatibleTypes(f"Message {plan.name} does not have field {each.name!r}, which the column has")
        if not pa.types.is_null(each.type):
            sources.append(_field(by_name.pop(each.name), column, each.type))
    for field in by_name.values():
        if field.is_required:
            raise IncompatibleTypes(f"The column does not have the required field {field.path!r}")
    return tuple(sorted(sources, key=lambda each: each.field.number))


def _field(field: FieldPlan, column: int, type: pa.DataType) -> FieldSource:
    import pyarrow as pa

    if field.shape is Shape.MAP:
        if not pa.types.is_map(type):
            raise _mismatch(field.path, "map", type)
        assert field.message is not None
        key, value = field.message.fields
        entries = (_field(key, 0, type.key_type), _field(value, 1, type.item_type))
        return FieldSource(field, column, Kind.MESSAGE, type, None, entries)
    if field.shape is Shape.REPEATED:
        if not pa.types.is_list(type):
            raise _mismatch(field.path, "list", type)
        type = type.value_type
    if field.kind in MESSAGE_KINDS and pa.types.is_struct(type):
        assert field.message is not None
        return FieldSource(field, column, Kind.MESSAGE, type, None, _message(field.message, type, field.path))
    if type not in _types(field):
        raise _mismatch(field.path, field.kind.name.lower(), type)
    return FieldSource(field, column, field.kind, type, _bounds(field.kind, type), ())


def _types(field: FieldPlan) -> Iterator[pa.DataType]:
    """Yields the types of values that the field takes."""
    import pyarrow as pa

    if field.kind is Kind.EMPTY or field.kind is Kind.MESSAGE:
        return
    yield field.element_type
    if field.kind in INT32_KINDS or field.kind in INT64_KINDS:
        yield from (pa.int32(), pa.int64())
    if field.kind in (Kind.UINT64, Kind.FIXED64):
        yield pa.decimal128(20, 0)
    if field.kind is Kind.ENUM:
        yield pa.int32()


def _bounds(kind: Kind, type: pa.DataType) -> tuple[int, int] | None:
    import pyarrow as pa

    if kind not in INT32_KINDS and kind not in INT64_KINDS:
        return None
    bits = 32 if kind in INT32_KINDS else 64
    if pa.types.is_integer(type) and (type.bit_width == bits or (bits == 64 and kind not in UNSIGNED_KINDS)):
        return None  # unsigned integers are decoded as signed ones with the same bits
    return _INT_BOUNDS[kind in UNSIGNED_KINDS, bits]


def _mismatch(path: str, expected: str, type: Any) -> IncompatibleTypes:
    return IncompatibleTypes(f"Field {path or 'of the column'!r} is a {expected}, but the column has type {type}")
