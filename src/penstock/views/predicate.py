"""The compiled filter of a view: decides which records of a decoded batch match the expression. Pure.

Headers, keys and timestamps are compared by compiled loops (records/kernel.py) over a whole batch. Conditions that
need a Python object per record (JSON, patterns with `_`) run last, only for records not yet decided, and in portions,
so that the caller can do other work between portions.
"""

from collections.abc import Callable, Iterator
from itertools import compress
from typing import Final

from penstock.records import kernel
from penstock.records.columns import Columns
from penstock.records.layout import Buffer
from penstock.views.nodes import ORDER, all_of, compiled
from penstock.views.parser import parse
from penstock.views.rows import IS_TRUE, UNKNOWN, Rows, States
from penstock.views.terms import Among, And, Compare, Op, Partition, Term, Timestamp

Outer = Callable[[int, int], bool]
"""Type of functions of partition and maximum timestamp (ms) of a batch: False if none of its records can match."""
PORTION_ROWS: Final = 256
PORTION_BYTES: Final = 128 << 10
"""Maximum size, in bytes, of the records evaluated at once; after each portion the caller can do other work."""


class Predicate:
    """The compiled filter of a view (filtered virtual topic), created by `compile_expression`. It has no state and
    may be shared."""

    __slots__ = ("_cheap", "_costly", "_outer", "text")

    def __init__(self, text: str, cheap: States | None, costly: States | None, outer: tuple[Outer, ...] = ()) -> None:
        self.text = text
        self._cheap = cheap
        self._costly = costly
        self._outer = outer

    def may_match(self, partition: int, max_timestamp_ms: int) -> bool:
        """Whether a batch must be decoded: false if its partition or maximum timestamp rules out a match."""
        return all(may_hold(partition, max_timestamp_ms) for may_hold in self._outer)

    @property
    def is_costly(self) -> bool:
        """Whether the evaluation needs a Python object per record."""
        return self._costly is not None

    def matching(self, columns: Columns, partition: int, first_row: int = 0) -> "Matching":
        """Returns an evaluation of the records from `first_row` on, which runs when the caller iterates over it."""
        return Matching(self, Rows(columns, partition), first_row)


class Matching:
    """The evaluation of a predicate over one batch, in portions: run `for _ in matching: ...`, then read `mask`."""

    __slots__ = ("_first", "_predicate", "_rows", "mask", "unknown")

    def __init__(self, predicate: Predicate, rows: Rows, first_row: int) -> None:
        self._predicate = predicate
        self._rows = rows
        self._first = first_row
        self.mask = b""
        """One byte per record: 1 if the record matches. Complete once the iteration has ended."""
        self.unknown = 0
        """Number of records for which the expression is UNKNOWN: no such header, not JSON, or not a number."""

    def __iter__(self) -> Iterator[None]:
        rows, first = self._rows, self._first
        live = bytes(first) + b"\x01" * (rows.count - first) if first else None
        cheap, costly = self._predicate._cheap, self._predicate._costly
        if cheap is not None:
            live = self._note(cheap(rows, live), live)
        if costly is None:
            assert live is not None
            self.mask = live
            return
        mask = bytearray(rows.count)
        for start, end, part_live in _portions(rows, live):
            found = self._note(costly(rows.part(start, end), part_live), part_live)
            mask[start:end] = found
            yield
        self.mask = bytes(mask)

    def _note(self, states: bytes, live: Buffer | None) -> bytes:
        """Counts UNKNOWN rows; returns a mask of the TRUE rows. Only rows that are 1 in `live` (None: all) count."""
        if live is not None:
            states = kernel.active.both(states, live)
        if UNKNOWN in states:
            self.unknown += states.count(UNKNOWN)
            return states.translate(IS_TRUE)
        return states


def _portions(rows: Rows, live: bytes | None) -> Iterator[tuple[int, int, bytes]]:
    """Splits the rows into portions; yields start row, end row (exclusive) and live mask of each. A portion ends
    when its live rows (1 in `live`; None: all rows) reach PORTION_ROWS, or their values PORTION_BYTES."""
    sizes, count = rows.columns.value_len, rows.count
    live = b"\x01" * count if live is None else live
    start = number = size = 0
    for row in compress(range(count), live):
        number += 1
        size += max(0, sizes[row])
        if number >= PORTION_ROWS or size >= PORTION_BYTES:
            yield start, row + 1, live[start : row + 1]
            start, number, size = row + 1, 0, 0
    if number:
        yield start, count, live[start:count]


def compile_expression(text: str) -> Predicate:
    """Compiles the filter expression of a view (filtered virtual topic). Raises BadExpression."""
    return compile_term(text, parse(text))


def compile_term(text: str, term: Term) -> Predicate:
    parts = _flat(term)
    nodes = [compiled(part) for part in parts]
    cheap = [node for node in nodes if not node.is_costly]
    costly = [node for node in nodes if node.is_costly]
    return Predicate(
        text,
        all_of(cheap, top=True).states if cheap else None,
        all_of(costly, top=True).states if costly else None,
        tuple(outer for outer in map(_outer, parts) if outer is not None),
    )


def _outer(part: Term) -> Outer | None:
    """Returns the check with which `part` rules out whole batches (by partition or timestamp); None if it cannot."""
    match part:
        case Compare(Partition(), op, value):
            return lambda partition, _: ORDER[op](partition, value)
        case Among(Partition(), values):
            return lambda partition, _: partition in values
        case Compare(Timestamp(), Op.GE | Op.EQ, int(least)):
            return lambda _, max_timestamp_ms: max_timestamp_ms >= least
        case Compare(Timestamp(), Op.GT, int(least)):
            return lambda _, max_timestamp_ms: max_timestamp_ms > least
    return None


def _flat(term: Term) -> list[Term]:
    """Returns the conditions that AND joins at the top level of the expression; the term itself if it is no AND."""
    if not isinstance(term, And):
        return [term]
    return [part for each in term.parts for part in _flat(each)]
