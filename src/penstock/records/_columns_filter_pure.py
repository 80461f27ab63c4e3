"""Filters that select records by their column values, in pure Python: the counterpart of `_columns_filter.pxi`."""

import operator
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from penstock.records._columns_write_pure import piece
from penstock.records.layout import Buffer, Ints

FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2
NUMBER_BYTES_MAX: Final = 64

_OPS: Final[tuple[Callable[[Any, Any], bool], ...]] = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
_WHOLE: Final = re.compile(rb"[+-]?[0-9]+")
_NUMBER: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def _match(body: Buffer, at: Ints, length: Ints, live: Buffer | None, state_of: Callable[[bytes], int]) -> bytes:
    if len(at) != len(length):
        raise ValueError("columns of different lengths")
    if live is not None and len(live) != len(at):
        raise ValueError(f"{len(live)} bytes say which of {len(at)} records are wanted")
    view = memoryview(body)
    states = bytearray(len(at))
    for row, (start, size) in enumerate(zip(at, length, strict=True)):
        if live is None or live[row]:
            states[row] = UNKNOWN if size < 0 else state_of(bytes(piece(view, start, size)))
    return bytes(states)


def match_text(body: Buffer, at: Ints, length: Ints, live: Buffer | None, op: int, value: Buffer) -> bytes:
    compare, wanted = _OPS[op], bytes(value)
    return _match(body, at, length, live, lambda cell: compare(cell, wanted))


def match_texts(body: Buffer, at: Ints, length: Ints, live: Buffer | None, values: Iterable[Buffer]) -> bytes:
    wanted = frozenset(map(bytes, values))
    return _match(body, at, length, live, lambda cell: cell in wanted)


def match_flag(body: Buffer, at: Ints, length: Ints, live: Buffer | None, wanted: bool) -> bytes:
    states = {b"true": int(wanted), b"false": int(not wanted)}
    return _match(body, at, length, live, lambda cell: states.get(cell.lower(), UNKNOWN))


def read_number(cell: bytes) -> int | float | None:
    """Parses a number; None if the bytes are not a number. Integers that fit 64 bits are exact, others floats."""
    if len(cell) > NUMBER_BYTES_MAX or _NUMBER.fullmatch(cell) is None:
        return None
    if _WHOLE.fullmatch(cell) is not None:
        whole = int(cell)
        if -(2**63) <= whole < 2**63:
            return whole
    return float(cell)


def match_numbers(
    body: Buffer, at: Ints, length: Ints, live: Buffer | None, op: int, values: Sequence[int | float]
) -> bytes:
    compare = _OPS[op]

    def state_of(cell: bytes) -> int:
        found = read_number(cell)
        if found is None:
            return UNKNOWN
        for value in values:
            a, b = (found, value) if type(found) is type(value) is int else (float(found), float(value))
            if compare(a, b):
                return TRUE
        return FALSE

    return _match(body, at, length, live, state_of)


def match_pieces(
    body: Buffer,
    at: Ints,
    length: Ints,
    live: Buffer | None,
    pieces: Sequence[Buffer],
    from_start: bool,
    to_end: bool,
) -> bytes:
    wanted = [bytes(each) for each in pieces]
    if not wanted:
        raise ValueError("a pattern has at least one piece")
    return _match(body, at, length, live, lambda cell: _has_pieces(cell, wanted, from_start, to_end))


def _has_pieces(cell: bytes, pieces: list[bytes], from_start: bool, to_end: bool) -> bool:
    if len(pieces) == 1 and from_start and to_end:
        return cell == pieces[0]
    start, end = 0, len(cell)
    middle = pieces
    if from_start:
        if not cell.startswith(pieces[0]):
            return False
        start, middle = len(pieces[0]), middle[1:]
    if to_end:
        if not cell.endswith(pieces[-1]) or end - len(pieces[-1]) < start:
            return False
        end, middle = end - len(pieces[-1]), middle[:-1]
    for each in middle:
        found = cell.find(each, start, end)
        if found < 0:
            return False
        start = found + len(each)
    return True


def match_ints(column: Ints, live: Buffer | None, op: int, value: int) -> bytes:
    if live is not None and len(live) != len(column):
        raise ValueError(f"{len(live)} bytes say which of {len(column)} records are wanted")
    compare = _OPS[op]
    if live is None:
        return bytes(compare(number, value) for number in column)
    return bytes(bool(wanted) and compare(number, value) for number, wanted in zip(column, live, strict=True))


def match_null(length: Ints) -> bytes:
    return bytes(size < 0 for size in length)


_BOTH: Final = array("B", [0, 0, 0, 0, 1, 2, 0, 2, 2])
_EITHER: Final = array("B", [0, 1, 2, 1, 1, 1, 2, 1, 2])


def both(a: Buffer, b: Buffer) -> bytes:
    """Combines two results, one byte per record, by SQL's AND: FALSE where either is FALSE, else UNKNOWN where either
    is UNKNOWN, else TRUE."""
    return _combine(a, b, _BOTH)


def either(a: Buffer, b: Buffer) -> bytes:
    """Combines two results, one byte per record, by SQL's OR: TRUE where either is TRUE, else UNKNOWN where either is
    UNKNOWN, else FALSE."""
    return _combine(a, b, _EITHER)


def _combine(a: Buffer, b: Buffer, table: "array[int]") -> bytes:
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} records cannot be put together")
    return bytes(table[3 * left + right] for left, right in zip(a, b, strict=True))
