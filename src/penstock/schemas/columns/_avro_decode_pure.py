"""Runs the instructions of Avro decoders, in pure Python: the twin of `_avro_decode.pxi`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from penstock.records.layout import BinaryColumn
from penstock.schemas.columns._builders_pure import Table
from penstock.schemas.columns.avro.operations import (
    DAY_NS,
    SKIP_DEPTH_MAX,
    ZERO_BYTE_ITEMS_MAX,
    Read,
    Reason,
)
from penstock.schemas.columns.layout import BadRow, FilledColumn

if TYPE_CHECKING:
    from penstock.schemas.columns.avro.program import Program

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_LAST_SHIFT: Final = 63  # of a varint of 64 bits
_DOUBLE_BITS: Final = 53

Step = tuple[int, int, int, int]


class _Bad(Exception):
    """Ends the decoding of a payload."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason


def decode_avro(
    program: Program, payloads: BinaryColumn, count: int, header_bytes: int
) -> tuple[list[FilledColumn], dict[int, BadRow]]:
    reader = _Reader(program)
    table = reader.table
    bad: dict[int, BadRow] = {}
    for row, payload in enumerate(payload_rows(payloads, count)):
        if payload is None:
            table.put_null(0)
            continue
        problem = reader.read(payload, header_bytes)
        if problem is not None:
            table.truncate(0, row)
            table.put_null(0)
            bad[row] = problem
    return table.finish(), bad


def payload_rows(column: BinaryColumn, count: int) -> Iterator[bytes | None]:
    """Returns the values of a column of bytes."""
    if count == 0:
        return
    offsets = memoryview(column.offsets).cast("B").cast("i")
    data = memoryview(column.data)
    for row in range(column.offset, column.offset + count):
        start, end = offsets[row], offsets[row + 1]
        is_null = column.validity is not None and not column.validity[row >> 3] >> (row & 7) & 1
        yield None if is_null or not 0 <= start <= end <= len(data) else bytes(data[start:end])


