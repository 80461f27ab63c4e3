"""Reads pending delayed messages from the companion log, which stores them until they are due."""

from typing import Final, NamedTuple

from penstock.delays.entries import Entry, StoredMessage, read_stored_message
from penstock.foundation.errors import StorageError
from penstock.records.columns import Columns, decode_columns
from penstock.records.delayed import read_raw
from penstock.replication.partition import Partition

CACHED: Final = 8
"""Number of decoded batches to cache: messages produced together are often due together."""


class PendingMessage(NamedTuple):
    entry: Entry
    stored: StoredMessage

    @property
    def key(self) -> bytes | None:
        return read_raw(self.stored.raw)[0]


class CompanionReader:
    """Reads pending delayed messages from a partition's companion log; caches the last few batches."""

    def __init__(self, companion: Partition) -> None:
        self._companion = companion
        self._cache: dict[int, Columns] = {}

    def read(self, entry: Entry) -> PendingMessage:
        """Returns the message that `entry` refers to. Raises StorageError if the companion log lacks it, and ColdRead
        if it is not in the page cache."""
        for columns in self._cache.values():
            if columns.offsets[0] <= entry.stored_at <= columns.offsets[-1]:
                found = _find(columns, entry)
                if found is not None:
                    return found
        log = self._companion.log
        data = log.read(entry.stored_at, 1, log.end_offset)
        opened = decode_columns(bytes(data)) if data else None
        found = _find(opened, entry) if opened is not None else None
        if found is None or opened is None:
            raise StorageError(
                f"{self._companion.name}: the companion log has no message {entry.offset} at offset {entry.stored_at}"
            )
        if len(self._cache) >= CACHED:
            del self._cache[next(iter(self._cache))]
        self._cache[entry.stored_at] = opened
        return found


def _find(columns: Columns, entry: Entry) -> PendingMessage | None:
    for row in range(columns.count):
        if columns.offsets[row] == entry.stored_at:
            value = columns.value(row)
            return None if value is None else PendingMessage(entry, read_stored_message(value))
    return None
