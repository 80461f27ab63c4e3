"""Arrow types of Avro schemas: those that Spark's `from_avro` derives (`SchemaConverters` in Spark 4.3).

Two exceptions: timestamps in nanoseconds are int64, because pyspark does not have Spark's type for them; Spark's
intervals, which are marked by a property of int and long, are int32 and int64.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from penstock.schemas.columns.layout import COLUMNS_MAX, DEPTH_MAX
from penstock.schemas.formats.avro import AvroSchema
from penstock.schemas.formats.avro.model import (
    Array,
    Definition,
    Enum,
    Fixed,
    LogicalType,
    Map,
    Primitive,
    Record,
    Schema,
    Types,
    Union,
    definition,
)
from penstock.schemas.formats.format import NoColumnType

DECIMAL_DIGITS_MAX: Final = 38
_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-micros": pa.time64("ns"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


class UnionShape(NamedTuple):
    """How a column holds the values of a union."""

    null: int | None
    """Index of the branch null."""
    branches: tuple[int, ...]
    """Indexes of the other branches."""
    wide: Primitive | None
    """The type that holds the values of all branches, if these are int and long, or float and double."""

    @property
    def is_single(self) -> bool:
        """Whether the column has the type of the only branch. If it is neither single nor wide, it is a struct."""
        return len(self.branches) == 1


def avro_type(schema: AvroSchema) -> pa.DataType:
    """Returns the type of a column with values of a schema. Raises NoColumnType for recursive types, for example."""
    return _Converter(schema.types).field("", schema.root, "", 0).type


def union_shape(union: Union, types: Types) -> UnionShape:
    """Returns how a column holds the values of a union."""
    kinds = [_kind(branch, types) for branch in union.branches]
    null = kinds.index("null") if "null" in kinds else None
    branches = tuple(index for index in range(len(kinds)) if index != null)
    found = {kinds[index] for index in branches}
    wide = None
    if len(branches) == 2:
        wide = Primitive("long") if found == {"int", "long"} else wide
        wide = Primitive("double") if found == {"float", "double"} else wide
    return UnionShape(null, branches, wide)


def _kind(schema: Schema, types: Types) -> str:
    found = definition(schema, types)
    return found.kind if isinstance(found, Primitive) else ""


class _Converter:
    def __init__(self, types: Types) -> None:
        self._types = types
        self._open: set[str] = set()
        """Names of the records around the schema."""
        self._columns = 0

    def field(self, name: str, schema: Schema, path: str, depth: int) -> pa.Field:
        """Returns a field, with the type and the nullability of a schema."""
        self._columns += 1
        if self._columns > COLUMNS_MAX:
            raise NoColumnType(f"The schema has more than {COLUMNS_MAX} columns.")
        if depth > DEPTH_MAX:
            raise NoColumnType(f"{path} is nested more than {DEPTH_MAX} types deep.")
        found = definition(schema, self._types)
        if isinstance(found, Union):
            shape = union_shape(found, self._types)
            return pa.field(name, self._union(found, shape, path, depth), nullable=shape.null is not None)
        is_null = isinstance(found, Primitive) and found.kind == "null"
        return pa.field(name, self._type(found, path, depth), nullable=is_null)

    def _union(self, union: Union, shape: UnionShape, path: str, depth: int) -> pa.DataType:
        if shape.wide is not None:
            return _PLAIN[shape.wide.kind]
        if shape.is_single:
            return self.field("", union.branches[shape.branches[0]], path, depth + 1).type
        members = []
        for number, index in enumerate(shape.branches):
            name = f"member{number}"
            member = self.field(name, union.branches[index], _joined(path, name), depth + 1)
            members.append(member.with_nullable(True))
        return pa.struct(members)

    def _type(self, schema: Definition, path: str, depth: int) -> pa.DataType:
        match schema:
            case Record():
                if schema.name in self._open:
                    raise NoColumnType(
                        f"{path or 'The schema'} has the record '{schema.name}', which contains itself: "
                        "there is no column type for recursive records."
                    )
                self._open.add(schema.name)
                fields = [
                    self.field(field.name, field.type, _joined(path, field.name), depth + 1)
                    for field in schema.fields
                ]
                self._open.remove(schema.name)
                return pa.struct(fields)
            case Array():
                return pa.list_(self.field("element", schema.items, _joined(path, "element"), depth + 1))
            case Map():
                return pa.map_(pa.string(), self.field("value", schema.values, _joined(path, "value"), depth + 1))
            case Enum():
                return pa.string()
            case Fixed():
                return _decimal(schema.logical, path) or pa.binary()
            case Primitive():
                return _decimal(schema.logical, path) or _primitive(schema)
        raise AssertionError(schema)


def _decimal(logical: LogicalType | None, path: str) -> pa.DataType | None:
    if logical is None or logical.name != "decimal":
        return None
    if logical.precision > DECIMAL_DIGITS_MAX:
        raise NoColumnType(
            f"{path or 'The schema'} is a decimal of {logical.precision} digits; columns have at most "
            f"{DECIMAL_DIGITS_MAX}."
        )
    return pa.decimal128(logical.precision, logical.scale)


def _primitive(schema: Primitive) -> pa.DataType:
    plain = _PLAIN[schema.kind]
    return plain if schema.logical is None else _LOGICAL.get(schema.logical.name, plain)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
