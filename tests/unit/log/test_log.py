"""Appending to a log and reading it: accepted batches, new segments, and what readers get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    OffsetOutOfRange,
    PenstockError,
    StorageError,
)
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.records.batch import batches
from penstock.records.compression import Codec
from penstock.records.layout import HEADER_BYTES
from tests.examples import examples

from .builders import (
    ENDLESS,
    NOW_MS,
    FullDisk,
    all_records,
    append,
    batch,
    headers_from,
    open_at,
    records_in,
    sent,
    settings,
    values_in,
)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# -- what it takes


def test_offsets_and_the_leaders_epoch_are_set_in_the_batch() -> None:
    log = open_at()
    log.append(batch(b"a", b"b", b"c"), 7, NOW_MS)
    appended = log.append(batch(b"d"), 7, NOW_MS)
    assert appended == (3, 3, -1, False)
    assert log.end_offset == 4
    data = log.read(0, 10_000, ENDLESS)
    assert [(header.base_offset, header.leader_epoch) for _, header in batches(data)] == [(0, 7), (3, 7)]
    assert [record.value for record in all_records(log)] == [b"a", b"b", b"c", b"d"]


def test_a_batch_is_kept_as_it_was_sent_but_for_offset_and_epoch() -> None:
    log, sent = open_at(), batch(b"x" * 50, codec=Codec.GZIP)
    log.append(bytearray(sent), 3, NOW_MS)
    found = bytes(log.read(0, 10_000, ENDLESS))
    assert found[8:12] == sent[8:12]
    assert found[16:] == sent[16:]


def test_a_new_log_may_begin_anywhere() -> None:
    log = open_at(first_offset=5000)
    assert (log.start_offset, log.end_offset) == (5000, 5000)
    assert append(log).base_offset == 5000


REFUSED = [
    (b"", CorruptMessage),
    (bytes(HEADER_BYTES - 1), CorruptMessage),
    (bytes(batch())[:-1], CorruptMessage),
    (bytes(batch()) + b"\0", InvalidRecord),
    (bytes(batch()) + bytes(batch()), InvalidRecord),
    (bytes(batch(b"x" * 3000)), MessageTooLarge),
]


@pytest.mark.parametrize(("data", "error"), REFUSED)
def test_anything_but_exactly_one_whole_batch_is_refused(data: bytes, error: type[PenstockError]) -> None:
    log = open_at(max_message_bytes=2000)
    with pytest.raises(error):
        log.append(bytearray(data), 0, NOW_MS)
    assert (log.end_offset, log.size_bytes) == (0, 0)


def test_a_flipped_byte_is_refused() -> None:
    log, sent = open_at(), batch(b"value")
    for at in range(16, len(sent)):
        spoilt = bytearray(sent)
        spoilt[at] ^= 0x55
        with pytest.raises(PenstockError):
            log.append(spoilt, 0, NOW_MS)
    assert log.end_offset == 0


def test_a_batch_of_just_the_largest_size_is_taken() -> None:
    size = len(batch(b"x" * 100))
    log = open_at(max_message_bytes=size)
    append(log, b"x" * 100)
    with pytest.raises(MessageTooLarge, match=f"has {size + 1} bytes, max.message.bytes is {size}"):
        append(log, b"x" * 101)


def test_timestamps_keep_within_their_bounds() -> None:
    log = open_at(message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=5000)
    append(log, b"latest", timestamp_ms=NOW_MS + 1000)
    append(log, b"oldest", timestamp_ms=NOW_MS - 5000)
    for wrong_ms in (NOW_MS + 1001, NOW_MS - 5001):
        with pytest.raises(InvalidTimestamp) as refused:
            append(log, timestamp_ms=wrong_ms)
        assert refused.value.code == ErrorCode.INVALID_TIMESTAMP
    assert values_in(log) == [b"latest", b"oldest"]


def test_a_record_without_a_timestamp_is_neither_early_nor_late() -> None:
    log = open_at(message_timestamp_after_max_ms=0, message_timestamp_before_max_ms=0)
    append(log, b"timeless", timestamp_ms=-1)
    assert values_in(log) == [b"timeless"]


def test_log_append_time_is_the_brokers_and_needs_no_bounds() -> None:
    log = open_at(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0)
    appended = append(log, b"a", b"b", timestamp_ms=NOW_MS + 99_999, now_ms=NOW_MS + 7)
    assert appended.append_time_ms == NOW_MS + 7
    assert [record.timestamp_ms for record in all_records(log)] == [NOW_MS + 7, NOW_MS + 7]
    (_, header) = next(batches(log.read(0, 1000, ENDLESS)))
    assert header.is_log_append_time
    assert log.segments[0].latest_ms == NOW_MS + 7


def test_offsets_that_are_not_reserved_are_not_given() -> None:
    log = open_at(storage="memory")
    log.offset_limit = 3
    append(log, b"0", b"1")
    with pytest.raises(StorageError, match="not reserved"):
        append(log, b"2", b"3")
    assert log.end_offset == 2
    append(log, b"2")
    log.offset_limit = 10
    append(log, b"3", b"4")
    assert values_in(log) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_full_disk_refuses_a_batch_and_the_log_goes_on() -> None:
    disk = FullDisk(MemoryDisk())
    log = open_at(disk)
    append(log, b"before")
    disk.free_bytes = 10
    with pytest.raises(StorageError):
        append(log, b"refused")
    assert log.end_offset == 1
    disk.free_bytes = 1 << 30
    append(log, b"after")
    assert values_in(log) == [b"before", b"after"]


# -- new segments


def test_a_segment_ends_before_it_would_be_too_large() -> None:
    log = open_at(segment_bytes=1024)
    size = len(batch(b"x" * 200))
    for _ in range(10):
        append(log, b"x" * 200)
    a_segment = 1024 // size
    assert bases(log) == list(range(0, 10, a_segment))
    assert all(segment.size <= 1024 for segment in log.segments)
    assert log.size_bytes == 10 * size


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    log = open_at(segment_bytes=1024)
    for value in (b"small", b"x" * 5000, b"small"):
        append(log, value)
    assert bases(log) == [0, 1, 2]
    assert values_in(log) == [b"small", b"x" * 5000, b"small"]


def test_a_segment_ends_when_its_records_are_far_enough_apart() -> None:
    log = open_at(segment_ms=1000)
    for after_ms in (0, 1000, 1001, 1500, 2002):
        append(log, timestamp_ms=NOW_MS + after_ms)
    assert bases(log) == [0, 2, 4]


def test_a_segment_of_records_without_timestamps_ends_by_the_brokers_clock() -> None:
    log = open_at(segment_ms=1000)
    for after_ms in (0, 1000, 1002):
        append(log, timestamp_ms=-1, now_ms=NOW_MS + after_ms)
    assert bases(log) == [0, 2]


def test_the_age_of_a_segment_counts_on_across_restarts() -> None:
    disk = MemoryDisk()
    append(open_at(disk), timestamp_ms=NOW_MS)
    log = open_at(disk, segment_ms=1000, now_ms=NOW_MS + 900)
    append(log, timestamp_ms=NOW_MS + 1001)
    assert bases(log) == [0, 1]


def test_the_age_of_an_indexed_segment_counts_from_its_first_batch_after_a_restart() -> None:
    disk = MemoryDisk()
    log = open_at(disk, segment_ms=1000, index_interval_bytes=0)
    for later_ms in (0, 400, 800):
        append(log, b"v" * 50, timestamp_ms=NOW_MS + later_ms)
    log.close()
    log = open_at(disk, segment_ms=1000, index_interval_bytes=0)
    append(log, timestamp_ms=NOW_MS + 900)
    assert len(log.segments) == 1
    append(log, timestamp_ms=NOW_MS + 1001)
    assert len(log.segments) == 2


@pytest.mark.parametrize("jitter_ms", [400, 5_000_000])
def test_jitter_ends_a_segment_earlier_and_never_at_every_batch(jitter_ms: int) -> None:
    log = open_at(segment_ms=1000, segment_jitter_ms=jitter_ms)
    for after_ms in range(0, 30_000, 100):
        append(log, timestamp_ms=NOW_MS + after_ms)
    spans = {later - earlier for earlier, later in zip(bases(log)[1:], bases(log)[2:], strict=False)}
    assert len(spans) > 1, "all segments end after the same time"
    assert max(spans) <= 11
    for _ in range(50):
        append(log, timestamp_ms=NOW_MS + 30_000)
    assert log.end_offset - bases(log)[-1] >= 50


def test_a_segment_ends_before_its_offsets_outgrow_the_index() -> None:
    log = open_at(first_offset=10)
    append(log)
    log.end_offset = 10 + 2**31 - 1
    append(log)
    assert bases(log) == [10]
    append(log)
    assert bases(log) == [10, 10 + 2**31]


def test_an_empty_segment_is_not_followed_by_another() -> None:
    log = open_at()
    assert log.roll(NOW_MS) is log.segments[0]
    append(log)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert bases(log) == [0, 1]


# -- reading


@pytest.fixture
def ten() -> Log:
    """Ten batches of three records and one size, in several segments."""
    log = open_at(segment_bytes=1024, index_interval_bytes=100)
    for number in range(10):
        append(log, *(b"%030d" % (3 * number + row) for row in range(3)))
    assert len(log.segments) > 1
    return log


SIZE = len(batch(*[bytes(30)] * 3))


def test_a_read_begins_with_the_batch_that_holds_the_offset(ten: Log) -> None:
    for offset in range(30):
        (_, header) = next(batches(ten.read(offset, SIZE, ENDLESS)))
        assert header.base_offset <= offset <= header.last_offset


def test_a_read_is_cut_after_its_bytes_even_inside_a_batch(ten: Log) -> None:
    assert len(ten.read(0, 2 * SIZE, ENDLESS)) == 2 * SIZE
    assert len(ten.read(0, 2 * SIZE + 5, ENDLESS)) == 2 * SIZE + 5
    assert [header.base_offset for _, header in batches(ten.read(0, 2 * SIZE + 5, ENDLESS))] == [0, 3]


def test_a_first_batch_larger_than_the_bytes_comes_whole_if_it_is_forced(ten: Log) -> None:
    for max_bytes in (0, 1, SIZE - 1):
        assert len(ten.read(4, max_bytes, ENDLESS)) == SIZE
        assert ten.read(4, max_bytes, ENDLESS, force=False) == b""
    assert len(ten.read(4, SIZE, ENDLESS, force=False)) == SIZE
    assert ten.read(4, -5, ENDLESS, force=False) == b""


def test_a_read_ends_with_its_segment(ten: Log) -> None:
    first = ten.segments[0]
    assert len(ten.read(0, 1 << 20, ENDLESS)) == first.size
    assert len(ten.read(1, 1 << 20, ENDLESS)) == first.size


def test_nothing_at_or_above_the_limit_is_read(ten: Log) -> None:
    for limit in range(31):
        found = [header.last_offset for at in range(0, 30, 3) for _, header in batches(ten.read(at, 1 << 20, limit))]
        assert all(last < limit for last in found)
        assert len(set(found)) == limit // 3
    assert ten.read(7, 1 << 20, 7) == b""
    assert ten.read(7, 1 << 20, 0) == b""


def test_reading_at_the_end_gives_nothing_and_past_it_is_refused(ten: Log) -> None:
    assert ten.read(30, 1 << 20, ENDLESS) == b""
    for offset in (31, -1):
        with pytest.raises(OffsetOutOfRange, match=f"holds offsets 0 to 30, asked for {offset}"):
            ten.read(offset, 1 << 20, ENDLESS)


def test_headers_start_with_the_batch_that_has_the_offset(ten: Log) -> None:
    assert [header.base_offset for header in headers_from(ten, 13)] == list(range(12, 30, 3))
    assert [header.base_offset for header in headers_from(ten, 30)] == []


@given(
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=25),
    interval=st.sampled_from([0, 100, 4096]),
    segment_bytes=st.sampled_from([1024, 4096]),
    max_bytes=st.integers(0, 3000),
)
@examples(50, deadline=None)
def test_a_reader_that_goes_on_from_its_last_offset_sees_everything_once(
    sizes: list[int], interval: int, segment_bytes: int, max_bytes: int
) -> None:
    log = open_at(index_interval_bytes=interval, segment_bytes=segment_bytes)
    for size in sizes:
        append(log, b"x" * size)
    found, offset = [], 0
    while data := log.read(offset, max_bytes, ENDLESS):
        for item in records_in(data):
            found.append(len(item.value or b""))
            offset = item.offset + 1
    assert found == sizes


def test_two_logs_with_the_same_input_are_the_same() -> None:
    one, other = open_at(), open_at()
    for log in (one, other):
        append(log, b"a")
        append(log, b"b", codec=Codec.ZSTD)
    assert bytes(one.read(0, 9999, ENDLESS)) == bytes(other.read(0, 9999, ENDLESS))


# -- logs in memory


def test_a_log_in_memory_sheds_its_oldest_segments_and_stays_bounded() -> None:
    bound = 16 << 10
    log = open_at(storage="memory", retention_bytes=bound)
    size = len(batch(b"x" * 300))
    for number in range(400):
        append(log, b"x" * 300)
        assert log.size_bytes <= bound + log.settings.segment_bytes + size
        assert log.end_offset == number + 1
    assert log.start_offset == log.segments[0].base_offset > 0
    assert log.size_bytes > bound / 2
    held = sum(file.size for file in log.disk.files.values())  # type: ignore[attr-defined]
    assert held < log.size_bytes + 10_000, "what was shed is still held"


def test_a_log_in_memory_that_was_trimmed_to_its_end_goes_on_shedding() -> None:
    log = open_at(storage="memory", retention_bytes=8192)
    for _ in range(200):
        append(log, b"x" * 100)
        log.trim(log.end_offset)
    assert log.size_bytes <= 8192 + log.settings.segment_bytes


def test_a_log_in_memory_keeps_a_batch_larger_than_its_bound() -> None:
    log = open_at(storage="memory", retention_bytes=2048)
    for _ in range(3):
        append(log, b"x" * 10_000)
    assert values_in(log)[-1] == b"x" * 10_000
    assert log.end_offset - log.start_offset <= 2


def test_settings_may_change_while_a_log_is_open() -> None:
    log = open_at()
    append(log, b"x" * 2000)
    log.settings = settings(max_message_bytes=500, segment_bytes=1024)
    with pytest.raises(MessageTooLarge):
        append(log, b"x" * 2000)
    append(log, b"next")
    assert bases(log) == [0, 1]


def test_records_of_every_codec_are_read_back() -> None:
    log = open_at()
    for codec in Codec:
        append(log, codec.name.encode() * 20, codec=codec)
    assert values_in(log) == [codec.name.encode() * 20 for codec in Codec]
    assert [header.codec for _, header in batches(log.read(0, 9999, ENDLESS))] == list(Codec)


def test_a_topic_says_how_many_producers_its_logs_remember() -> None:
    disk = MemoryDisk()
    log = open_at(disk, max_producer_ids=3)
    for producer_id in range(10):
        log.append(sent(producer_id, 0, b"v"), 0, NOW_MS + producer_id)
    assert sorted(log.producers.by_id) == [7, 8, 9]
    log.configure(settings(max_producer_ids=5))
    for producer_id in range(10, 13):
        log.append(sent(producer_id, 0, b"v"), 0, NOW_MS + producer_id)
    assert len(log.producers.by_id) == 5
    log.close()
    assert len(open_at(disk, max_producer_ids=3).producers.by_id) == 5, "what is there goes as others come"


def test_an_evicted_producer_goes_on_where_it_was_but_repeats_are_not_recognised() -> None:
    """As one that expired (KIP-360): any next sequence is accepted."""
    log = open_at(max_producer_ids=1)
    log.append(sent(7, 0, b"one"), 0, NOW_MS)
    assert log.append(sent(7, 0, b"one"), 0, NOW_MS).repeated
    log.append(sent(8, 0, b"other"), 0, NOW_MS)
    assert not log.append(sent(7, 0, b"one"), 0, NOW_MS).repeated
    assert not log.append(sent(8, 1, b"other"), 0, NOW_MS).repeated
