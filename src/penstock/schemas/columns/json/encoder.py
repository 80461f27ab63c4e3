"""Encodes Arrow columns as JSON payloads."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.schemas.columns.codec import CannotEncode

_OPTIONS: Final = orjson.OPT_UTC_Z


class JsonEncoder:
    """Encodes the elements of a column as JSON. Properties that are null are left out, as in Spark's `to_json`."""

    def __init__(self, kind: pa.DataType) -> None:
        """`kind`: the column type. Its fields that are not nullable are required."""
        self._type = kind

    def encode(self, values: pa.Array, header: bytes) -> pa.BinaryArray:
        """Returns one payload per element. Raises CannotEncode for a required property that is null, a number that
        JSON does not have (NaN, infinity), and a time that is not in the years 1 to 9999."""
        try:
            rows = values.to_pylist()
        except (OverflowError, ValueError) as error:
            raise self._cannot_convert(values, error) from None
        if _may_misfit(values, self._type):
            for row, value in enumerate(rows):
                reason = None if value is None else _misfit(value, self._type, "")
                if reason is not None:
                    raise CannotEncode(row, reason)
        prune = _pruner(self._type)
        dump = orjson.dumps
        return pa.array(
            [
                None if value is None else header + dump(prune(value), default=_encode_other, option=_OPTIONS)
                for value in rows
            ],
            pa.binary(),
        )

    def _cannot_convert(self, values: pa.Array, error: Exception) -> CannotEncode:
        for row, value in enumerate(values):
            try:
                value.as_py()
            except (OverflowError, ValueError):
                return CannotEncode(row, f"a time is out of the range of JSON: {error}")
        return CannotEncode(0, str(error))


def _encode_other(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError(f"JSON has no values of type {type(value).__name__}")


def _pruner(kind: pa.DataType) -> Callable[[Any], Any]:
    """Returns a function that makes dicts of maps, and removes null properties of a value and those within it."""
    if pa.types.is_struct(kind):
        fields = [(each.name, _pruner(each.type) if each.type.num_fields else None) for each in kind]
        if all(prune is None for _, prune in fields):
            return lambda value: {name: item for name, item in value.items() if item is not None}
        return lambda value: {
            name: item if prune is None else prune(item)
            for name, prune in fields
            if (item := value[name]) is not None
        }
    if pa.types.is_map(kind):
        prune_item = _pruner(kind.item_type)
        return lambda value: {key: None if item is None else prune_item(item) for key, item in value}
    if pa.types.is_list(kind) and kind.value_type.num_fields:
        prune_element = _pruner(kind.value_type)
        return lambda value: [None if item is None else prune_element(item) for item in value]
    return lambda value: value


# -- values that do not fit


def _may_misfit(values: pa.Array, kind: pa.DataType) -> bool:
    """Whether some value may not fit, by a few operations per column. Children of null values may be null, too."""
    if pa.types.is_floating(kind):
        return not pc.all(pc.is_finite(values)).as_py() if len(values) > values.null_count else False
    if pa.types.is_struct(kind):
        pairs = [(field, values.field(number)) for number, field in enumerate(kind)]
    elif pa.types.is_map(kind):
        pairs = [(kind.item_field, values.items)]
    elif pa.types.is_list(kind):
        pairs = [(kind.value_field, values.values)]
    else:
        return False
    return any((not each.nullable and child.null_count) or _may_misfit(child, each.type) for each, child in pairs)


def _misfit(value: Any, kind: pa.DataType, path: str) -> str | None:
    """Returns why a value does not fit; None if it does."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{_place(path)} is {value}, which JSON does not have"
    members: list[tuple[str, Any, pa.Field]] = []
    if pa.types.is_struct(kind):
        members = [(each.name, value[each.name], each) for each in kind]
    elif pa.types.is_map(kind):
        members = [(str(key), item, kind.item_field) for key, item in value]
    elif pa.types.is_list(kind):
        members = [(str(number), item, kind.value_field) for number, item in enumerate(value)]
    for name, item, field in members:
        where = f"{path}.{name}" if path else name
        if item is None:
            reason = None if field.nullable else f"field {where!r} is null, but required"
        else:
            reason = _misfit(item, field.type, where)
        if reason is not None:
            return reason
    return None


def _place(path: str) -> str:
    return f"field {path!r}" if path else "the value"
