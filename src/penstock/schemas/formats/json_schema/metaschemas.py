"""The metaschemas of drafts 4, 6 and 7, for schemas that refer to them. They are built here: nothing is fetched."""

from functools import lru_cache
from typing import Any, Final

from penstock.schemas.formats.json_schema.dialects import Dialect

_SELF: Final = {"$ref": "#"}
_SCHEMAS: Final = {"type": "object", "additionalProperties": _SELF, "default": {}}
_ARRAY: Final = {"$ref": "#/definitions/schemaArray"}
_STRINGS: Final = {"$ref": "#/definitions/stringArray"}
_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean", "default": False}
_TYPES: Final = ["array", "boolean", "integer", "null", "number", "object", "string"]


@lru_cache(maxsize=3)
def metaschema(dialect: Dialect) -> dict[str, Any]:
    """Returns the metaschema of a draft from 4 to 7. It must not be changed."""
    return _draft_4() if dialect is Dialect.DRAFT_4 else _later_draft(dialect)


def _draft_4() -> dict[str, Any]:
    size, size_from_zero = (
        {"$ref": "#/definitions/positiveInteger"},
        {"$ref": "#/definitions/positiveIntegerDefault0"},
    )
    or_flag = {"anyOf": [{"type": "boolean"}, _SELF], "default": {}}
    return {
        "id": "http://json-schema.org/draft-04/schema#",
        "$schema": "http://json-schema.org/draft-04/schema#",
        "description": "Core schema meta-schema",
        "definitions": _definitions("positiveInteger", "positiveIntegerDefault0")
        | {"stringArray": {"type": "array", "items": _TEXT, "minItems": 1, "uniqueItems": True}},
        "type": "object",
        "properties": {
            "id": _TEXT,
            "$schema": _TEXT,
            "multipleOf": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            "exclusiveMaximum": {"type": "boolean"},
            "exclusiveMinimum": {"type": "boolean"},
            "additionalItems": or_flag,
            "items": {"anyOf": [_SELF, _ARRAY], "default": {}},
            "required": _STRINGS,
            "additionalProperties": or_flag,
            "enum": {"type": "array", "minItems": 1, "uniqueItems": True},
            **_shared(size, size_from_zero),
        },
        "dependencies": {"exclusiveMaximum": ["maximum"], "exclusiveMinimum": ["minimum"]},
        "default": {},
    }


def _later_draft(dialect: Dialect) -> dict[str, Any]:
    size, size_from_zero = (
        {"$ref": "#/definitions/nonNegativeInteger"},
        {"$ref": "#/definitions/nonNegativeIntegerDefault0"},
    )
    address = f"http://json-schema.org/draft-0{dialect.value}/schema#"
    definitions = _definitions("nonNegativeInteger", "nonNegativeIntegerDefault0") | {
        "stringArray": {"type": "array", "items": _TEXT, "uniqueItems": True, "default": []}
    }
    properties: dict[str, Any] = {
        "$id": {"type": "string", "format": "uri-reference"},
        "$schema": {"type": "string", "format": "uri"},
        "$ref": {"type": "string", "format": "uri-reference"},
        "examples": {"type": "array", "items": {}},
        "multipleOf": {"type": "number", "exclusiveMinimum": 0},
        "exclusiveMaximum": {"type": "number"},
        "exclusiveMinimum": {"type": "number"},
        "additionalItems": _SELF,
        "items": {"anyOf": [_SELF, _ARRAY], "default": {}},
        "contains": _SELF,
        "required": _STRINGS,
        "additionalProperties": _SELF,
        "propertyNames": _SELF,
        "const": {},
        "enum": {"type": "array"},
        **_shared(size, size_from_zero),
        "patternProperties": _SCHEMAS | {"propertyNames": {"format": "regex"}},
    }
    if dialect is Dialect.DRAFT_7:
        properties["enum"] = {"type": "array", "items": True}
        flags = {"$comment": _TEXT, "readOnly": _FLAG, "contentMediaType": _TEXT, "contentEncoding": _TEXT}
        properties |= flags | {"if": _SELF, "then": _SELF, "else": _SELF}
    return {
        "$schema": address,
        "$id": address,
        "title": "Core schema meta-schema",
        "definitions": definitions,
        "type": ["object", "boolean"],
        "properties": properties,
        "default": True,
    }


def _definitions(size: str, size_from_zero: str) -> dict[str, Any]:
    return {
        "schemaArray": {"type": "array", "minItems": 1, "items": _SELF},
        size: {"type": "integer", "minimum": 0},
        size_from_zero: {"allOf": [{"$ref": f"#/definitions/{size}"}, {"default": 0}]},
        "simpleTypes": {"enum": _TYPES},
    }


def _shared(size: dict[str, str], size_from_zero: dict[str, str]) -> dict[str, Any]:
    """Keywords that all these drafts define alike."""
    names = {"$ref": "#/definitions/simpleTypes"}
    return {
        "title": _TEXT,
        "description": _TEXT,
        "default": {},
        "maximum": {"type": "number"},
        "minimum": {"type": "number"},
        "maxLength": size,
        "minLength": size_from_zero,
        "pattern": {"type": "string", "format": "regex"},
        "maxItems": size,
        "minItems": size_from_zero,
        "uniqueItems": _FLAG,
        "maxProperties": size,
        "minProperties": size_from_zero,
        "definitions": _SCHEMAS,
        "properties": _SCHEMAS,
        "patternProperties": _SCHEMAS,
        "dependencies": {"type": "object", "additionalProperties": {"anyOf": [_SELF, _STRINGS]}},
        "type": {"anyOf": [names, {"type": "array", "items": names, "minItems": 1, "uniqueItems": True}]},
        "format": _TEXT,
        "allOf": _ARRAY,
        "anyOf": _ARRAY,
        "oneOf": _ARRAY,
        "not": _SELF,
    }
