"""Column types of JSON Schemas: what a table with typed columns, such as a Spark DataFrame, can hold.

A schema has a column type if all its data have the same simple shape: an object with declared properties, a map, an
array, or a basic type. `null` makes a column nullable, as one of several types or as a member of `oneOf` or `anyOf`;
so does a property that is not required. Members of `allOf` are merged, as they are for inheritance.

Further properties of an object that declares some are left out. Integers are 64 bits wide, numbers are doubles.
"""

from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple, NoReturn

from penstock.schemas.formats.format import NoColumnType
from penstock.schemas.formats.json_schema.documents import Json
from penstock.schemas.formats.json_schema.schema import JsonSchema
from penstock.schemas.formats.json_schema.schema_nodes import (
    ArrayNode,
    BooleanNode,
    CombinedNode,
    ConstNode,
    Criterion,
    EnumNode,
    FalseNode,
    Node,
    NullNode,
    NumberNode,
    ObjectNode,
    ReferenceNode,
    StringNode,
)

COLUMNS_MAX: Final = 10_000
"""Columns of a schema, with all nested ones, after references are replaced by what they refer to."""
DEPTH_MAX: Final = 100
"""Schemas within one another, counted along references. Bounds the recursion here and in what reads the result."""


class BasicType(Enum):
    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"


class Column(NamedTuple):
    """A type, and whether values may be null or missing."""

    type: "ColumnType"
    is_nullable: bool


class ArrayType(NamedTuple):
    element: Column


class MapType(NamedTuple):
    """An object whose properties have any names, and values of one type."""

    value: Column


class Field(NamedTuple):
    name: str
    column: Column
    description: str | None


class StructType(NamedTuple):
    """An object with declared properties, in their order in the schema."""

    fields: tuple[Field, ...]


ColumnType = BasicType | ArrayType | MapType | StructType


class _Shape(NamedTuple):
    """What a schema says about the type of its data. `type` is None if it says nothing, or only that it is null."""

    type: ColumnType | None
    is_nullable: bool
    size: int
    """Columns in it, itself included."""


_NOTHING: Final = _Shape(None, False, 0)
_NULL: Final = _Shape(None, True, 0)


def column_of(schema: JsonSchema) -> Column:
    """Returns the column type of the data of a schema. Raises NoColumnType, and InvalidSchema if it is not valid.

    >>> column_of(parse('{"type": "array", "items": {"type": ["integer", "null"]}}', {}))
    Column(type=ArrayType(element=Column(type=<BasicType.LONG: 'long'>, is_nullable=True)), is_nullable=False)
    """
    return _column(_Shapes().of(schema.root, ()), ())


class _Shapes:
    """Finds the shapes of nodes, each once."""

    def __init__(self) -> None:
        self._known: dict[int, _Shape] = {}
        self._waiting: set[int] = set()

    def of(self, node: Node, where: Any) -> _Shape:
        key = id(node)
        shape = self._known.get(key)
        if shape is not None:
            return shape
        if key in self._waiting:
            _fail(where, "is recursive")
        if len(self._waiting) >= DEPTH_MAX:
            _fail(where, f"is nested more than {DEPTH_MAX} schemas deep")
        self._waiting.add(key)
        shape = self._shape(node, where)
        if shape.size > COLUMNS_MAX:
            _fail(where, f"has more than {COLUMNS_MAX} columns")
        self._waiting.remove(key)
        self._known[key] = shape
        return shape

    def _shape(self, node: Node, where: Any) -> _Shape:
        match node:
            case ReferenceNode():
                return self.of(node.target, where)
            case StringNode() if node.is_required:
                return _basic(BasicType.STRING)
            case NumberNode() if node.is_required:
                return _basic(BasicType.LONG if node.is_integer else BasicType.DOUBLE)
            case BooleanNode():
                return _basic(BasicType.BOOLEAN)
            case NullNode():
                return _NULL
            case EnumNode():
                return _union([_shape_of_value(value, where) for value in node.values], where)
            case ConstNode():
                return _shape_of_value(node.value, where)
            case CombinedNode():
                shapes = [self.of(member, where) for member in node.members if not isinstance(member, FalseNode)]
                return (_intersection if node.criterion is Criterion.ALL else _union)(shapes, where)
            case ArrayNode() if node.is_required or node.items is not None:
                return self._array(node, where)
            case ObjectNode() if node.is_required or node.properties:
                return self._object(node, where)
        return _NOTHING

    def _array(self, node: ArrayNode, where: Any) -> _Shape:
        if node.items is None:
            _fail(where, "is an array whose items have no common schema")
        shape = self.of(node.items, (where, "items"))
        return _Shape(ArrayType(_column(shape, (where, "items"))), False, 1 + shape.size)

    def _object(self, node: ObjectNode, where: Any) -> _Shape:
        if not node.properties:
            return self._map(node, where)
        fields: list[Field] = []
        size = 1
        for name, schema in node.properties.items():
            if isinstance(schema, FalseNode):
                continue  # a property that must not exist
            path = (where, name)
            shape = self.of(schema, path)
            column = _column(shape, path)
            is_nullable = column.is_nullable or name not in node.requirements
            fields.append(Field(name, Column(column.type, is_nullable), schema.description))
            size += shape.size
        return _Shape(StructType(tuple(fields)), False, size)

    def _map(self, node: ObjectNode, where: Any) -> _Shape:
        values = list(node.patterns.values())
        if node.additional is not None:
            values.append(node.additional)
        elif node.allows_additional and node.unevaluated is not None:
            values.append(node.unevaluated)
        elif node.allows_additional or not values:
            _fail(where, "is an object that declares no properties")
        path = (where, "*")
        shape = _union([self.of(value, path) for value in values], path)
        return _Shape(MapType(_column(shape, path)), False, 1 + shape.size)


