"""Retention: deletes old segments by time (retention.ms) and by size (retention.bytes)."""

from itertools import pairwise

from penstock.log.log import Log
from penstock.log.segment import Segment


def enforce(log: Log, now_ms: int, limit: int) -> int:
    """Deletes segments beyond the topic's retention that end below the offset `limit`; returns the bytes freed."""
    settings = log.settings
    if not settings.deleted:
        return 0
    before_bytes = log.size_bytes
    last = log.segments[-1]
    if last.size and _is_too_old(last, settings.retention_ms, now_ms):
        log.roll(now_ms)
    keep_from = log.start_offset
    kept_bytes = log.size_bytes
    by_time = True
    for segment, following in pairwise(log.segments):
        if following.base_offset > limit:
            break
        by_time = by_time and _is_too_old(segment, settings.retention_ms, now_ms)
        by_size = 0 <= settings.retention_bytes <= kept_bytes - segment.size
        if not (by_time or by_size):
            break
        kept_bytes -= segment.size
        keep_from = max(keep_from, following.base_offset)
    log.trim(keep_from)
    return before_bytes - log.size_bytes


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    """Whether a segment's latest timestamp is more than `retention_ms` before `now_ms`. A segment without
    timestamps counts from the time when this process opened it."""
    latest_ms = segment.latest_ms
    known_ms = latest_ms if latest_ms >= 0 else segment.created_ms
    return retention_ms >= 0 and 0 <= known_ms < now_ms - retention_ms
