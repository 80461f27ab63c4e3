"""Logical types: which of them are valid for a schema. Others are ordinary properties, as Avro specifies."""

import math
from typing import Final

from penstock.schemas.formats.avro.java_numbers import INT_MAX, INT_MIN
from penstock.schemas.formats.avro.json_text import Json
from penstock.schemas.formats.avro.model import Field, LogicalType, Primitive, Properties, Record, Schema

_TYPE_OF: Final = {
    "big-decimal": "bytes",
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}
"""Logical types that belong to one primitive type, which is all that they need."""
_JAVA_CLASSES: Final = ("avro.java.string", "java-class", "java-key-class", "java-element-class")
"""Properties that name a Java class for the values, which excludes a logical type."""
_UUID_BYTES: Final = 16
_DURATION_BYTES: Final = 12


def logical_type(kind: str, size: int, properties: Properties | None) -> LogicalType | None:
    """Returns the logical type of a primitive type or a fixed type of `size` bytes."""
    name = _name(properties)
    if name is None or properties is None:
        return None
    if name == "decimal":
        return _decimal(kind, size, properties)
    is_valid = (
        _TYPE_OF.get(name) == kind
        or (name == "uuid" and (kind == "string" or (kind == "fixed" and size == _UUID_BYTES)))
        or (name == "duration" and kind == "fixed" and size == _DURATION_BYTES)
    )
    return LogicalType(name) if is_valid else None


def logical_type_of_array(items: Schema | None, properties: Properties | None) -> LogicalType | None:
    """Returns `map` for an array of records with a key and a value: Confluent's maps with keys of any type.

    `items` is None if the type of the items is defined further down.
    """
    is_map = isinstance(items, Record) and [field.name for field in items.fields] == ["key", "value"]
    return LogicalType("map") if is_map and _name(properties) == "map" else None


def logical_type_of_record(fields: list[Field], properties: Properties | None) -> LogicalType | None:
    """Returns `variant` for a record of Confluent's that holds a value of any type."""
    if _name(properties) != "variant" or sorted(field.name for field in fields) != ["metadata", "value"]:
        return None
    is_variant = all(isinstance(field.type, Primitive) and field.type.kind == "bytes" for field in fields)
    return LogicalType("variant") if is_variant else None


def _name(properties: Properties | None) -> str | None:
    name = properties.get("logicalType") if properties else None
    if (
        properties is None
        or not isinstance(name, str)
        or any(isinstance(properties.get(key), str) for key in _JAVA_CLASSES)
    ):
        return None
    return name


def _decimal(kind: str, size: int, properties: Properties) -> LogicalType | None:
    precision, scale = properties.get("precision"), properties.get("scale", 0)
    if kind not in ("bytes", "fixed") or not _is_int(precision) or not _is_int(scale):
        return None
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    is_valid = 0 < precision <= (INT_MAX if kind == "bytes" else _digits_max(size)) and 0 <= scale <= precision
    return LogicalType("decimal", precision, scale) if is_valid else None


def _is_int(value: Json) -> bool:
    return type(value) is int and INT_MIN <= value <= INT_MAX


def _digits_max(size: int) -> int:
    """Returns how many digits fit in so many bytes. Java computes the number of bits in 32 bits."""
    bits = (8 * size - 1 - INT_MIN) % 2**32 + INT_MIN
    return math.floor(math.log10(2) * bits)
