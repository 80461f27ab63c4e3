"""Compiles a writer's and a reader's Avro schema into a decoder's program, by the rules of Avro's specification.

In two ways it is more careful than Java's decoder: a timestamp has the unit that its writer says, not the one of
the reader, and decimals of different scales are not resolved. As in Java, the names of records are not compared,
except to choose a branch of a reader's union.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.schemas.columns.avro.defaults import encode_default
from penstock.schemas.columns.avro.operations import Read
from penstock.schemas.columns.avro.program import Program, ProgramWriter
from penstock.schemas.columns.avro.skipping import SkipWriter, item_bytes
from penstock.schemas.columns.avro.types import UnionShape, avro_type, union_shape
from penstock.schemas.columns.codec import IncompatibleTypes
from penstock.schemas.columns.layout import Column, Layout
from penstock.schemas.formats.avro import AvroSchema, names
from penstock.schemas.formats.avro.model import (
    NAMED,
    Array,
    Definition,
    Enum,
    Field,
    Fixed,
    LogicalType,
    Map,
    NoDefault,
    Primitive,
    Record,
    Schema,
    Union,
    definition,
    kind_of,
)

_LONG_UNITS_NS: Final = {
    "time-millis": 10**6,
    "time-micros": 10**3,
    "timestamp-millis": 10**6,
    "timestamp-micros": 10**3,
    "timestamp-nanos": 1,
    "local-timestamp-millis": 10**6,
    "local-timestamp-micros": 10**3,
    "local-timestamp-nanos": 1,
}
_COLUMN_UNITS_NS: Final = {
    **_LONG_UNITS_NS,
    "time-micros": 1,
    "timestamp-millis": 10**3,
    "local-timestamp-millis": 10**3,
}
"""The units of the columns of these types."""
_TO_LONG: Final = {"int": 1, "long": 0}


def compile_decoder(writer: AvroSchema, reader: AvroSchema) -> Program:
    """Returns the program that decodes what `writer` describes into the column type of `reader`.

    Raises NoColumnType, and IncompatibleTypes if the schemas cannot be resolved.
    """
    layout = Layout(avro_type(reader))
    compiler = _Compiler(writer, reader)
    compiler.value(writer.root, reader.root, layout.root)
    compiler.finish()
    return compiler.program.finished(layout)


class _Compiler:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self.program = ProgramWriter()
        self._writer_types = writer.types
        self._reader_types = reader.types
        self._skips = SkipWriter(self.program, writer.types)

    def finish(self) -> None:
        self.program.add(Read.END, "")
        self._skips.add_records()

    def value(self, writer: Schema, reader: Schema, column: Column) -> None:
        """Adds the instructions that read a value of the writer's type into a column of the reader's type."""
        written = definition(writer, self._writer_types)
        wanted = definition(reader, self._reader_types)
        if isinstance(written, Union):
            self._writer_union(written, wanted, column)
        elif isinstance(wanted, Union):
            self._reader_union(written, wanted, column)
        else:
            self._same_kinds(written, wanted, column)

    def _writer_union(self, writer: Union, reader: Definition, column: Column) -> None:
        add, path = self.program.add, column.path
        nulls = [self._is_null(branch) for branch in writer.branches]
        has_null = isinstance(reader, Union) and union_shape(reader, self._reader_types).null is not None
        if has_null and len(nulls) == 2 and any(nulls):
            option = add(Read.OPTION, path, column=column.index, a=nulls.index(True))
            self._branch(writer.branches[nulls.index(False)], reader, column)
            self.program.set_b(option)
            return
        add(Read.UNION, path, column=column.index, a=len(writer.branches))
        jumps = [add(Read.JUMP, path) for _ in writer.branches]
        ends = []
        problems: list[str] = []
        for jump, branch in zip(jumps, writer.branches, strict=True):
            self.program.set_a(jump)
            problems += self._branch(branch, reader, column)
            ends.append(add(Read.JUMP, path))
        for end in ends:
            self.program.set_a(end)
        if len(problems) == len(jumps):
            raise _incompatible(path, "none of the types of the writer's union can be read", *problems[:1])

    def _branch(self, writer: Schema, reader: Definition, column: Column) -> list[str]:
        """Adds the instructions for a branch of a writer's union: if it cannot be read, payloads with it are bad."""
        before = self.program.next_step
        try:
            self.value(writer, reader, column)
        except IncompatibleTypes as error:
            self.program.truncate(before)
            self.program.add(Read.FAIL, column.path, a=self.program.add_constants(error.message.encode()))
            return [error.message]
        return []

    def _reader_union(self, writer: Definition, reader: Union, column: Column) -> None:
        shape = union_shape(reader, self._reader_types)
        before = self.program.next_step
        for index in self._candidates(writer, reader):
            try:
                self._member(writer, reader, shape, index, column)
            except IncompatibleTypes:
                self.program.truncate(before)
            else:
                return
        kind = kind_of(writer, self._writer_types)
        raise _incompatible(column.path, f"the reader's union has no type that can read '{kind}'")

    def _candidates(self, writer: Definition, reader: Union) -> Iterable[int]:
        """Returns the branches that may be able to read a type. Those of the same name or type exclude all others,
        as in Java: a record must not be read as another one only because its own can no longer be read."""
        ranks: dict[int, int] = {}
        for index, branch in enumerate(reader.branches):
            found = definition(branch, self._reader_types)
            if type(found) is not type(writer):
                continue
            if isinstance(found, NAMED) and isinstance(writer, NAMED):
                ranks[index] = 0 if found.name == writer.name else 1 if _has_same_name(found, writer) else 2
            elif isinstance(found, Primitive) and isinstance(writer, Primitive):
                ranks[index] = 0 if found.kind == writer.kind else 1
            else:
                ranks[index] = 0
        return [index for index, rank in ranks.items() if rank == min(ranks.values())]

    def _member(self, writer: Definition, reader: Union, shape: UnionShape, index: int, column: Column) -> None:
        """Reads a value as a branch of the reader's union."""
        branch = definition(reader.branches[index], self._reader_types)
        if index == shape.null:
            self._same_kinds(writer, branch, column)
        elif shape.wide is not None:
            _check_promotion(writer, branch, column.path)
            self._same_kinds(writer, shape.wide, column)
        elif shape.is_single:
            self._same_kinds(writer, branch, column)
        else:
            self.program.add(Read.STRUCT, column.path, column=column.index)
            for number, member in zip(shape.branches, column.children, strict=True):
                if number == index:
                    self._same_kinds(writer, branch, member)
                else:
                    self.program.add(Read.NULL, member.path, column=member.index)

    def _same_kinds(self, writer: Definition, reader: Definition, column: Column) -> None:
        """Neither schema is a union."""
        match writer, reader:
            case Primitive(), Primitive():
                self._primitive(writer, reader, column)
            case Record(), Record():
                self._record(writer, reader, column)
            case Array(), Array():
                self._items(Read.LIST, writer.items, reader.items, column)
            case Map(), Map():
                self._items(Read.MAP, writer.values, reader.values, column)
            case (Enum(), Enum()) if _has_same_name(reader, writer):
                symbols = set(reader.symbols)
                default = reader.default
                texts = [symbol if symbol in symbols else default for symbol in writer.symbols]
                first = self.program.add_constants(*(None if text is None else text.encode() for text in texts))
                self.program.add(Read.ENUM, column.path, column=column.index, a=first, b=len(texts))
            case (Fixed(), Fixed()) if _has_same_name(reader, writer) and writer.size == reader.size:
                if reader.logical is not None and reader.logical.name == "decimal":
                    self._decimal(writer.logical, reader.logical, writer.size, column)
                else:
                    self.program.add(Read.FIXED, column.path, column=column.index, a=writer.size)
            case _:
                raise _cannot_read(_describe(reader), _describe(writer), column.path)

    def _primitive(self, writer: Primitive, reader: Primitive, column: Column) -> None:
        _check_promotion(writer, reader, column.path)
        add, path, index = self.program.add, column.path, column.index
        is_int = _TO_LONG.get(writer.kind, 0)
        match writer.kind, reader.kind:
            case "null", _:
                add(Read.NULL, path, column=index)
            case "boolean", _:
                add(Read.BOOLEAN, path, column=index)
            case _, "int":
                add(Read.INT, path, column=index)
            case _, "long":
                self._long(writer, reader, column)
            case (("int" | "long"), kind):
                add(Read.LONG_AS_FLOAT if kind == "float" else Read.LONG_AS_DOUBLE, path, column=index, a=is_int)
            case "float", kind:
                add(Read.FLOAT if kind == "float" else Read.FLOAT_AS_DOUBLE, path, column=index)
            case "double", _:
                add(Read.DOUBLE, path, column=index)
            case _, "string":
                add(Read.STRING, path, column=index)
            case _ if reader.logical is not None and reader.logical.name == "decimal":
                self._decimal(writer.logical, reader.logical, -1, column)
            case _:
                add(Read.BYTES, path, column=index)

    def _long(self, writer: Primitive, reader: Primitive, column: Column) -> None:
        is_int = _TO_LONG[writer.kind]
        wanted = reader.logical.name if reader.logical else ""
        written = writer.logical.name if writer.logical else wanted
        factor = 1
        if wanted in _COLUMN_UNITS_NS:
            unit = _LONG_UNITS_NS.get(written, _LONG_UNITS_NS[wanted])
            factor, rest = divmod(unit, _COLUMN_UNITS_NS[wanted])
            if rest or not factor or written.startswith("time-") != wanted.startswith("time-"):
                raise _cannot_read(wanted, written, column.path)
        if wanted == "time-micros":
            self.program.add(Read.TIME, column.path, column=column.index, a=is_int, b=factor)
        elif factor > 1:
            self.program.add(Read.SCALED, column.path, column=column.index, a=is_int, b=factor)
        else:
            self.program.add(Read.LONG, column.path, column=column.index, a=is_int)

    def _decimal(self, writer: LogicalType | None, reader: LogicalType, size: int, column: Column) -> None:
        if writer is not None and writer.name == "decimal" and writer.scale != reader.scale:
            scales = f"of scale {reader.scale}", f"of scale {writer.scale}"
            raise _cannot_read(f"decimal {scales[0]}", f"decimal {scales[1]}", column.path)
        self.program.add(Read.DECIMAL, column.path, column=column.index, a=reader.precision, b=size)

    def _items(self, operation: Read, writer: Schema, reader: Schema, column: Column) -> None:
        """Reads the items of an array, or the keys and values of a map."""
        is_map = operation == Read.MAP
        least = item_bytes(writer, self._writer_types) + is_map
        items = self.program.add(operation, column.path, column=column.index, b=least)
        if is_map:
            keys = column.children[0]
            self.program.add(Read.STRING, keys.path, column=keys.index)
        self.value(writer, reader, column.children[-1])
        self.program.add(Read.END, column.path)
        self.program.set_a(items)

    def _record(self, writer: Record, reader: Record, column: Column) -> None:
        self.program.add(Read.STRUCT, column.path, column=column.index)
        matches = _match_fields(writer, reader, column.path)
        columns = dict(zip(reader.fields, column.children, strict=True))
        for field in writer.fields:
            if field in matches:
                wanted = matches[field]
                self.value(field.type, wanted.type, columns.pop(wanted))
            else:
                self._skips.skip(field.type, f"{column.path}.{field.name}" if column.path else field.name)
        for wanted, child in columns.items():
            self._default(wanted, child)

    def _default(self, field: Field, column: Column) -> None:
        """Fills a field that the writer does not have."""
        if isinstance(field.default, NoDefault):
            raise _incompatible(column.path, "the writer does not have the field, and it has no default")
        if field.default is None and column.is_nullable:
            self.program.add(Read.NULL, column.path, column=column.index)
            return
        try:
            encoded = encode_default(field.type, field.default, self._reader_types)
        except IncompatibleTypes as error:
            raise _incompatible(column.path, error.message) from None
        constant = self.program.add_constants(encoded)
        start = self.program.add(Read.DEFAULT, column.path, a=constant)
        types, self._writer_types = self._writer_types, self._reader_types
        try:
            self.value(field.type, field.type, column)
        finally:
            self._writer_types = types
        self.program.add(Read.END, column.path)
        self.program.set_b(start)

    def _is_null(self, schema: Schema) -> bool:
        found = definition(schema, self._writer_types)
        return isinstance(found, Primitive) and found.kind == "null"


