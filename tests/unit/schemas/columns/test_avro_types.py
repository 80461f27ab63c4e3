"""The column types of Avro schemas are those that Spark 4.3 derives."""

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.schemas.columns.avro.spark_schema import avro_schema_of
from penstock.schemas.columns.avro.types import avro_type
from penstock.schemas.columns.codec import IncompatibleTypes, NoColumnType
from penstock.schemas.columns.layout import COLUMNS_MAX
from tests.unit.schemas.columns.avro_values import parsed

TYPES: list[tuple[Any, pa.DataType]] = [
    ("null", pa.null()),
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("string", pa.string()),
    ("bytes", pa.binary()),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary()),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "int", "logicalType": "time-millis"}, pa.int32()),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("ns")),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC")),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    ({"type": "long", "logicalType": "timestamp-nanos"}, pa.int64()),  # pyspark has no type with nanoseconds
    ({"type": "string", "logicalType": "uuid"}, pa.string()),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, pa.binary()),
    ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, pa.binary()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}, pa.decimal128(38, 10)),
    (
        {"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2},
        pa.decimal128(10, 2),
    ),
    ({"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 10}, pa.binary()),
    ({"type": "bytes", "logicalType": "big-decimal"}, pa.binary()),
    (["int", "long"], pa.int64()),
    (["long", "null", "int"], pa.int64()),
    (["double", "float"], pa.float64()),
    (["null"], pa.struct([])),
    (["int"], pa.int32()),
    ([{"type": "long", "logicalType": "timestamp-micros"}, "int"], pa.int64()),
    (["null", "int", "string"], pa.struct([("member0", pa.int32()), ("member1", pa.string())])),
    ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.field("element", pa.int32()))),
    ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32(), nullable=False))),
    ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
    ({"type": "map", "values": ["long", "null"]}, pa.map_(pa.string(), pa.field("value", pa.int64()))),
]


@pytest.mark.parametrize(("schema", "expected"), TYPES)
def test_a_schema_has_the_column_type_that_spark_derives(schema: Any, expected: pa.DataType) -> None:
    found = avro_type(parsed(schema))
    assert found.equals(expected, check_metadata=True)
    assert str(found) == str(expected)  # with the nullability of map values


def test_fields_are_nullable_if_their_type_is_a_union_with_null_or_null() -> None:
    fields = [
        {"name": "required", "type": "int"},
        {"name": "nullable", "type": ["null", "int"]},
        {"name": "nothing", "type": "null"},
        {"name": "either", "type": ["int", {"type": "record", "name": "Inner", "fields": []}]},
    ]
    found = avro_type(parsed({"type": "record", "name": "Top", "fields": fields}))
    assert [field.nullable for field in found] == [False, True, True, False]
    assert [field.nullable for field in found.field("either").type] == [True, True]


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (["null", "Node"], "next has the record 'Node'"),
        ({"type": "array", "items": "Node"}, "next.element has the record 'Node'"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "next is a decimal of 39 digits"),
    ],
)
def test_a_schema_without_column_type_is_refused(field: Any, problem: str) -> None:
    schema = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": field}]}
    with pytest.raises(NoColumnType, match=problem):
        avro_type(parsed(schema))


def test_the_number_of_columns_and_their_depth_are_limited() -> None:
    fields = [{"name": f"f{number}", "type": "int"} for number in range(COLUMNS_MAX)]
    with pytest.raises(NoColumnType, match=str(COLUMNS_MAX)):
        avro_type(parsed({"type": "record", "name": "Wide", "fields": fields}))
    nested: Any = "int"
    for _ in range(101):
        nested = {"type": "array", "items": nested}
    with pytest.raises(NoColumnType, match="deep"):
        avro_type(parsed(nested))
    # Each record has the one before it twice: 2^40 columns.
    doubled: list[Any] = [{"type": "record", "name": "R0", "fields": []}]
    for number in range(1, 40):
        parts = [{"name": "a", "type": doubled[-1]}, {"name": "b", "type": f"R{number - 1}"}]
        doubled.append({"type": "record", "name": f"R{number}", "fields": parts})
    with pytest.raises(NoColumnType, match=str(COLUMNS_MAX)):
        avro_type(parsed(doubled[-1]))


def test_a_column_type_has_the_schema_that_spark_derives() -> None:
    inner = pa.struct([pa.field("price", pa.decimal128(5, 1), nullable=False), ("at", pa.timestamp("us", "UTC"))])
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("small", pa.int16()),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("lines", pa.list_(pa.field("element", inner, nullable=False))),
            ("tags", pa.map_(pa.string(), pa.binary())),
            ("nothing", pa.null()),
        ]
    )
    text = avro_schema_of(kind, "shop.Order")
    fixed = {"type": "fixed", "name": "fixed", "namespace": "shop.Order.lines.price", "size": 3}
    lines = [
        {"name": "price", "type": fixed | {"logicalType": "decimal", "precision": 5, "scale": 1}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
    ]
    record = {"type": "record", "name": "lines", "namespace": "shop.Order", "fields": lines}
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    assert json.loads(text) == {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "small", "type": ["null", "int"], "default": None},
            {"name": "local", "type": ["null", local], "default": None},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
            {"name": "lines", "type": ["null", {"type": "array", "items": record}], "default": None},
            {"name": "tags", "type": ["null", {"type": "map", "values": ["null", "bytes"]}], "default": None},
            {"name": "nothing", "type": "null", "default": None},
        ],
    }
    parsed(json.loads(text)).validate(fields=True)
    assert avro_type(parsed(json.loads(text))).field("lines").type.value_type.equals(inner)


@pytest.mark.parametrize("precision", range(1, 39))
def test_a_decimal_gets_the_fewest_bytes_that_hold_it(precision: int) -> None:
    schema = json.loads(avro_schema_of(pa.decimal128(precision, 0), "price"))
    size, largest = schema["size"], 10**precision - 1
    assert -(2 ** (8 * size - 1)) <= -largest
    assert largest < 2 ** (8 * size - 1)
    assert largest >= 2 ** (8 * (size - 1) - 1)


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("not a name", pa.int32())]),
        pa.map_(pa.int32(), pa.int32()),
        pa.uint64(),
        pa.list_(pa.month_day_nano_interval()),
    ],
)
def test_a_column_type_that_avro_cannot_describe_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(IncompatibleTypes):
        avro_schema_of(kind, "Top")
