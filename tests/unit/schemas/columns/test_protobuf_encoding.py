"""Columns become Protobuf payloads: those that Google's library writes, or an error that names row and field."""

import datetime
import functools
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schemas.columns import kernel
from penstock.schemas.columns.codec import CannotEncode, IncompatibleTypes, NoColumnType
from penstock.schemas.columns.protobuf.codec import protobuf_decoder, protobuf_encoder
from penstock.schemas.formats.protobuf import ProtobufSchema, parse
from tests.examples import examples

from .conftest import NOT_BUILT
from .protobuf_lab import FIRST, HEADER, column_values, fill, message_class, payloads, random_schema

SEEDS = st.integers(0, 2**32)
HEAD = """
syntax = "proto3"; package a; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
"""


def encode(fields: str, *rows: dict[str, Any] | None, type_: pa.DataType | None = None) -> list[Any]:
    """Encodes rows as message M with these fields; returns the messages without header and message indexes."""
    encoder = protobuf_encoder(parse(f"{HEAD} message M {{ {fields} }}", {}), None)
    column = pa.array(rows, type_)
    encoded = encoder.encode(column, HEADER)
    encoded.validate(full=True)
    assert all(each.as_py() is None or each.as_py().startswith(HEADER + FIRST) for each in encoded)
    return [None if each is None else each[len(HEADER + FIRST) :] for each in encoded.to_pylist()]


def struct(**types: pa.DataType) -> pa.DataType:
    return pa.struct(list(types.items()))


@examples(300)
@given(SEEDS)
def test_columns_become_the_messages_they_were_decoded_from(twin: kernel.Kernel, seed: int) -> None:
    random = Random(seed)
    schema = random_schema(random)
    try:
        decoder, encoder = protobuf_decoder(schema, schema, None), protobuf_encoder(schema, None)
    except NoColumnType:
        return
    kind = message_class(schema)
    messages = [kind() for _ in range(5)]
    for each in messages:
        fill(random, each)
    column = decoder.decode(payloads(*(each.SerializeToString() for each in messages), None), len(HEADER)).values
    start = random.randrange(3)
    encoded = encoded_or_error(encoder, column.slice(start), twin)
    if isinstance(encoded, str):
        # Names of unknown numbers cannot be written, and what has no column may be required.
        assert "UNKNOWN_ENUM_VALUE" in encoded or "required" in encoded
        return
    assert column_values(decoder.decode(pa.array(encoded), len(HEADER)).values) == column_values(column.slice(start))
    for message, payload in zip(messages[start:], encoded, strict=False):
        message_of_payload = type(message).FromString(payload[len(HEADER + FIRST) :])
        assert decoded(decoder, message_of_payload) == decoded(decoder, message)


def decoded(decoder: Any, message: Any) -> Any:
    return column_values(decoder.decode(payloads(message.SerializeToString()), len(HEADER)).values)


@functools.cache
def one_of_each_kind() -> ProtobufSchema:
    return parse(
        f"""{HEAD} message M {{
            int32 a = 1; sint32 b = 2; uint32 c = 3; fixed32 d = 4; sfixed32 e = 5; int64 f = 6; sint64 g = 7;
            uint64 h = 8; fixed64 i = 9; sfixed64 j = 10; bool k = 11; string l = 12; bytes m = 13; float n = 14;
            double o = 15; E p = 2047; optional int32 q = 2048; optional string r = 17; repeated sint64 s = 18;
            repeated string t = 19; repeated fixed32 u = 20 [packed = false]; repeated E v = 21; N w = 22;
            repeated N x = 23; oneof y {{ int32 y1 = 24; N y2 = 25; }} repeated double z = 536870911;
        }}
        message N {{ string a = 1; repeated bool b = 2; }} enum E {{ A = 0; B = 1; C = -5; }}""",
        {},
    )


