"""Which JSON Schemas are valid. The verdicts are those of Confluent's registry."""

import json
from typing import Any

import jsonschema
import pytest
from jsonschema_specifications import REGISTRY

from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.formats.json_schema import parse
from penstock.schemas.formats.json_schema.dialects import Dialect
from penstock.schemas.formats.json_schema.metaschemas import metaschema

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
VALUES: list[Any] = [1, "a", True, None, [], {}, [1], ["a"], {"a": 1}]
ALL = "012345678"
VALID = {
    "type": {4: "4", 7: "4", 2020: "4"},
    "properties": {4: "5", 7: "5", 2020: "5"},
    "required": {4: "47", 7: "47", 2020: "47"},
    "items": {4: "458", 7: "2458", 2020: "258"},
    "additionalProperties": {7: "258", 2020: "258"},
    "patternProperties": {7: "5", 2020: "5"},
    "enum": {7: "467", 2020: "467"},
    "allOf": {7: "4", 2020: "4"},
    "oneOf": {7: "4", 2020: "4"},
    "not": {7: "258", 2020: "258"},
    "minLength": {7: "0", 2020: "0"},
    "maximum": {7: "0", 2020: "0"},
    "multipleOf": {7: "0", 2020: "0"},
    "minItems": {7: "0", 2020: "0"},
    "uniqueItems": {7: "2", 2020: "2"},
    "pattern": {7: "1", 2020: "1"},
    "format": {7: "1", 2020: "1"},
    "title": {7: "1", 2020: "1"},
    "description": {7: "1", 2020: "1"},
    "default": {7: ALL, 2020: ALL},
    "$ref": {7: "", 2020: ""},
    "$id": {7: "1", 2020: ALL},
    "$defs": {7: ALL, 2020: "5"},
    "definitions": {7: ALL, 2020: "01234567"},
    "const": {4: ALL, 7: ALL, 2020: ALL},
    "contains": {4: ALL, 7: "258", 2020: "258"},
    "propertyNames": {7: "258", 2020: "258"},
    "if": {4: ALL, 7: "258", 2020: "258"},
    "readOnly": {7: "2", 2020: "2"},
    "exclusiveMinimum": {4: "2", 7: "0", 2020: "0"},
    "dependencies": {4: "5", 7: "5", 2020: ALL},
    "dependentRequired": {7: ALL, 2020: "5"},
    "deprecated": {7: ALL, 2020: "2"},
    "prefixItems": {7: ALL, 2020: "4"},
    "unevaluatedItems": {7: ALL, 2020: "258"},
    "minContains": {7: ALL, 2020: ALL},
    "then": {7: "258", 2020: ALL},
    "additionalItems": {4: "258", 7: "258", 2020: ALL},
    "$anchor": {7: ALL, 2020: ALL},
    "$dynamicAnchor": {7: ALL, 2020: "1"},
}
"""Positions in VALUES of the values that a keyword may have, by draft."""


def is_valid(schema: Any, references: dict[str, Any] | None = None, draft: int | None = None) -> bool:
    if draft is not None:
        schema = {"$schema": DRAFTS[draft], **schema}
    text = schema if isinstance(schema, str) else json.dumps(schema)
    texts = {name: json.dumps(item) for name, item in (references or {}).items()}
    try:
        parse(text, texts).validate(fields=False)
    except InvalidSchema:
        return False
    return True


@pytest.mark.parametrize("keyword", VALID)
def test_keywords_must_be_of_the_right_type(keyword: str) -> None:
    for draft, positions in VALID[keyword].items():
        found = [str(index) for index, value in enumerate(VALUES) if is_valid({keyword: value}, draft=draft)]
        assert "".join(found) == positions, draft


