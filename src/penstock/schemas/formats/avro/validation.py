"""Rules for new schemas that stored ones need not obey: names of ASCII letters, and defaults that fit the fields."""

from collections.abc import Iterable
from typing import Final

from penstock.schemas.formats.avro import names
from penstock.schemas.formats.avro.java_numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN
from penstock.schemas.formats.avro.json_text import Json, shown
from penstock.schemas.formats.avro.model import (
    Array,
    Definition,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    NoDefault,
    Primitive,
    Record,
    Schema,
    Types,
    Union,
    definition,
)
from penstock.schemas.formats.avro.recursion import Steps, run
from penstock.schemas.formats.format import InvalidSchema

CHECKS_MAX: Final = 500_000
"""Values that are compared with types. A schema of 1 MB has some 50,000; a hostile one could need billions."""


def validate_new(texts: Iterable[Schema], types: Types) -> None:
    """Raises InvalidSchema if a new schema must not be registered; `texts`: with those that it refers to."""
    defaults = _Defaults(types)
    schemas = list(texts)
    while schemas:
        schema = schemas.pop()
        if isinstance(schema, Record | Enum | Fixed):
            _validate_names(schema)
        if isinstance(schema, Record):
            for field in schema.fields:
                _validate_field(schema, field, defaults)
            schemas.extend(field.type for field in schema.fields)
        elif isinstance(schema, Array):
            schemas.append(schema.items)
        elif isinstance(schema, Map):
            schemas.append(schema.values)
        elif isinstance(schema, Union):
            schemas.extend(schema.branches)


def _validate_names(schema: Named) -> None:
    for part in names.invalid_parts(schema.name):
        raise InvalidSchema(f"Type '{shown(schema.name)}': '{shown(part)}' {_RULE}")
    for alias in map(names.simple_name, schema.aliases):
        if not names.is_strict_name(alias):
            raise InvalidSchema(f"Alias '{shown(alias)}' of type '{shown(schema.name)}' {_RULE}")
    if isinstance(schema, Enum):
        for symbol in schema.symbols:
            if not names.is_strict_name(symbol):
                raise InvalidSchema(f"Symbol '{shown(symbol)}' of enum '{shown(schema.name)}' {_RULE}")


def _validate_field(record: Record, field: Field, defaults: "_Defaults") -> None:
    where = f"Field '{shown(field.name)}' of record '{shown(record.name)}'"
    if not names.is_strict_name(field.name):
        raise InvalidSchema(f"{where} {_RULE}")
    if not isinstance(field.default, NoDefault) and not defaults.is_valid(field.type, field.default):
        raise InvalidSchema(f"{where} has a default that is not a value of its type: {shown(field.default)}")


_RULE: Final = "must consist of the letters A to Z and a to z, digits and '_', and not begin with a digit."


class _Defaults:
    """Compares default values with the types of their fields."""

    def __init__(self, types: Types) -> None:
        self._types = types
        self._checks = 0
        self._known: dict[tuple[Definition, int], bool] = {}
        """Answers for objects and arrays, by type and identity; False while the question is open.

        So a record is no valid default if it has itself as a default, without end.
        """

    def is_valid(self, schema: Schema, value: Json) -> bool:
        """Whether a value can be the default of a field of this type; of any branch, if it is a union."""
        found = definition(schema, self._types)
        if isinstance(found, Primitive):
            return self._is_valid_scalar(found, value)
        return run(self._is_valid(found, value))

    def _is_valid(self, schema: Schema, value: Json) -> Steps[bool]:
        found = definition(schema, self._types)
        if isinstance(found, Union):
            for branch in found.branches:
                if (yield self._is_valid(branch, value)):
                    return True
            return False
        if isinstance(found, Primitive | Enum | Fixed) or not isinstance(value, list | dict):
            return self._is_valid_scalar(found, value)
        key = (found, id(value))
        if key not in self._known:
            self._known[key] = False
            self._known[key] = yield self._has_valid_parts(found, value)
        return self._known[key]

    def _has_valid_parts(self, schema: Array | Map | Record, value: list[Json] | dict[str, Json]) -> Steps[bool]:
        self._count()
        parts: Iterable[tuple[Schema, Json | NoDefault]]
        if isinstance(schema, Array):
            if not isinstance(value, list):
                return False
            parts = ((schema.items, item) for item in value)
        elif not isinstance(value, dict):
            return False
        elif isinstance(schema, Map):
            parts = ((schema.values, member) for member in value.values())
        else:
            parts = ((field.type, value.get(field.name, field.default)) for field in schema.fields)
        for part, member in parts:
            if isinstance(member, NoDefault) or not (yield self._is_valid(part, member)):
                return False
        return True

    def _is_valid_scalar(self, schema: Definition, value: Json) -> bool:
        self._count()
        if isinstance(schema, Enum | Fixed):
            return isinstance(value, str)
        if not isinstance(schema, Primitive):
            return False
        match schema.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "string" | "bytes":
                return isinstance(value, str)
            case "int":
                return type(value) is int and INT_MIN <= value <= INT_MAX
            case "long":
                return type(value) is int and LONG_MIN <= value <= LONG_MAX
            case _:
                return type(value) is int or isinstance(value, float)

    def _count(self) -> None:
        self._checks += 1
        if self._checks > CHECKS_MAX:
            raise InvalidSchema(f"Checking the defaults of this schema takes more than {CHECKS_MAX} comparisons.")