@examples(200)
@given(SEEDS)
def test_payloads_have_the_bytes_that_googles_library_writes(twin: kernel.Kernel, seed: int) -> None:
    random = Random(seed)
    schema = one_of_each_kind()
    decoder, encoder = protobuf_decoder(schema, schema, None), protobuf_encoder(schema, None)
    kind, messages = message_class(schema), []
    for _ in range(3):
        message = kind()
        fill(random, message)
        message.p = random.choice([0, 1, -5])
        del message.v[:]
        message.v.extend(random.choices([0, 1, -5], k=3))
        messages.append(message.SerializeToString(deterministic=True))
    column = decoder.decode(payloads(*messages), len(HEADER)).values
    assert encoder.encode(column, HEADER).to_pylist() == payloads(*messages).to_pylist()


@NOT_BUILT
@examples(300)
@given(SEEDS)
def test_compiled_and_pure_encoders_agree(seed: int) -> None:
    random = Random(seed)
    schema = random_schema(random)
    try:
        decoder, encoder = protobuf_decoder(schema, schema, None), protobuf_encoder(schema, None)
    except NoColumnType:
        return
    message = message_class(schema)()
    rows = []
    for _ in range(20):
        fill(random, message, 0.3)
        rows.append(message.SerializeToString())
    column = decoder.decode(payloads(*rows), len(HEADER)).values.slice(random.randrange(3))
    found = [encoded_or_error(encoder, column, each) for each in (kernel.PURE, kernel.COMPILED)]
    assert found[0] == found[1]


def encoded_or_error(encoder: Any, column: pa.Array, twin: kernel.Kernel | None) -> Any:
    assert twin is not None
    before, kernel.active = kernel.active, twin
    try:
        return encoder.encode(column, HEADER).to_pylist()
    except (CannotEncode, IncompatibleTypes) as error:
        return str(error)
    finally:
        kernel.active = before