@pytest.mark.parametrize(
    ("keyword", "number", "in_draft_7", "in_2020_12"),
    [
        ("minLength", "2.5", False, True),
        ("minLength", "1.0", False, True),
        ("minLength", "1E0", True, True),
        ("minLength", "2147483648", False, True),
        ("minLength", "-1", True, True),
        ("multipleOf", "0", False, True),
        ("multipleOf", "1e-400", False, True),
        ("multipleOf", "1e2000000000", True, True),
        ("maximum", "9" * 900, True, True),
        ("maxItems", "1e2000000000", False, True),
    ],
)
def test_numbers_have_the_range_of_the_draft(keyword: str, number: str, in_draft_7: bool, in_2020_12: bool) -> None:
    for draft, expected in ((7, in_draft_7), (2020, in_2020_12)):
        assert is_valid(f'{{"$schema":"{DRAFTS[draft]}","{keyword}":{number}}}') is expected


@pytest.mark.parametrize("draft", DRAFTS)
def test_types_must_be_known_where_they_are_used(draft: int) -> None:
    assert not is_valid({"type": "text"}, draft=draft)
    assert not is_valid({"type": ["string", "text"]}, draft=draft)
    assert not is_valid({"properties": {"a": {"items": {"type": "text"}}}}, draft=draft)
    assert is_valid({"unknown": {"type": "text"}}, draft=draft)


def test_a_schema_is_an_object_or_a_boolean() -> None:
    assert is_valid("true")
    assert is_valid("{}")
    for text in ("1", '"string"', "null", "[]"):
        assert not is_valid(text)


def test_definitions_are_valid_if_they_are_loaded() -> None:
    wrong = {"definitions": {"A": {"type": "text"}}}
    assert is_valid(wrong, draft=7)
    assert not is_valid(wrong, draft=2020)  # they are also found in $defs


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    "reference",
    ["http://e.com/x.json", "https://e.com/x.json#/a", "nope.json", "file:///etc/passwd", "classpath:/x", "urn:a:b"],
)
def test_other_schemas_are_never_fetched(draft: int, reference: str) -> None:
    schema = {"$schema": DRAFTS[draft], "properties": {"a": {"$ref": reference}}}
    with pytest.raises(InvalidSchema, match="not fetched"):
        parse(json.dumps(schema), {}).validate(fields=False)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("#", True),
        ("#/definitions/A", True),
        ("#/$defs/A", True),
        ("#/definitions/a~1b", True),
        ("#/definitions/a~0b", True),
        ("#/definitions/a%20b", True),
        ("#/definitions/a+b", True),
        ("#/definitions/a b", False),
        ("#/definitions/B", False),
        ("#/definitions", False),
        ("#/definitions/L/allOf/0", True),
        ("#/definitions/L/allOf/1", False),
        ("#/definitions/L/allOf/x", False),
        ("other.json", True),
        ("other.json#", True),
        ("other.json#/definitions/O", True),
        ("other.json#/$defs/O", True),
        ("other.json#/definitions/P", False),
        ("http://json-schema.org/draft-07/schema#", True),
        ("https://json-schema.org/draft-07/schema#/definitions/schemaArray", True),
        ("http://json-schema.org/draft-06/schema#/definitions/nonNegativeInteger", True),
    ],
)
def test_references_lead_to_schemas(draft: int, reference: str, expected: bool) -> None:
    names: dict[str, Any] = {"A": {}, "a/b": {}, "a~b": {}, "a b": {}, "L": {"allOf": [{}]}}
    if reference == "#/definitions":
        names = {"type": 1}
    schema = {"definitions": names, "properties": {"p": {"$ref": reference}}}
    assert is_valid(schema, {"other.json": {"definitions": {"O": {}}}}, draft) is expected


@pytest.mark.parametrize("reference", ["other.json#A", "#A", "nested", "http://e.com/nested#/$defs/N"])
def test_modern_schemas_are_found_by_their_anchors_and_identifiers(reference: str) -> None:
    schema = {
        "$id": "http://e.com/root.json",
        "$defs": {"A": {"$anchor": "A"}, "B": {"$id": "nested", "$defs": {"N": {}}}},
        "properties": {"p": {"$ref": reference}},
    }
    other = {"$schema": DRAFTS[2020], "$defs": {"A": {"$anchor": "A"}}}
    assert is_valid(schema, {"other.json": other}, 2020)
    assert not is_valid(schema | {"properties": {"p": {"$ref": reference + "x"}}}, {"other.json": other}, 2020)


