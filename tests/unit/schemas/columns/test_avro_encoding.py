"""Encodes columns as Avro payloads, which decoders read again."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import MessageTooLarge
from penstock.schemas.columns import _avro_encode_pure, kernel
from penstock.schemas.columns.avro.decoder import avro_decoder
from penstock.schemas.columns.avro.encoder import avro_encoder
from penstock.schemas.columns.avro.spark_schema import avro_schema_of
from penstock.schemas.columns.avro.types import avro_type
from penstock.schemas.columns.codec import CannotEncode, IncompatibleTypes
from tests.examples import examples
from tests.unit.schemas.avro.schema_strategies import encode
from tests.unit.schemas.columns.avro_values import parsed, payloads, plain_values, schemas, values

pytestmark = pytest.mark.usefixtures("twin")

FIXED = {"type": "fixed", "name": "F", "size": 2}
COLORS = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE", "GREEN", "DARK_GREEN"]}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


def record(**fields: Any) -> dict[str, Any]:
    described = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Top", "fields": described}


def encoded(schema: Any, rows: pa.Array | list[Any], header: bytes = b"") -> list[bytes | None]:
    parsed_schema = parsed(schema)
    column = rows if isinstance(rows, pa.Array) else pa.array(rows, avro_type(parsed_schema))
    result = avro_encoder(parsed_schema).encode(column, header)
    result.validate(full=True)
    assert result.type == pa.binary()
    found: list[bytes | None] = result.to_pylist()
    return found


@examples(300)
@given(st.data())
def test_what_is_encoded_is_decoded_again(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(st.lists(values(schema), min_size=1, max_size=6))
    first = data.draw(st.integers(0, len(rows) - 1))
    decoder = avro_decoder(parsed(schema), parsed(schema))
    column = decoder.decode(payloads(schema, rows), 0).values[first:]
    found = avro_encoder(parsed(schema)).encode(column, b"head")
    found.validate(full=True)
    assert found.is_null().equals(column.is_null())
    again = decoder.decode(found, 4)
    assert again.bad == {}
    assert plain_values(again.values) == plain_values(column)
    for payload, row in zip(found.to_pylist(), rows[first:], strict=True):
        if payload is not None:
            _assert_same_to_another_decoder(schema, payload[4:], encode(schema, row))


def _assert_same_to_another_decoder(schema: Any, one: bytes, other: bytes) -> None:
    """The payloads may differ: in the branch of a union of numbers, and in the size of a decimal."""
    read_as = fastavro.parse_schema(_plain(schema))
    first, second = (io.BytesIO(each) for each in (one, other))
    assert fastavro.schemaless_reader(first, read_as) == fastavro.schemaless_reader(second, read_as)
    assert first.read() == b""


def _plain(schema: Any) -> Any:
    """The schema without logical types, whose values Python cannot always hold, except decimals."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, str):
        return schema
    is_decimal = schema.get("logicalType") == "decimal"
    found = {key: value for key, value in schema.items() if key != "logicalType" or is_decimal}
    parts = {key: _plain(found[key]) for key in ("items", "values") if key in found}
    if "fields" in found:
        parts["fields"] = [{**field, "type": _plain(field["type"])} for field in found["fields"]]
    return {**found, **parts}


def test_the_payloads_are_those_that_the_specification_describes() -> None:
    schema = record(
        id="long",
        name=["string", "null"],
        sizes={"type": "array", "items": "int"},
        tags={"type": "map", "values": ["null", "boolean"]},
        color=COLORS,
    )
    rows = [
        {"id": -2, "name": "ab", "sizes": [1, 64], "tags": {"k": True, "l": None}, "color": "BLUE"},
        {"id": 300, "name": None, "sizes": [], "tags": {}, "color": "DARK_GREEN"},
    ]
    rows = [{**row, "tags": list(row["tags"].items())} for row in rows]  # type: ignore[attr-defined]
    assert encoded(schema, rows) == [
        b"\x03" + b"\x00\x04ab" + b"\x04\x02\x80\x01\x00" + b"\x04\x02k\x02\x01\x02l\x00\x00" + b"\x02",
        b"\xd8\x04" + b"\x02" + b"\x00" + b"\x00" + b"\x06",
    ]


def test_a_null_element_is_a_null_payload() -> None:
    assert encoded("string", ["a", None], b"\x00\x07") == [b"\x00\x07\x02a", None]
    assert encoded(["null", "int"], [None, 1]) == [None, b"\x02\x02"]
    assert encoded("null", pa.nulls(1)) == [None]


