"""The rules by which Protobuf payloads are decoded: those of the wire format, and those of Spark."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.schemas.columns.codec import Decoded, IncompatibleTypes
from penstock.schemas.columns.protobuf.codec import protobuf_decoder
from penstock.schemas.formats.protobuf import parse

from .protobuf_lab import HEADER, column_values, payloads

PROTO3 = 'syntax = "proto3"; package a;'


def decode(text: str, *messages: bytes | None) -> Decoded:
    schema = parse(text, {})
    return protobuf_decoder(schema, schema, None).decode(payloads(*messages), len(HEADER))


def row(text: str, message: bytes) -> Any:
    values, bad = decode(text, message)
    assert bad == {}
    return values.to_pylist()[0]


def reason(text: str, message: bytes) -> str:
    values, bad = decode(text, b"", message, b"")
    assert values.is_null().to_pylist() == [False, True, False]
    assert list(bad) == [1]
    return bad[1]


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


@pytest.mark.usefixtures("twin")
class TestRules:
    def test_unknown_fields_of_all_wire_types_are_skipped(self) -> None:
        group = b"\x13" + b"\x1b\x20\x01\x1c" + b"\x2a\x01x" + b"\x14"
        unknown = b"\x10\x05" + b"\x11" + bytes(8) + b"\x12\x02hi" + group + b"\x15" + bytes(4)
        assert row(f"{PROTO3} message M {{ int32 x = 1; }}", unknown + b"\x08\x07" + unknown) == {"x": 7}

    def test_a_known_field_with_another_wire_type_is_skipped(self) -> None:
        text = f"{PROTO3} message M {{ int32 x = 1; string s = 2; repeated string r = 3; }}"
        assert row(text, b"\x0d" + bytes(4) + b"\x10\x01" + b"\x18\x01") == {"x": None, "s": None, "r": []}

    def test_packed_and_single_elements_may_be_mixed(self) -> None:
        text = f"{PROTO3} message M {{ repeated sint32 x = 1; repeated fixed32 y = 2 [packed = false]; }}"
        packed = b"\x12\x08" + b"\1\0\0\0\xff\xff\xff\xff"
        assert row(text, b"\x08\x01" + packed + b"\x0a\x02\x02\x03") == {"x": [-1, 1, -2], "y": [1, -1]}

    def test_a_packed_value_of_a_singular_field_is_skipped(self) -> None:
        assert row(f"{PROTO3} message M {{ int32 x = 1; }}", b"\x0a\x01\x05") == {"x": None}

    def test_the_last_member_of_a_oneof_wins(self) -> None:
        text = f"{PROTO3} message M {{ oneof o {{ int32 x = 1; N n = 2; Empty e = 3; }} }}"
        text += " message N { int32 y = 1; } message Empty {}"
        assert row(text, b"\x08\x05\x12\x02\x08\x06") == {"x": None, "n": {"y": 6}}
        assert row(text, b"\x12\x02\x08\x06\x08\x05") == {"x": 5, "n": None}
        assert row(text, b"\x08\x05\x1a\x00") == {"x": None, "n": None}

    def test_a_zero_without_presence_is_null_as_in_spark(self) -> None:
        text = f"{PROTO3} message M {{ int32 a = 1; optional int32 b = 2; string c = 3; double d = 4;"
        text += " oneof o { int32 e = 5; } }"
        message = b"\x08\x05\x08\x00" + b"\x10\x00" + b"\x1a\x00" + b"\x21" + bytes(8) + b"\x28\x00"
        assert row(text, message) == {"a": None, "b": 0, "c": None, "d": None, "e": 0}
        assert row(text, b"\x21" + bytes(7) + b"\x80")["d"] == 0.0  # -0.0 is not the default value

    def test_numbers_are_cut_to_their_width(self) -> None:
        text = f"{PROTO3} message M {{ int32 a = 1; sint32 b = 2; uint32 c = 3; bool d = 4; }}"
        wide = varint(2**63 + 2**32 + 5)
        found = row(text, b"\x08" + wide + b"\x10" + wide + b"\x18" + wide + b"\x20" + varint(2**40))
        assert found == {"a": 5, "b": -3, "c": 5, "d": True}

    def test_unsigned_numbers_have_the_bits_of_signed_ones(self) -> None:
        text = f"{PROTO3} message M {{ uint32 a = 1; fixed64 b = 2; uint64 c = 3; }}"
        message = b"\x08" + varint(2**32 - 2) + b"\x11" + b"\xff" * 8 + b"\x18" + varint(2**64 - 3)
        assert row(text, message) == {"a": -2, "b": -1, "c": -3}

    def test_missing_fields_have_the_default_values_of_proto2(self) -> None:
        text = """syntax = "proto2"; enum E { A = 1; B = 2; } message M {
            optional uint32 a = 1 [default = 4294967295]; optional string b = 2 [default = "x"];
            optional E c = 3 [default = B]; optional bytes d = 4 [default = "\\001y"]; optional E e = 5;
            optional float f = 6 [default = 1.5]; optional sint64 g = 7 [default = -9];
            optional bool h = 8 [default = true]; optional double i = 9 [default = inf];
            optional fixed64 j = 10 [default = 3]; }"""
        assert row(text, b"") == {
            **{"a": -1, "b": "x", "c": "B", "d": b"\1y", "e": None},
            **{"f": 1.5, "g": -9, "h": True, "i": float("inf"), "j": 3},
        }

    def test_what_is_missing_in_the_entry_of_a_map_has_its_zero(self) -> None:
        text = f"{PROTO3} message M {{ map<string, E> a = 1; map<bool, N> b = 2; map<int32, bytes> c = 3; }}"
        text += " enum E { A = 0; } message N { int32 x = 1; repeated int32 y = 2; }"
        found = row(text, b"\x0a\x00" + b"\x12\x00" + b"\x1a\x02\x10\x05")
        assert found == {"a": [("", "A")], "b": [(False, {"x": None, "y": []})], "c": [(0, b"")]}

    def test_entries_of_a_map_with_the_same_key_are_kept_as_in_spark(self) -> None:
        entry = b"\x0a\x03\x0a\x01k"
        assert row(f"{PROTO3} message M {{ map<string, int32> a = 1; }}", entry + b"\x0a\x05\x0a\x01k\x10\x02") == {
            "a": [("k", 0), ("k", 2)]
        }

    def test_open_enums_have_the_names_that_java_gives_to_unknown_numbers(self) -> None:
        text = f"{PROTO3} enum E {{ A = 0; }} message M {{ E x = 1; repeated E y = 2; }}"
        lowest = b"\x12\x0b\x07" + varint(2**64 - 2**31)
        assert row(text, b"\x08\x09" + lowest) == {
            "x": "UNKNOWN_ENUM_VALUE_E_9",
            "y": ["UNKNOWN_ENUM_VALUE_E_7", "UNKNOWN_ENUM_VALUE_E_-2147483648"],
        }

    def test_unknown_numbers_of_closed_enums_are_bad_in_the_message_itself_only(self) -> None:
        text = (
            'syntax = "proto2"; message M { optional E x = 1; repeated E y = 2 [packed = true]; optional N n = 3; }'
        )
        text += " enum E { A = 1; } message N { optional E x = 1; repeated E y = 2; }"
        for message in (b"\x08\x09", b"\x10\x09", b"\x12\x02\x01\x09"):
            assert "field 'x'" in reason(text, message) or "field 'y'" in reason(text, message)
        nested = b"\x08\x01\x08\x09" + b"\x12\x02\x09\x01" + b"\x10\x09"
        assert row(text, b"\x1a" + sized(nested)) == {"x": None, "y": [], "n": {"x": "A", "y": ["A"]}}

    @pytest.mark.parametrize(
        ("message", "problem"),
        [
            (b"\x08", "ends after"),
            (b"\x08\x80", "ends after"),
            (b"\x08" + b"\x80" * 10, "more than 10 bytes"),
            (b"\x12\x05abc", "ends after"),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends after"),
            (b"\x1d\0\0\0", "ends after"),
            (b"\x21\0\0\0\0\0\0\0", "ends after"),
            (b"\x00\x01", "field number"),
            (b"\x0f\x01", "field number"),
            (b"\x88\x80\x80\x80\x80\x00\x01", "field number"),
            (b"\x12\x01\xff", "UTF-8"),
            (b"\x12\x03\xed\xa0\x80", "UTF-8"),
            (b"\x2a\x03\x0a\x01\xff", "UTF-8"),
            (b"\x32\x02\x08\x80", "ends after"),
            (b"\x73", "group"),
            (b"\x74", "group"),
            (b"\x73\x7c", "group"),
            (b"\x73" * 101, "group"),
            (b"\x3a\x01\x73", "group"),
        ],
    )
    def test_damaged_messages_are_bad_rows(self, message: bytes, problem: str) -> None:
        text = f"{PROTO3} message M {{ int32 a = 1; string b = 2; fixed32 c = 3; fixed64 d = 4; repeated N n = 5;"
        text += " N o = 6; Empty e = 7; } message N { string x = 1; } message Empty {}"
        assert problem in reason(text, b"\x08\x01\x12\x02ok\x2a\x04\x0a\x02ok" + message)

    def test_a_hundred_nested_groups_are_skipped(self) -> None:
        assert row(f"{PROTO3} message M {{ int32 a = 1; }}", b"\x73" * 100 + b"\x74" * 100 + b"\x08\x01") == {"a": 1}

    def test_a_message_without_a_required_field_is_bad(self) -> None:
        text = 'syntax = "proto2"; message M { optional N n = 1; repeated N r = 2; map<string, N> m = 3;'
        text += " optional int32 y = 4; optional E e = 5; } message E {} message N { required int32 x = 1; }"
        assert row(text, b"\x20\x01") == {"n": None, "r": [], "m": [], "y": 1}
        for message, path in ((b"\x0a\x00", "n.x"), (b"\x12\x00", "r.x"), (b"\x1a\x00", "m.value.x")):
            assert f"field '{path}', byte 8: the required field is missing" == reason(text, message)

    def test_times_are_truncated_to_microseconds_as_in_java(self) -> None:
        text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";'
        text += " message M { google.protobuf.Timestamp t = 1; google.protobuf.Duration d = 2; }"
        minus_one = varint(2**64 - 1)
        values, bad = decode(
            text,
            b"\x0a\x05\x08\x02\x10" + varint(1999),
            b"\x0a" + sized(b"\x08" + minus_one + b"\x10" + varint(999_999_999)) + b"\x12\x00",
            b"\x12" + sized(b"\x08" + minus_one + b"\x10" + varint(2**64 - 1999)),
            b"\x0a" + sized(b"\x08" + varint(9_223_372_036_854) + b"\x10" + varint(775_807_999)),
            b"\x0a" + sized(b"\x08" + varint(9_223_372_036_854) + b"\x10" + varint(775_808_000)),
            b"\x0a" + sized(b"\x08" + varint(2**63)),
        )
        assert column_values(values) == [
            {"t": 2_000_001, "d": None},
            {"t": -1, "d": 0},
            {"t": None, "d": -1_000_001},
            {"t": 2**63 - 1, "d": None},
            None,
            None,
        ]
        assert sorted(bad) == [4, 5]
        assert bad[4] == "field 't', byte 8: the time does not fit into 64 bits of microseconds"

    def test_a_bad_row_leaves_nothing_in_the_columns(self) -> None:
        text = f"{PROTO3} message M {{ repeated string s = 1; map<string, string> m = 2; N n = 3; }}"
        text += " message N { string x = 1; }"
        good = b"\x0a\x01a" * 64 + b"\x12\x06\x0a\x01k\x12\x01v" * 64 + b"\x1a\x03\x0a\x01x"
        values, bad = decode(text, good, good + b"\x00", b"\x00", good)
        assert sorted(bad) == [1, 2]
        values.validate(full=True)
        assert values[0] == values[3]
        assert values[3].as_py() == {"s": ["a"] * 64, "m": [("k", "v")] * 64, "n": {"x": "x"}}
        assert len(values.field("s").values) == 128

    def test_null_payloads_are_null_and_not_bad(self) -> None:
        assert decode(f"{PROTO3} message M {{ int32 a = 1; }}", None, b"", None).values.to_pylist() == [
            None,
            {"a": None},
            None,
        ]

    def test_a_slice_of_a_column_is_decoded(self) -> None:
        schema = parse(f"{PROTO3} message M {{ int32 a = 1; }}", {})
        column = payloads(b"\x08\x01", None, b"\x08\x02", b"\x08\x03").slice(1, 2)
        values = protobuf_decoder(schema, schema, None).decode(column, len(HEADER)).values
        assert values.to_pylist() == [None, {"a": 2}]


NESTED = """
syntax = "proto3"; package a;
message A { message B { int32 y = 1; } message C { int32 z = 1; } int32 x = 1; } message D { int32 w = 1; }
"""


@pytest.mark.usefixtures("twin")
class TestMessageIndexes:
    @pytest.mark.parametrize(
        ("message", "indexes"),
        [
            ("A", b"\0"),
            ("a.A", b"\x02\x00"),
            ("A.B", b"\x04\x00\x00"),
            ("a.A.C", b"\x04\x00\x02"),
            ("D", b"\x02\x02"),
        ],
    )
    def test_payloads_of_the_message_are_decoded(self, message: str, indexes: bytes) -> None:
        schema = parse(NESTED, {})
        decoder = protobuf_decoder(schema, schema, message)
        values, bad = decoder.decode(pa.array([HEADER + indexes + b"\x08\x05"]), len(HEADER))
        assert (list(values.to_pylist()[0].values()), bad) == ([5], {})

    @pytest.mark.parametrize("indexes", [b"\0", b"\x02\x00", b"\x04\x00\x00", b"\x02\x04", b"\x06\x00\x02\x00"])
    def test_payloads_of_other_messages_are_bad(self, indexes: bytes) -> None:
        schema = parse(NESTED, {})
        decoder = protobuf_decoder(schema, schema, "A.C")
        values, bad = decoder.decode(pa.array([HEADER + indexes + b"\x08\x05"]), len(HEADER))
        assert (values.to_pylist(), bad) == ([None], {0: "byte 5: the message indexes name another message"})

    @pytest.mark.parametrize(
        "indexes",
        [b"", b"\x02", b"\x01", b"\x02\x01", b"\xca\x01", b"\xff\xff\xff\xff\xff\x00", b"\x02\x80\x80\x80\x80\x10"],
    )
    def test_what_is_no_index_is_bad(self, indexes: bytes) -> None:
        schema = parse(NESTED, {})
        decoder = protobuf_decoder(schema, schema, None)
        _, bad = decoder.decode(pa.array([HEADER + indexes, HEADER[:4]]), len(HEADER))
        assert bad == {
            0: "byte 5: expected message indexes before the message",
            1: "byte 4: the value ends after its message or payload does",
        }

    def test_indexes_are_those_of_the_schema_that_wrote_the_payload(self) -> None:
        writer = parse(f"{PROTO3} message Other {{ int32 a = 1; }} message M {{ int32 x = 1; int32 y = 2; }}", {})
        reader = parse(f"{PROTO3} message M {{ int64 why = 2; string z = 3; }}", {})
        column = pa.array([HEADER + b"\x02\x02" + b"\x08\x01\x10\x05", HEADER + b"\0" + b"\x08\x01"])
        values, bad = protobuf_decoder(writer, reader, None).decode(column, len(HEADER))
        assert values.to_pylist() == [{"why": 5, "z": None}, None]
        assert list(bad) == [1]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("int32 x = 1;", "string x = 1;"),
        ("int32 x = 1;", "sint32 x = 1;"),
        ("fixed32 x = 1;", "float x = 1;"),
        ("repeated int32 x = 1;", "int32 x = 1;"),
        ("int32 x = 1;", "N x = 1;"),
        ("string x = 1;", "N x = 1;"),
        ("N x = 1;", "P x = 1;"),
        ("map<string, int32> x = 1;", "map<string, string> x = 1;"),
    ],
)
def test_fields_that_do_not_agree_are_refused(written: str, read: str) -> None:
    rest = "message N { int32 y = 1; } message P { string y = 1; }"
    writer, reader = (parse(f"{PROTO3} message M {{ {each} }} {rest}", {}) for each in (written, read))
    with pytest.raises(IncompatibleTypes, match=r"Field 'x(\.y|\.value)?' was written as .*, and cannot be read as"):
        protobuf_decoder(writer, reader, None)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("int32 x = 1;", "bool y = 1;"),
        ("uint64 x = 1;", "E x = 1;"),
        ("string x = 1;", "repeated bytes x = 1;"),
        ("N x = 1;", "repeated Q x = 1;"),
        ("map<string, int32> x = 1;", "repeated R x = 1;"),
        ("int32 x = 1;", "string x = 2;"),
        ("Tree x = 1; int32 y = 2;", "int32 y = 2;"),
    ],
)
def test_fields_that_agree_on_the_wire_are_accepted(written: str, read: str) -> None:
    rest = "message N { int32 y = 1; } message Q { int64 y = 1; } message R { bytes k = 1; bool v = 2; }"
    rest += " enum E { A = 0; } message Tree { Tree t = 1; }"
    writer, reader = (parse(f"{PROTO3} message M {{ {each} }} {rest}", {}) for each in (written, read))
    assert protobuf_decoder(writer, reader, None).decode(payloads(b""), len(HEADER)).bad == {}


def test_a_writer_without_the_message_is_refused() -> None:
    writer, reader = (parse(f"{PROTO3} message {each} {{ int32 x = 1; }}", {}) for each in "MN")
    with pytest.raises(IncompatibleTypes, match=r"does not define message 'a\.N'"):
        protobuf_decoder(writer, reader, None)
