"""The text that the registry stores, its normal form, and the text with all references resolved."""

import json
from typing import Any

import pytest

from penstock.schemas.formats.avro import parse
from penstock.schemas.formats.format import InvalidSchema
from tests.unit.schemas.avro.golden_files import golden, parse_case

VALID = golden("valid")
INVALID = golden("invalid")


@pytest.mark.parametrize("case", VALID.values(), ids=VALID)
def test_the_canonical_text_is_that_of_java(case: dict[str, Any]) -> None:
    assert parse_case(case).text == case["text"]


@pytest.mark.parametrize("case", VALID.values(), ids=VALID)
def test_the_canonical_text_is_its_own_canonical_text(case: dict[str, Any]) -> None:
    assert parse_case({**case, "schema": case["text"]}).text == case["text"]


@pytest.mark.parametrize("case", VALID.values(), ids=VALID)
def test_the_normal_form_is_that_of_confluents_registry(case: dict[str, Any]) -> None:
    schema = parse_case(case)
    if case["normalized"] is None:
        with pytest.raises(InvalidSchema):
            schema.normalized()
    else:
        normalized = schema.normalized()
        assert normalized.text == case["normalized"]
        assert normalized.normalized().text == case["normalized"]


@pytest.mark.parametrize("case", VALID.values(), ids=VALID)
def test_the_resolved_text_has_the_types_of_references(case: dict[str, Any]) -> None:
    schema = parse_case(case)
    assert schema.formatted("resolved") == schema.formatted(" Resolved ") == case["resolved"]
    assert schema.formatted("") == schema.formatted("default") == case["text"]


def test_an_unknown_format_is_the_stored_text() -> None:
    assert parse(' "int"', {}).formatted("serialized") == '"int"'


@pytest.mark.parametrize("case", INVALID.values(), ids=INVALID)
def test_what_java_refuses_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchema) as refusal:
        parse_case(case)
    assert 0 < len(str(refusal.value)) < 400
    str(refusal.value).encode()


@pytest.mark.parametrize("text", ['{"type":"int","a":"\\ud800"}', '{"type":"int","\\udc00":1}', '"\ud800"'])
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    """Java prints a question mark, which another registry would not find again."""
    with pytest.raises(InvalidSchema, match="surrogate") as refusal:
        parse(text, {})
    str(refusal.value).encode()


def test_names_are_checked_in_references_that_are_not_used_too() -> None:
    """Java checks those that the schema uses: the others were checked when they were registered."""
    with pytest.raises(InvalidSchema, match="letters"):
        parse('"int"', {"a": '{"type":"record","name":"1","fields":[]}'})


def _equal_types() -> dict[str, list[dict[str, Any]]]:
    field = {"name": "f", "type": "int"}
    return {
        "properties in another order": [
            {"type": "int", "a": 1, "b": {"x": 1, "y": 2}},
            {"type": "int", "b": {"y": 2, "x": 1}, "a": 1},
        ],
        "aliases in another order": [
            {"type": "record", "name": "R", "aliases": ["a", "b"], "fields": [{**field, "aliases": ["c", "d"]}]},
            {"type": "record", "name": "R", "aliases": ["b", "a"], "fields": [{**field, "aliases": ["d", "c"]}]},
        ],
        "a record and an error": [
            {"type": "record", "name": "R", "fields": []},
            {"type": "error", "name": "R", "fields": []},
        ],
    }


@pytest.mark.parametrize("pair", _equal_types().values(), ids=_equal_types())
def test_schemas_that_java_takes_for_equal_are_the_same(pair: list[dict[str, Any]]) -> None:
    one, other = (parse(json.dumps(each), {}) for each in pair)
    assert one.is_same(other)
    assert other.is_same(one)
    assert one.text != other.text


def test_a_schema_with_references_is_the_same_as_with_their_definitions() -> None:
    enum = '{"type":"enum","name":"E","symbols":["a"]}'
    with_reference = parse('{"type":"record","name":"R","fields":[{"name":"f","type":"E"}]}', {"e": enum})
    inlined = parse(with_reference.formatted("resolved"), {})
    assert with_reference.text != inlined.text
    assert with_reference.is_same(inlined)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "S"},
        {"doc": "x"},
        {"aliases": ["A"]},
        {"a": 1.0},
        {"fields": []},
        {"fields": [{"name": "g", "type": "int", "default": 0}]},
        {"fields": [{"name": "f", "type": "long", "default": 0}]},
        {"fields": [{"name": "f", "type": "int"}]},
        {"fields": [{"name": "f", "type": "int", "default": None}]},
        {"fields": [{"name": "f", "type": "int", "default": False}]},
        {"fields": [{"name": "f", "type": "int", "default": 0.0}]},
        {"fields": [{"name": "f", "type": "int", "default": 0, "doc": ""}]},
        {"fields": [{"name": "f", "type": "int", "default": 0, "order": "ignore"}]},
        {"fields": [{"name": "f", "type": "int", "default": 0, "aliases": ["g"]}]},
        {"fields": [{"name": "f", "type": "int", "default": 0, "p": 1}]},
        {"fields": [{"name": "f", "type": ["int"], "default": 0}]},
    ],
    ids=json.dumps,
)
def test_schemas_that_differ_in_anything_are_not_the_same(change: dict[str, Any]) -> None:
    before = {"type": "record", "name": "R", "a": 1, "fields": [{"name": "f", "type": "int", "default": 0}]}
    one, other = parse(json.dumps(before), {}), parse(json.dumps({**before, **change}), {})
    assert not one.is_same(other)
    assert not other.is_same(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"type":"enum","name":"E","symbols":["a","b"]}', '{"type":"enum","name":"E","symbols":["b","a"]}'),
        ('{"type":"enum","name":"E","symbols":["a"]}', '{"type":"enum","name":"E","symbols":["a"],"default":"a"}'),
        ('{"type":"fixed","name":"E","size":1}', '{"type":"fixed","name":"E","size":2}'),
        ('["null","int"]', '["int","null"]'),
        ('{"type":"array","items":"int"}', '{"type":"map","values":"int"}'),
        ('{"type":"array","items":"int"}', '{"type":"array","items":"long"}'),
        ('{"type":"int","p":0.0}', '{"type":"int","p":-0.0}'),
        ('{"type":"int","p":[1]}', '{"type":"int","p":[1,1]}'),
    ],
)
def test_other_types_that_differ_are_not_the_same(one: str, other: str) -> None:
    assert not parse(one, {}).is_same(parse(other, {}))
    assert parse(one, {}).is_same(parse(one, {}))
