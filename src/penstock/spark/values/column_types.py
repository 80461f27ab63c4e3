"""Compares Arrow types: those of a user's schema with those that are read, those of a DataFrame with a schema's."""

from __future__ import annotations

import pyarrow as pa

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def can_hold(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Returns whether `wanted` is the same type as `found`, with the same or more fields that may be null."""
    if pa.types.is_nested(wanted) and wanted.id == found.id and wanted.num_fields == found.num_fields:
        is_struct = pa.types.is_struct(wanted)
        pairs = zip(_fields(wanted), _fields(found), strict=True)
        return all(
            (one.name == other.name or not is_struct)
            and (one.nullable or not other.nullable)
            and can_hold(one.type, other.type)
            for one, other in pairs
        )
    return bool(wanted == found)


def nullable(kind: pa.DataType) -> pa.DataType:
    """Returns the type with all nested fields nullable, except the keys of maps."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, nullable(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(nullable(kind.key_type), pa.field("value", nullable(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", nullable(kind.value_type)))
    return kind


def misfit(found: pa.DataType, wanted: pa.DataType, path: str = "") -> str | None:
    """Returns why a column of type `found` cannot be written as one of type `wanted`; None if it can.

    Fields are matched by name. Those that are missing must be nullable; integers and floats may become wider. Whether
    values are null is not known before they are written.
    """
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        return _misfit_of_structs(found, wanted, path)
    for is_kind, names in ((pa.types.is_list, ("element",)), (pa.types.is_map, ("key", "value"))):
        if is_kind(found) and is_kind(wanted):
            for one, other, name in zip(_fields(found), _fields(wanted), names, strict=True):
                reason = misfit(one.type, other.type, _join(path, name))
                if reason is not None:
                    return reason
            return None
    if _can_widen(found, wanted):
        return None
    return f"{_place(path)} is {found}, but {wanted} in the schema"


def _misfit_of_structs(found: pa.StructType, wanted: pa.StructType, path: str) -> str | None:
    there = {each.name: each for each in found}
    known = [each.name for each in wanted]
    for name in there:
        if name not in known:
            return f"{_place(_join(path, name))} is not in the schema, which has {', '.join(known) or 'no fields'}"
    for field in wanted:
        where = _join(path, field.name)
        if field.name not in there:
            if not field.nullable:
                return f"{_place(where)} is missing, but the schema requires it"
            continue
        reason = misfit(there[field.name].type, field.type, where)
        if reason is not None:
            return reason
    return None


def _can_widen(found: pa.DataType, wanted: pa.DataType) -> bool:
    if found in _INTEGERS and wanted in _INTEGERS:
        return _INTEGERS.index(found) <= _INTEGERS.index(wanted)
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        return bool(found.scale == wanted.scale and found.precision <= wanted.precision)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)
    if pa.types.is_float32(found):
        return bool(pa.types.is_floating(wanted))
    if pa.types.is_large_string(found) or pa.types.is_large_binary(found):
        return bool(wanted == (pa.string() if pa.types.is_large_string(found) else pa.binary()))
    return bool(found == wanted)


def _fields(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _place(path: str) -> str:
    return f"column {path!r}" if path else "the column"