@pytest.mark.usefixtures("twin")
class TestValues:
    def test_null_rows_become_null_payloads_and_null_fields_are_not_set(self) -> None:
        fields = "optional int32 x = 1; string s = 2; repeated int32 r = 3; map<string, int32> m = 4;"
        nulls = dict.fromkeys("xsrm")
        type_ = struct(x=pa.int32(), s=pa.string(), r=pa.list_(pa.int32()), m=pa.map_(pa.string(), pa.int32()))
        assert encode(fields, None, nulls, {**nulls, "x": 0}, type_=type_) == [None, b"", b"\x08\x00"]

    def test_columns_are_found_by_name(self) -> None:
        assert encode("int32 x = 1; int32 y = 2; int32 z = 3;", {"z": 3, "x": 1}) == [b"\x08\x01\x18\x03"]

    def test_both_parts_of_a_map_entry_are_written(self) -> None:
        type_ = struct(m=pa.map_(pa.string(), pa.int64()))
        assert encode("map<string, int64> m = 1;", {"m": [("", 0), ("k", 5)]}, type_=type_) == [
            b"\x0a\x04\x0a\x00\x10\x00" + b"\x0a\x05\x0a\x01k\x10\x05"
        ]

    def test_times_have_nanoseconds_as_protobuf_wants_them(self) -> None:
        fields = "google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2;"
        type_ = struct(t=pa.timestamp("us", "Europe/Berlin"), d=pa.duration("us"))
        message = message_class(parse(f"{HEAD} message M {{ {fields} }}", {}))
        rows = [{"t": each, "d": each} for each in (-1, 0, 1_500_000, -1_500_000, -2_000_000)]
        found = [message.FromString(each) for each in encode(fields, *rows, type_=type_)]
        assert [(each.t.seconds, each.t.nanos) for each in found] == [
            *((-1, 999_999_000), (0, 0), (1, 500_000_000), (-2, 500_000_000), (-2, 0))
        ]
        assert [(each.d.seconds, each.d.nanos) for each in found] == [
            *((0, -1000), (0, 0), (1, 500_000_000), (-1, -500_000_000), (-2, 0))
        ]

    def test_integers_of_other_widths_are_taken_if_they_fit(self) -> None:
        fields = "uint32 a = 1; uint64 b = 2; int64 c = 3; sint32 d = 4; fixed32 e = 5; uint64 f = 6; int32 g = 7;"
        type_ = struct(
            a=pa.int64(), b=pa.decimal128(20, 0), c=pa.int16(), d=pa.int8(), e=pa.int32(), f=pa.int64(), g=pa.date32()
        )
        row = {"a": 2**32 - 1, "b": Decimal(2**64 - 1), "c": -1, "d": -1, "e": -1, "f": -1}
        [encoded] = encode(fields, {**row, "g": datetime.date(1970, 1, 3)}, type_=type_)
        found = message_class(parse(f"{HEAD} message M {{ {fields} }}", {})).FromString(encoded)
        assert [getattr(found, name) for name in "abcdefg"] == [
            *(2**32 - 1, 2**64 - 1, -1, -1, 2**32 - 1, 2**64 - 1, 2)
        ]

    @pytest.mark.parametrize(
        ("field", "type_", "value", "problem"),
        [
            ("uint32 x = 1;", pa.int64(), 2**32, "is of type uint32, and cannot be 4294967296"),
            ("uint32 x = 1;", pa.int64(), -1, "is of type uint32, and cannot be -1"),
            ("fixed32 x = 1;", pa.int64(), -1, "is of type fixed32, and cannot be -1"),
            ("int32 x = 1;", pa.int64(), 2**31, "is of type int32, and cannot be 2147483648"),
            ("sint32 x = 1;", pa.int64(), -(2**31) - 1, "is of type sint32, and cannot be -2147483649"),
            ("uint64 x = 1;", pa.int32(), -1, "is of type uint64, and cannot be -1"),
            ("uint64 x = 1;", pa.decimal128(20, 0), Decimal(2**64), "is of type uint64, and cannot be 1844674407"),
            ("uint64 x = 1;", pa.decimal128(20, 0), Decimal(-1), "is of type uint64, and cannot be -1"),
            ("E x = 1; enum E { A = 0; BB = 1; }", pa.string(), "C", "enum E has no value 'C'"),
            ("E x = 1; enum E { A = 0; BB = 1; }", pa.int32(), 2, "enum E has no value 2"),
            ("repeated int32 x = 1;", pa.list_(pa.int32()), [1, None], "an element of field 'x' is null"),
            ("map<int32, int32> x = 1;", pa.map_(pa.int32(), pa.int32()), [(1, None)], "'x.value' of a map is null"),
            ("N x = 1; message N { int32 y = 1; }", struct(y=pa.int64()), {"y": 2**40}, "field 'x.y' is of type"),
        ],
    )
    def test_values_that_do_not_fit_are_refused(
        self, field: str, type_: pa.DataType, value: Any, problem: str
    ) -> None:
        with pytest.raises(CannotEncode, match=r"^Row 2: ") as caught:
            encode(field, None, {"x": None}, {"x": value}, {"x": value}, type_=struct(x=type_))
        assert caught.value.row == 2
        assert problem in str(caught.value)

    def test_a_required_field_must_not_be_null(self) -> None:
        encoder = protobuf_encoder(parse('syntax = "proto2"; message M { required int32 x = 1; }', {}), None)
        with pytest.raises(CannotEncode, match="Row 1: field 'x' is required, and must not be null"):
            encoder.encode(pa.array([{"x": 1}, {"x": None}], struct(x=pa.int32())), b"")
        with pytest.raises(IncompatibleTypes, match="The column does not have the required field 'x'"):
            encoder.encode(pa.array([{}], pa.struct([])), b"")

    def test_two_members_of_a_oneof_are_refused(self) -> None:
        rows = [{"a": 1, "b": None}, {"a": None, "b": 0}, {"a": 0, "b": 0}]
        with pytest.raises(CannotEncode, match="Row 2: fields 'a' and 'b' of the same oneof both have values"):
            encode("oneof o { int32 a = 1; int32 b = 2; }", *rows)

    def test_enums_are_written_by_name_or_number_with_aliases(self) -> None:
        fields = "E x = 1; enum E { option allow_alias = true; A = 0; BB = 1; CC = 1; LONG = -2; }"
        rows = [{"x": each} for each in ("A", "BB", "CC", "LONG")]
        encoded = [b"", b"\x08\x01", b"\x08\x01", b"\x08\xfe" + b"\xff" * 8 + b"\x01"]
        assert encode(fields, *rows) == encoded
        numbers = [{"x": each} for each in (0, 1, 1, -2)]
        assert encode(fields, *numbers, type_=struct(x=pa.int32())) == encoded

    def test_large_and_sliced_arrays_are_taken(self) -> None:
        type_ = struct(s=pa.large_string(), r=pa.large_list(pa.large_binary()))
        column = pa.array([{"s": "a", "r": [b"x"]}, {"s": "b", "r": [b"y", b"z"]}, None], type_).slice(1)
        encoder = protobuf_encoder(parse(f"{HEAD} message M {{ string s = 1; repeated bytes r = 2; }}", {}), None)
        assert encoder.encode(column, b"h").to_pylist() == [b"h\0\x0a\x01b\x12\x01y\x12\x01z", None]

    def test_a_long_message_is_written(self) -> None:
        text = "x" * 3_000_000
        assert encode("string s = 1; int32 n = 2;", {"s": text, "n": 1}) == [
            b"\x0a\xc0\x8d\xb7\x01" + text.encode() + b"\x10\x01"
        ]

    def test_nested_messages_have_their_indexes(self) -> None:
        schema = parse(f"{HEAD} message A {{ message B {{ int32 x = 1; }} int32 y = 1; }}", {})
        encoded = protobuf_encoder(schema, "A.B").encode(pa.array([{"x": 1}], struct(x=pa.int32())), HEADER)
        assert encoded.to_pylist() == [HEADER + b"\x04\x00\x00" + b"\x08\x01"]


