"""A segment: record batches as they were sent, one after another, the index that finds them, and what was aborted."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.foundation.errors import StorageError
from penstock.foundation.settings import LONG_MAX
from penstock.log.aborted import AbortedList
from penstock.log.checkpoint import failed_sync_noted
from penstock.log.disk import Disk, File
from penstock.log.index import Index
from penstock.records.batch import BatchHeader, read_header
from penstock.records.layout import HEADER_BYTES
from penstock.wire.schema import Buffer

_PLACE: Final = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_SCAN_BYTES: Final = 4096 + 64
_SCAN_BYTES_LARGE: Final = 1 << 20
_HINTS_MAX: Final = 64
_HINT_BATCHES_MAX: Final = 16
NO_TIMESTAMP: Final = -1


class Place(NamedTuple):
    """A batch found in a segment."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    """Batches from `base_offset` on. Only the last segment of a log is appended to."""

    __slots__ = (
        "_disk",
        "_first_ms",
        "_folder",
        "_indexed_to",
        "_latest_ms",
        "_newest_at",
        "_newest_base",
        "_newest_last",
        "_newest_size",
        "_stem",
        "_suffix",
        "aborted",
        "base_offset",
        "created_ms",
        "file",
        "hints",
        "index",
    )

    def __init__(self, disk: Disk, folder: str, base_offset: int, suffix: str = "", has_index: bool = True) -> None:
        """`has_index`: whether there may be an index file."""
        self._disk = disk
        self._folder = folder
        self._stem = f"{folder}/{segment_name(base_offset)}"
        self._suffix = suffix
        self.base_offset = base_offset
        self.file: File = disk.open(f"{self._stem}.log{suffix}")
        self.index = Index(disk, f"{self._stem}.index{suffix}", is_new=not has_index)
        self.aborted = AbortedList(disk, f"{self._stem}.aborted{suffix}")
        self.created_ms = NO_TIMESTAMP
        self._first_ms = NO_TIMESTAMP
        self._latest_ms: int | None = NO_TIMESTAMP if not self.file.size else None
        self._indexed_to = 0
        self.hints: dict[int, int] = {}
        """Where a batch begins with an offset: left by readers that have just read up to it."""
        self._newest_at = self._newest_size = 0
        self._newest_base = self._newest_last = LONG_MAX  # of the last batch, once it is known

    @property
    def size(self) -> int:
        return self.file.size

    def twin(self) -> "Segment":
        """The same segment once more, for a thread of its own to read."""
        twin = Segment(self._disk, self._folder, self.base_offset, self._suffix)
        if self.aborted.count:
            twin.aborted.count = self.aborted.count
            twin.aborted.make()  # now, while it is there for certain
        return twin

    def append(self, batch: Buffer, base: int, last: int, timestamp_ms: int, index_interval_bytes: int) -> None:
        """One batch at the end, with its first and last offset (set in it already) and its latest time."""
        file = self.file
        position = file.size
        file.append(batch)
        latest_ms = self._latest_ms
        if latest_ms is None or self._first_ms < 0:
            self.note(position, len(batch), base, last, timestamp_ms, index_interval_bytes)
            return
        # As `note` does, on the way of every batch.
        if position - self._indexed_to > index_interval_bytes:
            self.index.add((base - self.base_offset, position, latest_ms))
            self._indexed_to = position
        if timestamp_ms > latest_ms:
            self._latest_ms = timestamp_ms
        self._newest_at = position
        self._newest_size = len(batch)
        self._newest_base = base
        self._newest_last = last

    def note(
        self, position: int, size: int, base: int, last: int, timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        """What is remembered of a batch: used by appends and by recovery alike."""
        latest_ms = self._latest_ms
        if latest_ms is None:
            latest_ms = self.latest_ms
        if position - self._indexed_to > index_interval_bytes:
            self.index.add((base - self.base_offset, position, latest_ms))
            self._indexed_to = position
        if timestamp_ms > latest_ms:
            self._latest_ms = timestamp_ms
        if self._first_ms < 0:
            self._first_ms = timestamp_ms
        self._newest_at, self._newest_size = position, size
        self._newest_base, self._newest_last = base, last

    @property
    def first_timestamp_ms(self) -> int:
        """The time of the first batch, read from it if it is not known."""
        if self._first_ms < 0 and self.file.size >= HEADER_BYTES:
            self._first_ms = read_header(self.file.read(0, HEADER_BYTES)).max_timestamp
        return self._first_ms

    @property
    def latest_ms(self) -> int:
        """The latest timestamp in the segment; found from the index and the batches after its last entry."""
        if self._latest_ms is None:
            entry = self.index.last()
            latest = entry.latest_ms if entry else NO_TIMESTAMP
            for _, header in self.headers(entry.position if entry else 0):
                latest = max(latest, header.max_timestamp)
            self._latest_ms = latest
        return self._latest_ms

    @property
    def end_offset(self) -> int:
        """The offset after the last batch."""
        entry = self.index.last()
        end = self.base_offset
        for _, header in self.headers(entry.position if entry else 0):
            end = header.next_offset
        return end

    def locate(self, offset: int, blocking: bool = True) -> Place | None:
        """The batch that holds `offset`, or the first one after it; None at the end of the segment."""
        if offset >= self._newest_base:
            if offset > self._newest_last:
                return None
            return Place(self._newest_at, self._newest_size, self._newest_base, self._newest_last)
        entry = self.index.floor(offset - self.base_offset)
        for place in self._places(entry.position if entry else 0, blocking):
            if place.last_offset >= offset:
                return place
        return None

    def read(self, position: int, end: int, max_bytes: int, blocking: bool, force: bool) -> Buffer:
        """Batches from the one at `position` on, up to position `end`, cut after `max_bytes`; see Log.read."""
        count = end - position
        if count <= 0:
            return b""  # the end lies in the middle of this batch
        if count > max_bytes:
            count = max_bytes if max_bytes > HEADER_BYTES else HEADER_BYTES
        data = self.file.read(position, count, blocking)
        base, length, delta = _PLACE.unpack_from(data)
        size = 12 + length
        if size > max_bytes:
            if not force:
                return b""
            data = data[:size] if size <= count else self.file.read(position, size, blocking)
        # A reader that gets these batches will ask for the one after them next.
        hints = self.hints
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]  # the oldest
        if size == len(data):
            hints[base + delta + 1] = position + size
        else:
            self._remember(position, data)
        return data

    def _remember(self, position: int, data: Buffer) -> None:
        at = following = 0
        for _ in range(_HINT_BATCHES_MAX):
            if len(data) - at < _PLACE.size:
                break
            base, length, delta = _PLACE.unpack_from(data, at)
            if at + 12 + length > len(data):
                break
            at += 12 + length
            following = base + delta + 1
        else:
            return  # many small batches: finding the next place costs less than walking to it
        if at:  # else not even one batch is whole: the segment is damaged here
            self.hints[following] = position + at

    def _places(self, position: int, blocking: bool) -> Iterator[Place]:
        while True:
            chunk = self.file.read(position, _SCAN_BYTES, blocking)
            at = 0
            while at + _PLACE.size <= len(chunk):
                base, length, delta = _PLACE.unpack_from(chunk, at)
                if length < HEADER_BYTES - 12:
                    raise StorageError(f"{self._stem}.log is damaged at byte {position + at}")
                yield Place(position + at, 12 + length, base, base + delta)
                at += 12 + length
            if at == 0 or position + at >= self.size:
                return
            position += at

    def headers(self, position: int = 0, blocking: bool = True) -> Iterator[tuple[int, BatchHeader]]:
        """Every whole batch from `position` on, by its header. Stops before a batch that is cut short.

        Raises ColdRead where the file is not in the page cache, unless `blocking`.
        """
        size = self.size
        while position + HEADER_BYTES <= size:
            chunk = self.file.read(position, _SCAN_BYTES_LARGE, blocking)
            at = 0
            while at + HEADER_BYTES <= len(chunk):
                header = read_header(chunk, at)
                if header.length < HEADER_BYTES - 12 or position + at + 12 + header.length > size:
                    return
                yield position + at, header
                at += 12 + header.length
            if not at:
                return  # someone else made the file shorter
            position += at

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, Buffer]]:
        """Every whole batch from `position` on, with its bytes."""
        for place, header in self.headers(position):
            yield place, header, self.file.read(place, header.size_bytes)

    def headers_from_time(self, timestamp_ms: int, blocking: bool = True) -> Iterator[tuple[int, BatchHeader]]:
        """Batches from a place on before which everything is older than `timestamp_ms`; see `headers`."""
        entry = self.index.before_time(timestamp_ms)
        return self.headers(entry.position if entry else 0, blocking)

    def cut(self, position: int) -> None:
        """Take back everything from `position` on."""
        self.index.cut(position)
        if position < self.file.size:
            self.file.truncate(position)
            with failed_sync_noted(self._disk, self._folder):
                self.file.sync()  # for good: the next segment may begin here, and then nobody looks behind this place
        self._newest_base = LONG_MAX
        self.hints.clear()
        self._latest_ms = None if position else NO_TIMESTAMP
        entry = self.index.last()
        self._indexed_to = entry.position if entry else 0
        if not position:
            self._first_ms = NO_TIMESTAMP

    def resume_index(self) -> int:
        """Go on from the index's last entry; the position from which batches are to be noted again."""
        entry = self.index.last()
        self._indexed_to = entry.position if entry else 0
        self._latest_ms = entry.latest_ms if entry else NO_TIMESTAMP
        return self._indexed_to

    def rebuild_index(self, index_interval_bytes: int, trusted: int = LONG_MAX) -> None:
        """Throw the index away and note every batch below a trusted offset anew: what lies behind may be anything."""
        self.index.remove()
        self._indexed_to = 0
        self._latest_ms = NO_TIMESTAMP
        following = self.base_offset
        for position, header in self.headers():
            base, last = header.base_offset, header.last_offset
            if not following <= base < trusted:
                break
            self.note(position, header.size_bytes, base, last, header.max_timestamp, index_interval_bytes)
            following = header.next_offset

    def open_all(self) -> None:
        """Open every file of the segment that there is: what is opened later by its name may be another one."""
        self.index.open()
        if self.aborted.count:
            self.aborted.open()

    def close(self) -> None:
        self.index.close()
        self.aborted.close()
        self.file.close()

    def remove(self) -> None:
        self.close()
        self._disk.remove(f"{self._stem}.log{self._suffix}")
        self.index.remove()
        self.aborted.remove()
