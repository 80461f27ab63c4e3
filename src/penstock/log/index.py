"""The sparse index of a segment: offset index and time index in one file.

Every few kilobytes of the segment, an entry maps an offset to a file position and to the largest timestamp before
it. The index can be rebuilt from the segment, so it is never fsynced. Only the newest entries are in memory.
"""

import struct
from collections.abc import Callable
from itertools import chain
from typing import Final, NamedTuple

from penstock.foundation.errors import StorageError
from penstock.log.disk import Disk, File

ENTRY: Final = struct.Struct(">IIq")
PENDING_MAX: Final = 256
_FULL: Final = struct.Struct(">" + "IIq" * PENDING_MAX)


class Entry(NamedTuple):
    offset: int
    """Base offset of a batch, relative to the segment's base offset."""
    position: int
    """Position of the batch in the segment file."""
    latest_ms: int
    """The largest timestamp of all earlier batches in the segment."""


class Index:
    """The index entries of one segment, in order of position; only the newest entries are in memory."""

    __slots__ = ("_disk", "_file", "_is_count_known", "_path", "_pending", "_stored")

    def __init__(self, disk: Disk, path: str, is_new: bool = False) -> None:
        """`is_new`: there is no index file. It is created when first needed: most segments never need one."""
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._pending: list[tuple[int, int, int]] = []  # entries; plain tuples are faster to create
        self._stored = 0
        self._is_count_known = is_new
        """Whether the number of entries in the file was determined."""

    def add(self, entry: tuple[int, int, int]) -> None:
        """Adds an entry (the fields of `Entry`), which must come after all earlier entries."""
        pending = self._pending
        pending.append(entry)
        if len(pending) >= PENDING_MAX:
            try:
                self.write_out()
            except StorageError:
                # A full disk: keep every second entry; a sparser index is still correct.
                del pending[::2]

    def write_out(self) -> None:
        """Writes the entries that are only in memory to the file."""
        if self._pending:
            file = self.open()
            fields = chain.from_iterable(self._pending)
            size = len(self._pending) * ENTRY.size
            shape = _FULL if size == _FULL.size else struct.Struct(">" + "IIq" * len(self._pending))
            file.append(shape.pack(*fields))
            self._stored += len(self._pending)
            self._pending.clear()

    def seal(self) -> None:
        """Writes all entries to the file, creates it even if there are none, and closes it."""
        self.open()
        self.write_out()
        self.close()

    def release(self) -> None:
        """Closes the file until its next use: a broker may have more segments than file descriptors."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def open(self) -> File:
        """Returns the file, opened if necessary."""
        if self._file is None:
            self._file = self._disk.open(self._path)
            if not self._is_count_known:
                self._stored = self._file.size // ENTRY.size
                self._is_count_known = True
            self._file.truncate(self._stored * ENTRY.size)
        return self._file

    def _at(self, number: int) -> Entry:
        if number >= self._stored:
            return Entry._make(self._pending[number - self._stored])
        return Entry(*ENTRY.unpack(self.open().read(number * ENTRY.size, ENTRY.size)))

    def _count_leading(self, holds: Callable[[Entry], bool]) -> int:
        """Returns how many entries satisfy `holds`; they must come before all other entries (binary search)."""
        if not self._is_count_known:
            self.open()
        low, high = 0, self._stored + len(self._pending)
        if self._pending:  # most lookups are for the newest entries
            low, high = (self._stored, high) if holds(self._at(self._stored)) else (0, self._stored)
        while low < high:
            middle = (low + high) // 2
            if holds(self._at(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def _last(self, holds: Callable[[Entry], bool]) -> Entry | None:
        count = self._count_leading(holds)
        return self._at(count - 1) if count else None

    def floor(self, offset: int) -> Entry | None:
        """Returns the last entry at or before an offset relative to the segment's base offset, or None."""
        return self._last(lambda entry: entry.offset <= offset)

    def before_time(self, timestamp_ms: int) -> Entry | None:
        """Returns the last entry such that all timestamps before it are older than `timestamp_ms`, or None."""
        return self._last(lambda entry: entry.latest_ms < timestamp_ms)

    def last(self) -> Entry | None:
        return self._last(lambda entry: True)

    def cut(self, position: int) -> None:
        """Removes every entry at or after a position of the segment file."""
        count = self._count_leading(lambda entry: entry.position < position)
        if count < self._stored:
            file = self.open()
            file.truncate(count * ENTRY.size)
            file.sync()  # else power loss could restore plausible entries of truncated batches
        del self._pending[max(0, count - self._stored) :]
        self._stored = min(self._stored, count)

    def is_sane(self, segment_bytes: int) -> bool:
        """Whether the file is plausible as the index of a segment of that size; power loss may leave zeroes in it."""
        before = Entry(0, 0, -1)  # the first batch has no entry
        if self._is_count_known and not self._stored:
            return True
        file = self.open()
        for entry in map(Entry._make, ENTRY.iter_unpack(file.read(0, self._stored * ENTRY.size))):
            if (
                entry.offset < before.offset
                or entry.position <= before.position
                or entry.latest_ms < before.latest_ms
            ):
                return False
            before = entry
        return before.position < max(1, segment_bytes)

    def close(self) -> None:
        """Closes the file. Entries not yet written to it are lost and must be rebuilt."""
        self.release()
        self._pending.clear()
        self._is_count_known = False

    def remove(self) -> None:
        self.close()
        self._disk.remove(self._path)
        self._stored, self._is_count_known = 0, True
