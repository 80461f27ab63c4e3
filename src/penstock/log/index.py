"""A segment's sparse index: every few kilobytes, which offset stands where, and the latest time before it.

One file answers both questions, by offset and by time. It can always be rebuilt from the segment, so it is
never synced. Only the newest entries are in memory, whatever the size of the segment.
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
    """Base offset of a batch, relative to the segment's."""
    position: int
    """Where that batch begins."""
    latest_ms: int
    """The latest timestamp of all batches before it."""


class Index:
    """Entries in order of position, on disk but for the newest."""

    __slots__ = ("_disk", "_file", "_is_known", "_path", "_pending", "_stored")

    def __init__(self, disk: Disk, path: str, is_new: bool = False) -> None:
        """`is_new`: there is no file yet, and none is made before it is needed: most segments never have one."""
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._pending: list[tuple[int, int, int]] = []  # entries; plain tuples are made faster
        self._stored = 0
        self._is_known = is_new
        """Whether it is known how many entries are stored."""

    def add(self, entry: tuple[int, int, int]) -> None:
        """The fields of an Entry, behind all that were added before."""
        pending = self._pending
        pending.append(entry)
        if len(pending) >= PENDING_MAX:
            try:
                self.write_out()
            except StorageError:
                # A full disk: the index stays right, and grows sparser instead of larger.
                del pending[::2]

    def write_out(self) -> None:
        """Hand the pending entries to the disk."""
        if self._pending:
            file = self.open()
            fields = chain.from_iterable(self._pending)
            size = len(self._pending) * ENTRY.size
            shape = _FULL if size == _FULL.size else struct.Struct(">" + "IIq" * len(self._pending))
            file.append(shape.pack(*fields))
            self._stored += len(self._pending)
            self._pending.clear()

    def seal(self) -> None:
        """Write everything out and let go of the file, which is there from now on."""
        self.open()
        self.write_out()
        self.close()

    def release(self) -> None:
        """Let go of the file until it is needed again: a broker may have more segments than descriptors."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def open(self) -> File:
        """The file, opened if it is not."""
        if self._file is None:
            self._file = self._disk.open(self._path)
            if not self._is_known:
                self._stored = self._file.size // ENTRY.size
                self._is_known = True
            self._file.truncate(self._stored * ENTRY.size)
        return self._file

    def _at(self, number: int) -> Entry:
        if number >= self._stored:
            return Entry._make(self._pending[number - self._stored])
        return Entry(*ENTRY.unpack(self.open().read(number * ENTRY.size, ENTRY.size)))

    def _prefix(self, holds: Callable[[Entry], bool]) -> int:
        """How many entries `holds` is true for; they are the first ones."""
        if not self._is_known:
            self.open()
        low, high = 0, self._stored + len(self._pending)
        if self._pending:  # most questions are about the newest
            low, high = (self._stored, high) if holds(self._at(self._stored)) else (0, self._stored)
        while low < high:
            middle = (low + high) // 2
            if holds(self._at(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def _last(self, holds: Callable[[Entry], bool]) -> Entry | None:
        count = self._prefix(holds)
        return self._at(count - 1) if count else None

    def floor(self, offset: int) -> Entry | None:
        """The last entry at or before a relative offset."""
        return self._last(lambda entry: entry.offset <= offset)

    def before_time(self, timestamp_ms: int) -> Entry | None:
        """The last entry before which everything is older than `timestamp_ms`."""
        return self._last(lambda entry: entry.latest_ms < timestamp_ms)

    def last(self) -> Entry | None:
        return self._last(lambda entry: True)

    def cut(self, position: int) -> None:
        """Forget every entry at or after a position."""
        count = self._prefix(lambda entry: entry.position < position)
        if count < self._stored:
            file = self.open()
            file.truncate(count * ENTRY.size)
            file.sync()  # or power loss could bring back entries that look right, of batches that were taken back
        del self._pending[max(0, count - self._stored) :]
        self._stored = min(self._stored, count)

    def is_sane(self, segment_bytes: int) -> bool:
        """Whether what is on disk could be an index of a segment of that size (power loss may leave zeroes)."""
        before = Entry(0, 0, -1)  # no entry is for the first batch: that one is found without
        if self._is_known and not self._stored:
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
        """Let go of the file; pending entries that were not written out are lost, and can be rebuilt."""
        self.release()
        self._pending.clear()
        self._is_known = False

    def remove(self) -> None:
        self.close()
        self._disk.remove(self._path)
        self._stored, self._is_known = 0, True