def _basic(kind: BasicType) -> _Shape:
    return _Shape(kind, False, 1)


def _shape_of_value(value: Json, where: Any) -> _Shape:
    """Returns the shape of a value of `const` or `enum`."""
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _basic(BasicType.BOOLEAN)
    if isinstance(value, int):
        return _basic(BasicType.LONG)
    if isinstance(value, Decimal):
        return _basic(BasicType.DOUBLE)
    if isinstance(value, str):
        return _basic(BasicType.STRING)
    return _fail(where, "lists values that are arrays or objects")


def _union(shapes: list[_Shape], where: Any) -> _Shape:
    """Returns the shape of data that have one of several shapes."""
    typed = [shape for shape in shapes if shape.type is not None]
    if any(shape == _NOTHING for shape in shapes):
        return _NOTHING if not typed else _fail(where, "may have any type")
    types = {shape.type: shape for shape in typed}
    is_nullable = any(shape.is_nullable for shape in shapes)
    if types.keys() == {BasicType.LONG, BasicType.DOUBLE}:
        return _Shape(BasicType.DOUBLE, is_nullable, 1)
    if len(types) > 1:
        _fail(where, "may have several types")
    size = max((shape.size for shape in typed), default=0)
    return _Shape(next(iter(types), None), is_nullable, size)


def _intersection(shapes: list[_Shape], where: Any) -> _Shape:
    """Returns the shape of data that have several shapes at once."""
    said = [shape for shape in shapes if shape != _NOTHING]
    if not said:
        return _NOTHING
    is_nullable = all(shape.is_nullable for shape in said)
    types = {shape.type: shape for shape in said if shape.type is not None}
    if types.keys() == {BasicType.LONG, BasicType.DOUBLE}:
        return _Shape(BasicType.LONG, is_nullable, 1)
    if len(types) <= 1:
        return _Shape(next(iter(types), None), is_nullable, max(shape.size for shape in said))
    fields: dict[str, Field] = {}
    for kind in types:
        if not isinstance(kind, StructType):
            _fail(where, "must have several types at once")
        for field in kind.fields:
            known = fields.setdefault(field.name, field)
            if known.column.type != field.column.type:
                _fail((where, field.name), "must have several types at once")
            is_optional = known.column.is_nullable and field.column.is_nullable
            fields[field.name] = known._replace(column=Column(known.column.type, is_optional))
    return _Shape(StructType(tuple(fields.values())), is_nullable, sum(shape.size for shape in said))


def _column(shape: _Shape, where: Any) -> Column:
    if shape.type is None:
        _fail(where, "may only be null" if shape.is_nullable else "has no type")
    return Column(shape.type, shape.is_nullable)


def _fail(where: Any, problem: str) -> NoReturn:
    parts: list[str] = []
    while where:
        where, name = where
        parts.append(name[:200])
    name = f"Column {'.'.join(reversed(parts))!r}" if parts else "The schema"
    raise NoColumnType(f"{name} {problem}.")
