"""Parses the JSON text of Avro schemas, with the leniency of Java's Avro 1.12.1, which Confluent's registry uses.

What it allows beyond the specification: names that are defined further down, a type that is defined twice in the same
way, and properties on any type.
"""

from typing import Final, TypeVar, cast

from penstock.schemas.formats.avro import names
from penstock.schemas.formats.avro.equality import SameSchemas
from penstock.schemas.formats.avro.java_numbers import INT_MAX, parse_double
from penstock.schemas.formats.avro.json_text import Json, exceeds_64_bits, read_json, shown
from penstock.schemas.formats.avro.logical_types import (
    logical_type,
    logical_type_of_array,
    logical_type_of_record,
)
from penstock.schemas.formats.avro.model import (
    NO_DEFAULT,
    Array,
    Definition,
    Enum,
    Field,
    Fixed,
    Kind,
    LogicalType,
    Map,
    Named,
    NoDefault,
    Order,
    Primitive,
    Properties,
    Record,
    Reference,
    Schema,
    Union,
    kind_of,
)
from penstock.schemas.formats.avro.recursion import Steps, run
from penstock.schemas.formats.format import InvalidSchema

FIXED_BYTES_MAX: Final = INT_MAX - 8
"""Java's largest array."""
NAMES_CHARS_MAX: Final = 20_000_000
"""Length of all full names together. A long namespace counts for each type in it, and each use of one."""

_SCHEMA_MEMBERS: Final = frozenset(
    {"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"}
)
_ENUM_MEMBERS: Final = _SCHEMA_MEMBERS | {"default"}
_FIELD_MEMBERS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS: Final = {"ASCENDING", "DESCENDING", "IGNORE"}

Node = dict[str, Json]
N = TypeVar("N", Record, Enum, Fixed)


