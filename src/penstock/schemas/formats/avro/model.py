"""Avro schemas as typed values, which the registry compares and from which a decoder can be made.

A schema is a tree. A named type (record, enum, fixed) stands where its text defines it; every other use of it is a
`Reference`, so that there are no cycles. To walk a schema, look up references:

    def visit(schema: Schema, types: Types) -> None:
        match definition(schema, types):
            case Record(fields=fields):
                for field in fields:
                    visit(field.type, types)  # remember the records seen: types may be recursive
            case Primitive(kind="long", logical=LogicalType(name="timestamp-millis")):
                ...

Two nodes are equal only if they are the same object.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from penstock.schemas.formats.avro.json_text import Json

Kind = Literal["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
Order = Literal["ascending", "descending", "ignore"]
Properties = Mapping[str, Json]
"""Members that Avro does not define, in the order of the text; those of a logical type are among them."""


class NoDefault(enum.Enum):
    """The default value of a field that has none; None is the default `null`."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT


@dataclass(frozen=True, slots=True)
class LogicalType:
    """What a value means beyond its type. Only logical types that are valid for the type are in the model."""

    name: str
    """As in the schema: `decimal`, `uuid`, `date`, `timestamp-micros`, …"""
    precision: int = 0
    """Of a decimal: the number of digits."""
    scale: int = 0
    """Of a decimal: the number of digits after the point."""


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """One of the eight types without parts."""

    kind: Kind
    logical: LogicalType | None = None
    properties: Properties | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    items: "Schema"
    logical: LogicalType | None = None
    properties: Properties | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A map from strings to values of one type."""

    values: "Schema"
    properties: Properties | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """One of several types: the index of the branch comes before the value."""

    branches: tuple["Schema", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A use of a named type that is defined elsewhere, maybe further down, maybe around this place."""

    name: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Enum:
    """One of several symbols, encoded as the index of the symbol."""

    name: str
    """The full name: with the namespace, if there is one. So for all named types."""
    symbols: tuple[str, ...]
    default: str | None = None
    """What a reader takes for symbols that it does not know."""
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    """Full names under which a writer may know the type. So for all named types."""
    properties: Properties | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fixed:
    """A fixed number of bytes."""

    name: str
    size: int
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    logical: LogicalType | None = None
    properties: Properties | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Field:
    name: str
    type: "Schema"
    default: Json | NoDefault = NO_DEFAULT
    """As in JSON; a number that was given as a string is a number."""
    doc: str | None = None
    order: Order = "ascending"
    aliases: tuple[str, ...] = ()
    """Names under which a writer may know the field."""
    properties: Properties | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Record:
    name: str
    fields: tuple[Field, ...]
    doc: str | None = None
    is_error: bool = False
    """Whether the type is `error`, which protocols use; it is encoded like a record."""
    aliases: tuple[str, ...] = ()
    logical: LogicalType | None = None
    properties: Properties | None = None


Named = Record | Enum | Fixed
NAMED: Final = (Record, Enum, Fixed)
Schema = Primitive | Array | Map | Union | Record | Enum | Fixed | Reference
Definition = Primitive | Array | Map | Union | Record | Enum | Fixed
"""Any schema but a reference."""
Types = Mapping[str, Named]
"""The definition of each named type, by full name."""


def definition(schema: Schema, types: Types) -> Definition:
    """Returns the definition that a reference stands for; any other schema itself."""
    return types[schema.name] if isinstance(schema, Reference) else schema


def kind_of(schema: Schema, types: Types) -> str:
    """Returns the name of the type: `record`, `union`, `long`, …"""
    found = definition(schema, types)
    return found.kind if isinstance(found, Primitive) else _KINDS[type(found)]


_KINDS: Final[Mapping[type, str]] = {
    Array: "array",
    Map: "map",
    Union: "union",
    Record: "record",
    Enum: "enum",
    Fixed: "fixed",
}
