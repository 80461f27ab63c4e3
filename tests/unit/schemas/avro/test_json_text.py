"""JSON as Jackson reads and writes it."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schemas.formats.avro.json_text import (
    DEPTH_MAX,
    KEY_CHARS_MAX,
    NUMBER_DIGITS_MAX,
    is_same_json,
    read_json,
    shown,
    write_json,
)
from penstock.schemas.formats.format import InvalidSchema

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=30,
)


@given(VALUES, st.sampled_from([None, 0, 1]), st.booleans())
def test_values_are_read_as_pythons_json_reads_them(value: Any, indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    read = read_json(text)
    assert is_same_json(read, value)
    assert list(read) == list(value) if isinstance(value, dict) and isinstance(read, dict) else True


@given(VALUES)
def test_values_are_written_so_that_they_are_read_again(value: Any) -> None:
    text = write_json(value)
    assert is_same_json(read_json(text), value)
    assert is_same_json(json.loads(text), value)
    assert is_same_json(read_json(write_json(value, is_sorted=True)), value)


@given(st.text(st.sampled_from('{}[]",:/*\\ \n1e-.tfna0'), max_size=12))
def test_texts_are_refused_if_python_refuses_them_but_for_comments(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = InvalidSchema
    try:
        found: Any = read_json(text)
    except InvalidSchema:
        found = InvalidSchema
    if "/" not in text:
        assert found is expected or is_same_json(found, expected)


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '{"\\udfff":1}', "[Infinity]", "[-Infinity]", "[NaN]", "[1 /*]", "/**/", "[1]/"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        read_json(text)


@pytest.mark.parametrize("text", ["//\n[//a\r1/*\n*/,/**/2/***/]", "[1,2]\x00\x0b ", "\t[ 1\r,\n2 ]"])
def test_comments_and_trailing_control_characters_are_skipped(text: str) -> None:
    assert read_json(text) == [1, 2]


def test_nesting_is_limited() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        inner = "1" if opening != "[" else ""
        assert read_json(opening * DEPTH_MAX + inner + closing * DEPTH_MAX) is not None
        with pytest.raises(InvalidSchema, match="nested deeper"):
            read_json(opening * (DEPTH_MAX + 1) + inner + closing * (DEPTH_MAX + 1))


def test_deep_values_are_written() -> None:
    text = "[" * DEPTH_MAX + "]" * DEPTH_MAX
    value = read_json(text)
    assert write_json(value) == text
    assert is_same_json(value, read_json(text))
    with pytest.raises(InvalidSchema, match="nested deeper"):
        write_json(value, depth=1)


def test_long_numbers_and_names_are_refused() -> None:
    for text in ("9" * NUMBER_DIGITS_MAX, "-" + "9" * NUMBER_DIGITS_MAX, "0." + "1" * (NUMBER_DIGITS_MAX - 1)):
        assert read_json(f"[{text}]") == [json.loads(text)]
        with pytest.raises(InvalidSchema, match="digits"):
            read_json(f"[{text}0]")
    assert read_json(f'{{"{"k" * KEY_CHARS_MAX}":1}}')
    with pytest.raises(InvalidSchema, match="characters"):
        read_json(f'{{"{"k" * (KEY_CHARS_MAX + 1)}":1}}')


def test_numbers_are_the_same_only_if_they_are_of_one_type() -> None:
    assert is_same_json(math.nan, math.nan)
    for one, other in ((1, 1.0), (1, True), (0, False), (0.0, -0.0), (None, False), ("1", 1), ([], {})):
        assert not is_same_json(one, other)
        assert not is_same_json([one], [other])
        assert not is_same_json({"a": one}, {"a": other})


@given(VALUES)
def test_error_messages_show_a_short_beginning_of_a_value(value: Any) -> None:
    assert len(shown(value)) <= 101
    shown(value).encode()