class Parser:
    """Parses texts one after the other; each may use the named types of those before."""

    def __init__(self) -> None:
        self.types: dict[str, Named] = {}
        """The first definition of each named type, by full name."""
        self.texts: list[Schema] = []
        """The schema of each text as it is written there: the definitions of named types are not replaced."""
        self.size = 0
        """The number of schemas and fields."""
        self._names_chars = 0
        self._forward: dict[Reference, None] = {}
        """References of the current text to types that were not defined yet."""
        self._same = SameSchemas(self.types, self.types, with_docs=False, never_same=self._forward)

    def parse(self, text: str) -> Definition:
        """Parses a text, and returns its schema. Raises InvalidSchema."""
        schema = run(self._schema(read_json(text), ""))
        for reference in self._forward:
            self._defined(reference)
        if isinstance(schema, Reference) and schema in self._forward:
            raise InvalidSchema(f"Type '{shown(schema.name)}' is not defined.")
        self._forward.clear()
        self.texts.append(schema)
        return self._defined(schema) if isinstance(schema, Reference | Record | Enum | Fixed) else schema

    def _defined(self, schema: Reference | Named) -> Named:
        if schema.name not in self.types:
            raise InvalidSchema(f"Type '{shown(schema.name)}' is not defined.")
        return self.types[schema.name]

    def _schema(self, node: Json, namespace: str) -> Steps[Schema]:
        """Parses a schema within a namespace."""
        leaf = self._leaf(node, namespace)
        if leaf is not None:
            return leaf
        schema: Schema
        if isinstance(node, list):
            schema = yield self._union(node, namespace)
            return schema
        assert isinstance(node, dict)
        match node["type"]:
            case "array":
                schema = yield self._array(node, namespace)
            case "map":
                schema = yield self._map(node, namespace)
            case _:
                schema = yield self._record(node, namespace)
        return schema

    def _leaf(self, node: Json, namespace: str) -> Schema | None:
        """Parses a schema without other schemas in it; None if it has some."""
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            return None
        if not isinstance(node, dict):
            raise InvalidSchema(f"A schema must be a string, an object or an array, not {shown(node)}")
        kind = node.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema(f"A schema must have a string as its type: {shown(node)}")
        if kind in ("record", "error", "array", "map"):
            return None
        if kind in names.PRIMITIVES:
            return self._primitive(node, cast(Kind, kind))
        if kind == "enum":
            return self._enum(node, namespace)
        if kind == "fixed":
            return self._fixed(node, namespace)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> Schema:
        """Returns the schema that a name means within a namespace."""
        self.size += 1
        if name in names.PRIMITIVES:
            return Primitive(cast(Kind, name))
        qualified = f"{namespace}.{name}" if namespace and "." not in name else name
        self._add_name(qualified)
        for candidate in (qualified, name):
            if candidate in self.types:
                return Reference(candidate)
        reference = Reference(qualified)
        self._forward[reference] = None
        return reference

    def _primitive(self, node: Node, kind: Kind) -> Primitive:
        self.size += 1
        properties = _properties(node, _SCHEMA_MEMBERS)
        return Primitive(kind, logical_type(kind, 0, properties), properties)

    def _enum(self, node: Node, namespace: str) -> Enum:
        self.size += 1
        name = self._full_name(node, namespace)
        symbols = node.get("symbols")
        if not isinstance(symbols, list):
            raise InvalidSchema(f"Enum '{shown(name)}' has no list of symbols.")
        for symbol in symbols:
            if not isinstance(symbol, str) or not names.is_name(symbol):
                raise InvalidSchema(f"Enum '{shown(name)}' has a symbol that is not a name: {shown(symbol)}")
        if len(set(cast(list[str], symbols))) < len(symbols):
            raise InvalidSchema(f"Enum '{shown(name)}' has a symbol twice.")
        default = _text(node, "default")
        if default is not None and default not in symbols:
            raise InvalidSchema(f"Enum '{shown(name)}' has no symbol like its default '{shown(default)}'.")
        return self._define(
            Enum(
                name=name,
                symbols=tuple(cast(list[str], symbols)),
                default=default,
                doc=_text(node, "doc"),
                aliases=self._type_aliases(node, name),
                properties=_properties(node, _ENUM_MEMBERS),
            )
        )

    def _fixed(self, node: Node, namespace: str) -> Fixed:
        self.size += 1
        name = self._full_name(node, namespace)
        size = node.get("size")
        if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
            raise InvalidSchema(
                f"Fixed '{shown(name)}' needs a size of 0 to {FIXED_BYTES_MAX} bytes, not {shown(size)}"
            )
        properties = _properties(node, _SCHEMA_MEMBERS)
        return self._define(
            Fixed(
                name=name,
                size=size,
                doc=_text(node, "doc"),
                aliases=self._type_aliases(node, name),
                logical=logical_type("fixed", size, properties),
                properties=properties,
            )
        )

    def _array(self, node: Node, namespace: str) -> Steps[Array]:
        self.size += 1
        if "items" not in node:
            raise InvalidSchema(f"An array must have items: {shown(node)}")
        items: Schema = yield self._schema(node["items"], namespace)
        properties = _properties(node, _SCHEMA_MEMBERS)
        known = items if items not in self._forward else None
        logical = logical_type_of_array(self.types[known.name] if isinstance(known, Reference) else known, properties)
        return Array(items, logical, _copied(properties, logical))

    def _map(self, node: Node, namespace: str) -> Steps[Map]:
        self.size += 1
        if "values" not in node:
            raise InvalidSchema(f"A map must have values: {shown(node)}")
        values: Schema = yield self._schema(node["values"], namespace)
        properties = _properties(node, _SCHEMA_MEMBERS)
        return Map(values, _copied(properties, None))

    def _union(self, nodes: list[Json], namespace: str) -> Steps[Union]:
        self.size += 1
        branches: list[Schema] = []
        taken: set[str] = set()
        for node in nodes:
            branch = self._leaf(node, namespace)
            if branch is None:
                branch = yield self._schema(node, namespace)
            if isinstance(branch, Union):
                raise InvalidSchema("A union must not be a branch of a union.")
            name = branch.name if isinstance(branch, Reference | Record | Enum | Fixed) else kind_of(branch, {})
            if name in taken:
                raise InvalidSchema(f"A union has type '{shown(name)}' twice.")
            taken.add(name)
            branches.append(branch)
        return Union(tuple(branches))

    def _record(self, node: Node, namespace: str) -> Steps[Record]:
        self.size += 1
        name = self._full_name(node, namespace)
        nodes = node.get("fields")
        if not isinstance(nodes, list):
            raise InvalidSchema(f"Record '{shown(name)}' has no list of fields.")
        own_namespace = names.namespace_of(name)
        fields: list[Field] = []
        for field in nodes:
            if not isinstance(field, dict) or "type" not in field:
                raise InvalidSchema(f"Record '{shown(name)}' has a field without a type: {shown(field)}")
            schema = self._leaf(field["type"], own_namespace)
            if schema is None:
                schema = yield self._schema(field["type"], own_namespace)
            fields.append(self._field(field, schema, name))
        if len({field.name for field in fields}) < len(fields):
            raise InvalidSchema(f"Record '{shown(name)}' has two fields of the same name.")
        properties = _properties(node, _SCHEMA_MEMBERS)
        logical = logical_type_of_record(fields, properties)
        return self._define(
            Record(
                name=name,
                fields=tuple(fields),
                doc=_text(node, "doc"),
                is_error=node["type"] == "error",
                aliases=self._type_aliases(node, name),
                logical=logical,
                properties=_copied(properties, logical),
            )
        )

    def _field(self, node: Node, schema: Schema, record: str) -> Field:
        self.size += 1
        name = node.get("name")
        if not isinstance(name, str) or not names.is_name(name):
            raise InvalidSchema(
                f"Record '{shown(record)}' has a field whose name is not letters, digits and '_': {shown(name)}"
            )
        if len(node) == 2:  # no more than a name and a type, as most
            return Field(name=name, type=schema)
        return Field(
            name=name,
            type=schema,
            default=_default(node, schema, name),
            doc=_text(node, "doc"),
            order=_order(node, name),
            aliases=_aliases(node),
            properties=_properties(node, _FIELD_MEMBERS),
        )

    def _full_name(self, node: Node, namespace: str) -> str:
        """Returns the full name of the named type that an object defines."""
        name = _text(node, "name")
        if name is None:
            raise InvalidSchema(f"A {node['type']} must have a name: {shown(node)}")
        own_namespace = _text(node, "namespace")
        name = names.full_name(name, namespace if own_namespace is None else own_namespace)
        self._add_name(name)
        if not names.is_name(names.simple_name(name)):
            raise InvalidSchema(f"The name of a type must be letters, digits and '_': '{shown(name)}'")
        if name in names.PRIMITIVES:
            raise InvalidSchema(f"A type must not be called '{name}', like a primitive type.")
        return name

    def _type_aliases(self, node: Node, name: str) -> tuple[str, ...]:
        namespace = names.namespace_of(name)
        aliases: dict[str, None] = {}
        for alias in _aliases(node):
            full_name = names.full_name(alias, namespace)
            self._add_name(full_name)
            aliases[full_name] = None
        return tuple(aliases)

    def _add_name(self, name: str) -> None:
        self._names_chars += len(name)
        if self._names_chars > NAMES_CHARS_MAX:
            raise InvalidSchema(f"The names of the schema have more than {NAMES_CHARS_MAX} characters together.")

    def _define(self, found: N) -> N:
        """Adds a named type. Defining it once more in the same way is allowed, as in Java."""
        known = self.types.setdefault(found.name, found)
        if known is not found and not self._same.is_same(known, found):
            raise InvalidSchema(f"Type '{shown(found.name)}' is defined twice, and not in the same way.")
        return found


