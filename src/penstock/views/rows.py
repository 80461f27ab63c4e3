"""Records as filters see them. Pure."""

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
"""A larger value is not opened: it does not match, as if it were no JSON."""
NOTHING: Final = object()
"""What stands for a value that is no JSON."""

NEGATED: Final = bytes((TRUE, FALSE, UNKNOWN)) + bytes(253)
NOT_FALSE: Final = bytes((0, 1, 1)) + bytes(253)
NOT_TRUE: Final = bytes((1, 0, 1)) + bytes(253)
IS_TRUE: Final = bytes((0, 1, 0)) + bytes(253)
IS_UNKNOWN: Final = bytes((0, 0, 1)) + bytes(253)
KNOWN_IS_TRUE: Final = bytes((1, 1, 2)) + bytes(253)
"""Tables for bytes.translate, from FALSE, TRUE and UNKNOWN."""


class Rows:
    """Records as filters see them: headers are found once, values opened once."""

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
        """The value as JSON, or NOTHING."""
        found = self._documents.get(row, self)
        if found is self:
            found = self._documents[row] = _opened(self.columns.body, self.columns, row)
        return found

    def part(self, start: int, end: int) -> "Rows":
        """Some of the rows."""
        return Rows(self.columns.part(start, end), self.partition)


def _opened(body: Buffer, columns: Columns, row: int) -> Any:
    at, size = columns.value_at[row], columns.value_len[row]
    if not 0 < size <= JSON_BYTES_MAX:
        return NOTHING
    try:
        return orjson.loads(memoryview(body)[at : at + size])
    except orjson.JSONDecodeError:
        return NOTHING


States = Callable[[Rows, Buffer | None], bytes]
"""For each row FALSE, TRUE or UNKNOWN; those that are not `live` may be anything."""


@dataclass(frozen=True, slots=True)
class Node:
    states: States
    is_costly: bool = False
    """Whether it takes a Python object for each record."""
