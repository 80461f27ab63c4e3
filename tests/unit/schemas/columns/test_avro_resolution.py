"""Reads data of one schema with another: the rules of Avro's specification."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from penstock.schemas.columns.avro.decoder import avro_decoder
from penstock.schemas.columns.codec import IncompatibleTypes
from tests.examples import examples
from tests.unit.schemas.avro.schema_strategies import changed, data, encode, records
from tests.unit.schemas.columns.avro_values import parsed, plain_values, rounded

pytestmark = pytest.mark.usefixtures("twin")

AB = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
BC = {"type": "enum", "name": "E", "symbols": ["B", "C"]}


def read(writer: Any, reader: Any, value: Any) -> Any:
    """Returns what a reader sees of a value of a writer; of a union, the value is an index and a value."""
    decoded = avro_decoder(parsed(writer), parsed(reader)).decode(pa.array([encode(writer, value)], pa.binary()), 0)
    decoded.values.validate(full=True)
    assert decoded.bad == {}
    return plain_values(decoded.values)[0]


def problem(writer: Any, reader: Any, value: Any) -> str:
    decoded = avro_decoder(parsed(writer), parsed(reader)).decode(pa.array([encode(writer, value)], pa.binary()), 0)
    assert decoded.values.to_pylist() == [None]
    return decoded.bad[0]


def record(*fields: Any, name: str = "R", **members: Any) -> dict[str, Any]:
    """A record. A field is its name and its type, and perhaps its default and its aliases."""
    keys = ("name", "type", "default", "aliases")
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(keys, field, strict=False)) for field in fields],
        **members,
    }


def long_of(logical: str) -> Any:
    return {"type": "long", "logicalType": logical}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", -7, -7),
        ("int", "float", 2**30 + 1, float(2**30)),
        ("int", "double", 2**31 - 1, float(2**31 - 1)),
        ("long", "float", 2**40 + 2**16 + 1, 2.0**40 + 2**17),  # by way of a double, it would be rounded down
        ("long", "double", 2**62, 2.0**62),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"ab", "ab"),
        ("int", {"type": "int", "logicalType": "date"}, 3, 3),
        ({"type": "int", "logicalType": "date"}, "long", 3, 3),
        (long_of("timestamp-millis"), long_of("timestamp-micros"), 3, 3000),
        (long_of("timestamp-micros"), long_of("timestamp-millis"), 3, 3),
        (long_of("timestamp-millis"), "long", 3, 3),
        ("long", long_of("timestamp-millis"), 3, 3000),
        (long_of("timestamp-millis"), long_of("local-timestamp-micros"), 3, 3000),
        (long_of("timestamp-micros"), long_of("timestamp-nanos"), 3, 3000),
        ({"type": "int", "logicalType": "time-millis"}, long_of("time-micros"), 3, 3_000_000),
        (AB, {**AB, "symbols": ["B", "A"]}, "A", "A"),
        (AB, {**BC, "default": "C"}, "A", "C"),
        (AB, {**AB, "name": "x.E"}, "B", "B"),
        (AB, {**AB, "name": "Other", "aliases": ["E"]}, "B", "B"),
    ],
)
def test_a_type_is_promoted_to_that_of_the_reader(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    assert read(writer, reader, value) == expected


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        (["null", "int"], ["null", "long"], (1, 5), 5),
        (["null", "int"], ["long", "null"], (0, None), None),
        (["int", "null"], ["null", "long"], (1, None), None),
        (["int", "long"], "long", (0, 5), 5),
        ("int", ["null", "int"], 5, 5),
        ("string", ["bytes", "string"], "a", {"member0": None, "member1": "a"}),  # the same type, not the first
        ("int", ["string", "long", "double"], 5, {"member0": None, "member1": 5, "member2": None}),
        ("int", ["long", "int"], 5, 5),
        ("int", ["float", "double"], 5, 5.0),
        ("null", ["null", "int"], None, None),
        (["null", "int", "string"], ["int", "string", "null"], (2, "x"), {"member0": None, "member1": "x"}),
        (["null", "int", "string"], ["int", "string", "null"], (0, None), None),
        (["int", "string"], ["null", "string", "int"], (0, 3), {"member0": None, "member1": 3}),
        (["int"], ["null", "int"], (0, 3), 3),
        (
            record(("a", "int"), name="n.B"),
            [record(("a", "int"), name="A"), record(("a", "long"), name="B")],
            {"a": 5},
            {"member0": None, "member1": {"a": 5}},
        ),
        (
            # No name matches: the first record that can read it.
            record(("a", "int"), name="X"),
            ["null", record(("b", "int"), name="A"), record(("a", "long"), name="B")],
            {"a": 5},
            {"member0": None, "member1": {"a": 5}},
        ),
    ],
)
def test_unions_on_either_side_are_resolved(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    assert read(writer, reader, value) == expected


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        (["int", "string"], "int", (1, "x"), "string"),
        (["null", "int"], "int", (0, None), "null"),
        (["null", "string"], ["null", "int"], (1, "x"), "string"),
        (AB, BC, "A", "does not have the symbol"),
        (
            # It could be read as the record A.
            [record(name="B"), "int"],
            [record(name="A"), record(("new", "int"), name="B"), "int"],
            (0, {}),
            "no type that can read 'record'",
        ),
    ],
)
def test_a_value_that_the_reader_has_no_type_for_is_bad(writer: Any, reader: Any, value: Any, expected: str) -> None:
    assert expected in problem(writer, reader, value)


def test_fields_are_matched_by_name_or_alias_in_any_order() -> None:
    writer = record(
        ("a", "int"), ("old", "string"), ("gone", ["null", {"type": "map", "values": "long"}]), ("z", "long")
    )
    reader = record(("z", "double"), ("new", "bytes", "", ["older", "old"]), ("a", ["null", "long"]))
    value = {"a": 1, "old": "x", "gone": (1, {"k": 5, "l": 6}), "z": 3}
    assert read(writer, reader, value) == {"z": 3.0, "new": b"x", "a": 1}


def test_a_field_of_the_same_name_is_preferred_to_an_alias() -> None:
    writer = record(("a", "int"), ("b", "int"))
    reader = record(("c", "int", 7, ["a"]), ("a", "int"))
    assert read(writer, reader, {"a": 1, "b": 2}) == {"c": 7, "a": 1}


DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("int", 5, 5),
    ("boolean", True, True),
    ("float", 0.5, 0.5),
    ("float", 1e300, float("inf")),
    ("double", 3, 3.0),
    ("double", "-Infinity", float("-inf")),
    ("string", "é", "é"),
    ("bytes", "\u00ff\u0000", b"\xff\x00"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u0080", b"\x01\x80"),
    (AB, "B", "B"),
    (["null", "int"], None, None),
    (["int", "null"], 4, 4),
    (["null", "int"], 4, 4),  # of another branch than the first: since Avro 1.12
    (["int", "string"], "x", {"member0": None, "member1": "x"}),
    ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
    ({"type": "array", "items": "int"}, [], []),
    ({"type": "map", "values": "string"}, {"a": "b"}, [("a", "b")]),
    (record(("x", "int"), ("y", "string", "why"), name="Inner"), {"x": 1}, {"x": 1, "y": "why"}),
    (long_of("timestamp-millis"), 5, 5000),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001\u0000", 256),
]


@pytest.mark.parametrize(("kind", "default", "expected"), DEFAULTS)
def test_a_field_that_the_writer_lacks_has_its_default(kind: Any, default: Any, expected: Any) -> None:
    writer = record(("a", "int"))
    reader = record(("added", kind, default), ("a", "int"))
    assert read(writer, reader, {"a": 1}) == {"added": expected, "a": 1}


@pytest.mark.parametrize(
    ("writer", "reader", "expected"),
    [
        ("string", "int", "int cannot read the writer's type string"),
        ("long", "int", "int cannot read"),
        ("double", "float", "float cannot read"),
        (record(("a", "int")), record(("a", "string")), "a: the reader's type string"),
        (record(("a", "int")), record(("b", "int")), "b: the writer does not have the field"),
        (record(("a", "int")), record(("b", "int", "x")), "b: the default x is not a value"),
        (record(("a", "int")), record(("b", AB, "C")), "b: the default C is not a value"),
        (record(("a", "int"), ("b", "int")), record(("c", "int", 0, ["a", "b"])), "aliases of the field 'c'"),
        (AB, {**AB, "name": "Other"}, "enum 'Other' cannot read"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "fixed 'F'"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "map cannot read"),
        (["int", "string"], "boolean", "none of the types"),
        ("string", ["null", "int"], "no type that can read 'string'"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "decimal of scale 2 cannot read",
        ),
        (long_of("timestamp-nanos"), long_of("timestamp-micros"), "timestamp-micros cannot read"),
        (long_of("time-micros"), long_of("timestamp-micros"), "timestamp-micros cannot read"),
    ],
)
def test_schemas_that_cannot_be_resolved_are_refused(writer: Any, reader: Any, expected: str) -> None:
    with pytest.raises(IncompatibleTypes, match=expected):
        avro_decoder(parsed(writer), parsed(reader))


def test_a_writer_with_records_of_records_is_skipped_in_few_instructions() -> None:
    """Each record has the one before it twice: written out, there would be 2^60 fields."""
    last: Any = record(("x", "int"), name="R0")
    for number in range(1, 60):
        last = record(("a", last), ("b", f"R{number - 1}"), name=f"R{number}")
    writer = record(("big", ["null", last]), ("id", "int"), name="Top")
    assert read(writer, record(("id", "int"), name="Top"), {"big": (0, None), "id": 7}) == {"id": 7}


PAIRS = records().flatmap(lambda schema: st.tuples(st.just(schema), changed(schema)))


@settings(examples(400), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@example(({**record(("f", ["bytes", "string"])), "name": "Top"},) * 2)
@given(PAIRS)
def test_resolution_agrees_with_another_decoder(pair: tuple[Any, Any]) -> None:
    writer, reader = pair
    rows = data(writer)
    differences = parsed(reader).differences(parsed(writer))
    try:
        decoder = avro_decoder(parsed(writer), parsed(reader))
    except IncompatibleTypes:
        event("refused")
        assert differences
        return
    decoded = decoder.decode(pa.array([encode(writer, row) for row in rows], pa.binary()), 0)
    decoded.values.validate(full=True)
    assert differences or decoded.bad == {}
    event(f"bad payloads: {bool(decoded.bad)}")
    written_as, read_as = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    for number, (row, found) in enumerate(zip(rows, plain_values(decoded.values), strict=True)):
        if number not in decoded.bad:
            expected = fastavro.schemaless_reader(io.BytesIO(encode(writer, row)), written_as, read_as)
            assert _is_same(found, expected), (json.dumps(writer), json.dumps(reader), found, expected)


def _is_same(found: Any, expected: Any) -> bool:
    """Compares a column's value with that of the other decoder, which does not tell the branches of unions."""
    if isinstance(found, dict) and "member0" in found:
        members = [each for each in found.values() if each is not None]
        if len(members) == 1 and isinstance(members[0], str) and isinstance(expected, bytes):
            return members[0].encode() == expected  # the other decoder prefers a promotion that comes first
        return len(members) == 1 and _is_same(members[0], expected)
    if isinstance(found, dict):
        return isinstance(expected, dict) and all(_is_same(each, expected[name]) for name, each in found.items())
    if isinstance(found, list) and isinstance(expected, dict):
        return len(found) == len(expected) and all(_is_same(each, expected[key]) for key, each in found)
    if isinstance(found, list):
        return len(found) == len(expected) and all(map(_is_same, found, expected))
    if isinstance(found, float):
        return bool(found == expected or found == rounded(expected))
    if isinstance(found, bytes) and isinstance(expected, str):
        return found == expected.encode("latin-1")  # a default, as it stands in the schema
    return bool(found == expected)
