"""Decodes Avro payloads into columns: every type, every way in which a payload can be bad."""

import io
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import MessageTooLarge
from penstock.schemas.columns import _builders_pure, kernel
from penstock.schemas.columns.avro.decoder import avro_decoder
from penstock.schemas.columns.avro.operations import SKIP_DEPTH_MAX, ZERO_BYTE_ITEMS_MAX
from penstock.schemas.columns.codec import Decoded
from tests.examples import examples
from tests.unit.schemas.avro.schema_strategies import encode
from tests.unit.schemas.columns.avro_values import (
    column_value,
    parsed,
    payloads,
    plain_values,
    schemas,
    values,
)

pytestmark = pytest.mark.usefixtures("twin")

TIME = {"type": "long", "logicalType": "time-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 38}


def decode(schema: Any, rows: list[bytes | None], *, reader: Any = None, header_bytes: int = 0) -> Decoded:
    decoder = avro_decoder(parsed(schema), parsed(schema if reader is None else reader))
    decoded = decoder.decode(pa.array(rows, pa.binary()), header_bytes)
    decoded.values.validate(full=True)
    assert decoded.values.type.equals(decoder.type)
    assert len(decoded.values) == len(rows)
    return decoded


def reason(schema: Any, payload: bytes, *, reader: Any = None, header_bytes: int = 0) -> str:
    """Returns why a payload is bad. Those before and after it must be decoded all the same."""
    valid = bytes(header_bytes) + _some_payload(schema)
    decoded = decode(schema, [valid, payload, valid, payload], reader=reader, header_bytes=header_bytes)
    assert decoded.values.is_null().to_pylist() == [False, True, False, True]
    assert decoded.values[0] == decoded.values[2]
    assert decoded.bad[1] == decoded.bad[3]
    assert sorted(decoded.bad) == [1, 3]
    return decoded.bad[1]


def _some_payload(schema: Any) -> bytes:
    if isinstance(schema, dict) and schema["type"] == "record":
        return b"".join(_some_payload(field["type"]) for field in schema["fields"])
    if isinstance(schema, list):
        return encode("long", len(schema) - 1) + _some_payload(schema[-1])
    if isinstance(schema, dict) and schema["type"] == "fixed":
        return bytes(schema["size"])
    sizes = {"double": 8, "float": 4}
    kind = schema if isinstance(schema, str) else schema["type"]
    return bytes(sizes.get(kind, 1))


@examples(300)
@given(st.data())
def test_every_value_arrives_in_its_column(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(st.lists(values(schema), max_size=6))
    decoder = avro_decoder(parsed(schema), parsed(schema))
    decoded = decoder.decode(payloads(schema, rows, b"12345"), 5)
    decoded.values.validate(full=True)
    assert decoded.bad == {}
    assert plain_values(decoded.values) == [column_value(schema, row) for row in rows]


def test_payloads_of_another_encoder_are_decoded() -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "lines", "type": {"type": "array", "items": ["null", "double"]}},
            {"name": "tags", "type": {"type": "map", "values": "bytes"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        ],
    }
    rows = [
        {"id": -1, "note": None, "lines": [], "tags": {}, "state": "PAID"},
        {"id": 2**62, "note": "é" * 100, "lines": [None, 0.5], "tags": {"a": b"\x00", "": b""}, "state": "NEW"},
    ]
    written = []
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
        written.append(b"\x00\x00\x00\x00\x07" + stream.getvalue())
    decoded = decode(schema, written, header_bytes=5)
    assert decoded.bad == {}
    found = decoded.values.to_pylist()
    assert [{**row, "tags": dict(row["tags"])} for row in found] == rows


def test_a_null_payload_is_null_and_not_bad() -> None:
    decoded = decode("long", [None, b"\x02", None])
    assert decoded.values.to_pylist() == [None, 1, None]
    assert decoded.bad == {}


def test_no_payloads_are_an_empty_column() -> None:
    for schema in ("string", {"type": "map", "values": {"type": "array", "items": ["null", "boolean"]}}):
        assert decode(schema, []).values.to_pylist() == []


def test_payloads_may_be_a_slice() -> None:
    rows = pa.array([b"\x02", None, b"\x04", b"\x06"] * 5, pa.binary())
    decoder = avro_decoder(parsed("int"), parsed("int"))
    assert decoder.decode(rows[3:11], 0).values.to_pylist() == [3, 1, None, 2, 3, 1, None, 2]


def test_logical_types_have_the_units_of_their_columns() -> None:
    assert plain_values(decode(MILLIS, [encode("long", -5)]).values) == [-5000]
    assert plain_values(decode(TIME, [encode("long", 7)]).values) == [7000]
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    assert plain_values(decode(micros, [encode("long", 2**63 - 1)]).values) == [2**63 - 1]


@pytest.mark.parametrize("unscaled", [0, 1, -1, 127, 128, -128, -129, 10**38 - 1, 1 - 10**38, 2**64, -(2**64)])
def test_decimals_of_any_size_are_decoded(unscaled: int) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    rows = [encode("bytes", unscaled.to_bytes(size, signed=True)) for size in (16, 17, 30)]
    assert plain_values(decode(schema, rows).values) == [unscaled] * 3
    assert plain_values(decode(FIXED_DECIMAL, [unscaled.to_bytes(20, signed=True)]).values) == [unscaled]


def test_an_empty_decimal_is_zero() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 5}
    assert plain_values(decode(schema, [b"\x00"]).values) == [0]


