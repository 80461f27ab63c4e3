"""Runs the instructions of Avro encoders, in pure Python: the twin of `_avro_encode.pxi`."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.foundation.errors import MessageTooLarge
from penstock.schemas.columns._builders_pure import INT32_MAX, pack_bits
from penstock.schemas.columns.avro.defaults import encode_long
from penstock.schemas.columns.avro.operations import Reason, Write
from penstock.schemas.columns.layout import BadRow, FilledColumn, SourceColumn

if TYPE_CHECKING:
    from penstock.schemas.columns.avro.program import Program

Step = tuple[int, int, int, int]
_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<q")
_OFFSETS: Final = struct.Struct("<ii")
_DECIMAL_BYTES: Final = 16


class _Refused(Exception):
    """Ends the encoding: a row does not fit the schema."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason


def encode_avro(
    program: Program, columns: Sequence[SourceColumn], count: int, header: bytes
) -> FilledColumn | BadRow:
    writer = _Writer(program, columns)
    root = _Source(columns[0])
    valid = bytearray()
    offsets = array("i", [0])
    for row in range(count):
        valid.append(root.has_value(row))
        if valid[row]:
            writer.output += header
            try:
                writer.run(0, row)
            except _Refused as refused:
                return BadRow(refused.reason, row, writer.bad_step)
        if len(writer.output) > INT32_MAX:
            raise MessageTooLarge(f"the payloads have more than {INT32_MAX} bytes: encode fewer rows at a time")
        offsets.append(len(writer.output))
    return FilledColumn(count, pack_bits(valid), offsets.tobytes(), bytes(writer.output))


class _Source:
    """A column that is encoded."""

    def __init__(self, column: SourceColumn) -> None:
        self._offset = column.offset
        self._validity = None if column.validity is None else memoryview(column.validity)
        self._offsets = memoryview(column.offsets or b"")
        self._values = memoryview(column.values or b"")

    def has_value(self, slot: int) -> bool:
        at = self._offset + slot
        return self._validity is None or bool(self._validity[at >> 3] >> (at & 7) & 1)

    def bit(self, slot: int) -> int:
        at = self._offset + slot
        return self._values[at >> 3] >> (at & 7) & 1

    def fixed(self, slot: int, size: int) -> bytes:
        at = (self._offset + slot) * size
        return bytes(self._values[at : at + size])

    def span(self, slot: int) -> tuple[int, int]:
        """Returns where a list's items, or the bytes of a value, begin and end."""
        start, end = _OFFSETS.unpack_from(self._offsets, 4 * (self._offset + slot))
        return start, end

    def data(self, slot: int) -> memoryview:
        start, end = self.span(slot)
        return self._values[start:end]


class _Writer:
    def __init__(self, program: Program, columns: Sequence[SourceColumn]) -> None:
        words = program.steps
        self._steps: list[Step] = [
            (words[at], words[at + 1], words[at + 2], words[at + 3]) for at in range(0, len(words), 4)
        ]
        self._constants = program.constants
        self._sources = [_Source(column) for column in columns]
        self.output = bytearray()
        self.bad_step = 0

    def run(self, pc: int, slot: int) -> None:
        """Runs the instructions from `pc` to the END, for one row or item."""
        while True:
            step = self._steps[pc]
            operation = step[0]
            if operation == Write.END:
                return
            self.bad_step = pc
            pc = _OPERATIONS[operation](self, step, pc, slot)

    def boolean(self, step: Step, pc: int, slot: int) -> int:
        self.output.append(self._sources[step[1]].bit(slot))
        return pc + 1

    def integer(self, step: Step, pc: int, slot: int) -> int:
        (value,) = _INT.unpack(self._sources[step[1]].fixed(slot, 4))
        self.output += encode_long(value)
        return pc + 1

    def long(self, step: Step, pc: int, slot: int) -> int:
        (value,) = _LONG.unpack(self._sources[step[1]].fixed(slot, 8))
        self.output += encode_long(value // (step[2] or 1))
        return pc + 1

    def raw(self, step: Step, pc: int, slot: int) -> int:
        self.output += self._sources[step[1]].fixed(slot, step[2])
        return pc + 1

    def binary(self, step: Step, pc: int, slot: int) -> int:
        data = self._sources[step[1]].data(slot)
        self.output += encode_long(len(data))
        self.output += data
        return pc + 1

    def fixed(self, step: Step, pc: int, slot: int) -> int:
        data = self._sources[step[1]].data(slot)
        if len(data) != step[2]:
            raise _Refused(Reason.SIZE)
        self.output += data
        return pc + 1

    def enum(self, step: Step, pc: int, slot: int) -> int:
        symbols = self._constants[step[2] : step[2] + 2 * step[3] : 2]
        data = bytes(self._sources[step[1]].data(slot))
        if data not in symbols:
            raise _Refused(Reason.NO_SYMBOL)
        self.output += self._constants[step[2] + 2 * symbols.index(data) + 1] or b""
        return pc + 1

    def decimal(self, step: Step, pc: int, slot: int) -> int:
        value = _signed(self._sources[step[1]].fixed(slot, _DECIMAL_BYTES))
        if abs(value) >= 10 ** step[2]:
            raise _Refused(Reason.DECIMAL)
        least = ((value if value >= 0 else ~value).bit_length() + 8) // 8
        size = least if step[3] < 0 else step[3]
        if size < least:
            raise _Refused(Reason.DECIMAL)
        if step[3] < 0:
            self.output += encode_long(size)
        self.output += value.to_bytes(size, signed=True)
        return pc + 1

    def items(self, step: Step, pc: int, slot: int) -> int:
        start, end = self._sources[step[1]].span(slot)
        if start < end:
            self.output += encode_long(end - start)
            for item in range(start, end):
                self.run(pc + 1, item)
        self.output += encode_long(0)
        return step[2]

    def required(self, step: Step, pc: int, slot: int) -> int:
        if not self._sources[step[1]].has_value(slot):
            raise _Refused(Reason.NULL)
        return pc + 1

    def branch(self, step: Step, pc: int, slot: int) -> int:
        if not self._sources[step[1]].has_value(slot):
            return step[3]
        if step[2] >= 0:
            self.output += encode_long(step[2])
        return pc + 1

    def index(self, step: Step, pc: int, slot: int) -> int:
        self.output += encode_long(step[2])
        return pc + 1

    def jump(self, step: Step, pc: int, slot: int) -> int:
        return step[2]

    def fail(self, step: Step, pc: int, slot: int) -> int:
        raise _Refused(Reason.NO_MEMBER)


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


_OPERATIONS: Final[dict[int, Callable[[_Writer, Step, int, int], int]]] = {
    Write.BOOLEAN: _Writer.boolean,
    Write.INT: _Writer.integer,
    Write.LONG: _Writer.long,
    Write.DIVIDED: _Writer.long,
    Write.RAW: _Writer.raw,
    Write.BYTES: _Writer.binary,
    Write.FIXED: _Writer.fixed,
    Write.ENUM: _Writer.enum,
    Write.DECIMAL: _Writer.decimal,
    Write.LIST: _Writer.items,
    Write.REQUIRED: _Writer.required,
    Write.BRANCH: _Writer.branch,
    Write.INDEX: _Writer.index,
    Write.JUMP: _Writer.jump,
    Write.FAIL: _Writer.fail,
}
