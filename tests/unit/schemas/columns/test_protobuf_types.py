"""Column types of Protobuf messages, and schemas for column types."""

import pyarrow as pa
import pytest

from penstock.schemas.columns.codec import NoColumnType
from penstock.schemas.columns.protobuf.codec import protobuf_decoder, protobuf_encoder, protobuf_type
from penstock.schemas.columns.protobuf.derivation import protobuf_schema_of
from penstock.schemas.formats.protobuf import parse

from .protobuf_lab import HEADER, payloads

IMPORTS = "".join(
    f'import "google/protobuf/{name}.proto"; ' for name in ("timestamp", "duration", "wrappers", "any", "struct")
)


def type_of(text: str, message: str | None = None) -> pa.DataType:
    return protobuf_type(parse(f'syntax = "proto3"; package a; {IMPORTS} {text}', {}), message)


def many(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element, nullable=False))


def map_of(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.map_(key, pa.field("value", value, nullable=False))


@pytest.mark.parametrize(
    ("field", "type_"),
    [
        *((each, pa.int32()) for each in ("int32", "sint32", "sfixed32", "uint32", "fixed32")),
        *((each, pa.int64()) for each in ("int64", "sint64", "sfixed64", "uint64", "fixed64")),
        *(("bool", pa.bool_()), ("float", pa.float32()), ("double", pa.float64())),
        *(("string", pa.string()), ("bytes", pa.binary()), ("E", pa.string())),
        ("google.protobuf.Timestamp", pa.timestamp("us", "UTC")),
        ("google.protobuf.Duration", pa.duration("us")),
        ("google.protobuf.Int32Value", pa.struct([("value", pa.int32())])),
        ("google.protobuf.Any", pa.struct([("type_url", pa.string()), ("value", pa.binary())])),
        ("Timestamp", pa.struct([("seconds", pa.int64()), ("millis", pa.int32())])),
        ("Duration", pa.duration("us")),
        ("Leaf", pa.struct([("x", pa.int32())])),
    ],
)
def test_fields_have_the_types_that_spark_gives_them(field: str, type_: pa.DataType) -> None:
    rest = """enum E { A = 0; } message Leaf { int32 x = 1; }
        message Timestamp { int64 seconds = 1; int32 millis = 2; }
        message Duration { int64 seconds = 1; int32 nanos = 2; }"""
    fields = f"{field} a = 1; repeated {field} b = 2; map<string, {field}> c = 3; oneof o {{ {field} d = 4; }}"
    assert type_of(f"message M {{ {fields} }} {rest}") == pa.struct(
        [("a", type_), ("b", many(type_)), ("c", map_of(pa.string(), type_)), ("d", type_)]
    )


def test_only_required_fields_and_elements_are_not_nullable() -> None:
    text = 'syntax = "proto2"; message M { required int32 a = 1; optional N n = 2; }'
    text += "message N { required P m = 1; } message P { optional int32 x = 1; }"
    schema = parse(text, {})
    found = protobuf_type(schema, None)
    assert [each.nullable for each in found] == [False, True]
    assert not found.field("n").type.field("m").nullable


def test_messages_without_fields_have_no_column() -> None:
    text = "message M { Empty a = 1; repeated Empty b = 2; map<string, Empty> c = 3; Outer d = 4; int32 e = 5; }"
    assert type_of(f"{text} message Empty {{}} message Outer {{ Empty x = 1; }}") == pa.struct([("e", pa.int32())])
    with pytest.raises(NoColumnType, match=r"Message a\.Empty has no fields with columns"):
        type_of("message Empty {}")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("message M { M m = 1; }", "m"),
        ("message M { repeated N n = 1; } message N { map<string, M> ms = 1; }", "n.ms.value"),
        ("message M { google.protobuf.Struct s = 1; }", r"s\.fields\.value\.struct_value"),
    ],
)
def test_recursive_messages_have_no_column_type(text: str, path: str) -> None:
    with pytest.raises(NoColumnType, match=f"Field {path} repeats message .*: it is recursive"):
        type_of(text)


def test_the_columns_of_a_oneof_are_where_it_is_in_the_schema() -> None:
    text = "message M { int32 z = 1; oneof o { int32 a = 2; int32 b = 5; } optional int32 c = 3; int32 d = 6;"
    text += " oneof p { int32 e = 9; } }"
    assert type_of(text).names == ["z", "a", "b", "c", "d", "e"]


def test_messages_are_found_by_name_with_and_without_the_package() -> None:
    text = "message M { int32 x = 1; message N { string y = 1; } } message O { bool z = 1; }"
    assert type_of(text).names == ["x"]
    for name in ("O", "a.O"):
        assert type_of(text, name).names == ["z"]
    assert type_of(text, "M.N").names == ["y"]
    with pytest.raises(NoColumnType, match=r"does not define message 'P'; it defines a\.M, a\.M\.N, a\.O"):
        type_of(text, "P")
    with pytest.raises(NoColumnType, match="defines no message"):
        protobuf_type(parse('syntax = "proto3"; enum E { A = 0; }', {}), None)


def test_types_that_use_types_again_and_again_are_refused() -> None:
    messages = [f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(20)]
    with pytest.raises(NoColumnType, match="more than 10000 fields"):
        type_of(" ".join(messages) + "message M20 { int32 x = 1; }")
    chain = [f"message M{n} {{ M{n + 1} a = 1; }}" for n in range(100)]
    with pytest.raises(NoColumnType, match="nested in more than 100 messages"):
        type_of(" ".join(chain) + "message M100 { int32 x = 1; }")


