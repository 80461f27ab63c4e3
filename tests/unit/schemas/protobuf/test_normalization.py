"""The normal form: equal for texts that differ only in what has no meaning."""

import pytest

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.protobuf import parse
from penstock.schemas.formats.protobuf.numbers import normalize_number

TEXT = """
syntax = "proto2";
package a.b;
import "z.proto"; import "confluent/meta.proto"; import "z.proto";
option java_package = "x"; option deprecated = true;
message M {
  reserved 9, 5 to 6;
  optional N two = 2 [(confluent.field_meta).tags = "PII", (confluent.field_meta).doc = "text", deprecated = true];
  optional double one = 1 [default = 1e3];
  oneof late { int32 e = 8; int32 d = 7; }
  oneof early { int32 c = 4; }
  message N { optional c.Other other = 1; }
  enum E { B = 1; A = 0; }
}
"""
REFERENCES = {"z.proto": "package a.c; message Other { optional int32 x = 1; }"}
NORMAL = """package a.b;

import "confluent/meta.proto";
import "z.proto";

option deprecated = true;
option java_package = "x";

message M {
  reserved 5 to 6;
  reserved 9;

  optional double one = 1 [default = 1000];
  optional .a.b.M.N two = 2 [
    (confluent.field_meta) = {
      doc: "text",
      tags: "PII"
    },
    deprecated = true
  ];

  oneof early {
    int32 c = 4;
  }
  oneof late {
    int32 d = 7;
    int32 e = 8;
  }

  message N {
    optional .a.c.Other other = 1;
  }
  enum E {
    A = 0;
    B = 1;
  }
}
"""


def normal(text: str) -> str:
    return parse(text, REFERENCES).normalized().text


def test_names_are_full_and_what_has_no_order_is_sorted() -> None:
    assert normal(TEXT) == NORMAL


def test_a_normal_form_is_its_own_normal_form() -> None:
    assert normal(NORMAL) == NORMAL


def test_the_order_of_messages_is_kept_because_data_refers_to_it() -> None:
    text = "message B {} message A {}"
    assert normal(text) == "\nmessage B {}\nmessage A {}\n"


def test_a_name_is_searched_from_the_innermost_scope_outwards() -> None:
    text = "package p; message A { message A { optional A a = 1; message A {} } } message B { optional A a = 1; }"
    found = normal(text)
    assert "optional .p.A.A.A a = 1" in found
    assert "optional .p.A a = 1" in found


def test_types_that_every_schema_may_use_are_found_without_an_import() -> None:
    text = 'syntax = "proto3"; message A { google.protobuf.Timestamp t = 1; google.type.Money m = 2; }'
    found = normal(text)
    assert ".google.protobuf.Timestamp t = 1" in found
    assert ".google.type.Money m = 2" in found


def test_a_reference_takes_the_place_of_a_file_that_every_schema_may_import() -> None:
    text = "message A { optional google.type.Money m = 1; }"
    with pytest.raises(InvalidSchema, match=r"google\.type\.Money"):
        parse(text, {"google/type/money.proto": "message Coins {}"}).normalized()


def test_a_type_that_is_not_defined_is_refused() -> None:
    schema = parse("message A { optional B b = 1; }", {})
    with pytest.raises(InvalidSchema, match="'B' is not defined"):
        schema.validate(fields=False)


def test_a_message_of_map_entries_becomes_a_map() -> None:
    entry = "message CountsEntry { option map_entry = true; optional string key = 1; optional E value = 2; }"
    text = f"package p; message A {{ repeated CountsEntry counts = 1; {entry} }} enum E {{ X = 0; }}"
    assert normal(text) == "package p;\n\nmessage A {\n  map<string, .p.E> counts = 1;\n}\nenum E {\n  X = 0;\n}\n"


def test_a_map_entry_without_key_and_value_is_refused() -> None:
    schema = parse("message A { repeated E e = 1; message E { option map_entry = true; } }", {})
    with pytest.raises(InvalidSchema, match="'key' and 'value'"):
        schema.normalized()


def test_a_normal_form_that_cannot_be_parsed_is_refused() -> None:
    schema = parse('message A { optional bytes a = 1 [default = "two words"]; }', {})
    assert "default = two words" in schema.text
    with pytest.raises(InvalidSchema):
        schema.validate(fields=False)


def test_fields_of_an_option_that_are_set_one_by_one_are_merged_by_their_types() -> None:
    text = """
        import "google/protobuf/descriptor.proto";
        message Rules { optional Rules sub = 1; repeated int32 n = 2; optional int32 m = 3; }
        extend google.protobuf.MessageOptions { optional Rules rules = 5000; }
        message A {
          option (rules).sub.m = 1; option (rules).sub.n = 2; option (rules).sub = {n: 3}; option (rules).sub.m = 4;
        }
    """
    expected = (
        "  option (rules) = {\n    sub: {\n      m: 4,\n      n: [\n        2,\n        3\n      ]\n    }\n  };\n"
    )
    assert expected in normal(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.50", "1.5"),
        ("0.0005", "0.001"),
        ("0.0015", "0.002"),
        ("1e5", "100000"),
        ("49e9", "49000000000"),
        ("0x1F", "31"),
        ("010", "8"),
        ("08", None),
        ("-0", "0"),
        ("-0.0", "-0"),
        ("123456.79", "123456.789"),
        ("1.5f", "1.5"),
        ("5L", "5"),
        ("99999999999999999999", "99999999999999999999"),
        ("123456789012345678901.25", "123456789012345678901.25"),
        ("inf", None),
        ("nan", None),
        ("1e", None),
        ("", None),
    ],
)
def test_numbers_are_normalized_as_java_prints_them(text: str, expected: str | None) -> None:
    assert normalize_number(text) == expected


@pytest.mark.parametrize("text", ["1" * 1001, "1e400000", "1e999999999"])
def test_a_number_with_too_many_digits_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema, match="1000 digits"):
        normalize_number(text)