@pytest.mark.parametrize(
    ("union", "rows", "expected"),
    [
        (["int", "long"], [5], [b"\x02\x0a"]),
        (["long", "null", "int"], [5], [b"\x00\x0a"]),
        (["double", "float"], [0.0], [b"\x00" + bytes(8)]),
        (["int"], [5], [b"\x00\x0a"]),
        (["null", "int", "string"], [{"member0": 5}, {"member1": "a"}, {}], [b"\x02\x0a", b"\x04\x02a", b"\x00"]),
        (["null"], [{}], [b"\x00"]),
    ],
)
def test_unions_are_encoded(union: Any, rows: list[Any], expected: list[bytes]) -> None:
    wrapped = [{"u": row} for row in rows]
    assert encoded(record(u=union), wrapped) == expected


def test_a_null_union_is_its_branch_null_and_its_members_are_not_read() -> None:
    schema = record(u=["null", "int", "string"])
    kind = avro_type(parsed(schema))
    members = pa.StructArray.from_arrays(
        [pa.array([7, 8], pa.int32()), pa.array([None, None], pa.string())],
        fields=list(kind.field("u").type),
        mask=pa.array([False, True]),
    )
    assert encoded(schema, pa.StructArray.from_arrays([members], fields=list(kind))) == [b"\x02\x0e", b"\x00"]


@pytest.mark.parametrize(
    ("kind", "row", "problem"),
    [
        ("int", None, "a: the value is null"),
        (record(b="int"), {"b": None}, "a.b: the value is null"),
        ({"type": "array", "items": "int"}, [1, None], "a.element: the value is null"),
        ({"type": "map", "values": "int"}, [("k", None)], "a.value: the value is null"),
        (COLORS, "BLACK", "a: the text is not a symbol"),
        (COLORS, "", "a: the text is not a symbol"),
        (FIXED, b"abc", "a: the value does not have the size"),
        (["int", "string"], {"member0": None}, "a: all members of the union are null"),
        (["int", "string"], None, "a: the value is null"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(kind: Any, row: Any, problem: str) -> None:
    if kind == record(b="int"):
        kind = {**kind, "name": "Inner"}
    valid = {"int": 1}.get(kind, ...) if isinstance(kind, str) else ...
    kinds = record(a=kind)
    fields = [pa.field("a", _nullable(avro_type(parsed(kinds)).field("a").type))]
    rows = [{"a": row}] if valid is ... else [{"a": valid}, {"a": row}]
    with pytest.raises(CannotEncode, match=problem) as caught:
        encoded(kinds, pa.array(rows, pa.struct(fields)))
    assert caught.value.row == len(rows) - 1
    assert caught.value.message.startswith(f"Row {len(rows) - 1}: ")


def _nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_nullable(True) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_type)
    return pa.list_(kind.value_type) if pa.types.is_list(kind) else kind


@pytest.mark.parametrize("unscaled", [0, 1, -1, 127, 128, -128, -129, 32767, 10**38 - 1, 1 - 10**38])
def test_decimals_take_the_fewest_bytes_or_those_of_the_fixed_type(unscaled: int) -> None:
    column = pa.array([Decimal(unscaled)], pa.decimal128(38, 0))
    (free,) = encoded({"type": "bytes", "logicalType": "decimal", "precision": 38}, column)
    size = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() + 8) // 8
    assert free == encode("bytes", unscaled.to_bytes(size, signed=True))
    fixed = {"type": "fixed", "name": "D", "logicalType": "decimal", "precision": 38}
    for size in (16, 20):
        assert encoded({**fixed, "size": size}, column) == [unscaled.to_bytes(size, signed=True)]


def test_a_decimal_with_too_many_digits_is_refused() -> None:
    """Arrow does not check the precision of values that are computed."""
    beyond = pa.Array.from_buffers(pa.decimal128(4, 2), 1, [None, pa.py_buffer((10**4).to_bytes(16, "little"))])
    with pytest.raises(CannotEncode, match="more digits"):
        encoded(CENTS, beyond)


def test_times_are_rounded_down_to_the_units_of_the_schema() -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    column = pa.array([-1, -1000, -1001, 999, 2**63 - 1], pa.int64()).view(pa.timestamp("us", "UTC"))
    expected = [-1, -1, -2, 0, (2**63 - 1) // 1000]
    assert encoded(schema, column) == [encode("long", each) for each in expected]


def test_fields_may_have_another_order_and_nullable_ones_may_be_missing() -> None:
    schema = record(a="int", b=["null", "string"], c="boolean")
    column = pa.array([{"c": True, "a": 1}], pa.struct([("c", pa.bool_()), ("a", pa.int32())]))
    assert encoded(schema, column) == [b"\x02\x00\x01"]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("long", pa.array([5], pa.int32())),
        ("int", pa.array([5], pa.int8())),
        ("double", pa.array([5.0], pa.float32())),
        ("string", pa.array(["a"], pa.large_string())),
        ("bytes", pa.array([b"ab"], pa.binary(2))),
        (FIXED, pa.array([b"ab"], pa.binary(2))),
        ({"type": "array", "items": "long"}, pa.array([[1]], pa.large_list(pa.int32()))),
        ({"type": "array", "items": "int"}, pa.array([[1, 2]], pa.list_(pa.int32(), 2))),
        (CENTS, pa.array([Decimal("1.25")], pa.decimal128(3, 2))),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.array([datetime(2026, 1, 1, tzinfo=UTC)])),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.array([5], pa.timestamp("s", "Europe/Berlin"))),
        (["null", "int"], pa.nulls(1)),
    ],
)
def test_narrower_types_are_accepted(kind: Any, column: pa.Array) -> None:
    schema = record(a=kind)
    expected = column.cast(avro_type(parsed(schema)).field("a").type)
    assert encoded(schema, pa.StructArray.from_arrays([column], names=["a"])) == encoded(
        schema, pa.StructArray.from_arrays([expected], names=["a"])
    )