@pytest.mark.usefixtures("twin")
def test_a_hundred_messages_within_one_another_are_read_and_written() -> None:
    chain = [f"message M{n} {{ repeated M{n + 1} a = 1; }}" for n in range(99)]
    schema = parse('syntax = "proto3"; ' + " ".join(chain) + "message M99 { int32 x = 1; }", {})
    message = b"\x08\x05"
    for _ in range(99):
        message = b"\x0a" + bytes((len(message) & 0x7F | 0x80, len(message) >> 7)) + message
    values, bad = protobuf_decoder(schema, schema, None).decode(payloads(message), len(HEADER))
    assert bad == {}
    [encoded] = protobuf_encoder(schema, None).encode(values, HEADER).to_pylist()
    again, _ = protobuf_decoder(schema, schema, None).decode(pa.array([encoded]), len(HEADER))
    assert again == values
    assert encoded.endswith(b"\x0a\x04\x0a\x02\x08\x05")


@pytest.mark.usefixtures("twin")
def test_columns_without_rows_are_read_and_written() -> None:
    schema = parse(protobuf_schema_of(COLUMN, "M"), {})
    values, bad = protobuf_decoder(schema, schema, None).decode(pa.array([], pa.binary()), len(HEADER))
    assert (len(values), values.type, bad) == (0, COLUMN, {})
    assert protobuf_encoder(schema, None).encode(values, HEADER).to_pylist() == []


COLUMN = pa.struct(
    [
        *(("a", pa.bool_()), ("b", pa.int32()), ("c", pa.int64()), ("d", pa.float32()), ("e", pa.float64())),
        *(("f", pa.string()), ("g", pa.binary()), ("h", pa.timestamp("us", "UTC")), ("i", pa.duration("us"))),
        ("line_items", many(pa.struct([("Items", pa.int32()), ("_1", many(pa.string()))]))),
        ("m", map_of(pa.int64(), pa.struct([("m", pa.struct([("M", pa.string())]))]))),
        ("LineItems", map_of(pa.bool_(), pa.timestamp("us", "UTC"))),
        ("google", pa.struct([("protobuf", pa.timestamp("us", "UTC"))])),
    ]
)


def test_the_schema_of_a_column_type_has_this_column_type() -> None:
    for name in ("Order", "shop.v1.Order", "M"):
        schema = parse(protobuf_schema_of(COLUMN, name), {})
        schema.validate(fields=True)
        assert protobuf_type(schema, name) == COLUMN


def test_a_column_can_be_written_and_read_with_its_schema() -> None:
    schema = parse(protobuf_schema_of(COLUMN, "Order"), {})
    full = {
        **{"a": False, "b": 0, "c": -1, "d": 0.5, "e": -0.0, "f": "", "g": b"", "h": 5, "i": -5},
        "line_items": [{"Items": 1, "_1": ["x"]}, {"Items": None, "_1": []}],
        **{"m": [(1, {"m": {"M": "x"}})], "LineItems": [(True, 7)], "google": {"protobuf": -1}},
    }
    empty = {**dict.fromkeys(full), "line_items": [], "m": [], "LineItems": []}
    column = pa.array([full, empty, None], COLUMN)
    encoded = protobuf_encoder(schema, None).encode(column, HEADER)
    assert protobuf_decoder(schema, schema, None).decode(encoded, len(HEADER)).values == column


def test_narrow_integers_and_dates_are_numbers_of_32_bits() -> None:
    text = protobuf_schema_of(pa.struct([("a", pa.int8()), ("b", pa.int16()), ("c", pa.date32())]), "M")
    assert protobuf_type(parse(text, {}), None) == pa.struct([(name, pa.int32()) for name in "abc"])


@pytest.mark.parametrize(
    ("type_", "problem"),
    [
        (pa.list_(pa.list_(pa.int32())), "has type list"),
        (pa.map_(pa.string(), pa.list_(pa.int32())), "has type list"),
        (pa.map_(pa.string(), pa.map_(pa.string(), pa.string())), "has type map"),
        (pa.map_(pa.float64(), pa.string()), "is a map with keys of type double"),
        (pa.decimal128(10, 2), "has type decimal128"),
        (pa.timestamp("us"), r"has type timestamp\[us\]"),
        (pa.null(), "has type null"),
        (pa.struct([]), "is a struct without fields"),
        (pa.struct([("a b", pa.int32())]), "has a name that no field can have"),
        (
            pa.struct([("a", pa.int32()), ("a", pa.int32())]),
            "has a name that no field can have, or that another field has",
        ),
    ],
)
def test_types_that_protobuf_cannot_hold_have_no_schema(type_: pa.DataType, problem: str) -> None:
    with pytest.raises(NoColumnType, match=rf"^Column 'x(\.a b|\.a)?' {problem}"):
        protobuf_schema_of(pa.struct([("x", type_)]), "M")


def test_only_structs_with_a_proper_name_have_a_schema() -> None:
    with pytest.raises(NoColumnType, match="the column must be a struct, not int32"):
        protobuf_schema_of(pa.int32(), "M")
    for name in ("", "1", "a.", "a b"):
        with pytest.raises(NoColumnType, match="is no name of a message"):
            protobuf_schema_of(COLUMN, name)