@pytest.mark.parametrize(
    ("field", "type_"),
    [
        ("int32 x = 1;", pa.string()),
        ("string x = 1;", pa.binary()),
        ("repeated int32 x = 1;", pa.int32()),
        ("int32 x = 1;", pa.list_(pa.int32())),
        ("map<string, int32> x = 1;", pa.list_(pa.int32())),
        ("google.protobuf.Timestamp x = 1;", pa.timestamp("us")),
        ("google.protobuf.Timestamp x = 1;", pa.timestamp("ns", "UTC")),
        ("int64 x = 1;", pa.decimal128(20, 0)),
        ("double x = 1;", pa.float32()),
        ("N x = 1; message N { int32 y = 1; }", pa.int32()),
    ],
)
def test_types_that_do_not_fit_are_refused(field: str, type_: pa.DataType) -> None:
    with pytest.raises(IncompatibleTypes, match=r"Field 'x' is a .*, but the column has type"):
        encode(field, type_=struct(x=type_))


def test_a_column_that_the_message_does_not_have_is_refused() -> None:
    with pytest.raises(IncompatibleTypes, match=r"Message a\.M does not have field 'y', which the column has"):
        encode("int32 x = 1;", type_=struct(x=pa.int32(), y=pa.int32()))


def test_a_column_of_nulls_fits_any_field() -> None:
    assert encode("N x = 1; message N { int32 y = 1; }", {"x": None}, type_=struct(x=pa.null())) == [b""]


@pytest.mark.usefixtures("twin")
def test_messages_without_fields_are_written_as_empty_structs() -> None:
    type_ = struct(x=pa.struct([]), y=pa.int32())
    assert encode("N x = 1; message N {} int32 y = 2;", {"x": {}, "y": 1}, type_=type_) == [b"\x0a\x00\x10\x01"]
