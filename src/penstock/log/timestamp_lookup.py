"""Finds offsets by timestamp (ListOffsets), mostly by decompressing only the one batch that the index leads to."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.foundation.errors import MessageTooLarge
from penstock.log.log import Log
from penstock.log.segment import Segment
from penstock.records import kernel
from penstock.records.batch import BatchHeader
from penstock.records.columns import INLINE_BODY_BYTES, decode_columns
from penstock.records.layout import Buffer

HEADERS_PER_STEP: Final = 256
_GREATER_OR_EQUAL: Final = 5  # operator number of kernel.match_ints

TimestampAndOffset = tuple[int, int]
"""Timestamp and offset of a record."""


class Candidate(NamedTuple):
    """A batch that may contain the first record at or after a timestamp."""

    batch: Buffer
    header: BatchHeader
    timestamp_ms: int
    start_offset: int

    def find(self, max_bytes: int) -> TimestampAndOffset | None:
        """Returns the batch's first record at or after the timestamp, or None. May be called on a thread. Raises
        MessageTooLarge if the decompressed batch exceeds `max_bytes`."""
        columns = decode_columns(self.batch, max_bytes)
        in_time = kernel.active.match_ints(columns.timestamps, None, _GREATER_OR_EQUAL, self.timestamp_ms)
        in_log = kernel.active.match_ints(columns.offsets, None, _GREATER_OR_EQUAL, self.start_offset)
        row = kernel.active.both(in_time, in_log).find(1)
        return (columns.timestamps[row], columns.offsets[row]) if row >= 0 else None

    @property
    def at_start(self) -> TimestampAndOffset:
        """The result if the batch is too large to decompress: its first offset, and its maximum timestamp."""
        return self.header.max_timestamp, max(self.header.base_offset, self.start_offset)


def candidates(log: Log, timestamp_ms: int, limit: int, blocking: bool = False) -> Iterator[Candidate | None]:
    """Yields batches below the offset `limit` that may contain the first record at or after a timestamp. Sometimes
    yields None, so that other tasks can run. Raises ColdRead for uncached bytes, unless `blocking`."""
    seen = 0
    for segment in list(log.segments):
        if segment.latest_ms < timestamp_ms:
            continue
        for position, header in segment.headers_from_time(timestamp_ms, blocking):
            seen += 1
            if not seen % HEADERS_PER_STEP:
                yield None
            if header.base_offset >= limit:
                return
            if header.max_timestamp >= timestamp_ms and header.next_offset > log.start_offset:
                batch = segment.file.read(position, header.size_bytes, blocking)
                yield Candidate(batch, header, timestamp_ms, log.start_offset)


def latest_timestamp(log: Log) -> int:
    """Returns the largest timestamp of all records in the log; -1 if there are no records."""
    return max(_latest_ms(segment, log.start_offset) for segment in log.segments)


def find_time(log: Log, timestamp_ms: int, limit: int) -> TimestampAndOffset | None:
    """Returns timestamp and offset of the first record at or after a timestamp, below the offset `limit`, or None.
    If the batch is too large to decompress on the event loop, returns its first offset. Raises ColdRead if bytes are
    not in the page cache."""
    for candidate in candidates(log, timestamp_ms, limit):
        if candidate is None:
            continue
        try:
            found = candidate.find(INLINE_BODY_BYTES)
        except MessageTooLarge:
            found = candidate.at_start
        if found is not None:
            return found if found[1] < limit else None
    return None


def _latest_ms(segment: Segment, start_offset: int) -> int:
    if segment.base_offset >= start_offset:
        return segment.latest_ms
    # The log start offset lies within this segment: earlier batches do not count.
    seen = [header.max_timestamp for _, header in segment.headers() if header.next_offset > start_offset]
    return max(seen, default=-1)
