"""Finding records by their timestamp."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.disk import ColdRead, File
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.log.timestamp_lookup import TimestampAndOffset, find_time, latest_timestamp
from penstock.records.build import Record, build_batch
from penstock.records.layout import Buffer
from tests.examples import examples

from .builders import ENDLESS, NOW_MS, append, open_at
from .compacted_logs import compact, compacted_log, end_segment, put


def find_latest_record(log: Log, limit: int) -> TimestampAndOffset | None:
    """The record with the latest time; the first, if several have it."""
    latest = latest_timestamp(log)
    return find_time(log, latest, limit) if latest >= 0 else None


def written(*batches: list[int], **values: object) -> Log:
    """Each batch holds records of these times."""
    log = open_at(**{"segment_bytes": 1024, "index_interval_bytes": 0, **values})
    for times in batches:
        records = [Record(key=b"k", value=b"x" * 50, timestamp_ms=time_ms) for time_ms in times]
        log.append(build_batch(records), 0, NOW_MS)
    return log


def test_the_first_record_of_a_time_or_later_is_found_inside_its_batch() -> None:
    log = written([10, 20, 30], [40, 50])
    assert find_time(log, 20, ENDLESS) == (20, 1)
    assert find_time(log, 21, ENDLESS) == (30, 2)
    assert find_time(log, 31, ENDLESS) == (40, 3)
    assert find_time(log, 0, ENDLESS) == (10, 0)
    assert find_time(log, 51, ENDLESS) is None


def test_first_means_by_offset_where_times_are_out_of_order() -> None:
    log = written([10], [90], [20], [80])
    assert find_time(log, 15, ENDLESS) == (90, 1)
    assert find_time(log, 85, ENDLESS) == (90, 1)


def test_nothing_is_found_at_or_above_the_limit() -> None:
    log = written([10, 20], [30, 40])
    assert find_time(log, 30, limit=2) is None
    assert find_time(log, 20, limit=2) == (20, 1)
    assert find_time(log, 40, limit=3) is None
    assert find_time(log, 10, limit=0) is None


def test_nothing_is_found_before_the_start() -> None:
    log = written([10, 20, 30], [40])
    log.trim(2)
    assert find_time(log, 0, ENDLESS) == (30, 2)
    log.trim(3)
    assert find_time(log, 0, ENDLESS) == (40, 3)


def test_an_empty_log_has_no_times() -> None:
    log = written()
    assert find_time(log, 0, ENDLESS) is None
    assert find_latest_record(log, ENDLESS) is None


def test_the_latest_record_is_the_first_with_the_latest_time() -> None:
    log = written([10, 70, 20], [70], [60])
    assert find_latest_record(log, ENDLESS) == (70, 1)


def test_with_the_brokers_time_the_first_of_a_batch_is_found() -> None:
    log = open_at(message_timestamp_type="LogAppendTime")
    append(log, b"a", b"b", timestamp_ms=5, now_ms=NOW_MS)
    append(log, b"c", b"d", timestamp_ms=5, now_ms=NOW_MS + 10)
    assert find_time(log, NOW_MS + 1, ENDLESS) == (NOW_MS + 10, 2)
    assert find_latest_record(log, ENDLESS) == (NOW_MS + 10, 2)


def test_times_are_found_across_what_compaction_left() -> None:
    log = compacted_log()
    for number in range(20):
        put(log, (f"key {number % 4}", b"x" * 100), timestamp_ms=NOW_MS + number)
    end_segment(log)
    compact(log)
    assert find_time(log, NOW_MS + 3, ENDLESS) == (NOW_MS + 16, 16)
    assert find_time(log, NOW_MS + 18, ENDLESS) == (NOW_MS + 18, 18)
    assert find_latest_record(log, ENDLESS) == (NOW_MS + 19, 19)


def test_the_empty_trace_of_a_producer_has_no_time() -> None:
    log = compacted_log()
    for number, producer_id in enumerate((7, 8)):
        put(
            log,
            ("k", b"x"),
            timestamp_ms=NOW_MS + number,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
    end_segment(log)
    compact(log)
    assert find_time(log, NOW_MS, ENDLESS) == (NOW_MS + 1, 1)


TIMES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=3), min_size=1, max_size=30)


@given(
    times=TIMES,
    asked=st.integers(-1, 65),
    start=st.integers(0, 30),
    limit=st.integers(0, 60),
    interval=st.sampled_from([0, 300]),
    reopen=st.booleans(),
)
@examples(80, deadline=None)
def test_times_are_found_as_a_plain_search_would(
    times: list[list[int]], asked: int, start: int, limit: int, interval: int, reopen: bool
) -> None:
    disk = MemoryDisk()
    log = open_at(disk, segment_bytes=1024, index_interval_bytes=interval)
    for batch in times:
        records = [Record(key=b"k", value=b"x" * 50, timestamp_ms=time_ms) for time_ms in batch]
        log.append(build_batch(records), 0, NOW_MS)
    log.trim(min(start, log.end_offset))
    if reopen:
        log.close()
        log = open_at(disk, segment_bytes=1024, index_interval_bytes=interval)
    plain = [time_ms for batch in times for time_ms in batch]
    matches = (offset for offset, time_ms in enumerate(plain) if offset >= log.start_offset and time_ms >= asked)
    first = next(matches, None)
    expected = (plain[first], first) if first is not None and first < limit else None
    assert find_time(log, asked, limit) == expected


@pytest.mark.parametrize("reopen", [False, True])
def test_records_without_times_are_not_found_by_time(reopen: bool) -> None:
    disk = MemoryDisk()
    log = open_at(disk)
    append(log, b"timeless", timestamp_ms=-1)
    append(log, b"timely", timestamp_ms=500)
    if reopen:
        log.close()
        log = open_at(disk)
    assert find_time(log, 1, ENDLESS) == (500, 1)
    assert find_time(log, 501, ENDLESS) is None


class ColdFile:
    """A file of which no byte is in the page cache before it is warmed. The event loop must not wait for it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = file.size
        self.is_warm = False

    def read(self, at: int, count: int, blocking: bool = True) -> Buffer:
        assert not blocking, "this would wait for the disk"
        if not self.is_warm:
            raise ColdRead("not in the page cache", self._warm)
        return self._file.read(at, count)

    def _warm(self) -> None:
        self.is_warm = True


def test_records_that_are_not_in_the_page_cache_are_not_waited_for() -> None:
    log = written([10, 20, 30], [40, 50])
    log.segments[0].file = cast(File, ColdFile(log.segments[0].file))
    with pytest.raises(ColdRead) as cold:
        find_time(log, 20, ENDLESS)
    cold.value.warm()
    assert find_time(log, 20, ENDLESS) == (20, 1)
