"""Finding records by time. Opens one batch: the one that the index leads to."""

from penstock.log.log import Log
from penstock.log.segment import Segment
from penstock.records.batch import BatchHeader
from penstock.records.columns import decode_columns


def find_time(log: Log, timestamp_ms: int, limit: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record at or after a time, below the offset `limit`."""
    for segment in log.segments:
        if segment.latest_ms < timestamp_ms:
            continue
        for position, header in segment.headers_from_time(timestamp_ms):
            if header.base_offset >= limit:
                return None
            if header.max_timestamp >= timestamp_ms and header.next_offset > log.start_offset:
                found = _in_batch(segment, position, header, timestamp_ms, log.start_offset)
                if found is not None:
                    return found if found[1] < limit else None
    return None


def find_latest_record(log: Log, limit: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the record with the latest time; the first, if several have it."""
    latest = max(_latest_ms(segment, log.start_offset) for segment in log.segments)
    return find_time(log, latest, limit) if latest >= 0 else None


def _latest_ms(segment: Segment, start_offset: int) -> int:
    if segment.base_offset >= start_offset:
        return segment.latest_ms
    # A trim went through the middle of this segment: what is before it does not count.
    seen = [header.max_timestamp for _, header in segment.headers() if header.next_offset > start_offset]
    return max(seen, default=-1)


def _in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    columns = decode_columns(segment.file.read(position, header.size_bytes))
    for row in range(columns.count):
        if columns.timestamps[row] >= timestamp_ms and columns.offsets[row] >= start_offset:
            return columns.timestamps[row], columns.offsets[row]
    return None
