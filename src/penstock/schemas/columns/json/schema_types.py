"""Column types of JSON Schemas, and JSON Schemas of column types."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from penstock.schemas.formats.format import NoColumnType
from penstock.schemas.formats.json_schema import JsonSchema
from penstock.schemas.formats.json_schema.columns import (
    ArrayType,
    BasicType,
    ColumnType,
    MapType,
    StructType,
    column_of,
)

_BASIC: Final = {
    BasicType.STRING: pa.string(),
    BasicType.LONG: pa.int64(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.BOOLEAN: pa.bool_(),
}
_DIALECT: Final = "http://json-schema.org/draft-07/schema#"


def json_type(schema: JsonSchema) -> pa.DataType:
    """Returns the column type of the data of a JSON Schema. Raises NoColumnType.

    >>> json_type(parse('{"type": "object", "properties": {"id": {"type": "integer"}}}', {}))
    StructType(struct<id: int64>)
    """
    return _arrow_type(column_of(schema).type)


def _arrow_type(kind: ColumnType) -> pa.DataType:
    match kind:
        case BasicType():
            return _BASIC[kind]
        case ArrayType(element):
            return pa.list_(pa.field("element", _arrow_type(element.type), element.is_nullable))
        case MapType(value):
            return pa.map_(pa.string(), pa.field("value", _arrow_type(value.type), value.is_nullable))
        case StructType(fields):
            return pa.struct(
                [pa.field(each.name, _arrow_type(each.column.type), each.column.is_nullable) for each in fields]
            )


def json_schema_of(kind: pa.DataType, name: str) -> str:
    """Returns the JSON Schema, draft 7, of the values that `JsonEncoder` writes for a column type.

    Objects are closed (`additionalProperties: false`), so that adding a nullable column is a compatible change.
    Raises NoColumnType if JSON has no such values.
    """
    return json.dumps({"$schema": _DIALECT, "title": name, **_schema(kind, ())})


def _schema(kind: pa.DataType, path: tuple[str, ...]) -> dict[str, Any]:
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return {"type": "number"}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return {"type": "string"}
    if pa.types.is_timestamp(kind):
        return {"type": "string"} if kind.tz is None else {"type": "string", "format": "date-time"}
    if pa.types.is_date(kind):
        return {"type": "string", "format": "date"}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return {"type": "string", "contentEncoding": "base64"}
    if pa.types.is_struct(kind):
        return {
            "type": "object",
            "properties": {each.name: _schema(each.type, (*path, each.name)) for each in kind},
            "required": [each.name for each in kind if not each.nullable],
            "additionalProperties": False,
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _member(kind.value_field, path)}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "object", "additionalProperties": _member(kind.item_field, path)}
    where = f"Column {'.'.join(path)!r}" if path else "The column"
    raise NoColumnType(f"{where} has the type {kind}, which JSON Schema cannot describe.")


def _member(field: pa.Field, path: tuple[str, ...]) -> dict[str, Any]:
    """Returns the schema of elements of an array, or of values of a map, which may be null."""
    schema = _schema(field.type, (*path, field.name))
    if field.nullable:
        schema["type"] = [schema["type"], "null"]
    return schema
