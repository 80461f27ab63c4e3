"""The aborted transactions of a segment (Kafka's transaction index), for read_committed consumers.

The index is a small file beside the segment, created with its first entry: one entry per transaction whose abort
marker lies in the segment, in order of the markers. An entry is written before its marker, so that a crash may leave
an entry without a marker, never a marker without its entry. Entries are fsynced with their segment.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from penstock.foundation.errors import StorageError
from penstock.log.disk import Disk, File
from penstock.log.transactions import AbortedTransaction
from penstock.wire.schema import Buffer

_FIELDS: Final = struct.Struct(">qqqq")
_CRC: Final = struct.Struct(">I")
ENTRY_BYTES: Final = _FIELDS.size + _CRC.size
_READ_ENTRIES: Final = 64


class AbortedList:
    """The aborted transactions of one segment, in a file. If the file exists, call `measure` before any other
    method."""

    __slots__ = ("_disk", "_file", "_is_torn", "_path", "_unsynced", "count")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self.count = 0
        self._is_torn = False
        """Whether the file has damaged bytes after its last intact entry."""
        self._unsynced = False

    def measure(self, base_offset: int) -> int | None:
        """Reads the file and sets `count` to the number of intact entries. Returns None if nothing follows these
        entries. If damaged bytes follow, returns the log offset from which abort markers may lack an entry: the
        offset after the last intact entry's marker, or `base_offset` if no entry is intact.

        Leaves damaged bytes in the file until `replace_from`, so that the next recovery finds them too if the
        process dies before that.
        """
        found = self._disk.load(self._path)
        data = found or b""
        self.count, behind = 0, base_offset
        self._unsynced = found is not None  # unknown; even an empty file may have been truncated and not fsynced
        while len(data) - self.count * ENTRY_BYTES >= ENTRY_BYTES:
            entry = _unpack(data, self.count * ENTRY_BYTES)
            if entry is None or entry.last_offset < behind:
                break
            behind = entry.last_offset + 1
            self.count += 1
        self._is_torn = self.count * ENTRY_BYTES != len(data)
        return behind if self._is_torn else None

    def make(self) -> None:
        """Creates the file even if there are no entries."""
        self.open().truncate(self.count * ENTRY_BYTES)

    def open(self) -> File:
        """Returns the file, opened if necessary."""
        if self._file is None:
            self._file = self._disk.open(self._path)
        return self._file

    def add(self, entry: AbortedTransaction) -> None:
        """Appends an entry. If it raises StorageError, nothing has changed."""
        file = self.open()
        file.truncate(self.count * ENTRY_BYTES)  # bytes after the entries are torn, or could not be removed
        file.append(_packed(entry))
        self.count += 1
        self._unsynced = True

    def remove_newest(self) -> None:
        """Removes the newest entry because its abort marker could not be written."""
        self.count -= 1
        self._unsynced = True
        self.open().truncate(self.count * ENTRY_BYTES)

    def _number(self, offset: int) -> int:
        """Returns how many entries have their abort markers before `offset` (binary search)."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if next(self._entries(middle)).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _entries(self, number: int, ahead: int = 1) -> Iterator[AbortedTransaction]:
        while number < self.count:
            data = self.open().read(number * ENTRY_BYTES, min(ahead, self.count - number) * ENTRY_BYTES)
            for at in range(0, len(data), ENTRY_BYTES):
                entry = _unpack(data, at)
                if entry is None:
                    raise StorageError(f"{self._path} is damaged in entry {number}; restart the broker to rebuild it")
                yield entry
                number += 1

    @property
    def newest(self) -> int:
        """Offset of the last abort marker in the segment; the list must not be empty."""
        return next(self._entries(self.count - 1)).last_offset

    def ended_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yields the aborted transactions whose abort markers are at or after `offset`."""
        return self._entries(self._number(offset), _READ_ENTRIES)

    def take_unsynced(self) -> File | None:
        """Returns the file if it has changed since the last call, and so needs an fsync; else None."""
        if not self._unsynced:
            return None
        self._unsynced = False
        return self.open()

    def sync(self) -> None:
        file = self.take_unsynced()
        if file is not None:
            file.sync()

    def replace_from(self, offset: int, entries: Sequence[AbortedTransaction]) -> None:
        """Replaces all entries whose abort markers are at or after `offset` by `entries`, durably and atomically."""
        before = self._number(offset)
        if not self._is_torn and list(self._entries(before, _READ_ENTRIES)) == entries:
            return
        data = self.open().read(0, before * ENTRY_BYTES) if before else b""
        self.close()
        self._disk.store(self._path, bytes(data) + b"".join(map(_packed, entries)), durable=True)
        self.count = before + len(entries)
        self._is_torn = self._unsynced = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        self.close()
        self._disk.remove(self._path)


def _packed(entry: AbortedTransaction) -> bytes:
    fields = _FIELDS.pack(*entry)
    return fields + _CRC.pack(zlib.crc32(fields))


def _unpack(data: Buffer, at: int) -> AbortedTransaction | None:
    """Returns the entry at position `at`, or None if its bytes are damaged."""
    (crc,) = _CRC.unpack_from(data, at + _FIELDS.size)
    if zlib.crc32(memoryview(data)[at : at + _FIELDS.size]) != crc:
        return None
    return AbortedTransaction(*_FIELDS.unpack_from(data, at))


def aborted_between(lists: Iterable[AbortedList], first: int, end: int) -> list[AbortedTransaction]:
    """Returns aborted transactions that begin before the offset `end` and have their abort markers at or after
    `first`. `lists`: the aborted lists of the segment that contains `first` and of all later segments."""
    found = []
    for aborted in lists:
        for entry in aborted.ended_from(first) if aborted.count else ():
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found
    return found