_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


def _check_promotion(writer: Definition, reader: Definition, path: str) -> None:
    """Raises IncompatibleTypes unless both are primitive types, and the reader's can hold what the writer's can."""
    are_primitive = isinstance(writer, Primitive) and isinstance(reader, Primitive)
    written, wanted = kind_of(writer, {}), kind_of(reader, {})
    if not are_primitive or (written != wanted and written not in _PROMOTIONS.get(wanted, ())):
        raise _cannot_read(_describe(reader), _describe(writer), path)


def _match_fields(writer: Record, reader: Record, path: str) -> dict[Field, Field]:
    """Returns the reader's field for each of the writer's fields that it has: by name, else by an alias."""
    written = {field.name: field for field in writer.fields}
    matches = {written[field.name]: field for field in reader.fields if field.name in written}
    for field in reader.fields:
        if field.name in written:
            continue
        found = [written[alias] for alias in dict.fromkeys(field.aliases) if alias in written]
        free = [each for each in found if each not in matches]
        if len(free) > 1:
            raise _incompatible(path, f"aliases of the field '{field.name}' match several fields of the writer")
        matches.update((each, field) for each in free)
    return matches


def _has_same_name(reader: Definition, writer: Definition) -> bool:
    """Whether the simple names are equal, or the writer's full name is an alias of the reader's type."""
    if not isinstance(reader, NAMED) or not isinstance(writer, NAMED):
        return False
    return names.simple_name(reader.name) == names.simple_name(writer.name) or writer.name in reader.aliases


def _describe(schema: Definition) -> str:
    kind = kind_of(schema, {})
    return f"{kind} '{schema.name}'" if isinstance(schema, NAMED) else kind


def _cannot_read(reader: str, writer: str, path: str) -> IncompatibleTypes:
    return _incompatible(path, f"the reader's type {reader} cannot read the writer's type {writer}")


def _incompatible(path: str, *problems: str) -> IncompatibleTypes:
    return IncompatibleTypes(": ".join([path, *problems] if path else problems))