@pytest.mark.parametrize(
    ("kind", "column", "problem"),
    [
        ("int", pa.array([5], pa.int64()), "a has the type int64; expected int32"),
        ("string", pa.array([b"x"]), "a has the type binary; expected string"),
        ("string", pa.array([5]), "a has the type int64; expected string"),
        (COLORS, pa.array([5]), "a has the type int64; expected string"),
        ({"type": "array", "items": "int"}, pa.array([5]), "a has the type int64"),
        ({"type": "map", "values": "int"}, pa.array([[1]]), "a has the type list"),
        (
            {"type": "map", "values": "int"},
            pa.array([[(5, 5)]], pa.map_(pa.int32(), pa.int32())),
            "a.key has the type",
        ),
        (record(b="int"), pa.array([5]), "a has the type int64"),
        (record(b="int"), pa.array([{"c": 5}]), "a has fields that the schema does not have: c"),
        (record(b="int"), pa.array([{}], pa.struct([])), "a lacks fields that the schema requires: b"),
        (CENTS, pa.array([Decimal("1.5")], pa.decimal128(4, 1)), "expected decimal"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            pa.array([5], pa.timestamp("us")),
            "expected timestamp",
        ),
    ],
)
def test_a_column_of_another_type_is_refused(kind: Any, column: pa.Array, problem: str) -> None:
    if kind == record(b="int"):
        kind = {**kind, "name": "Inner"}
    with pytest.raises(IncompatibleTypes, match=problem):
        encoded(record(a=kind), pa.StructArray.from_arrays([column], names=["a"]))


def test_a_column_is_encoded_with_the_schema_of_its_type() -> None:
    inner = pa.struct([("at", pa.timestamp("us", "UTC")), pa.field("price", pa.decimal128(12, 3), nullable=False)])
    kind = pa.struct([("lines", pa.list_(inner)), ("seen", pa.map_(pa.string(), pa.time64("ns")))])
    row = {"lines": [None, {"at": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("-1.125")}], "seen": None}
    schema = json.loads(avro_schema_of(kind, "n.Top"))
    column = pa.array([row, {"lines": None, "seen": [("a", 5_000), ("b", None)]}], kind)
    found = avro_encoder(parsed(schema)).encode(column, b"")
    assert avro_decoder(parsed(schema), parsed(schema)).decode(found, 0).values.cast(kind).equals(column)


def test_payloads_that_arrow_cannot_address_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only with the pure loops, whose limit can be lowered: with the compiled ones, this takes 2 GiB of memory."""
    monkeypatch.setattr(kernel, "active", kernel.PURE)
    monkeypatch.setattr(_avro_encode_pure, "INT32_MAX", 30)
    assert len(encoded("string", ["x" * 9] * 3)) == 3
    with pytest.raises(MessageTooLarge):
        encoded("string", ["x" * 9] * 4)