class _Reader:
    def __init__(self, program: Program) -> None:
        self.table = Table(program.layout)
        words = program.steps
        self._steps: list[Step] = [
            (words[at], words[at + 1], words[at + 2], words[at + 3]) for at in range(0, len(words), 4)
        ]
        self._constants = program.constants
        self._data = b""
        self._at = 0
        self._empty_items = 0
        self._depth = 0
        self._bad_at = 0
        self._bad_step = 0

    def read(self, payload: bytes, header_bytes: int) -> BadRow | None:
        """Appends the value of a payload to the columns; returns what is wrong with it, if it is bad."""
        if len(payload) < header_bytes:
            return BadRow(Reason.HEADER, 0, 0)
        self._data = payload
        self._at = header_bytes
        self._empty_items = self._depth = 0
        try:
            self._run(0)
        except _Bad as bad:
            return BadRow(bad.reason, self._bad_at, self._bad_step)
        if self._at != len(payload):
            return BadRow(Reason.TRAILING, self._at, 0)
        return None

    def _run(self, pc: int) -> None:
        """Runs the instructions from `pc` to the END."""
        while True:
            step = self._steps[pc]
            operation = step[0]
            if operation == Read.END:
                return
            self._bad_at, self._bad_step = self._at, pc
            pc = _OPERATIONS[operation](self, step, pc)

    def take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) < size:
            raise _Bad(Reason.ENDS)
        self._at += size
        return data

    def long(self) -> int:
        raw = shift = 0
        at = self._at
        while at < len(self._data):
            byte = self._data[at]
            at += 1
            if shift == _LAST_SHIFT and byte > 1:
                raise _Bad(Reason.VARINT)
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._at = at
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        raise _Bad(Reason.ENDS)

    def integer(self, is_int: int) -> int:
        value = self.long()
        if is_int and not -INT32_MAX - 1 <= value <= INT32_MAX:
            raise _Bad(Reason.INT)
        return value

    def size(self) -> int:
        """Reads the length of bytes that follow, and are there."""
        size = self.long()
        if size < 0:
            raise _Bad(Reason.LENGTH)
        if size > len(self._data) - self._at:
            raise _Bad(Reason.ENDS)
        return size

    def null(self, step: Step, pc: int) -> int:
        self.table.put_null(step[1])
        return pc + 1

    def boolean(self, step: Step, pc: int) -> int:
        (value,) = self.take(1)
        if value > 1:
            raise _Bad(Reason.BOOLEAN)
        self.table.put_bit(step[1], bool(value))
        return pc + 1

    def int32(self, step: Step, pc: int) -> int:
        self.table.put_int32(step[1], self.integer(True))
        return pc + 1

    def int64(self, step: Step, pc: int) -> int:
        self.table.put_int64(step[1], self.integer(step[2]))
        return pc + 1

    def scaled(self, step: Step, pc: int) -> int:
        value = self.integer(step[2])
        if abs(value) > INT64_MAX // step[3]:
            raise _Bad(Reason.RANGE)
        self.table.put_int64(step[1], value * step[3])
        return pc + 1

    def time(self, step: Step, pc: int) -> int:
        value = self.integer(step[2])
        if not 0 <= value < DAY_NS // step[3]:
            raise _Bad(Reason.RANGE)
        self.table.put_int64(step[1], value * step[3])
        return pc + 1

    def long_as_float(self, step: Step, pc: int) -> int:
        self.table.put_float(step[1], _to_float(self.integer(step[2])))
        return pc + 1

    def long_as_double(self, step: Step, pc: int) -> int:
        self.table.put_double(step[1], float(self.integer(step[2])))
        return pc + 1

    def single(self, step: Step, pc: int) -> int:
        self.table.put_raw(step[1], self.take(4))
        return pc + 1

    def single_as_double(self, step: Step, pc: int) -> int:
        self.table.put_double(step[1], struct.unpack("<f", self.take(4))[0])
        return pc + 1

    def double(self, step: Step, pc: int) -> int:
        self.table.put_raw(step[1], self.take(8))
        return pc + 1

    def string(self, step: Step, pc: int) -> int:
        data = self.take(self.size())
        try:
            data.decode()
        except UnicodeDecodeError:
            raise _Bad(Reason.UTF8) from None
        self.table.put_bytes(step[1], data)
        return pc + 1

    def binary(self, step: Step, pc: int) -> int:
        self.table.put_bytes(step[1], self.take(self.size()))
        return pc + 1

    def fixed(self, step: Step, pc: int) -> int:
        self.table.put_bytes(step[1], self.take(step[2]))
        return pc + 1

    def enum(self, step: Step, pc: int) -> int:
        symbol = self.long()
        if not 0 <= symbol < step[3]:
            raise _Bad(Reason.SYMBOL)
        text = self._constants[step[2] + symbol]
        if text is None:
            raise _Bad(Reason.UNKNOWN_SYMBOL)
        self.table.put_bytes(step[1], text)
        return pc + 1

    def decimal(self, step: Step, pc: int) -> int:
        data = self.take(self.size() if step[3] < 0 else step[3])
        value = int.from_bytes(data, signed=True)
        if abs(value) >= 10 ** step[2]:
            raise _Bad(Reason.DECIMAL)
        self.table.put_int128(step[1], value)
        return pc + 1

    def record(self, step: Step, pc: int) -> int:
        self.table.put_struct(step[1])
        return pc + 1

    def items(self, step: Step, pc: int) -> int:
        """Reads or skips the blocks of an array or a map."""
        operation, column, following, item_bytes = step
        first = self.table.length(column + 1) if operation == Read.MAP else 0
        while True:
            self._bad_at, self._bad_step = self._at, pc
            at = self._at
            count, size = self._count(item_bytes)
            if count == 0:
                break
            if operation == Read.SKIP_LIST and (size is not None or item_bytes == 0):
                self._at += size or 0
                continue
            for _ in range(count):
                self._run(pc + 1)
        if operation == Read.MAP:
            keys = self.table.texts(column + 1, first)
            if len(set(keys)) < len(keys):
                self._bad_at, self._bad_step = at, pc
                raise _Bad(Reason.DUPLICATE)
        if operation != Read.SKIP_LIST:
            self.table.put_list(column)
        return following

    def _count(self, item_bytes: int) -> tuple[int, int | None]:
        """Reads the number of items in a block, 0 after the last one, and its size in bytes if it is given."""
        count = self.long()
        size = None
        if count < 0:
            if count < -INT64_MAX:
                raise _Bad(Reason.COUNT)
            count = -count
            size = self.size()
        if item_bytes:
            if count > (len(self._data) - self._at) // item_bytes:
                raise _Bad(Reason.COUNT)
        elif count > ZERO_BYTE_ITEMS_MAX - self._empty_items:
            raise _Bad(Reason.EMPTY_ITEMS)
        else:
            self._empty_items += count
        return count, size

    def option(self, step: Step, pc: int) -> int:
        branch = self.long()
        if not 0 <= branch <= 1:
            raise _Bad(Reason.BRANCH)
        if branch != step[2]:
            return pc + 1
        self.table.put_null(step[1])
        return step[3]

    def union(self, step: Step, pc: int) -> int:
        branch = self.long()
        if not 0 <= branch < step[2]:
            raise _Bad(Reason.BRANCH)
        return self._steps[pc + 1 + branch][2]

    def jump(self, step: Step, pc: int) -> int:
        return step[2]

    def default(self, step: Step, pc: int) -> int:
        data, at = self._data, self._at
        self._data, self._at = self._constants[step[2]] or b"", 0
        try:
            self._run(pc + 1)
        except _Bad:
            self._bad_at = at
            raise
        self._data, self._at = data, at
        return step[3]

    def fail(self, step: Step, pc: int) -> int:
        raise _Bad(Reason.UNREADABLE)

    def skip(self, step: Step, pc: int) -> int:
        self.take(step[2])
        return pc + 1

    def skip_varint(self, step: Step, pc: int) -> int:
        self.long()
        return pc + 1

    def skip_bytes(self, step: Step, pc: int) -> int:
        self.take(self.size())
        return pc + 1

    def call(self, step: Step, pc: int) -> int:
        if self._depth == SKIP_DEPTH_MAX:
            raise _Bad(Reason.DEPTH)
        self._depth += 1
        self._run(step[2])
        self._depth -= 1
        return pc + 1


