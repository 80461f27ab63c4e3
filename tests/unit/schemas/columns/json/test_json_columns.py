"""JSON payloads as Arrow columns, and back."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schemas.columns.codec import CannotEncode, NoColumnType
from penstock.schemas.columns.json.decoder import JsonDecoder
from penstock.schemas.columns.json.encoder import JsonEncoder
from penstock.schemas.columns.json.schema_types import json_schema_of, json_type
from penstock.schemas.formats.json_schema import parse

TIME = pa.timestamp("us", tz="UTC")
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


def decode(kind: pa.DataType, *payloads: str | bytes | None) -> tuple[list[Any], dict[int, str]]:
    given = [each.encode() if isinstance(each, str) else each for each in payloads]
    found = JsonDecoder(kind).decode(pa.array(given, pa.binary()), 0)
    assert found.values.type == kind
    found.values.validate(full=True)
    return found.values.to_pylist(), dict(found.bad)


def encode(kind: pa.DataType, *values: Any) -> list[Any]:
    payloads = JsonEncoder(kind).encode(pa.array(values, kind), b"")
    return [None if payload is None else json.loads(payload) for payload in payloads.to_pylist()]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "1", 1),
        (pa.int64(), "1.0", 1),
        (pa.int64(), str(2**63 - 1), 2**63 - 1),
        (pa.int8(), "-128", -128),
        (pa.float64(), "1", 1.0),
        (pa.float64(), str(2**60 + 1), float(2**60)),
        (pa.float32(), "0.5", 0.5),
        (pa.bool_(), "true", True),
        (pa.string(), '"é"', "é"),
        (pa.string(), '{"a": [1, null]}', '{"a":[1,null]}'),
        (pa.string(), "12.5", "12.5"),
        (pa.binary(), '"/w=="', b"\xff"),
        (pa.date32(), '"2026-01-31"', date(2026, 1, 31)),
        (TIME, '"2026-01-31T12:00:00Z"', NOON),
        (TIME, '"2026-01-31T13:00:00+01:00"', NOON),
        (TIME, '"2026-01-31 12:00:00"', NOON),
        (TIME, "1769860800", NOON),
        (TIME, "1769860800000", NOON),
        (TIME, "1769860800.5", NOON.replace(microsecond=500_000)),
        (pa.timestamp("us"), '"2026-01-31T12:00:00"', NOON.replace(tzinfo=None)),
        (pa.decimal128(20, 2), "123456789012345678.25", Decimal("123456789012345678.25")),
        (pa.decimal128(4, 2), '"1.5"', Decimal("1.50")),
        (pa.list_(pa.int64()), "[1, null]", [1, None]),
        (pa.map_(pa.string(), pa.int64()), '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        (struct(a=struct(b=pa.int64())), '{"a": {"b": 1, "c": 2}}', {"a": {"b": 1}}),
        (struct(a=pa.int64()), "{}", {"a": None}),
        (struct(a=pa.int64()), "null", None),
        (struct(a=pa.int64()), None, None),
    ],
)
def test_a_value_is_decoded_alone_and_among_others(kind: pa.DataType, text: str | None, value: object) -> None:
    assert decode(kind, text) == ([value], {})
    assert decode(kind, text, None, text) == ([value, None, value], {})


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (pa.int64(), "1.5", "1.5 is not an integer of 64 bits"),
        (pa.int64(), "true", "true is not an integer"),
        (pa.int64(), '"1"', '"1" is not an integer'),
        (pa.int64(), str(2**63), "is not an integer of 64 bits"),
        (pa.int64(), "1e400", "it is not JSON"),
        (pa.int16(), "32768", "is not an integer of 16 bits"),
        (pa.float64(), "false", "false is not a number"),
        (pa.bool_(), "0", "0 is not a boolean"),
        (pa.binary(), '"?"', "is not a base64 text"),
        (pa.date32(), '"31.1.2026"', "is not a date such as"),
        (TIME, '"noon"', '"noon" is not a time such as'),
        (TIME, "1e300", "is not a time such as"),
        (pa.decimal128(3, 2), "123.45", "is not a DECIMAL(3, 2)"),
        (pa.list_(pa.int64()), '[1, "x"]', "field '1': \"x\" is not an integer"),
        (pa.list_(pa.int64()), "{}", "an array is expected, not an object"),
        (pa.list_(pa.field("element", pa.int64(), False)), "[null]", "field '0': is missing or null, but required"),
        (struct(a=struct(b=pa.int64())), '{"a": {"b": []}}', "field 'a.b': [] is not an integer"),
        (struct(a=struct(b=pa.int64())), '{"a": 1}', "field 'a': an object is expected, not a number"),
        (pa.struct([pa.field("a", pa.int64(), False)]), "{}", "field 'a': is missing or null, but required"),
        (pa.int64(), "", "it is not JSON"),
        (pa.int64(), "1 2", "it is not JSON"),
        (pa.int64(), "NaN", "it is not JSON"),
        (pa.string(), b'"\xff"', "it is not JSON"),
        (pa.string(), '"\\ud800"', "it is not JSON"),
        (pa.decimal128(3, 2), "NaN", "it is not JSON"),
        (pa.decimal128(3, 2), "[" * 5000, "it is not JSON"),
        (pa.string(), "[" * 5000, "it is not JSON"),
        (struct(a=pa.int64()), '{"a":1},{"a":2', "it is not JSON"),
    ],
)
def test_only_the_row_that_does_not_fit_is_bad(kind: pa.DataType, text: str | bytes, reason: str) -> None:
    values, bad = decode(kind, None, text, "null", text)
    assert values == [None] * 4
    assert list(bad) == [1, 3]
    assert reason in bad[1]


def test_bytes_before_the_payload_are_skipped_and_slices_are_respected() -> None:
    payloads = pa.array([b"?????x", b"12345[1]", None, b"12345[2, 3]"], pa.binary()).slice(1)
    found = JsonDecoder(pa.list_(pa.int64())).decode(payloads, 5)
    assert (found.values.to_pylist(), found.bad) == ([[1], None, [2, 3]], {})


def test_an_empty_column_has_its_type() -> None:
    assert decode(struct(a=pa.list_(pa.string()))) == ([], {})


def test_nulls_are_left_out_of_objects_and_kept_in_arrays() -> None:
    kind = struct(a=pa.int64(), b=struct(c=pa.string()), d=pa.list_(struct(e=pa.int64())))
    rows = [{"a": None, "b": {"c": None}, "d": [None, {"e": None}, {"e": 1}]}, None, {"a": 1, "b": None, "d": None}]
    assert encode(kind, *rows) == [{"b": {}, "d": [None, {}, {"e": 1}]}, None, {"a": 1}]


def test_types_that_json_does_not_have_are_texts_and_numbers() -> None:
    kind = struct(at=TIME, day=pa.date32(), price=pa.decimal128(30, 2), raw=pa.binary())
    price = Decimal("1234567890123456789012345.50")
    row = {"at": NOON, "day": date(2026, 1, 31), "price": price, "raw": b"\xff"}
    (payload,) = JsonEncoder(kind).encode(pa.array([row], kind), b"-").to_pylist()
    assert payload == (
        b'-{"at":"2026-01-31T12:00:00Z","day":"2026-01-31","price":1234567890123456789012345.50,"raw":"/w=="}'
    )
    assert decode(kind, payload[1:]) == ([row], {})


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (pa.float64(), math.nan, "Row 1: the value is nan, which JSON does not have"),
        (struct(a=pa.list_(pa.float64())), {"a": [math.inf]}, "Row 1: field 'a.0' is inf"),
        (pa.map_(pa.string(), pa.float64()), [("x", math.nan)], "Row 1: field 'x' is nan"),
    ],
)
def test_a_number_that_json_does_not_have_is_refused(kind: pa.DataType, value: object, reason: str) -> None:
    with pytest.raises(CannotEncode, match=reason):
        encode(kind, None, value)


def test_a_required_field_that_is_null_is_refused_with_its_path() -> None:
    kind = struct(a=pa.list_(pa.struct([pa.field("b", pa.int64(), nullable=False)])))
    values = pa.array([{"a": [{"b": 1}]}, {"a": [{"b": 1}, {"b": None}]}], struct(a=pa.list_(struct(b=pa.int64()))))
    with pytest.raises(CannotEncode, match=r"Row 1: field 'a\.1\.b' is null, but required"):
        JsonEncoder(kind).encode(values, b"")


def test_the_type_of_a_derived_schema_is_the_column_type() -> None:
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("tags", pa.list_(pa.field("element", pa.string()))),
            pa.field("counts", pa.map_(pa.string(), pa.field("value", pa.float64(), nullable=False))),
            pa.field("customer", pa.struct([pa.field("name", pa.string())])),
        ]
    )
    assert json_type(parse(json_schema_of(kind, "Order"), {})) == kind
    with pytest.raises(NoColumnType, match=r"Column 'a' has the type map<int64"):
        json_schema_of(struct(a=pa.map_(pa.int64(), pa.string())), "Order")


LEAVES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(codec="utf-8")),
    pa.binary(): st.binary(),
}


@st.composite
def types(draw: st.DrawFn, depth: int = 3) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type and its values."""
    shape = draw(st.sampled_from(["leaf", "struct", "list", "map"] if depth else ["leaf"]))
    if shape == "leaf":
        kind = draw(st.sampled_from(list(LEAVES)))
        return kind, LEAVES[kind]
    if shape == "struct":
        fields = draw(st.lists(types(depth - 1), min_size=1, max_size=3))
        named = {f"f{number}": each for number, each in enumerate(fields)}
        kind = pa.struct([(name, inner) for name, (inner, _) in named.items()])
        return kind, st.fixed_dictionaries({name: st.none() | values for name, (_, values) in named.items()})
    inner, values = draw(types(depth - 1))
    if shape == "list":
        return pa.list_(pa.field("element", inner)), st.lists(st.none() | values, max_size=3)
    keys = st.text(st.characters(codec="utf-8"), max_size=3)
    pairs = st.dictionaries(keys, st.none() | values, max_size=3).map(lambda found: list(found.items()))
    return pa.map_(pa.string(), inner), pairs


@given(st.data())
def test_what_is_encoded_is_decoded_as_it_was(data: st.DataObject) -> None:
    kind, values = data.draw(types())
    rows = data.draw(st.lists(st.none() | values, max_size=5))
    payloads = JsonEncoder(kind).encode(pa.array(rows, kind), b"12345")
    found = JsonDecoder(kind).decode(payloads, 5)
    assert not found.bad
    assert found.values.to_pylist() == rows


@given(st.data())
def test_a_bad_row_does_not_change_the_others(data: st.DataObject) -> None:
    kind, values = data.draw(types())
    good = JsonEncoder(kind).encode(pa.array(data.draw(st.lists(values, max_size=4)), kind), b"").to_pylist()
    other = data.draw(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(), st.lists))
    at = data.draw(st.integers(0, len(good)))
    payloads = [*good[:at], json.dumps(other).encode(), *good[at:]]
    alone = [decode(kind, each) for each in payloads]
    values_found, bad = decode(kind, *payloads)
    assert values_found == [found for (found,), _ in alone]
    assert bad == {row: reasons[0] for row, (_, reasons) in enumerate(alone) if reasons}
