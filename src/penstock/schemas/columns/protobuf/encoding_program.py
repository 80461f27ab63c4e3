"""Flattens the plan to encode a column into tables of numbers, which the compiled encoder reads."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from penstock.schemas.columns.layout import NOT_THERE, Column, Layout
from penstock.schemas.columns.layout import Kind as ColumnKind
from penstock.schemas.columns.protobuf.encoding_plan import EncodingPlan, FieldSource
from penstock.schemas.columns.protobuf.plan import WIRE, EnumPlan, Kind, Shape

_SOURCE_WORDS: Final = 16
_INT64_MAX: Final = 2**63 - 1


class EncodingProgram:
    """Tables of a message, and of the messages in it. `_protobuf_encode.pxi` reads the same tables as C structs."""

    def __init__(self, plan: EncodingPlan) -> None:
        self.plan: Final = plan
        self.layout: Final = Layout(plan.type)
        self.messages: Final = array("q")
        """For each message: its first field, and how many it has."""
        self.sources: Final = array("q")
        """The fields of each message, sorted by number."""
        self.enums: Final = array("q")
        """For each enum: its first value, and how many it has."""
        self.values: Final = array("q")
        """For each value of an enum, sorted by the length of the name, then by its bytes: the number, position and
        length of the name."""
        self.text: Final = bytearray()
        self._add_message(plan.fields, self.layout.root.children)

    def _add_message(self, sources: Sequence[FieldSource], columns: Sequence[Column]) -> int:
        index = len(self.messages) // 2
        first = len(self.sources) // _SOURCE_WORDS
        self.messages.extend((first, len(sources)))
        self.sources.extend([0] * (_SOURCE_WORDS * len(sources)))
        for place, source in enumerate(sources, first):
            words = array("q", self._source(source, columns[source.column]))
            self.sources[_SOURCE_WORDS * place : _SOURCE_WORDS * (place + 1)] = words
        return index

    def _source(self, source: FieldSource, column: Column) -> list[int]:
        field = source.field
        element = column.children[0] if field.shape is Shape.REPEATED else column
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
            column.index,
            element.index,
            self._add_message(source.message, element.children) if source.kind is Kind.MESSAGE else NOT_THERE,
            NOT_THERE if field.enum is None else self._add_enum(field.enum),
            element.type.bit_width // 8 if element.kind is ColumnKind.FIXED else 0,
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