def _to_float(value: int) -> float:
    """Returns a double that is rounded to the nearest 32-bit float as the integer itself would be."""
    excess = max(value.bit_length() - _DOUBLE_BITS, 0)
    # Any bits that a double has no place for are kept as one: the value must not look halfway between two floats.
    rest = abs(value) & ((1 << excess) - 1)
    kept = (abs(value) >> excess | bool(rest)) << excess
    return float(kept if value >= 0 else -kept)


_OPERATIONS: Final[dict[int, Callable[[_Reader, Step, int], int]]] = {
    Read.NULL: _Reader.null,
    Read.BOOLEAN: _Reader.boolean,
    Read.INT: _Reader.int32,
    Read.LONG: _Reader.int64,
    Read.SCALED: _Reader.scaled,
    Read.TIME: _Reader.time,
    Read.LONG_AS_FLOAT: _Reader.long_as_float,
    Read.LONG_AS_DOUBLE: _Reader.long_as_double,
    Read.FLOAT: _Reader.single,
    Read.FLOAT_AS_DOUBLE: _Reader.single_as_double,
    Read.DOUBLE: _Reader.double,
    Read.STRING: _Reader.string,
    Read.BYTES: _Reader.binary,
    Read.FIXED: _Reader.fixed,
    Read.ENUM: _Reader.enum,
    Read.DECIMAL: _Reader.decimal,
    Read.STRUCT: _Reader.record,
    Read.LIST: _Reader.items,
    Read.MAP: _Reader.items,
    Read.OPTION: _Reader.option,
    Read.UNION: _Reader.union,
    Read.JUMP: _Reader.jump,
    Read.DEFAULT: _Reader.default,
    Read.FAIL: _Reader.fail,
    Read.SKIP: _Reader.skip,
    Read.SKIP_VARINT: _Reader.skip_varint,
    Read.SKIP_BYTES: _Reader.skip_bytes,
    Read.SKIP_LIST: _Reader.items,
    Read.CALL: _Reader.call,
}
