"""A log segment: a file of record batches, its sparse index, and its aborted transactions."""

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

_BATCH_START: Final = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_SCAN_BYTES: Final = 4096 + 64
_SCAN_BYTES_LARGE: Final = 1 << 20
_HINTS_MAX: Final = 64
_HINT_BATCHES_MAX: Final = 16
_UNKNOWN: Final = (0, 0, LONG_MAX, LONG_MAX)
NO_TIMESTAMP: Final = -1


class BatchPosition(NamedTuple):
    """The position of a batch in a segment file, and its offsets."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    """Record batches from `base_offset` on. Only the last segment of a log (the active one) is appended to."""

    __slots__ = (
        "_disk",
        "_folder",
        "_indexed_to",
        "_latest_ms",
        "_newest",
        "_stem",
        "_suffix",
        "aborted",
        "base_offset",
        "created_ms",
        "file",
        "first_ms",
        "hints",
        "index",
    )

    def __init__(self, disk: Disk, folder: str, base_offset: int, suffix: str = "", has_index: bool = True) -> None:
        """`suffix`: added to all file names. `has_index`: if False, the segment certainly has no index file yet."""
        self._disk = disk
        self._folder = folder
        self._stem = f"{folder}/{segment_name(base_offset)}"
        self._suffix = suffix
        self.base_offset = base_offset
        self.file: File = disk.open(f"{self._stem}.log{suffix}")
        self.index = Index(disk, f"{self._stem}.index{suffix}", is_new=not has_index)
        self.aborted = AbortedList(disk, f"{self._stem}.aborted{suffix}")
        self.created_ms = NO_TIMESTAMP
        self.first_ms = NO_TIMESTAMP
        """The timestamp of the first batch; -1 if it is not known yet, see `first_timestamp_ms`."""
        self._latest_ms: int | None = NO_TIMESTAMP if not self.file.size else None
        self._indexed_to = 0
        self.hints: dict[int, int] = {}
        """File positions by base offset of the batches that readers are expected to read next."""
        self._newest = _UNKNOWN
        """The last batch, as the fields of a BatchPosition: a plain tuple is faster to create."""

    @property
    def size(self) -> int:
        return self.file.size

    def duplicate(self) -> "Segment":
        """Opens the segment's files a second time, for use by another thread."""
        duplicate = Segment(self._disk, self._folder, self.base_offset, self._suffix)
        if self.aborted.count:
            duplicate.aborted.count = self.aborted.count
            duplicate.aborted.make()  # now, while it certainly exists
        return duplicate

    def index_batch(
        self, position: int, size: int, base: int, last: int, timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        """Updates the index and the segment's timestamps for a batch that was appended to `file`, or is recovered.
        The batch has the offsets `base` to `last`; `timestamp_ms` is its latest timestamp."""
        latest_ms = self._latest_ms
        if latest_ms is None:
            latest_ms = self.latest_ms
        if position - self._indexed_to > index_interval_bytes:
            self.index.add((base - self.base_offset, position, latest_ms))
            self._indexed_to = position
        if timestamp_ms > latest_ms:
            self._latest_ms = timestamp_ms
        if not position:
            self.first_ms = timestamp_ms
        self._newest = (position, size, base, last)

    @property
    def first_timestamp_ms(self) -> int:
        """The timestamp of the first batch; read from the file at first use."""
        if self.first_ms < 0 and self.file.size >= HEADER_BYTES:
            self.first_ms = read_header(self.file.read(0, HEADER_BYTES)).max_timestamp
        return self.first_ms

    @property
    def latest_ms(self) -> int:
        """The largest timestamp in the segment; found from the index and the batches after its last entry."""
        if self._latest_ms is None:
            entry = self.index.last()
            latest = entry.latest_ms if entry else NO_TIMESTAMP
            for _, header in self.headers(entry.position if entry else 0):
                latest = max(latest, header.max_timestamp)
            self._latest_ms = latest
        return self._latest_ms

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        entry = self.index.last()
        end = self.base_offset
        for _, header in self.headers(entry.position if entry else 0):
            end = header.next_offset
        return end

    def locate(self, offset: int, blocking: bool = True) -> BatchPosition | None:
        """Returns the position of the batch that contains `offset`, or of the first batch after it; None if there
        is neither. Unless `blocking`, raises ColdRead if bytes to read are not in the page cache."""
        _, _, newest_base, newest_last = self._newest
        if offset >= newest_base:
            return BatchPosition._make(self._newest) if offset <= newest_last else None
        entry = self.index.floor(offset - self.base_offset)
        for found in self._scan_positions(entry.position if entry else 0, blocking):
            if found.last_offset >= offset:
                return found
        return None

    def read(self, position: int, end: int, max_bytes: int, blocking: bool, force: bool) -> Buffer:
        """Returns batches from `position` on, up to position `end`, at most `max_bytes`; see Log.read."""
        count = end - position
        if count <= 0:
            return b""  # `end` lies within this batch
        if count > max_bytes:
            count = max_bytes if max_bytes > HEADER_BYTES else HEADER_BYTES
        data = self.file.read(position, count, blocking)
        base, length, delta = _BATCH_START.unpack_from(data)
        size = 12 + length
        if size > max_bytes:
            if not force:
                return b""
            data = data[:size] if size <= count else self.file.read(position, size, blocking)
        # The reader of these batches will fetch the one after them next.
        hints = self.hints
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]  # the oldest
        if size == len(data):
            hints[base + delta + 1] = position + size
        else:
            self._add_hint(position, data)
        return data

    def _add_hint(self, position: int, data: Buffer) -> None:
        at = following = 0
        for _ in range(_HINT_BATCHES_MAX):
            if len(data) - at < _BATCH_START.size:
                break
            base, length, delta = _BATCH_START.unpack_from(data, at)
            if at + 12 + length > len(data):
                break
            at += 12 + length
            following = base + delta + 1
        else:
            return  # many small batches: an index lookup is cheaper than a scan
        if at:  # else no batch is whole: the segment is damaged
            self.hints[following] = position + at

    def _scan_positions(self, position: int, blocking: bool) -> Iterator[BatchPosition]:
        while True:
            chunk = self.file.read(position, _SCAN_BYTES, blocking)
            at = 0
            while at + _BATCH_START.size <= len(chunk):
                base, length, delta = _BATCH_START.unpack_from(chunk, at)
                if length < HEADER_BYTES - 12:
                    raise StorageError(f"{self._stem}.log is damaged at byte {position + at}")
                yield BatchPosition(position + at, 12 + length, base, base + delta)
                at += 12 + length
            if at == 0 or position + at >= self.size:
                return
            position += at

    def headers(self, position: int = 0, blocking: bool = True) -> Iterator[tuple[int, BatchHeader]]:
        """Yields file position and header of every whole batch from `position` on. Stops before a truncated batch.
        Raises ColdRead if the bytes are not in the page cache, unless `blocking`."""
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
                return  # the file was truncated meanwhile
            position += at

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, Buffer]]:
        """Yields file position, header and bytes of every whole batch from `position` on."""
        for at, header in self.headers(position):
            yield at, header, self.file.read(at, header.size_bytes)

    def headers_from_time(self, timestamp_ms: int, blocking: bool = True) -> Iterator[tuple[int, BatchHeader]]:
        """Yields file position and header of every whole batch, from a position before which all timestamps are
        older than `timestamp_ms`. Unless `blocking`, raises ColdRead as `headers` does."""
        entry = self.index.before_time(timestamp_ms)
        return self.headers(entry.position if entry else 0, blocking)

    def cut(self, position: int) -> None:
        """Truncates the segment file to `position` bytes, and fsyncs it."""
        self.index.cut(position)
        if position < self.file.size:
            self.file.truncate(position)
            with failed_sync_noted(self._disk, self._folder):
                self.file.sync()  # durable: recovery does not look behind the next segment's base
        self._newest = _UNKNOWN
        self.hints.clear()
        self._latest_ms = None if position else NO_TIMESTAMP
        entry = self.index.last()
        self._indexed_to = entry.position if entry else 0
        if not position:
            self.first_ms = NO_TIMESTAMP

    def resume_index(self) -> int:
        """Resumes indexing after the index's last entry; returns the position from which batches must be indexed."""
        entry = self.index.last()
        self._indexed_to = entry.position if entry else 0
        self._latest_ms = entry.latest_ms if entry else NO_TIMESTAMP
        return self._indexed_to

    def rebuild_index(self, index_interval_bytes: int, trusted: int = LONG_MAX) -> None:
        """Rebuilds the index from the batches below the offset `trusted`; later bytes may be garbage."""
        self.index.remove()
        self._indexed_to = 0
        self._latest_ms = NO_TIMESTAMP
        following = self.base_offset
        for position, header in self.headers():
            base, last = header.base_offset, header.last_offset
            if not following <= base < trusted:
                break
            self.index_batch(position, header.size_bytes, base, last, header.max_timestamp, index_interval_bytes)
            following = header.next_offset

    def open_all(self) -> None:
        """Opens all existing files of the segment now: compaction may soon replace the files of these names."""
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
