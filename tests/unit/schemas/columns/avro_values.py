"""Random Avro schemas with logical types, values for them, and the columns that the values must become."""

import itertools
import json
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import types

from penstock.schemas.formats.avro import AvroSchema, parse
from tests.unit.schemas.avro import schema_strategies
from tests.unit.schemas.avro.schema_strategies import encode

INTS = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
LOGICAL: dict[str, list[dict[str, Any]]] = {
    "int": [{"logicalType": "date"}, {"logicalType": "time-millis"}],
    "long": [
        {"logicalType": name}
        for name in (
            "time-micros",
            "timestamp-millis",
            "timestamp-micros",
            "timestamp-nanos",
            "local-timestamp-millis",
            "local-timestamp-micros",
        )
    ],
    "string": [{"logicalType": "uuid"}],
    "bytes": [
        {"logicalType": "decimal", "precision": 38, "scale": 5},
        {"logicalType": "decimal", "precision": 3, "scale": 3},
    ],
}
FACTORS = {"time-micros": 1000, "timestamp-millis": 1000, "local-timestamp-millis": 1000}
"""Units of columns in those of Avro."""
DAY_US = 86_400 * 10**6


def parsed(schema: Any) -> AvroSchema:
    return parse(json.dumps(schema), {})


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """A schema, some of whose primitive types have logical types."""
    return draw(_logical(draw(schema_strategies.schemas())))


@st.composite
def _logical(draw: st.DrawFn, schema: Any) -> Any:
    if isinstance(schema, list):
        return [draw(_logical(branch)) for branch in schema]
    if isinstance(schema, str):
        choices = [{"type": schema, **logical} for logical in LOGICAL.get(schema, [])]
        return draw(st.sampled_from([schema, *choices]))
    schema = dict(schema)
    for key in ("items", "values"):
        if key in schema:
            schema[key] = draw(_logical(schema[key]))
    if "fields" in schema:
        # Defaults may not be values of the logical type.
        schema["fields"] = [
            {"name": field["name"], "type": draw(_logical(field["type"]))} for field in schema["fields"]
        ]
    return schema


@st.composite
def values(draw: st.DrawFn, schema: Any) -> Any:
    """A value of a schema; of a union, a pair of the index of the branch and its value."""
    if isinstance(schema, list):
        index = draw(st.integers(0, len(schema) - 1))
        return index, draw(values(schema[index]))
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "array":
            return draw(st.lists(values(schema["items"]), max_size=3))
        case "map":
            return draw(st.dictionaries(st.text(max_size=2), values(schema["values"]), max_size=3))
        case "record":
            return {field["name"]: draw(values(field["type"])) for field in schema["fields"]}
        case "enum":
            return draw(st.sampled_from(schema["symbols"]))
        case "fixed":
            return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
        case "int" | "long":
            return draw(st.integers(*_range(schema)) | st.integers(*_range(schema, 100)))
        case _ if _logical_name(schema) == "decimal":
            limit = 10 ** schema["precision"] - 1
            number = draw(st.integers(-limit, limit))
            size = (number if number >= 0 else ~number).bit_length() // 8 + 1
            return number.to_bytes(size + draw(st.sampled_from([0, 0, 3, 20])), signed=True)
        case _:
            return draw(_PRIMITIVES[kind])


_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=40),
    "string": st.text(st.characters(codec="utf-8"), max_size=20),
}


def _range(schema: Any, limit: int = 2**63) -> tuple[int, int]:
    kind = schema if isinstance(schema, str) else schema["type"]
    name = _logical_name(schema)
    low, high = INTS[kind]
    if name == "time-micros":
        low, high = 0, DAY_US - 1
    elif name in FACTORS:
        low, high = -(2**63 // 1001), 2**63 // 1001
    return max(low, -limit), min(high, limit)


def _logical_name(schema: Any) -> str:
    return "" if isinstance(schema, str | list) else schema.get("logicalType", "")


def column_value(schema: Any, value: Any) -> Any:
    """Returns what a value must be in a column, in the form of `plain_values`."""
    if isinstance(schema, list):
        return _union_value(schema, *value)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "array":
            return [column_value(schema["items"], item) for item in value]
        case "map":
            return [(key, column_value(schema["values"], each)) for key, each in value.items()]
        case "record":
            return {field["name"]: column_value(field["type"], value[field["name"]]) for field in schema["fields"]}
        case "int" | "long":
            return value * FACTORS.get(_logical_name(schema), 1)
        case _ if _logical_name(schema) == "decimal":
            return int.from_bytes(value, signed=True)
        case _:
            return value


def _union_value(union: list[Any], index: int, value: Any) -> Any:
    kinds = [branch if isinstance(branch, str) else branch["type"] for branch in union]
    if kinds[index] == "null":
        return None
    others = [number for number, kind in enumerate(kinds) if kind != "null"]
    found = {kinds[number] for number in others}
    if len(others) == 1:
        return column_value(union[index], value)
    if len(others) == 2 and found in ({"int", "long"}, {"float", "double"}):
        return value
    return {
        f"member{place}": column_value(union[number], value) if number == index else None
        for place, number in enumerate(others)
    }


def plain_values(column: pa.Array) -> list[Any]:
    """Returns the values of a column, with those of logical types as integers."""
    kind = column.type
    valid = column.is_valid().to_pylist()
    if types.is_struct(kind):
        parts = [plain_values(column.field(number)) for number in range(kind.num_fields)]
        names = [field.name for field in kind]
        found: list[Any] = [
            dict(zip(names, [part[row] for part in parts], strict=True)) for row in range(len(column))
        ]
    elif types.is_map(kind):
        keys, items = column.keys.to_pylist(), plain_values(column.items)
        found = [list(zip(keys[a:b], items[a:b], strict=True)) for a, b in _spans(column)]
    elif types.is_list(kind):
        items = plain_values(column.values)
        found = [items[a:b] for a, b in _spans(column)]
    elif types.is_decimal(kind):
        found = [None if each is None else _unscaled(each) for each in column.to_pylist()]
    elif types.is_temporal(kind):
        found = column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    else:
        found = column.to_pylist()
    return [each if is_valid else None for each, is_valid in zip(found, valid, strict=True)]


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    return (-1) ** sign * int("".join(map(str, digits)))


def _spans(column: pa.Array) -> list[tuple[int, int]]:
    offsets = column.offsets.to_pylist()
    return list(itertools.pairwise(offsets))


def payloads(schema: Any, rows: Sequence[Any], header: bytes = b"") -> pa.BinaryArray:
    """Returns the encoded values of a schema; a value that is None is a null payload, if the type is not null."""
    return pa.array([header + encode(schema, row) for row in rows], pa.binary())


def rounded(value: float) -> float:
    """Returns the nearest 32-bit float."""
    single: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return single
