"""Column types of JSON Schemas."""

import json
from typing import Any

import pytest

from penstock.schemas.formats.format import InvalidSchema, NoColumnType
from penstock.schemas.formats.json_schema import parse
from penstock.schemas.formats.json_schema.columns import (
    COLUMNS_MAX,
    ArrayType,
    BasicType,
    Column,
    MapType,
    StructType,
    column_of,
)

DRAFTS = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
STRING, INTEGER = {"type": "string"}, {"type": "integer"}


@pytest.fixture(params=DRAFTS)
def draft(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def column(schema: Any, draft: str, references: dict[str, Any] | None = None) -> str:
    """Returns a column type in the notation of Spark's DDL, with `?` for nullable ones."""
    texts = {name: json.dumps(item) for name, item in (references or {}).items()}
    return show(column_of(parse(json.dumps({"$schema": draft, **schema}), texts)))


def show(column: Column) -> str:
    match column.type:
        case BasicType():
            text = column.type.value
        case ArrayType():
            text = f"array<{show(column.type.element)}>"
        case MapType():
            text = f"map<{show(column.type.value)}>"
        case StructType():
            text = f"struct<{', '.join(f'{field.name}: {show(field.column)}' for field in column.type.fields)}>"
    return text + "?" * column.is_nullable


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (STRING, "string"),
        (INTEGER, "long"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": ["string", "null"]}, "string?"),
        ({"type": ["null", "integer"], "minimum": 1}, "long?"),
        ({"type": ["integer", "number"]}, "double"),
        ({"oneOf": [{"type": "null"}, STRING]}, "string?"),
        ({"anyOf": [STRING, {"type": "null"}, {"type": "string", "maxLength": 3}]}, "string?"),
        ({"type": "string", "format": "date-time", "minLength": 1, "pattern": "a"}, "string"),
        ({"type": "string", "enum": ["a", "b"]}, "string"),
        ({"enum": ["a", None]}, "string?"),
        ({"enum": [1, 2.5]}, "double"),
        ({"const": True}, "boolean"),
        ({"type": "array", "items": INTEGER}, "array<long>"),
        ({"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 1}, "array<long?>"),
        ({"type": "object", "additionalProperties": STRING}, "map<string>"),
        ({"type": "object", "additionalProperties": {"type": ["string", "null"]}}, "map<string?>"),
        ({"type": "object", "patternProperties": {"^x": INTEGER}, "additionalProperties": False}, "map<long>"),
        ({"type": ["array", "null"], "items": STRING}, "array<string>?"),
        (
            {"type": "object", "properties": {"b": STRING, "a": INTEGER, "c": {"type": ["string", "null"]}},
             "required": ["b", "c"]},
            "struct<b: string, a: long?, c: string?>",
        ),
        (
            {"type": "object", "properties": {"p": {"type": "object", "properties": {"q": STRING}}, "never": False},
             "additionalProperties": False, "required": ["p"]},
            "struct<p: struct<q: string?>>",
        ),
        ({"properties": {"a": STRING}}, "struct<a: string?>"),
        ({"allOf": [{"type": "number"}, INTEGER]}, "long"),
        ({"type": "string", "not": {"const": "x"}, "if": {"minLength": 1}, "then": {"pattern": "a"}}, "string"),
        (
            {"type": "object", "properties": {"a": STRING}, "anyOf": [{"required": ["a"]}, {"maxProperties": 1}]},
            "struct<a: string?>",
        ),
    ],
)  # fmt: skip
def test_simple_schemas_have_column_types(schema: dict[str, Any], expected: str, draft: str) -> None:
    assert column(schema, draft) == expected


def test_references_are_followed(draft: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/A"}, "b": {"$ref": "other.json#/definitions/B"}},
        "required": ["a"],
        "definitions": {"A": {"$ref": "#/definitions/A2"}, "A2": {"type": "array", "items": INTEGER}},
    }
    other = {"definitions": {"B": {"type": ["string", "null"]}}}
    assert column(schema, draft, {"other.json": other}) == "struct<a: array<long>, b: string?>"


def test_members_of_all_of_are_merged(draft: str) -> None:
    base = {"type": "object", "properties": {"id": INTEGER, "name": STRING}, "required": ["id"]}
    schema = {
        "allOf": [
            {"$ref": "#/definitions/Base"},
            {"properties": {"name": STRING, "size": {"type": "number"}}, "required": ["name"]},
        ],
        "definitions": {"Base": base},
    }
    assert column(schema, draft) == "struct<id: long, name: string, size: double?>"


def test_fields_keep_their_descriptions(draft: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "The name."}}}
    found = column_of(parse(json.dumps({"$schema": draft, **schema}), {})).type
    assert isinstance(found, StructType)
    assert found.fields[0].description == "The name."


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({}, "The schema has no type"),
        ({"type": "null"}, "may only be null"),
        ({"type": ["string", "integer"]}, "several types"),
        ({"oneOf": [STRING, {}]}, "may have any type"),
        ({"type": "object"}, "declares no properties"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "Column 'a' is an array whose items"),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}, "Column 'a.items' has no type"),
        ({"type": "object", "properties": {"a": {"properties": {"b": {"$ref": "#"}}}}}, "Column 'a.b' is recursive"),
        ({"enum": ["a", 1]}, "several types"),
        ({"enum": [[1]]}, "arrays or objects"),
        ({"allOf": [STRING, {"type": "boolean"}]}, "several types at once"),
        (
            {"allOf": [{"type": "object", "properties": {"a": STRING}}, {"properties": {"a": INTEGER}}]},
            "Column 'a' must have several types at once",
        ),
    ],
)
def test_other_schemas_have_none(schema: dict[str, Any], problem: str, draft: str) -> None:
    with pytest.raises(NoColumnType, match=problem):
        column(schema, draft)


def test_an_invalid_schema_has_none() -> None:
    with pytest.raises(InvalidSchema):
        column_of(parse('{"type":"text"}', {}))


def test_the_number_and_depth_of_columns_are_bounded(draft: str) -> None:
    def definitions(count: int, names: str) -> dict[str, Any]:
        named = {
            f"A{index}": {
                "type": "object",
                "properties": {name: {"$ref": f"#/definitions/A{index + 1}"} for name in names},
            }
            for index in range(count)
        }
        return {"$ref": "#/definitions/A0", "definitions": named | {f"A{count}": STRING}}

    assert column(definitions(8, "ab"), draft).count("string") == 2**8
    with pytest.raises(NoColumnType, match=str(COLUMNS_MAX)):
        column(definitions(40, "abcdef"), draft)
    with pytest.raises(NoColumnType, match="deep"):
        column(definitions(5_000, "a"), draft)
