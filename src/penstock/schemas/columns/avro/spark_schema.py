"""Derives Avro schemas from column types, as Spark's `to_avro` does."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from penstock.schemas.columns.codec import IncompatibleTypes
from penstock.schemas.formats.avro import names

_PLAIN: Final[dict[pa.DataType, Any]] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
    pa.time64("ns"): {"type": "long", "logicalType": "time-micros"},
}


def avro_schema_of(kind: pa.DataType, name: str) -> str:
    """Returns the text of a schema for a column type; `name` is the full name of the outermost record.

    A nullable field is a union of null and its type, with the default null. Raises IncompatibleTypes.
    """
    namespace, _, simple = name.rpartition(".")
    return json.dumps(_schema(kind, simple, namespace), separators=(",", ":"))


def _schema(kind: pa.DataType, name: str, namespace: str) -> Any:
    """`name`: that of the field around the type, which a record is called."""
    inner = f"{namespace}.{name}" if namespace else name
    if types.is_struct(kind):
        record = {"type": "record", "name": _checked(name), "namespace": namespace}
        return record | {"fields": [_field(field, inner) for field in kind]}
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise IncompatibleTypes(
                f"Column '{inner}' is a map with keys of type {kind.key_type}; Avro has text only."
            )
        return {"type": "map", "values": _nullable(kind.item_field, name, namespace)}
    if types.is_list(kind) or types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, name, namespace)}
    if types.is_timestamp(kind):
        prefix = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{prefix}timestamp-micros"}
    if types.is_decimal128(kind):
        decimal = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {
            "type": "fixed",
            "name": "fixed",
            "namespace": inner,
            "size": _decimal_bytes(kind.precision),
        } | decimal
    if kind not in _PLAIN:
        raise IncompatibleTypes(f"Column '{inner}' has the type {kind}, for which Avro has no type.")
    return _PLAIN[kind]


def _field(field: pa.Field, namespace: str) -> dict[str, Any]:
    described = {"name": _checked(field.name), "type": _nullable(field, field.name, namespace)}
    return described | {"default": None} if field.nullable else described


def _nullable(field: pa.Field, name: str, namespace: str) -> Any:
    schema = _schema(field.type, name, namespace)
    return ["null", schema] if field.nullable and schema != "null" else schema


def _decimal_bytes(precision: int) -> int:
    """Returns how many bytes numbers of so many digits need, with their sign."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


def _checked(name: str) -> str:
    if not names.is_strict_name(name):
        raise IncompatibleTypes(
            f"'{name}' is not a name in Avro: it must consist of the letters A to Z and a to z, digits and '_', and "
            "not begin with a digit."
        )
    return name
