"""The records of a batch as view filters access them: header columns and JSON documents, both cached. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.records.columns import Columns, header_column
from penstock.records.layout import Buffer, Ints

FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2
JSON_BYTES_MAX: Final = 1 << 20
"""Maximum size of a record value, in bytes, that is parsed as JSON; a larger value is treated as not JSON."""
NOTHING: Final = object()
"""Result of `Rows.document` for a record value that is not JSON."""

NEGATED: Final = bytes((TRUE, FALSE, UNKNOWN)) + bytes(253)
NOT_FALSE: Final = bytes((0, 1, 1)) + bytes(253)
NOT_TRUE: Final = bytes((1, 0, 1)) + bytes(253)
IS_TRUE: Final = bytes((0, 1, 0)) + bytes(253)
IS_UNKNOWN: Final = bytes((0, 0, 1)) + bytes(253)
KNOWN_IS_TRUE: Final = bytes((1, 1, 2)) + bytes(253)
"""Table for bytes.translate: FALSE and TRUE become TRUE, UNKNOWN stays UNKNOWN."""


class Rows:
    """The records of a batch, as a filter reads them. Each header is located only once for all records, and each
    record value is parsed as JSON only once."""

    __slots__ = ("_documents", "_headers", "columns", "count", "partition")

    def __init__(self, columns: Columns, partition: int) -> None:
        self.columns = columns
        self.count = columns.count
        self.partition = partition
        self._headers: dict[bytes, tuple[Ints, Ints]] = {}
        self._documents: dict[int, Any] = {}

    def header(self, name: bytes) -> tuple[Ints, Ints]:
        found = self._headers.get(name)
        if found is None:
            found = self._headers[name] = header_column(self.columns, name)
        return found

    def document(self, row: int) -> Any:
        """Returns the record's value, parsed as JSON; NOTHING if it is not JSON."""
        found = self._documents.get(row, self)
        if found is self:
            found = self._documents[row] = _parse_json(self.columns.body, self.columns, row)
        return found

    def part(self, start: int, end: int) -> "Rows":
        """Returns the rows [start, end)."""
        return Rows(self.columns.part(start, end), self.partition)


def _parse_json(body: Buffer, columns: Columns, row: int) -> Any:
    at, size = columns.value_at[row], columns.value_len[row]
    if not 0 < size <= JSON_BYTES_MAX:
        return NOTHING
    try:
        return orjson.loads(memoryview(body)[at : at + size])
    except orjson.JSONDecodeError:
        return NOTHING


States = Callable[[Rows, Buffer | None], bytes]
"""Type of functions that return one byte per row: FALSE, TRUE or UNKNOWN. The second argument is a mask: rows with
0 need no evaluation and may get any of these values; None means to evaluate all rows."""


@dataclass(frozen=True, slots=True)
class Node:
    states: States
    is_costly: bool = False
    """Whether the evaluation needs a Python object per record."""
