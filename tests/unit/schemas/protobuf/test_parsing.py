"""Parsing of .proto texts: the stored text, and what an error says."""

import subprocess
import sys

import pytest

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.protobuf import parse

ORDER = """
syntax = "proto3";
package shop; // the package
import "google/protobuf/timestamp.proto";

/* An order. */
message Order {
    string id=1;
    repeated Item items = 2 [ deprecated = true , packed = false];
    oneof payment { string card = 3; int64 voucher = 0x4; }
    map<string,int32> counts = 5;
    message Item { optional double price = 1; }
    enum State { NEW = 0; PAID = 1; }
    reserved 7 to 9, 11; reserved "old";
}
"""
STORED_ORDER = """syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

message Order {
  reserved 7 to 9, 11;
  reserved "old";

  string id = 1;
  repeated Item items = 2 [
    deprecated = true,
    packed = false
  ];
  map<string, int32> counts = 5;

  oneof payment {
    string card = 3;
    int64 voucher = 4;
  }

  message Item {
    optional double price = 1;
  }
  enum State {
    NEW = 0;
    PAID = 1;
  }
}
"""


def problem(text: str) -> str:
    with pytest.raises(InvalidSchema) as caught:
        parse(text, {})
    return str(caught.value)


def test_layout_and_comments_are_not_stored() -> None:
    assert parse(ORDER, {}).text == STORED_ORDER


def test_a_stored_text_is_parsed_to_itself() -> None:
    assert parse(STORED_ORDER, {}).text == STORED_ORDER


def test_schemas_are_the_same_if_their_stored_texts_are() -> None:
    assert parse(ORDER, {}).is_same(parse(STORED_ORDER, {}))
    assert not parse(ORDER, {}).is_same(parse(STORED_ORDER.replace("shop", "store"), {}))


def test_an_error_has_line_and_column_and_what_was_expected() -> None:
    text = 'syntax = "proto3";\nmessage A {\n  string a 1;\n}\n'
    assert problem(text) == "line 3, column 12: expected '=', but found '1'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message A { optional int32 a = 1", "line 1, column 33: the schema ends too early"),
        ("message A { optional int32 a = x; }", "line 1, column 32: expected an integer, but found 'x'"),
        ("message A {} /", "line 1, column 14: expected a comment such as '// text' or '/* text */'"),
        ('import "a', "line 1, column 10: a string has no end"),
        ('syntax = "proto4";', "line 1, column 1: expected syntax 'proto2' or 'proto3', but found 'proto4'"),
        ("message A {} message A {}", "line 1, column 26: A is defined twice"),
        (
            'edition = "2023";',
            "line 1, column 1: editions are not supported in the text of a schema; use syntax 'proto2' or 'proto3'",
        ),
    ],
)
def test_an_error_names_the_problem(text: str, message: str) -> None:
    assert problem(text) == message


def test_the_key_of_a_map_is_an_integer_a_bool_or_a_string() -> None:
    assert "map<bytes, A>" in problem("message A { map<bytes, A> a = 1; }")


def test_a_surrogate_is_refused() -> None:
    assert "surrogate" in problem('option a = "\ud800";')


@pytest.mark.parametrize("name", ["", "default", " DEFAULT ", "resolved"])
def test_the_default_layout_is_the_stored_text(name: str) -> None:
    assert parse(ORDER, {}).formatted(name) == STORED_ORDER


def test_a_schema_in_a_reference_must_be_valid() -> None:
    with pytest.raises(InvalidSchema):
        parse('import "a.proto";', {"a.proto": "message"})


def test_parsing_a_text_does_not_load_the_protobuf_library() -> None:
    code = """
import sys
from penstock.schemas.formats.protobuf import parse
parse("message A { optional int32 a = 1; }", {})
assert "google.protobuf" not in sys.modules, sorted(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
