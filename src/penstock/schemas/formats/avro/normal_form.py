"""Prints the normal form of a schema, as Confluent's registry does for `normalize=true`.

The text is only a step: it is parsed, and printed as any other. It has full names, properties in the order of their
names, and defaults as the type of the field has them. Names are not escaped: odd ones break the text, in both.
"""

from collections.abc import Iterable

from penstock.schemas.formats.avro.java_numbers import LONG_MAX, LONG_MIN, to_single
from penstock.schemas.formats.avro.json_text import Json, exceeds_64_bits, java_order, quote, shown, write_json
from penstock.schemas.formats.avro.model import (
    NO_DEFAULT,
    Array,
    Enum,
    Field,
    Fixed,
    LogicalType,
    Map,
    Named,
    NoDefault,
    Primitive,
    Properties,
    Record,
    Schema,
    Types,
    Union,
    definition,
    kind_of,
)
from penstock.schemas.formats.avro.recursion import Steps, run
from penstock.schemas.formats.format import InvalidSchema


def print_normal_form(schema: Schema, types: Types, known: Iterable[str]) -> str:
    """Returns the text of the normal form; `known`: the types that are defined elsewhere.

    Raises InvalidSchema for the few schemas that have none: with a default that is not of the type of its field, or
    with an integer of more than 64 bits as a property.
    """
    writer = _Writer(types, set(known))
    run(writer.schema(schema))
    return "".join(writer.parts)


