"""Canonical and normalized texts of JSON Schemas. Expected texts are those of Confluent's registry."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema import parse
from penstock.schemas.formats.json_schema.documents import DEPTH_MAX, NAME_CHARS_MAX

TEXTS = [
    (
        '{"b":1,"a":[1,2.50,1e5,-0,-0.0,1E0,10E-1,1e-7,123456789012345678901234567890]}',
        '{"b":1,"a":[1,2.50,1E+5,0,0.0,1,1.0,1E-7,123456789012345678901234567890]}',
        '{"a":[1,2.50,1E+5,0,0.0,1,1.0,1E-7,123456789012345678901234567890],"b":1}',
    ),
    (
        '{"x":0E+3,"y":0.000001,"z":0.0000001,"w":1E+2147483647}',
        '{"x":0E+3,"y":0.000001,"z":1E-7,"w":1E+2147483647}',
        '{"w":1E+2147483647,"x":0E+3,"y":0.000001,"z":1E-7}',
    ),
    ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2}', '{"a":3,"b":2}'),
    (' { "x" : [ true , false ,\n null ] } ', '{"x":[true,false,null]}', '{"x":[true,false,null]}'),
    (
        '{"n":NaN,"i":Infinity,"j":-Infinity}',
        '{"n":"NaN","i":"Infinity","j":"-Infinity"}',
        '{"i":"Infinity","j":"-Infinity","n":"NaN"}',
    ),
    (
        '{"e":"\\u0001\\u001f\\u007f\\u2028\\/\\"\\\\\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00"}',
        '{"e":"\\u0001\\u001F\x7f\u2028/\\"\\\\\\b\\f\\n\\r\\té😀"}',
        '{"e":"\\u0001\\u001F\x7f\u2028/\\"\\\\\\b\\f\\n\\r\\té😀"}',
    ),
    ('{"a":1} and more', '{"a":1}', '{"a":1}'),
    ('{"a":1}}', '{"a":1}', '{"a":1}'),
    (
        '{"\\ud83d\\ude00":1,"\\uffff":2,"b":3,"B":4,"":5,"a":{"d":1,"c":2}}',
        '{"😀":1,"\uffff":2,"b":3,"B":4,"":5,"a":{"d":1,"c":2}}',
        '{"":5,"B":4,"a":{"c":2,"d":1},"b":3,"😀":1,"\uffff":2}',
    ),
    ("true", "true", "true"),
    ("[]", "[]", "[]"),
]


@pytest.mark.parametrize(("text", "canonical", "normalized"), TEXTS)
def test_texts_are_printed_as_confluents_registry_prints_them(text: str, canonical: str, normalized: str) -> None:
    schema = parse(text, {})
    assert schema.text == canonical
    assert schema.normalized().text == normalized


def test_every_format_is_the_one_layout() -> None:
    schema = parse('{"type": "string"}', {})
    assert schema.formatted("") == schema.formatted("resolved") == '{"type":"string"}'


def test_schemas_are_the_same_if_their_texts_are() -> None:
    schema = parse('{"type": "string", "minLength": 1}', {})
    assert schema.is_same(parse('{"type":"string","minLength":1}', {}))
    assert not schema.is_same(parse('{"minLength":1,"type":"string"}', {}))
    assert schema.normalized().is_same(parse('{"minLength":1,"type":"string"}', {}).normalized())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "{",
        '{"a":1,}',
        "{'a':1}",
        '{"a":01}',
        '{"a":.5}',
        '{"a":+1}',
        '{"a":1.}',
        '{"a":nan}',
        '{"a":"\n"}',
        '{"a":"\\x"}',
        '{"a":"\\u12g4"}',
        "/**/{}",
        "\ufeff{}",
        "1x",
        "[NaNe]",
        '{"a":1e2147483648}',
        '{"a":1.5e-2147483648}',
        '{"a":' + "9" * 1_001 + "}",
        '{"a":0.' + "9" * 1_010 + "}",
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse(text, {})


@pytest.mark.parametrize("text", ['{"a":"\\ud83d"}', '{"\\ude00":1}', '{"a":"\ud83d"}'])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema, match="surrogate"):
        parse(text, {})


def test_depth_is_bounded() -> None:
    parse("[" * DEPTH_MAX + "]" * DEPTH_MAX, {}).normalized()
    for opening in ("[", '{"a":'):
        with pytest.raises(InvalidSchema, match="levels deep"):
            parse(opening * 10_000, {})
    parse('{"title":"' + "[" * 10_000 + '\\"["}', {})


def test_names_are_as_long_as_jackson_allows() -> None:
    parse('{"' + "n" * NAME_CHARS_MAX + '":1}', {})
    with pytest.raises(InvalidSchema, match="characters"):
        parse('{"' + "n" * (NAME_CHARS_MAX + 1) + '":1}', {})


_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(_TEXT, values, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_printing_keeps_the_value_and_is_a_fixpoint(value: Any) -> None:
    schema = parse(json.dumps(value), {})
    again = json.loads(schema.text)
    assert again == value or (isinstance(value, float) and math.isclose(again, value))
    assert parse(schema.text, {}).text == schema.text
    normalized = schema.normalized()
    assert json.loads(normalized.text) == again
    assert normalized.normalized().text == normalized.text
