"""What compaction keeps and removes, and when it runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log import compaction
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.log.timestamp_lookup import find_time
from penstock.records.batch import BatchHeader, assemble, batches, check_batch
from penstock.records.build import Record, build_batch, control_marker
from penstock.records.compression import Codec
from tests.examples import examples

from .builders import ENDLESS, NOW_MS, all_records, headers_from, marker_of, offsets_in, pairs, records_in, sent
from .compacted_logs import SECRET, compact, compacted_log, end_segment, install, planned, put, state

DAY_MS = 86_400_000


def headers(log: Log) -> list[BatchHeader]:
    return list(headers_from(log, log.start_offset))


# -- which records stay


def test_the_last_record_of_each_key_stays_at_its_offset() -> None:
    log = compacted_log()
    put(log, ("a", b"1"), ("b", b"2"), ("a", b"3"))
    put(log, ("c", b"4"), ("b", b"5"))
    end_segment(log)
    put(log, ("a", b"6"))
    result = compact(log)
    assert pairs(all_records(log)) == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5"), (5, b"a", b"6")]
    assert (result.records_before, result.records_after) == (5, 3)
    assert result.bytes_after < result.bytes_before
    assert (log.start_offset, log.end_offset) == (0, 6)


def test_the_last_segment_is_not_touched() -> None:
    log = compacted_log()
    put(log, ("a", b"1"))
    put(log, ("a", b"2"))
    assert planned(log) is None
    end_segment(log)
    put(log, ("a", b"3"))
    put(log, ("a", b"4"))
    compact(log)
    assert offsets_in(log) == [1, 2, 3]


def test_a_later_pass_drops_what_is_older_than_what_is_new() -> None:
    log = compacted_log()
    put(log, ("a", b"1"), ("b", b"1"))
    end_segment(log)
    compact(log)
    put(log, ("a", b"2"))
    end_segment(log)
    compact(log)
    assert pairs(all_records(log)) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_records_without_a_key_go() -> None:
    log = compacted_log()
    records = [
        Record(key=None, value=b"x", timestamp_ms=NOW_MS),
        Record(key=b"k", value=b"y", timestamp_ms=NOW_MS),
        Record(key=b"", value=b"z", timestamp_ms=NOW_MS),
    ]
    log.append(build_batch(records), 0, NOW_MS)
    end_segment(log)
    compact(log)
    assert pairs(all_records(log)) == [(1, b"k", b"y"), (2, b"", b"z")]


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_keeps_its_codec_and_its_producer(codec: Codec) -> None:
    log = compacted_log()
    log.append(sent(9, 0, b"1", b"2" * 50, epoch=3, codec=codec, transactional=True), 5, NOW_MS, may_begin=True)
    log.append_own(marker_of(9, epoch=3), 5, NOW_MS)
    end_segment(log)
    compact(log)
    header, _ = headers(log)
    assert header.codec is codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 0)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (0, 1, 5)
    assert header.is_transactional
    data = log.read(0, 9999, ENDLESS)
    check_batch(data, 0, header)
    assert pairs(records_in(data))[0] == (1, b"k", b"2" * 50)


def test_headers_and_timestamps_of_what_stays_are_as_they_were() -> None:
    log = compacted_log()
    tagged = Record(key=b"a", value=b"v", headers=(("h", b"1"), ("n", None)), timestamp_ms=NOW_MS + 7)
    log.append(build_batch([Record(key=b"a", value=b"0", timestamp_ms=NOW_MS), tagged]), 0, NOW_MS)
    end_segment(log)
    compact(log)
    (found,) = all_records(log)
    assert (found.headers, found.timestamp_ms, found.offset) == (tagged.headers, NOW_MS + 7, 1)


def test_a_marker_of_a_transaction_stays() -> None:
    log = compacted_log()
    put(log, ("a", b"1"))
    marker = control_marker(commit=True, coordinator_epoch=1, producer_id=5, producer_epoch=0, timestamp_ms=NOW_MS)
    log.segments[-1].file.append(_at(marker, 1))
    log.end_offset = 2
    put(log, ("a", b"2"))
    end_segment(log)
    compact(log)
    assert [(header.base_offset, header.is_control) for header in headers(log)] == [(1, True), (2, False)]


def _at(batch: bytearray, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + bytes(batch[8:])


def test_a_batch_that_cannot_be_opened_stays_as_it_is() -> None:
    log = compacted_log()
    put(log, ("a", b"1"))
    nonsense = assemble(
        b"no gzip at all",
        count=1,
        attributes=Codec.GZIP,
        base_offset=0,
        last_offset_delta=0,
        leader_epoch=0,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )
    log.append(bytearray(nonsense), 0, NOW_MS)
    put(log, ("a", b"2"))
    end_segment(log)
    compact(log)
    assert [header.base_offset for header in headers(log)] == [1, 2]
    assert bytes(log.read(1, 1, ENDLESS))[16:] == nonsense[16:]


# -- tombstones (KIP-534)


def test_a_tombstone_stays_for_its_time_from_the_first_pass_on() -> None:
    log = compacted_log(delete_retention_ms=DAY_MS)
    put(log, ("a", b"1"), ("b", b"1"))
    put(log, ("a", None), timestamp_ms=NOW_MS - 100 * DAY_MS)
    end_segment(log)
    compact(log)
    assert pairs(all_records(log)) == [(1, b"b", b"1"), (2, b"a", None)]
    assert [header.delete_horizon_ms for header in headers(log)] == [None, NOW_MS + DAY_MS]
    for now_ms, kept in ((NOW_MS + DAY_MS - 1, [1, 2]), (NOW_MS + DAY_MS, [1])):
        put(log, ("other", b"%d" % now_ms))
        end_segment(log)
        compact(log, now_ms=now_ms)
        assert offsets_in(log)[: len(kept)] == kept
    assert b"a" not in state(log)
    assert [record.key for record in all_records(log)] == [b"b", b"other"]


def test_the_time_of_a_tombstone_is_set_once() -> None:
    log = compacted_log(delete_retention_ms=1000)
    put(log, ("a", None), ("b", b"x"), ("c", b"x"))
    end_segment(log)
    compact(log)
    put(log, ("b", b"y"))
    end_segment(log)
    compact(log, now_ms=NOW_MS + 500)
    assert headers(log)[0].delete_horizon_ms == NOW_MS + 1000
    assert pairs(all_records(log)) == [(0, b"a", None), (2, b"c", b"x"), (3, b"b", b"y")]


def test_a_tombstone_of_a_key_that_came_back_goes_at_once() -> None:
    log = compacted_log()
    put(log, ("a", b"1"))
    put(log, ("a", None))
    put(log, ("a", b"2"))
    end_segment(log)
    compact(log)
    assert pairs(all_records(log)) == [(2, b"a", b"2")]


def test_timestamps_stay_though_the_base_says_when_tombstones_go() -> None:
    log = compacted_log()
    records = [
        Record(key=b"a", value=None, timestamp_ms=NOW_MS - 5),
        Record(key=b"b", value=b"1", timestamp_ms=NOW_MS + 9),
    ]
    log.append(build_batch(records), 0, NOW_MS)
    end_segment(log)
    compact(log)
    assert [record.timestamp_ms for record in all_records(log)] == [NOW_MS - 5, NOW_MS + 9]
    (header,) = headers(log)
    assert header.max_timestamp == NOW_MS + 9
    assert find_time(log, NOW_MS, ENDLESS) == (NOW_MS + 9, 1)


def test_tombstones_with_the_brokers_time_keep_it() -> None:
    log = compacted_log(message_timestamp_type="LogAppendTime")
    put(log, ("a", None), ("b", b"1"), timestamp_ms=5)
    end_segment(log)
    compact(log)
    (header,) = headers(log)
    assert header.is_log_append_time
    assert [record.timestamp_ms for record in all_records(log)] == [NOW_MS, NOW_MS]


def test_tombstones_may_be_kept_for_ever() -> None:
    log = compacted_log(delete_retention_ms=2**63 - 1)
    put(log, ("a", None), timestamp_ms=-1)
    put(log, ("b", None))
    end_segment(log)
    compact(log)
    put(log, ("c", b"1"))
    end_segment(log)
    compact(log, now_ms=NOW_MS + 10**15)
    assert offsets_in(log) == [0, 1, 2]


def test_a_tombstone_from_the_beginning_of_time_does_no_harm() -> None:
    log = compacted_log(delete_retention_ms=2**63 - 1)
    put(log, ("a", None), ("b", b"old"), timestamp_ms=-(2**62))
    put(log, ("b", b"new"))
    end_segment(log)
    compact(log)
    assert pairs(all_records(log)) == [(0, b"a", None), (2, b"b", b"new")]


# -- when it is worth it


def test_a_log_that_is_not_compacted_is_left_alone() -> None:
    log = compacted_log(cleanup_policy="delete")
    put(log, ("a", b"1"))
    end_segment(log)
    assert planned(log) is None


def test_a_clean_log_is_not_compacted_again() -> None:
    log = compacted_log()
    put(log, ("a", b"1"))
    end_segment(log)
    compact(log)
    assert log.checkpoint.clean_to == 1
    assert planned(log) is None


def test_enough_must_be_new() -> None:
    log = compacted_log(min_cleanable_dirty_ratio=0.5, segment_bytes=4096)
    for key in "abcdefgh":
        put(log, (key, b"x" * 100))
    end_segment(log)
    compact(log)
    for _ in range(6):
        put(log, ("a", b"x" * 100))
    end_segment(log)
    assert planned(log) is None
    for _ in range(3):
        put(log, ("a", b"x" * 100))
    end_segment(log)
    compact(log)
    assert planned(log) is None


def test_young_records_stay_as_they_were_sent() -> None:
    log = compacted_log(min_compaction_lag_ms=1000)
    for timestamp_ms in (NOW_MS - 3000, NOW_MS - 2000, NOW_MS - 999, NOW_MS - 3000):
        put(log, ("a", b"%d" % timestamp_ms), timestamp_ms=timestamp_ms)
        end_segment(log)
    compact(log)
    assert offsets_in(log) == [1, 2, 3]
    assert planned(log) is None
    compact(log, now_ms=NOW_MS + 1)
    assert offsets_in(log) == [3]


def test_without_a_lag_a_clock_that_is_ahead_stops_nothing() -> None:
    log = compacted_log()
    put(log, ("a", b"1"), timestamp_ms=NOW_MS + 3_000_000)
    put(log, ("a", b"2"), timestamp_ms=NOW_MS + 3_000_000)
    end_segment(log)
    compact(log)
    assert offsets_in(log) == [1]


def test_records_do_not_wait_longer_than_they_may() -> None:
    disk = MemoryDisk()
    log = compacted_log(disk, min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=5000)
    put(log, ("a", b"x" * 500))
    end_segment(log)
    compact(log)
    put(log, ("a", b"2"))
    end_segment(log)
    for _ in range(2):
        assert planned(log, now_ms=NOW_MS + 5000) is None
        log.close()
        log = compacted_log(disk, min_cleanable_dirty_ratio=0.99, max_compaction_lag_ms=5000)
        end_segment(log)
    compact(log, now_ms=NOW_MS + 5001)
    assert offsets_in(log) == [1]


def test_a_segment_ends_in_time_for_its_records_to_be_compacted() -> None:
    log = compacted_log(max_compaction_lag_ms=5000)
    for after_ms in (0, 5000, 5001):
        put(log, ("a", b"%d" % after_ms), timestamp_ms=NOW_MS + after_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_only_what_is_committed_is_compacted() -> None:
    log = compacted_log()
    for number in range(3):
        put(log, ("a", b"%d" % number))
        end_segment(log)
    job = planned(log, limit=2)
    assert job is not None
    assert install(job, log, job.run())
    assert offsets_in(log) == [1, 2]


def test_only_what_is_synced_is_compacted() -> None:
    log = compacted_log()
    put(log, ("a", b"1"))
    end_segment(log)
    assert compaction.plan(log, NOW_MS, ENDLESS, 1000, SECRET) is None
    assert planned(log) is not None


def test_a_tombstone_stays_while_its_key_has_a_value_that_no_run_has_come_to_yet() -> None:
    """The runs are short, and the segment that they are in reaches further than they do."""
    log, now_ms = compacted_log(delete_retention_ms=3000), NOW_MS
    for number in range(4):
        put(log, ("a", b"%d" % number))
    put(log, ("b", b"gone soon"), ("b", None))
    for number in range(4, 9):
        end_segment(log)
        compact(log, now_ms=now_ms, keys_max=1)
        now_ms += 1000
        put(log, ("a", b"%d" % number))
        assert state(log) == {b"a": b"%d" % number}


# -- any log at all

CHANGES = st.lists(
    st.tuples(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), min_size=1, max_size=4), st.booleans()),
    min_size=1,
    max_size=25,
)


@given(changes=CHANGES, keys_max=st.sampled_from([1, 2, 1000]), codec=st.sampled_from(list(Codec)))
@examples(60, deadline=None)
def test_a_table_built_from_a_compacted_log_is_the_same(
    changes: list[tuple[list[tuple[str, bool]], bool]], keys_max: int, codec: Codec
) -> None:
    log, plain, now_ms = compacted_log(delete_retention_ms=3000), compacted_log(), NOW_MS
    for number, (rows, compact_now) in enumerate(changes):
        values = [(key, None if gone else b"%d" % number) for key, gone in rows]
        for each in (log, plain):
            put(each, *values, codec=codec)
        if compact_now:
            end_segment(log)
            compact(log, now_ms=now_ms, keys_max=keys_max)
            now_ms += 1000
        assert state(log) == state(plain)
    by_offset = {record.offset: record for record in all_records(plain)}
    for record in all_records(log):
        assert (record.key, record.value) == (by_offset[record.offset].key, by_offset[record.offset].value)
    end_segment(log)
    while (job := planned(log, now_ms=now_ms, keys_max=keys_max)) is not None:
        assert install(job, log, job.run())
    keys = [record.key for record in all_records(log)]
    assert len(set(keys)) == len(keys), "a key is there twice"
    for offset in range(log.end_offset):
        data = log.read(offset, 1, ENDLESS)
        assert all(header.last_offset >= offset for _, header in batches(data))
