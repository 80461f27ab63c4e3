"""Retention by time and by size."""

from penstock.log import retention
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk

from .builders import ENDLESS, NOW_MS, append, batch, offsets_in, open_at, settings, values_in

HOUR_MS = 3_600_000


def filled(disk: MemoryDisk | None = None, count: int = 20, **values: object) -> Log:
    """Records one to a batch and an hour apart, the last of them now; four to a segment."""
    log = open_at(disk, segment_bytes=1024, segment_ms=2**60, **values)
    for number in range(count):
        append(log, b"%0160d" % number, timestamp_ms=NOW_MS - HOUR_MS * (count - 1 - number))
    assert [segment.base_offset for segment in log.segments] == list(range(0, count, 4))
    return log


def enforce(log: Log, now_ms: int = NOW_MS, limit: int = ENDLESS) -> list[int]:
    """The offsets that are left."""
    before = log.size_bytes
    freed = retention.enforce(log, now_ms, limit)
    assert freed == before - log.size_bytes
    return offsets_in(log)


SEGMENT_BYTES = 4 * len(batch(b"%0160d" % 0))


def test_a_segment_goes_when_all_of_it_is_too_old() -> None:
    log = filled(retention_ms=10 * HOUR_MS)
    assert enforce(log)[0] == 8  # 9 is too old too, and stands with others that are not
    assert enforce(log, NOW_MS + 1)[0] == 8
    assert enforce(log, NOW_MS + 2 * HOUR_MS)[0] == 8
    assert enforce(log, NOW_MS + 2 * HOUR_MS + 1)[0] == 12


def test_retention_of_minus_one_keeps_everything() -> None:
    log = filled(retention_ms=-1, retention_bytes=-1)
    assert enforce(log, NOW_MS + 10**15) == list(range(20))


def test_the_last_segment_goes_too_once_all_of_it_is_too_old() -> None:
    log = filled(retention_ms=HOUR_MS)
    assert enforce(log, NOW_MS + HOUR_MS + 1) == []
    assert (log.start_offset, log.end_offset) == (20, 20)
    assert log.size_bytes == 0
    append(log, b"next", timestamp_ms=NOW_MS + 2 * HOUR_MS)
    assert offsets_in(log) == [20]


def test_one_late_record_keeps_its_segment_and_all_after_it() -> None:
    log = open_at(segment_bytes=1024, retention_ms=HOUR_MS)
    for number in range(12):
        timestamp_ms = NOW_MS if number == 5 else NOW_MS - 10 * HOUR_MS
        append(log, b"%0160d" % number, timestamp_ms=timestamp_ms)
    assert enforce(log)[0] == 4


def test_by_size_the_oldest_go_while_the_rest_is_enough() -> None:
    log = filled(retention_ms=-1, retention_bytes=3 * SEGMENT_BYTES)
    assert enforce(log)[0] == 8
    assert log.size_bytes == 3 * SEGMENT_BYTES
    log.settings = settings(retention_ms=-1, retention_bytes=3 * SEGMENT_BYTES - 1)
    assert enforce(log)[0] == 8, "what is left would be less than is to be kept"
    log.settings = settings(retention_ms=-1, retention_bytes=2 * SEGMENT_BYTES)
    assert enforce(log)[0] == 12


def test_by_size_the_last_segment_stays() -> None:
    log = filled(retention_ms=-1, retention_bytes=0)
    assert enforce(log)[0] == 16


def test_time_and_size_work_together() -> None:
    by_time = {"retention_ms": 14 * HOUR_MS}
    by_size = {"retention_bytes": 2 * SEGMENT_BYTES}
    assert enforce(filled(**by_time))[0] == 4
    assert enforce(filled(**by_size, retention_ms=-1))[0] == 12
    assert enforce(filled(**by_time, **by_size))[0] == 12
    assert enforce(filled(retention_ms=3 * HOUR_MS, retention_bytes=4 * SEGMENT_BYTES))[0] == 16


def test_nothing_that_is_not_committed_goes() -> None:
    log = filled(retention_ms=HOUR_MS)
    assert enforce(log, NOW_MS + 10 * HOUR_MS, limit=9)[0] == 8
    assert enforce(log, NOW_MS + 10 * HOUR_MS, limit=19)[0] == 16
    assert enforce(log, NOW_MS + 10 * HOUR_MS, limit=20) == []


def test_a_log_that_is_only_compacted_keeps_everything() -> None:
    log = filled(cleanup_policy="compact", retention_ms=1, retention_bytes=1)
    assert enforce(log) == list(range(20))


def test_a_log_that_is_compacted_and_deleted_loses_its_old_segments() -> None:
    log = filled(cleanup_policy="compact,delete", retention_ms=10 * HOUR_MS)
    assert enforce(log)[0] == 8


def test_trimmed_records_are_freed_even_without_new_writes() -> None:
    log = filled(retention_ms=HOUR_MS)
    log.trim(20)
    assert log.size_bytes == SEGMENT_BYTES
    enforce(log, NOW_MS + 2 * HOUR_MS)
    assert log.size_bytes == 0


def test_records_without_timestamps_are_as_old_as_their_arrival() -> None:
    log = open_at(segment_bytes=1024, retention_ms=HOUR_MS)
    for number in range(12):
        append(log, b"%0160d" % number, timestamp_ms=-1, now_ms=NOW_MS + number)
    assert enforce(log, NOW_MS + HOUR_MS)[0] == 0
    assert enforce(log, NOW_MS + HOUR_MS + 4)[0] == 4
    assert enforce(log, NOW_MS + HOUR_MS + 12) == []


def test_records_without_timestamps_are_not_too_old_because_the_broker_restarted() -> None:
    disk = MemoryDisk()
    log = open_at(disk, segment_bytes=1024, retention_ms=HOUR_MS)
    for number in range(12):
        append(log, b"%0160d" % number, timestamp_ms=-1)
    log.close()
    log = open_at(disk, now_ms=NOW_MS + 1000, segment_bytes=1024, retention_ms=HOUR_MS)
    assert enforce(log, NOW_MS + 2000) == list(range(12))
    assert enforce(log, NOW_MS + HOUR_MS + 1000) == list(range(12))
    assert enforce(log, NOW_MS + HOUR_MS + 1001) == []


def test_remaining_segments_survive_a_restart() -> None:
    disk = MemoryDisk()
    log = filled(disk, retention_ms=10 * HOUR_MS)
    enforce(log)
    log.abandon()
    log = open_at(disk, segment_bytes=1024)
    assert offsets_in(log) == list(range(8, 20))
    assert values_in(log)[0] == b"%0160d" % 8
