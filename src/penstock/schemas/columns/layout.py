"""Flat layouts of nested Arrow types: which columns a decoder fills, and the Arrow array that they make."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types

from penstock.records.layout import Buffer

COLUMNS_MAX: Final = 10_000
"""Columns of a schema, with all nested ones."""
DEPTH_MAX: Final = 100
"""Columns within one another. Bounds the recursion of everything that walks a type."""

NOT_THERE: Final = -1
"""Stands for a child or sibling that a column does not have."""


class Kind(enum.IntEnum):
    """How a column stores its values. Also in `_builders.pxi`."""

    NULL = 0
    BIT = 1
    FIXED = 2
    BYTES = 3
    LIST = 4
    STRUCT = 5


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a layout."""

    index: int
    """Number of the column: parents before children, in the order of the type."""
    kind: Kind
    type: pa.DataType
    is_nullable: bool
    path: str
    """Names of the fields that lead to the column: `order.lines.element.price`; "" for the outermost column."""
    children: tuple[Column, ...]
    """The fields of a struct; the items of a list; the keys and the values of a map."""


class FilledColumn(NamedTuple):
    """The buffers of a column, in Arrow's format. None: the kind of column has no such buffer."""

    length: int
    validity: Buffer | None
    offsets: Buffer | None
    values: Buffer | None


class BadRow(NamedTuple):
    """Why a payload cannot be decoded, or a row cannot be encoded."""

    reason: int
    """A Reason of the format."""
    position: int
    """Where in the payload the value begins that is wrong."""
    step: int
    """The instruction that found out."""


class Layout:
    """The columns of a type. The outermost column is nullable: payloads may be null, or damaged."""

    def __init__(self, kind: pa.DataType) -> None:
        self.columns: Final[list[Column]] = []
        """In the order of their indexes."""
        self.root: Final = self._add(pa.field("", kind, nullable=True), "")
        self.words: Final = array("i", [0]) * (5 * len(self.columns))
        """For each column: its kind, the width of its values, 1 if nullable, its first child, its next sibling."""
        self._describe(self.root, NOT_THERE)

    def to_arrow(self, filled: Sequence[FilledColumn]) -> pa.Array:
        """Returns the array that the buffers make. `filled`: one for each column."""
        return _array(self.root, filled)

    def _add(self, field: pa.Field, path: str) -> Column:
        index = len(self.columns)
        self.columns.append(Column(index, Kind.NULL, field.type, False, "", ()))  # replaced below
        fields = _child_fields(field.type)
        prefix = f"{path}." if path else ""
        children = tuple(self._add(child, f"{prefix}{child.name}") for child in fields)
        column = Column(index, _kind_of(field.type), field.type, field.nullable, path, children)
        self.columns[index] = column
        return column

    def _describe(self, column: Column, sibling: int) -> None:
        width = column.type.bit_width // 8 if column.kind == Kind.FIXED else 0
        child = column.children[0].index if column.children else NOT_THERE
        words = array("i", [column.kind, width, column.is_nullable, child, sibling])
        self.words[5 * column.index : 5 * column.index + 5] = words
        following = [child.index for child in column.children[1:]] + [NOT_THERE]
        for part, sibling_of_part in zip(column.children, following, strict=False):
            self._describe(part, sibling_of_part)


def _child_fields(kind: pa.DataType) -> list[pa.Field]:
    if types.is_map(kind):
        return [pa.field("key", kind.key_type, nullable=False), kind.item_field.with_name("value")]
    if types.is_list(kind):
        return [kind.value_field.with_name("element")]
    return list(kind) if types.is_struct(kind) else []


def _kind_of(kind: pa.DataType) -> Kind:
    if types.is_struct(kind):
        return Kind.STRUCT
    if types.is_list(kind) or types.is_map(kind):
        return Kind.LIST
    if types.is_string(kind) or types.is_binary(kind):
        return Kind.BYTES
    if types.is_boolean(kind):
        return Kind.BIT
    return Kind.NULL if types.is_null(kind) else Kind.FIXED


def _array(column: Column, filled: Sequence[FilledColumn]) -> pa.Array:
    own = filled[column.index]
    children = [_array(child, filled) for child in column.children]
    validity = _buffer(own.validity)
    match column.kind:
        case Kind.NULL:
            return pa.nulls(own.length)
        case Kind.STRUCT:
            return pa.Array.from_buffers(column.type, own.length, [validity], children=children)
        case Kind.LIST:
            if types.is_map(column.type):
                entries = pa.struct([column.type.key_field, column.type.item_field])
                children = [pa.Array.from_buffers(entries, len(children[0]), [None], children=children)]
            buffers = [validity, _buffer(own.offsets)]
            return pa.Array.from_buffers(column.type, own.length, buffers, children=children)
        case Kind.BYTES:
            buffers = [validity, _buffer(own.offsets), _buffer(own.values)]
        case _:
            buffers = [validity, _buffer(own.values)]
    return pa.Array.from_buffers(column.type, own.length, buffers)


def _buffer(data: Buffer | None) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)