class _Writer:
    def __init__(self, types: Types, known: set[str]) -> None:
        self.parts: list[str] = []
        self._types = types
        self._known = known
        self._fields: dict[Record, dict[str, Schema]] = {}
        """The types of the fields of records for which there is a default, by name."""

    def schema(self, schema: Schema) -> Steps[None]:
        add = self.parts.append
        found = definition(schema, self._types)
        if isinstance(found, Union):
            add("[")
            for number, branch in enumerate(found.branches):
                add("," if number else "")
                yield self.schema(branch)
            add("]")
        elif isinstance(found, Array | Map):
            is_array = isinstance(found, Array)
            add('{"type":"array","items":' if is_array else '{"type":"map","values":')
            yield self.schema(found.items if isinstance(found, Array) else found.values)
            self._logical(found.logical if isinstance(found, Array) else None)
            self._properties(found.properties)
            add("}")
        elif isinstance(found, Primitive):
            if found.properties is None:
                add(f'"{found.kind}"')
            else:
                add(f'{{"type":"{found.kind}"')
                self._logical(found.logical)
                self._properties(found.properties)
                add("}")
        elif found.name in self._known:
            add(f'"{found.name}"')
        else:
            self._known.add(found.name)
            yield self._named(found)

    def _named(self, schema: Named) -> Steps[None]:
        add = self.parts.append
        kind = kind_of(schema, self._types)
        add(f'{{"name":"{schema.name}","type":"{kind}"')
        if isinstance(schema, Enum):
            add(f',"symbols":[{",".join(map(quote, schema.symbols))}]')
        elif isinstance(schema, Fixed):
            add(f',"size":{schema.size}')
        else:
            add(',"fields":[')
            for number, field in enumerate(schema.fields):
                add(f'{"," if number else ""}{{"name":"{field.name}","type":')
                yield self.schema(field.type)
                self._field(field)
                add("}")
            add("]")
        if not isinstance(schema, Enum):
            self._logical(schema.logical)
        if schema.doc:
            add(f',"doc":{quote(schema.doc)}')
        # In Java an alias without a namespace starts with a dot if the type has one, to tell it from one within it.
        prefix = "." if "." in schema.name else ""
        self._aliases([alias if "." in alias else f"{prefix}{alias}" for alias in schema.aliases])
        if isinstance(schema, Enum) and schema.default is not None:
            add(f',"default":{quote(schema.default)}')
        self._properties(schema.properties)
        add("}")

    def _field(self, field: Field) -> None:
        add = self.parts.append
        add(f',"order":"{field.order}"')
        if field.doc is not None:
            add(f',"doc":{quote(field.doc)}')
        self._aliases(field.aliases)
        default = run(self._default(field.default, field.type))
        if not isinstance(default, NoDefault):
            add(f',"default":{write_json(default, is_sorted=True)}')
        self._properties(field.properties)

    def _aliases(self, aliases: Iterable[str]) -> None:
        if aliases:
            self.parts.append(f',"aliases":[{",".join(map(quote, sorted(aliases, key=java_order)))}]')

    def _logical(self, logical: LogicalType | None) -> None:
        """Prints the logical type ahead of the properties, of which it is one: its place counts, not its value."""
        if logical is not None:
            self.parts.append(f',"logicalType":"{logical.name}"')
            if logical.name == "decimal":
                self.parts.append(f',"precision":{logical.precision}')
                if logical.scale:
                    self.parts.append(f',"scale":{logical.scale}')

    def _properties(self, properties: Properties | None) -> None:
        for name in sorted(properties or (), key=java_order):
            value = (properties or {})[name]
            if exceeds_64_bits(value):
                raise InvalidSchema("A property has an integer of more than 64 bits: there is no normal form for it.")
            self.parts.append(f',"{name}":{write_json(value, is_sorted=True)}')

    def _default(self, value: Json | NoDefault, schema: Schema | None) -> Steps[Json | NoDefault]:
        """Returns a default as a value of its type; NO_DEFAULT if it is of another: normal forms do without it."""
        if schema is not None:
            schema = definition(schema, self._types)
            if isinstance(schema, Union):
                if not schema.branches:
                    raise InvalidSchema("A field whose type is a union without branches has no normal form.")
                schema = definition(schema.branches[0], self._types)
        if isinstance(value, list):
            if value and schema is not None and not isinstance(schema, Array):
                raise InvalidSchema("A default is an array, but the type of the field is not.")
            item_type = schema.items if isinstance(schema, Array) else None
            items: list[Json] = [None] * len(value)
            for number, item in enumerate(value):
                items[number] = _present((yield self._default(item, item_type)))
            return items
        if isinstance(value, dict):
            members: dict[str, Json] = {}
            for name, member in value.items():
                members[name] = _present((yield self._default(member, self._member_type(schema, name))))
            return members
        if isinstance(value, NoDefault) or value is None or isinstance(value, bool):
            return value
        return _scalar(value, None if schema is None else kind_of(schema, self._types))

    def _member_type(self, schema: Schema | None, name: str) -> Schema | None:
        """Returns the type that a member of an object has if the object is a value of this schema."""
        if isinstance(schema, Map):
            return schema.values
        if not isinstance(schema, Record):
            return None
        if schema not in self._fields:
            self._fields[schema] = {field.name: field.type for field in schema.fields}
        if name not in self._fields[schema]:
            raise InvalidSchema(f"A default has a member that is not a field of record '{shown(schema.name)}'.")
        return self._fields[schema][name]


def _present(value: Json | NoDefault) -> Json:
    if isinstance(value, NoDefault):
        raise InvalidSchema("A default has a part that is not of the type that it should be.")
    return value


def _scalar(value: float | str, kind: str | None) -> Json | NoDefault:
    """Converts a value to a type, or if None as it is; NO_DEFAULT if it cannot be of this type."""
    if isinstance(value, str):
        if kind in ("bytes", "fixed"):
            return value.encode("latin-1", "replace").decode("latin-1")
        return value if kind in (None, "string", "enum") else NO_DEFAULT
    if isinstance(value, int) and not LONG_MIN <= value <= LONG_MAX:
        return NO_DEFAULT
    if kind == "float":
        return to_single(float(value))
    if kind == "double":
        return float(value)
    if kind is None or (isinstance(value, int) and kind in ("int", "long")):
        return value
    return NO_DEFAULT