def test_classic_schemas_are_found_by_their_identifiers_as_they_are_written() -> None:
    schema = {"definitions": {"A": {"$id": "#A", "type": "string"}}, "properties": {"p": {"$ref": "#A"}}}
    text = json.dumps(schema)
    number = parse(text.replace('"string"', '"number"'), {})
    assert [difference.kind for difference in number.differences(parse(text, {}))] == ["TYPE_CHANGED"]
    # Without such an identifier, an anchor is the whole document.
    assert is_valid({"properties": {"p": {"$ref": "#B"}}})


@pytest.mark.parametrize("draft", [7, 2020])
def test_references_are_resolved_against_the_identifier_of_their_document(draft: int) -> None:
    schema = {"$id": "http://e.com/a/root.json", "properties": {"p": {"$ref": "b.json"}}}
    assert is_valid(schema, {"http://e.com/a/b.json": {"type": "string"}}, draft)
    assert not is_valid(schema, {"http://e.com/b.json": {"type": "string"}}, draft)


def test_references_may_refer_to_other_references() -> None:
    references = {"c.json": {"type": "string"}, "b.json": {"properties": {"c": {"$ref": "c.json"}}}}
    for draft in (7, 2020):
        assert is_valid({"$ref": "b.json"}, references, draft)
        assert not is_valid({"$ref": "b.json"}, {"b.json": references["b.json"]}, draft)


def test_identifiers_must_be_unique_in_a_modern_schema() -> None:
    twice = {"properties": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}}
    assert not is_valid(twice, draft=2020)
    assert is_valid(twice, draft=7)


def test_errors_name_the_place() -> None:
    schema = {"properties": {"a/b": {"items": {"minItems": "1"}}}}
    for draft in (7, 2020):
        with pytest.raises(InvalidSchema, match=r"#/properties/a~1b/items: 'minItems' must be"):
            parse(json.dumps({"$schema": DRAFTS[draft], **schema}), {}).validate(fields=False)


def test_reserved_field_names_are_refused_on_demand() -> None:
    schema = parse('{"type":"object","properties":{"a":{},"$$b":{}}}', {})
    schema.validate(fields=False)
    with pytest.raises(InvalidSchema, match=r"\$\$"):
        schema.validate(fields=True)
    parse('{"type":"object","properties":{"a":{"properties":{"$$b":{}}}}}', {}).validate(fields=True)


def test_an_invalid_schema_is_parsed_but_not_compared() -> None:
    wrong, right = parse('{"type":"text"}', {}), parse('{"type":"string"}', {})
    assert wrong.text == '{"type":"text"}'
    for reader, writer in ((wrong, right), (right, wrong)):
        with pytest.raises(InvalidSchema):
            reader.differences(writer)


@pytest.mark.parametrize("draft", [4, 6, 7])
def test_metaschemas_say_what_the_published_ones_say(draft: int) -> None:
    """Ours are built, not copied; the published ones come with the validator that other tests use."""
    published = REGISTRY.contents(DRAFTS[draft].removesuffix("#"))
    texts = [json.dumps(schema) for schema in (published, metaschema(Dialect(draft)))]
    one, other = (parse(text, {}) for text in texts)
    assert one.differences(other) == other.differences(one) == []
    assert jsonschema.validators.validator_for(published).check_schema(json.loads(texts[1])) is None


def test_a_modern_schema_may_refer_to_its_metaschema() -> None:
    for reference in (DRAFTS[2019], DRAFTS[2020], DRAFTS[2020] + "#"):
        assert is_valid({"properties": {"p": {"$ref": reference}}}, draft=2020)
    assert not is_valid({"properties": {"p": {"$ref": DRAFTS[2020]}}}, draft=7)
