"""Flattens a plan to encode a column into tables of numbers, and the column into buffers, for the compiled encoder."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types

from penstock.records.layout import Buffer
from penstock.schemas.columns.layout import NOT_THERE, Layout
from penstock.schemas.columns.protobuf.encoding_plan import EncodingPlan, FieldSource
from penstock.schemas.columns.protobuf.plan import WIRE, EnumPlan, Kind, Shape

_SOURCE_WORDS: Final = 16
_INT64_MAX: Final = 2**63 - 1


class SourceColumn(NamedTuple):
    """The buffers of an Arrow array, without those of its children. None: the array has no such buffer."""

    length: int
    offset: int
    validity: Buffer | None
    offsets: Buffer | None
    values: Buffer | None


class EncodingProgram:
    """Tables of a message, and of the messages in it. `_protobuf_encode.pxi` reads the same tables as C structs."""

    def __init__(self, plan: EncodingPlan) -> None:
        self.plan: Final = plan
        self.layout: Final = Layout(pa.binary())
        """Of the payloads."""
        self.messages: Final = array("q")
        """For each message: its first field, and how many it has."""
        self.sources: Final = array("q")
        """The fields of each message, sorted by number."""
        self.enums: Final = array("q")
        """For each enum: its first value, and how many it has."""
        self.values: Final = array("q")
        """For each value of an enum, sorted by length and bytes of the name: the number, position and length of it."""
        self.text: Final = bytearray()
        self._parts: list[tuple[int, Callable[[pa.Array], pa.Array]]] = []
        """For each array after the first: the array that contains it, and how to get it from there."""
        self._add_message(plan.fields, 0)

    def columns(self, values: pa.Array) -> list[SourceColumn]:
        """Returns the buffers of an array and of all arrays in it that have a field."""
        arrays = [values]
        for container, part_of in self._parts:
            arrays.append(part_of(arrays[container]))
        return [_buffers(each) for each in arrays]

    def _add_part(self, container: int, part_of: Callable[[pa.Array], pa.Array]) -> int:
        self._parts.append((container, part_of))
        return len(self._parts)

    def _add_message(self, sources: tuple[FieldSource, ...], struct: int) -> int:
        index = len(self.messages) // 2
        first = len(self.sources) // _SOURCE_WORDS
        self.messages.extend((first, len(sources)))
        self.sources.extend([0] * (_SOURCE_WORDS * len(sources)))
        for place, source in enumerate(sources, first):
            words = array("q", self._source(source, struct))
            self.sources[_SOURCE_WORDS * place : _SOURCE_WORDS * (place + 1)] = words
        return index

    def _source(self, source: FieldSource, struct: int) -> list[int]:
        field = source.field
        column = self._add_part(struct, lambda array: array.field(source.column))
        element = column
        if field.shape is not Shape.SINGULAR:
            element = self._add_part(column, lambda array: array.values)
        low, high = source.bounds or (0, 0)
        return [
            field.number,
            source.kind,
            WIRE[source.kind],
            field.shape,
            field.is_required,
            field.has_presence,
            field.is_packed,
            field.one_of,
            column,
            element,
            self._add_message(source.message, element) if source.kind is Kind.MESSAGE else NOT_THERE,
            NOT_THERE if field.enum is None else self._add_enum(field.enum),
            _width(source.type),
            source.bounds is not None,
            low,
            min(high, _INT64_MAX),
        ]

    def _add_enum(self, enum: EnumPlan) -> int:
        index = len(self.enums) // 2
        self.enums.extend((len(self.values) // 3, len(enum.numbers)))
        names = sorted(((name.encode(), number) for name, number in enum.numbers.items()), key=_by_length)
        for name, number in names:
            self.values.extend((number, len(self.text), len(name)))
            self.text.extend(name)
        return index


def _by_length(name: tuple[bytes, int]) -> tuple[int, bytes]:
    return len(name[0]), name[0]


def _width(type: pa.DataType) -> int:
    """Returns the bytes of a value; 0 if it is a bit, or has no fixed size."""
    try:
        return int(type.bit_width) // 8
    except ValueError:
        return 0


def _buffers(values: pa.Array) -> SourceColumn:
    validity, *rest = (None if each is None else memoryview(each) for each in values.buffers())
    offsets = data = None
    if types.is_list(values.type) or types.is_map(values.type):
        offsets = rest[0]
    elif types.is_string(values.type) or types.is_binary(values.type):
        offsets, data = rest
    elif not types.is_struct(values.type):
        data = rest[0]
    return SourceColumn(len(values), values.offset, validity, offsets, data)
