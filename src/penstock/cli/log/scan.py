"""Read-only scan of segment files: batch headers, CRCs, offset gaps and damage.

Safe while a broker is running; keeps at most 1 MiB of a file in memory. Unlike the broker's recovery code, the scan
opens files read-only and continues after damage as far as it can.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.foundation.settings import LONG_MAX
from penstock.log.checkpoint import Checkpoint
from penstock.records.batch import ATTRIBUTES_AT, LENGTH_MIN, BatchHeader, read_header
from penstock.records.layout import HEADER_BYTES, MAGIC

WINDOW_BYTES: Final = 1 << 20
UNFINISHED_WAIT_S: Final = 0.1
"""Seconds to wait before a damaged batch at the end of a file is read a second time: a broker may be writing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    file: Path
    position: int
    """Byte position in the file where the damage begins."""
    offset: int
    """The first offset that is damaged or missing."""
    expected: str
    found: str
    unread_bytes: int = 0
    """Number of bytes after the damage that could not be checked."""


class Batch(NamedTuple):
    position: int
    header: BatchHeader


class SegmentReader:
    """Reads a segment file; caches one window of WINDOW_BYTES."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size
        self._window = b""
        self._window_at = 0

    def close(self) -> None:
        os.close(self._fd)

    def refresh(self) -> None:
        """Drops the cached window and reads the file size again."""
        self.size = os.fstat(self._fd).st_size
        self._window = b""

    def read(self, at: int, count: int) -> memoryview:
        """Returns up to `count` bytes from position `at`: at most WINDOW_BYTES, and fewer at the end of the file."""
        count = min(count, WINDOW_BYTES)
        if at < self._window_at or at + count > self._window_at + len(self._window):
            self._window = os.pread(self._fd, WINDOW_BYTES, at)
            self._window_at = at
        start = at - self._window_at
        return memoryview(self._window)[start : start + count]

    def read_whole(self, at: int, count: int) -> bytes:
        return os.pread(self._fd, count, at)

    def crc_of(self, at: int, end: int) -> int:
        crc = 0
        while at < end:
            piece = self.read(at, end - at)
            if not piece:
                break  # the file was truncated while reading: the CRC will not match
            crc = crc32c(piece, crc)
            at += len(piece)
        return int(crc)


@dataclass(slots=True, kw_only=True)
class SegmentSummary:
    """Offsets, counts and times of a segment's valid batches."""

    file: Path
    base_offset: int
    next_offset: int
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    codecs: Counter[str] = field(default_factory=Counter)

    def add(self, header: BatchHeader) -> None:
        self.batches += 1
        self.records += header.count
        self.next_offset = header.next_offset
        self.codecs[header.codec.name.lower()] += 1
        if header.max_timestamp >= 0:
            first_ms = header.max_timestamp
            if not header.is_log_append_time and header.delete_horizon_ms is None:
                first_ms = header.base_timestamp
            self.first_ms = first_ms if self.first_ms is None else self.first_ms
            self.last_ms = max(header.max_timestamp, self.last_ms or 0)


def scan_segment(reader: SegmentReader, summary: SegmentSummary, gaps_below: int) -> Iterator[Batch | Damage]:
    """Yields each valid batch and each damage; adds valid batches to `summary`. Offset gaps below offset
    `gaps_below` are no damage: compaction leaves gaps."""
    position = 0
    retried_at = -1
    after_damage = False
    while position < reader.size:
        checked = _check_batch(reader, position, summary.next_offset, LONG_MAX if after_damage else gaps_below)
        if checked.damage is not None:
            if position + checked.size >= reader.size and retried_at != position:
                retried_at = position
                time.sleep(UNFINISHED_WAIT_S)
                reader.refresh()
                continue
            yield checked.damage
            if checked.damage.unread_bytes:
                break
        if checked.header is not None:
            summary.add(checked.header)
            yield Batch(position, checked.header)
        # After a damaged batch an offset gap is expected: the damage has been reported.
        after_damage = checked.header is None
        position += checked.size
    summary.size_bytes = reader.size


class _BatchCheck(NamedTuple):
    """Result of checking one batch: header (None if invalid), damage (None if undamaged), and size in bytes."""

    header: BatchHeader | None
    damage: Damage | None
    size: int


def _check_batch(reader: SegmentReader, position: int, next_offset: int, gaps_below: int) -> _BatchCheck:
    left = reader.size - position

    def damaged(expected: str, found: str, unread_bytes: int = 0) -> Damage:
        return Damage(
            file=reader.path,
            position=position,
            offset=next_offset,
            expected=expected,
            found=found,
            unread_bytes=unread_bytes,
        )

    if left < HEADER_BYTES:
        return _BatchCheck(None, damaged(f"a batch header of {HEADER_BYTES} bytes", _cut(left), left), left)
    header = read_header(reader.read(position, HEADER_BYTES))
    if header.magic != MAGIC:
        return _BatchCheck(None, damaged(f"a batch of format {MAGIC}", f"format {header.magic}", left), left)
    if header.length < LENGTH_MIN:
        return _BatchCheck(None, damaged(f"a length of at least {LENGTH_MIN}", f"length {header.length}", left), left)
    size = header.size_bytes
    if size > left:
        return _BatchCheck(None, damaged(f"a batch of {size} bytes", _cut(left), left), left)
    crc = reader.crc_of(position + ATTRIBUTES_AT, position + size)
    if crc != header.crc:
        return _BatchCheck(None, damaged(f"CRC {header.crc:#010x}", f"CRC {crc:#010x}"), size)
    if header.base_offset < next_offset or header.last_offset_delta < 0 or header.count < 0:
        found = f"{header.count} at offsets {header.base_offset} to {header.last_offset}"
        return _BatchCheck(None, damaged(f"records from offset {next_offset} on", found), size)
    if header.base_offset > max(next_offset, gaps_below):
        missing = damaged(f"offset {next_offset}", f"offset {header.base_offset}: the offsets between are missing")
        return _BatchCheck(header, missing, size)
    return _BatchCheck(header, None, size)


def _cut(left: int) -> str:
    return f"{left} bytes before the end of the file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which offsets of a partition its checkpoint guarantees to be durable: those below `trusted_to`."""

    checkpoint: Checkpoint | None
    trusted_to: int

    def covers(self, damage: Damage) -> bool:
        return damage.offset < self.trusted_to

    @property
    def gaps_below(self) -> int:
        return self.checkpoint.clean_to if self.checkpoint else 0

    def missing(self, folder: Path, starts_at: int | None, ends_at: int) -> Damage | None:
        """Returns a Damage if the log, with offsets [starts_at, ends_at), lacks offsets that the checkpoint
        guarantees; None if not, or without a checkpoint. `starts_at`: None if there are no segments."""
        if self.checkpoint is None:
            return None
        start = self.checkpoint.start_offset
        expected = f"offsets {start} to {self.trusted_to}, which the checkpoint covers"
        if self.trusted_to > start and (starts_at is None or starts_at > start):
            found = "no segments" if starts_at is None else f"a log that starts at {starts_at}"
            return Damage(file=folder, position=0, offset=start, expected=expected, found=found)
        if ends_at < self.trusted_to:
            found = f"a log that ends at {ends_at}"
            return Damage(file=folder, position=0, offset=ends_at, expected=expected, found=found)
        return None