def _text(node: Node, member: str) -> str | None:
    value = node.get(member)
    return value if isinstance(value, str) else None


def _aliases(node: Node) -> tuple[str, ...]:
    if "aliases" not in node:
        return ()
    aliases = node["aliases"]
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise InvalidSchema(f"Aliases must be a list of strings: {shown(node)}")
    return tuple(dict.fromkeys(cast(list[str], aliases)))


def _order(node: Node, field: str) -> Order:
    if "order" not in node:
        return "ascending"
    order = node["order"]
    if not isinstance(order, str) or order.upper() not in _ORDERS:
        raise InvalidSchema(
            f"Field '{shown(field)}' must have the order ascending, descending or ignore, not {shown(order)}"
        )
    return cast(Order, order.lower())


def _default(node: Node, schema: Schema, field: str) -> Json | NoDefault:
    if "default" not in node:
        return NO_DEFAULT
    default = node["default"]
    if isinstance(default, str) and isinstance(schema, Primitive) and schema.kind in ("float", "double"):
        number = parse_double(default)
        if number is None:
            raise InvalidSchema(f"Field '{shown(field)}' has a default that is not a number: '{shown(default)}'")
        return number
    return default


def _properties(node: Node, known: frozenset[str]) -> Properties | None:
    """Returns the members that Avro does not define; None if there are none."""
    if node.keys() <= known:
        return None
    return {key: value for key, value in node.items() if key not in known}


def _copied(properties: Properties | None, logical: LogicalType | None) -> Properties | None:
    """Returns the properties as Java's copy of a record, array or map has them: a logical type comes first.

    That copy is made when names are looked up. It has no way to hold an integer of more than 64 bits.
    """
    if properties is None:
        return None
    if exceeds_64_bits(list(properties.values())):
        raise InvalidSchema("A property of a record, array or map has an integer of more than 64 bits.")
    if logical is None:
        return properties
    return {"logicalType": properties["logicalType"], **properties}
