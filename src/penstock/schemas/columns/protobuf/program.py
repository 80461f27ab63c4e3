"""Flattens the plan of a Protobuf message into tables of numbers, which the compiled decoder reads."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.schemas.columns.layout import NOT_THERE, Column, Layout
from penstock.schemas.columns.protobuf.plan import MESSAGE_KINDS, WIRE, EnumPlan, FieldPlan, Kind, MessagePlan, Shape

_FIELD_WORDS: Final = 17
_HALF: Final = 2**63


class Program:
    """Tables of a message, and of the messages in it. `_protobuf_decode.pxi` reads the same tables as C structs."""

    def __init__(self, plan: MessagePlan, layout: Layout, indexes: Sequence[int]) -> None:
        self.plan: Final = plan
        self.layout: Final = layout
        self.indexes: Final = array("q", indexes)
        """The message indexes that payloads must have."""
        self.messages: Final = array("q")
        """For each message: its first field, and how many it has."""
        self.fields: Final = array("q")
        """The fields of each message, sorted by number."""
        self.enums: Final = array("q")
        """For each enum: its first value, how many it has, 1 if it is closed, position and length of the prefix of
        names that unknown numbers get."""
        self.values: Final = array("q")
        """For each value of an enum, sorted by number: the number, position and length of the name."""
        self.text: Final = bytearray()
        self.paths: Final[list[str]] = []
        """Of each field."""
        self._add_message(plan, dict(zip(_numbers(plan), layout.root.children, strict=True)))

    def _add_message(self, plan: MessagePlan, columns: Mapping[int, Column]) -> int:
        """Adds a message with the columns of its fields by number; returns its index."""
        index = len(self.messages) // 2
        first = len(self.paths)
        fields = plan.by_number.values()
        self.messages.extend((first, len(fields)))
        self.paths.extend(field.path for field in fields)
        self.fields.extend([0] * (_FIELD_WORDS * len(fields)))
        for place, field in enumerate(fields, first):
            words = array("q", self._field(field, columns.get(field.number)))
            self.fields[_FIELD_WORDS * place : _FIELD_WORDS * (place + 1)] = words
        return index

    def _field(self, field: FieldPlan, column: Column | None) -> list[int]:
        element = column
        if column is not None and field.shape is Shape.REPEATED:
            element = column.children[0]
        message = NOT_THERE
        if field.message is not None and field.kind is not Kind.EMPTY:
            children = [] if element is None else element.children
            message = self._add_message(
                field.message, dict(zip(_numbers(field.message), children, strict=field.kind is Kind.MESSAGE))
            )
        default = _bits(field)
        return [
            field.number,
            field.kind,
            WIRE[field.kind],
            field.shape,
            field.is_required,
            field.has_presence,
            field.is_in_root,
            field.is_in_map and field.kind in MESSAGE_KINDS,
            field.one_of,
            message,
            NOT_THERE if column is None else column.index,
            NOT_THERE if element is None else element.index,
            NOT_THERE if field.enum is None else self._add_enum(field.enum),
            field.default is not None,
            default if isinstance(default, int) else 0,
            *(self._add_text(default) if isinstance(default, bytes) else (0, 0)),
        ]

    def _add_enum(self, enum: EnumPlan) -> int:
        index = len(self.enums) // 5
        prefix = self._add_text(enum.name_of_unknown("").encode())
        self.enums.extend((len(self.values) // 3, len(enum.names), enum.is_closed, *prefix))
        for number, name in sorted(enum.names.items()):
            self.values.extend((number, *self._add_text(name.encode())))
        return index

    def _add_text(self, text: bytes) -> tuple[int, int]:
        at = len(self.text)
        self.text.extend(text)
        return at, len(text)


def _numbers(plan: MessagePlan) -> list[int]:
    return [field.number for field in plan.columns]


def _bits(field: FieldPlan) -> int | bytes:
    """Returns a default value as it is on the wire: a number as 64 bits with a sign, a string as bytes."""
    match field.default, field.kind:
        case bytes(value), _:
            return value
        case str(name), Kind.ENUM if field.enum is not None:
            return field.enum.numbers.get(name, 0)
        case str(text), _:
            return text.encode()
        case float(number), Kind.FLOAT:
            return int.from_bytes(struct.pack("<f", number), "little")
        case float(number), _:
            return int.from_bytes(struct.pack("<d", number), "little", signed=True)
        case int(number), Kind.SINT32 | Kind.SINT64:
            raw = (number << 1) ^ (number >> 63)
            return raw - 2 * _HALF if raw >= _HALF else raw
        case int(number), _:
            return int(number)
    return 0