def test_blocks_may_give_their_size() -> None:
    array = {"type": "array", "items": "int"}
    blocks = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x01\x02\x08" + b"\x00"  # -2 items in 2 bytes, 1 item, -1 item
    assert decode(array, [blocks]).values.to_pylist() == [[1, 2, 3, 4]]
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": array}, {"name": "b", "type": "int"}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]}
    assert decode(schema, [blocks + b"\x0a"], reader=reader).values.to_pylist() == [{"b": 5}]


LONGEST = b"\xff" * 9


@pytest.mark.parametrize(
    ("schema", "payload", "problem"),
    [
        ("long", b"", "ends within"),
        ("long", b"\x80", "ends within"),
        ("long", LONGEST + b"\x02", "more than 64 bits"),
        ("long", LONGEST + b"\x81\x00", "more than 64 bits"),
        ("int", encode("long", 2**31), "more than 32 bits"),
        ("int", encode("long", -(2**31) - 1), "more than 32 bits"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        ("boolean", b"", "ends within"),
        ("float", b"\x00" * 3, "ends within"),
        ("double", b"\x00" * 7, "ends within"),
        ("string", b"\x01", "negative"),
        ("string", b"\x06ab", "ends within"),
        ("string", encode("long", 2**62), "ends within"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x06\xed\xa0\x80", "not UTF-8"),  # half of a surrogate pair
        ("string", b"\x04\xc0\x80", "not UTF-8"),  # two bytes for a zero
        ("string", b"\x08\xf4\x90\x80\x80", "not UTF-8"),  # beyond the last code point
        ("string", b"\x04\xe2\x82", "not UTF-8"),
        ("bytes", b"\x04a", "ends within"),
        ({"type": "fixed", "name": "F", "size": 4}, b"abc", "ends within"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04", "no symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", "no symbol"),
        (["null", "int"], b"\x04", "no branch"),
        (["null", "int"], b"\x01", "no branch"),
        (["null", "string", "int"], b"\x06", "no branch"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64", "more digits"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x9c", "more digits"),
        (FIXED_DECIMAL, b"\x01" + b"\x00" * 19, "more digits"),
        (TIME, encode("long", 86_400 * 10**6), "out of range"),
        (TIME, encode("long", -1), "out of range"),
        (MILLIS, encode("long", 2**63 // 1000 + 1), "out of range"),
        (MILLIS, encode("long", -(2**63)), "out of range"),
        ({"type": "array", "items": "int"}, b"\x02\x02", "ends within"),
        ({"type": "array", "items": "int"}, b"\x06\x02\x02\x02\x00"[:3], "too short"),
        ({"type": "array", "items": "int"}, encode("long", 2**62), "too short"),
        ({"type": "array", "items": "int"}, encode("long", -(2**63)), "too short"),
        ({"type": "array", "items": "int"}, b"\x01\x08\x02\x00", "ends within"),
        ({"type": "array", "items": "int"}, b"\x01\x01\x02\x00", "negative"),
        ({"type": "map", "values": "int"}, b"\x04\x02a\x02\x02a\x04\x00", "a key twice"),
        ("int", b"\x02\x00", "continues after"),
        (
            {"type": "array", "items": "null"},
            encode("long", ZERO_BYTE_ITEMS_MAX + 1) + b"\x00",
            "items without bytes",
        ),
    ],
)
def test_a_bad_payload_is_null_and_has_a_reason(schema: Any, payload: bytes, problem: str) -> None:
    assert problem in reason(schema, payload)


def test_a_payload_shorter_than_its_header_is_bad() -> None:
    assert "shorter than its header" in reason("int", b"\x00\x00", header_bytes=3)


def test_the_reason_names_the_field_and_the_byte() -> None:
    item = {"type": "record", "name": "Item", "fields": [{"name": "label", "type": "string"}]}
    fields = [{"name": "id", "type": "int"}, {"name": "items", "type": {"type": "array", "items": item}}]
    schema = {"type": "record", "name": "Top", "fields": fields}
    payload = b"\x00" + b"\x02" + b"\x04" + b"\x02a" + b"\x02\xff" + b"\x00"
    assert reason(schema, payload, header_bytes=1) == "items.element.label, byte 5: the text is not UTF-8"


def test_a_bad_row_leaves_nothing_in_any_column() -> None:
    schema = {
        "type": "record",
        "name": "Top",
        "fields": [
            {"name": "a", "type": {"type": "array", "items": {"type": "array", "items": "string"}}},
            {"name": "b", "type": {"type": "map", "values": ["null", "double"]}},
            {"name": "c", "type": ["null", "boolean", "bytes"]},
            {"name": "d", "type": "int"},
        ],
    }
    value = {"a": [["x", "yy"], [], ["z"]], "b": {"k": (1, 0.5), "l": (0, None)}, "c": (2, b"w"), "d": 5}
    payload = encode(schema, value)
    rows = [payload, *(payload[:end] for end in range(len(payload))), payload]
    decoded = decode(schema, [*rows])
    assert sorted(decoded.bad) == list(range(1, len(payload) + 1))
    expected = column_value(schema, value)
    assert plain_values(decoded.values) == [expected] + [None] * len(payload) + [expected]
    leaves = decoded.values.field(0).values.values
    assert leaves.to_pylist() == ["x", "yy", "z"] * 2


@pytest.mark.parametrize("count", [2, 12, 13, 500])
def test_many_keys_are_compared(count: int) -> None:
    schema = {"type": "map", "values": "null"}
    keys = [encode("string", str(number)) for number in range(count)]
    valid = encode("long", count) + b"".join(keys) + b"\x00"
    twice = encode("long", count + 1) + b"".join([*keys, keys[1]]) + b"\x00"
    decoded = decode(schema, [valid, twice])
    assert [len(each) if each is not None else None for each in decoded.values.to_pylist()] == [count, None]
    assert "twice" in decoded.bad[1]


def test_a_key_in_two_blocks_is_a_duplicate() -> None:
    payload = b"\x02\x02a\x00" + b"\x02\x02a\x00" + b"\x00"
    assert "twice" in decode({"type": "map", "values": "int"}, [payload]).bad[0]


def test_items_without_bytes_are_counted_over_all_arrays_of_a_payload() -> None:
    empty = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}
    schema = {"type": "array", "items": {"type": "array", "items": empty}}
    inner = encode("long", ZERO_BYTE_ITEMS_MAX // 2) + b"\x00"
    assert decode(schema, [b"\x04" + 2 * inner + b"\x00"]).bad == {}
    assert "items without bytes" in decode(schema, [b"\x06" + 3 * inner + b"\x00"]).bad[0]


def test_skipped_records_may_contain_themselves_up_to_a_depth() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    fields = [{"name": "list", "type": node}, {"name": "id", "type": "int"}]
    writer = {"type": "record", "name": "Top", "fields": fields}
    reader = {"type": "record", "name": "Top", "fields": fields[1:]}
    deepest = b"\x02" * (SKIP_DEPTH_MAX - 1) + b"\x00"
    decoded = decode(writer, [deepest + b"\x0a", b"\x02" + deepest + b"\x0a"], reader=reader)
    assert decoded.values.to_pylist() == [{"id": 5}, None]
    assert "nested in each other" in decoded.bad[1]
    assert decoded.bad[1].startswith("Node.next, byte ")


def test_floats_keep_every_bit() -> None:
    quiet, signaling = b"\x01\x00\xc0\x7f", b"\x01\x00\x80\x7f"
    found = decode("float", [quiet, signaling]).values
    assert bytes(found.buffers()[1])[:8] == quiet + signaling
    (special,) = struct.unpack("<d", decode("double", [b"\x05" + b"\x00" * 5 + b"\xf8\x7f"]).values.buffers()[1][:8])
    assert special != special


def test_a_column_that_arrow_cannot_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only with the pure loops, whose limit can be lowered: with the compiled ones, this takes 2 GiB of memory."""
    monkeypatch.setattr(kernel, "active", kernel.PURE)
    monkeypatch.setattr(_builders_pure, "INT32_MAX", 1000)
    writer = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string", "default": "x" * 100}]}
    decoder = avro_decoder(parsed(writer), parsed(reader))
    assert decoder.decode(pa.array([b"\x02"] * 10, pa.binary()), 0).bad == {}
    with pytest.raises(MessageTooLarge):
        decoder.decode(pa.array([b"\x02"] * 11, pa.binary()), 0)
