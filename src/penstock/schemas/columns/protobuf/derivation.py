"""Derives a Protobuf schema from a column type: a proto3 file whose messages have the fields of the structs."""

from __future__ import annotations

import re
from typing import Final, NoReturn

import pyarrow as pa
from pyarrow import types

from penstock.schemas.columns.codec import NoColumnType
from penstock.schemas.columns.layout import COLUMNS_MAX, DEPTH_MAX

_SCALARS: Final = {
    pa.bool_(): "bool",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): "int32",  # days since 1970, as Spark's to_protobuf writes them
}
_KEYS: Final = frozenset(("bool", "int32", "int64", "string"))
_TIMESTAMP: Final = "timestamp"
_DURATION: Final = "duration"
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def protobuf_schema_of(type: pa.DataType, name: str) -> str:
    """Returns the text of a schema whose first message is `name`, which may have a package: `shop.Order`.

    Protobuf does not tell null lists and maps from empty ones. Raises NoColumnType for types that it cannot hold:
    lists of lists, maps with other keys than integers, strings and booleans, decimals, times without a time zone.
    """
    package, _, message = name.rpartition(".")
    if not all(map(_NAME.fullmatch, name.split("."))):
        raise NoColumnType(f"{name!r} is no name of a message: use letters, digits and _, and start with no digit")
    if not types.is_struct(type):
        raise NoColumnType(f"A message has fields: the column must be a struct, not {type}")
    derivation = _Derivation()
    lines = derivation.message(message, type, "", 0)
    head = ['syntax = "proto3";']
    if package:
        head.append(f"package {package};")
    head += [f'import "google/protobuf/{each}.proto";' for each in sorted(derivation.imports)]
    return "\n".join([*head, "", *lines, ""])


class _Derivation:
    def __init__(self) -> None:
        self.imports: set[str] = set()
        self._fields = 0

    def message(self, name: str, struct: pa.StructType, path: str, depth: int) -> list[str]:
        """Returns the lines of a message."""
        if not struct.num_fields:
            _fail(path, "is a struct without fields")
        if depth == DEPTH_MAX:
            _fail(path, f"is nested in more than {DEPTH_MAX} structs")
        names = [field.name for field in struct]
        taken = {*names, name}
        nested: list[str] = []
        fields: list[str] = []
        for number, field in enumerate(struct, 1):
            self._fields += 1
            field_path = f"{path}.{field.name}" if path else field.name
            if self._fields > COLUMNS_MAX:
                _fail(field_path, f"is more than {COLUMNS_MAX} columns")
            if names.count(field.name) > 1 or _NAME.fullmatch(field.name) is None:
                _fail(field_path, "has a name that no field can have, or that another field has")
            element = _element(field.type)
            type_name = None
            if types.is_struct(element):
                type_name = _message_name(field.name, taken)
                taken.add(type_name)
                nested += self.message(type_name, element, field_path, depth + 1)
            fields.append(f"{self._type(field.type, type_name, field_path)} {field.name} = {number};")
        return [f"message {name} {{", *(f"  {line}" for line in (*nested, *fields)), "}"]

    def _type(self, type: pa.DataType, message: str | None, path: str) -> str:
        if types.is_map(type):
            key = _SCALARS.get(type.key_type)
            if key not in _KEYS:
                _fail(path, f"is a map with keys of type {type.key_type}")
            return f"map<{key}, {self._value(type.item_type, message, path)}>"
        if _is_list(type):
            return f"repeated {self._value(type.value_type, message, path)}"
        return f"optional {self._value(type, message, path)}"

    def _value(self, type: pa.DataType, message: str | None, path: str) -> str:
        """Returns the type of one value. `message`: its name, if it is a struct."""
        if message is not None:
            return message
        if type in _SCALARS:
            return _SCALARS[type]
        if types.is_timestamp(type) and type.tz is not None:
            self.imports.add(_TIMESTAMP)
            return ".google.protobuf.Timestamp"
        if types.is_duration(type):
            self.imports.add(_DURATION)
            return ".google.protobuf.Duration"
        _fail(path, f"has type {type}, which a Protobuf field cannot hold")


def _is_list(type: pa.DataType) -> bool:
    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))


def _element(type: pa.DataType) -> pa.DataType:
    """Returns the type of the values of a field that may be repeated, or a map."""
    return type.item_type if types.is_map(type) else type.value_type if _is_list(type) else type


def _message_name(field: str, taken: set[str]) -> str:
    """Returns a name for the message of a field, such as LineItem for line_item."""
    name = "".join(part[:1].upper() + part[1:] for part in field.split("_")) or "Message"
    while name in taken or _NAME.fullmatch(name) is None:
        name = f"{name}Message" if _NAME.fullmatch(name) else f"Message{name}"
    return name


def _fail(path: str, reason: str) -> NoReturn:
    raise NoColumnType(f"Column {path!r} {reason}")
