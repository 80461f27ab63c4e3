"""Compiles an Avro schema into the program that encodes columns of its type, as Spark's `to_avro` does."""

from __future__ import annotations

from typing import Final

from penstock.schemas.columns.avro.defaults import encode_long
from penstock.schemas.columns.avro.operations import Write
from penstock.schemas.columns.avro.program import Program, ProgramWriter
from penstock.schemas.columns.avro.types import avro_type, union_shape
from penstock.schemas.columns.layout import Column, Layout
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
    kind_of,
)

_DIVISORS: Final = {"timestamp-millis": 1000, "local-timestamp-millis": 1000, "time-micros": 1000}
"""Units of columns in those of Avro."""
_PLAIN: Final = {"boolean": Write.BOOLEAN, "int": Write.INT, "string": Write.BYTES, "bytes": Write.BYTES}
_RAW_BYTES: Final = {"float": 4, "double": 8}
_NO_INDEX: Final = -1


def compile_encoder(schema: AvroSchema) -> Program:
    """Returns the program that encodes a column of the schema's type. Raises NoColumnType."""
    layout = Layout(avro_type(schema))
    compiler = _Compiler(schema.types)
    root = schema.root
    if isinstance(root, Union):
        compiler.union(root, layout.root)
    else:
        compiler.content(root, layout.root)
    compiler.program.add(Write.END, "")
    return compiler.program.finished(layout)


class _Compiler:
    def __init__(self, types: Types) -> None:
        self.program = ProgramWriter()
        self._types = types

    def value(self, schema: Schema, column: Column) -> None:
        """Adds the instructions for a value that may be null only if the schema is a union with null."""
        found = definition(schema, self._types)
        if isinstance(found, Union):
            self.union(found, column)
        else:
            if kind_of(found, self._types) != "null":
                self.program.add(Write.REQUIRED, column.path, column=column.index)
            self.content(found, column)

    def union(self, union: Union, column: Column) -> None:
        add, set_b, path = self.program.add, self.program.set_b, column.path
        shape = union_shape(union, self._types)
        ends = []
        others = [add(Write.BRANCH, path, column=column.index, a=_NO_INDEX)]
        if shape.wide is not None:
            kinds = [kind_of(branch, self._types) for branch in union.branches]
            add(Write.INDEX, path, a=kinds.index(shape.wide.kind))
            self.content(shape.wide, column)
            ends.append(add(Write.JUMP, path))
        elif shape.is_single:
            add(Write.INDEX, path, a=shape.branches[0])
            self.content(definition(union.branches[shape.branches[0]], self._types), column)
            ends.append(add(Write.JUMP, path))
        else:
            for index, member in zip(shape.branches, column.children, strict=True):
                branch = add(Write.BRANCH, member.path, column=member.index, a=index)
                self.content(definition(union.branches[index], self._types), member)
                ends.append(add(Write.JUMP, path))
                set_b(branch)
        for other in others:
            set_b(other)
        if shape.null is not None:
            add(Write.INDEX, path, a=shape.null)
        else:
            add(Write.REQUIRED, path, column=column.index)
            add(Write.FAIL, path)
        for end in ends:
            self.program.set_a(end)

    def content(self, schema: Definition, column: Column) -> None:
        """Adds the instructions for a value that is not null."""
        add, path, index = self.program.add, column.path, column.index
        match schema:
            case Primitive():
                self._primitive(schema, column)
            case Record():
                for field, child in zip(schema.fields, column.children, strict=True):
                    self.value(field.type, child)
            case Array():
                self._items(schema.items, column)
            case Map():
                self._items(schema.values, column)
            case Enum():
                pairs = [(symbol.encode(), encode_long(number)) for number, symbol in enumerate(schema.symbols)]
                pairs.sort(key=lambda pair: (len(pair[0]), pair[0]))
                first = self.program.add_constants(*(part for pair in pairs for part in pair))
                add(Write.ENUM, path, column=index, a=first, b=len(pairs))
            case Fixed() if _is_decimal(schema.logical):
                self._decimal(schema.logical, schema.size, column)
            case Fixed():
                add(Write.FIXED, path, column=index, a=schema.size)

    def _primitive(self, schema: Primitive, column: Column) -> None:
        add, path, index = self.program.add, column.path, column.index
        if _is_decimal(schema.logical):
            self._decimal(schema.logical, -1, column)
        elif schema.kind in _RAW_BYTES:
            add(Write.RAW, path, column=index, a=_RAW_BYTES[schema.kind])
        elif schema.kind == "long":
            divisor = _DIVISORS.get(schema.logical.name) if schema.logical else None
            add(Write.DIVIDED if divisor else Write.LONG, path, column=index, a=divisor or 0)
        elif schema.kind != "null":
            add(_PLAIN[schema.kind], path, column=index)

    def _decimal(self, logical: LogicalType | None, size: int, column: Column) -> None:
        assert logical is not None
        self.program.add(Write.DECIMAL, column.path, column=column.index, a=logical.precision, b=size)

    def _items(self, schema: Schema, column: Column) -> None:
        items = self.program.add(Write.LIST, column.path, column=column.index)
        if len(column.children) > 1:
            keys = column.children[0]
            self.program.add(Write.BYTES, keys.path, column=keys.index)
        self.value(schema, column.children[-1])
        self.program.add(Write.END, column.path)
        self.program.set_a(items)


def _is_decimal(logical: LogicalType | None) -> bool:
    return logical is not None and logical.name == "decimal"
