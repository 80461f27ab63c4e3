"""Messages that wait, read from the companion log."""

from typing import Final, NamedTuple

from penstock.delays.entries import Entry, Kept, read_kept
from penstock.foundation.errors import StorageError
from penstock.records.columns import Columns, decode_columns
from penstock.records.delayed import read_raw
from penstock.replication.partition import Partition

CACHED: Final = 8
"""Batches that stay decoded: what was produced together is often due together."""


class KeptMessage(NamedTuple):
    entry: Entry
    kept: Kept

    @property
    def key(self) -> bytes | None:
        return read_raw(self.kept.raw)[0]


class Keeping:
    def __init__(self, companion: Partition) -> None:
        self._companion = companion
        self._opened: dict[int, Columns] = {}

    def read(self, entry: Entry) -> KeptMessage:
        """Raises ColdRead, and StorageError if the log does not have it."""
        for columns in self._opened.values():
            if columns.offsets[0] <= entry.kept_at <= columns.offsets[-1]:
                found = _find(columns, entry)
                if found is not None:
                    return found
        log = self._companion.log
        data = log.read(entry.kept_at, 1, log.end_offset)
        opened = decode_columns(bytes(data)) if data else None
        found = _find(opened, entry) if opened is not None else None
        if found is None or opened is None:
            raise StorageError(
                f"{self._companion.name}: the message of offset {entry.offset} is not at {entry.kept_at}"
                " of the companion log"
            )
        if len(self._opened) >= CACHED:
            del self._opened[next(iter(self._opened))]
        self._opened[entry.kept_at] = opened
        return found


def _find(columns: Columns, entry: Entry) -> KeptMessage | None:
    for row in range(columns.count):
        if columns.offsets[row] == entry.kept_at:
            value = columns.value(row)
            return None if value is None else KeptMessage(entry, read_kept(value))
    return None
