"""Which old segments go, by time and by size. Never the last one: it is rolled first, if it must go."""

from itertools import pairwise

from penstock.log.log import Log


def enforce(log: Log, now_ms: int, limit: int) -> int:
    """Drop what the topic's retention no longer keeps, below the offset `limit`; bytes that were freed."""
    settings = log.settings
    if not settings.deleted:
        return 0
    before_bytes = log.size_bytes
    last = log.segments[-1]
    if last.size and settings.retention_ms >= 0 and 0 <= last.latest_ms < now_ms - settings.retention_ms:
        log.roll(now_ms)
    keep_from = log.start_offset
    kept_bytes = log.size_bytes
    by_time = True
    for segment, following in pairwise(log.segments):
        if following.base_offset > limit:
            break
        by_time = by_time and settings.retention_ms >= 0 and segment.latest_ms < now_ms - settings.retention_ms
        by_size = 0 <= settings.retention_bytes <= kept_bytes - segment.size
        if not (by_time or by_size):
            break
        kept_bytes -= segment.size
        keep_from = following.base_offset
    if keep_from > log.start_offset:
        log.trim(keep_from)
    return before_bytes - log.size_bytes
