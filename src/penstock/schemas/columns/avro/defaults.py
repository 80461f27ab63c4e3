"""Encodes the default values of reader schemas, so that a decoder reads them like data."""

import math
import struct
from collections.abc import Mapping, Sequence

from penstock.schemas.columns.codec import IncompatibleTypes
from penstock.schemas.formats.avro.json_text import Json, shown
from penstock.schemas.formats.avro.model import (
    Array,
    Enum,
    Fixed,
    Map,
    NoDefault,
    Primitive,
    Record,
    Schema,
    Types,
    Union,
    definition,
)

_INT_BITS = {"int": 32, "long": 64}
_FLOATS = {"float": "<f", "double": "<d"}


def encode_long(value: int) -> bytes:
    """Encodes an integer as a zigzag varint."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encode_default(schema: Schema, value: Json | NoDefault, types: Types) -> bytes:
    """Returns the encoding of a default value. Raises IncompatibleTypes if it is not a value of the type."""
    found = definition(schema, types)
    match found:
        case Union():
            return _encode_union(found, value, types)
        case Primitive():
            return _encode_primitive(found, value)
        case Enum() if isinstance(value, str) and value in found.symbols:
            return encode_long(found.symbols.index(value))
        case Fixed() if isinstance(value, str) and len(value) == found.size:
            return _latin(value)
        case Array() if isinstance(value, list):
            return _encode_items([encode_default(found.items, item, types) for item in value])
        case Map() if isinstance(value, dict):
            values = [encode_default(found.values, member, types) for member in value.values()]
            return _encode_items([_encode_text(key) + each for key, each in zip(value, values, strict=True)])
        case Record() if isinstance(value, dict):
            return _encode_record(found, value, types)
    raise _wrong(value)


def _encode_union(union: Union, value: Json | NoDefault, types: Types) -> bytes:
    """The value may be one of any branch, since Avro 1.12; before, only of the first."""
    for index, branch in enumerate(union.branches):
        try:
            return encode_long(index) + encode_default(branch, value, types)
        except IncompatibleTypes:
            continue
    raise _wrong(value)


def _encode_record(record: Record, value: Mapping[str, Json], types: Types) -> bytes:
    return b"".join(
        encode_default(field.type, value.get(field.name, field.default), types) for field in record.fields
    )


def _encode_items(items: Sequence[bytes]) -> bytes:
    return (encode_long(len(items)) + b"".join(items) if items else b"") + encode_long(0)


def _encode_primitive(schema: Primitive, value: Json | NoDefault) -> bytes:
    kind = schema.kind
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and isinstance(value, bool):
        return bytes([value])
    if isinstance(value, str):
        if kind == "string":
            return _encode_text(value)
        if kind == "bytes":
            return _sized(_latin(value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        return _encode_number(kind, value)
    raise _wrong(value)


def _encode_number(kind: str, value: float) -> bytes:
    if kind in _INT_BITS:
        limit = 2 ** (_INT_BITS[kind] - 1)
        if isinstance(value, int) and -limit <= value < limit:
            return encode_long(value)
    elif kind in _FLOATS:
        try:
            return struct.pack(_FLOATS[kind], value)
        except OverflowError:
            return struct.pack(_FLOATS[kind], math.inf if value > 0 else -math.inf)
    raise _wrong(value)


def _sized(data: bytes) -> bytes:
    return encode_long(len(data)) + data


def _encode_text(value: str) -> bytes:
    try:
        return _sized(value.encode())
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape
        raise _wrong(value) from None


def _latin(value: str) -> bytes:
    """Returns the bytes that a default of type bytes or fixed stands for: one per character."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise _wrong(value) from None


def _wrong(value: object) -> IncompatibleTypes:
    return IncompatibleTypes(f"the default {shown(value)} is not a value of its type")
