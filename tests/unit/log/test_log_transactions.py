"""Transactions in a log: admission, read_committed readers, and full disks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    MessageTooLarge,
    OutOfOrderSequence,
    StorageError,
    TransactionCoordinatorFenced,
)
from penstock.log import retention
from penstock.log.memory import MemoryDisk
from penstock.log.timestamp_lookup import find_time
from penstock.log.transactions import AbortedTransaction
from penstock.records.batch import check_batch, read_header
from penstock.records.build import skip_marker
from tests.examples import examples

from .builders import (
    ENDLESS,
    FOLDER,
    NOW_MS,
    FullDisk,
    append,
    batch,
    committed_values,
    end,
    headers_from,
    marker_of,
    open_at,
    sent,
    values_in,
    write,
)

# -- the broker's own batches


def test_a_batch_of_the_brokers_own_gets_its_place_like_any_other() -> None:
    log = open_at(segment_bytes=1024)
    append(log, b"a")
    appended = log.append_own(batch(b"b", b"c"), 4, NOW_MS)
    assert (appended.base_offset, appended.last_offset, appended.append_time_ms, appended.repeated) == (
        1,
        2,
        -1,
        False,
    )
    assert values_in(log) == [b"a", b"b", b"c"]
    assert log.epochs.entries == [(0, 0), (4, 1)]
    for header in headers_from(log, 0):
        check_batch(log.read(header.base_offset, 1, ENDLESS), 0, header)
    before = len(log.segments)
    for _ in range(5):
        log.append_own(batch(b"x" * 300), 4, NOW_MS)
    assert len(log.segments) > before


def test_a_batch_of_the_brokers_own_may_have_attributes_that_a_client_may_not() -> None:
    log = open_at()
    log.append_own(skip_marker(0, NOW_MS), 0, NOW_MS)
    (header,) = headers_from(log, 0)
    assert header.is_control
    assert not log.has_transactions


def test_a_batch_of_the_brokers_own_without_a_time_is_filed_under_now() -> None:
    log = open_at()
    log.append_own(batch(b"a", timestamp_ms=-1), 0, NOW_MS)
    assert log.segments[0].latest_ms == NOW_MS


def test_where_the_topic_has_the_brokers_times_its_own_batches_have_them_too() -> None:
    log = open_at(message_timestamp_type="LogAppendTime")
    appended = log.append_own(batch(b"a", timestamp_ms=5), 0, NOW_MS)
    assert appended.append_time_ms == NOW_MS
    end(log, 7, True)
    assert [header.max_timestamp for header in headers_from(log, 0)] == [NOW_MS, NOW_MS]
    check_batch(log.read(0, 1, ENDLESS), 0, headers_from(log, 0)[0])


def test_a_batch_of_the_brokers_own_is_no_larger_than_others_but_markers_are_always_taken() -> None:
    log = open_at(max_message_bytes=70)
    with pytest.raises(MessageTooLarge, match=r"max.message.bytes is 70"):
        log.append_own(batch(b"x" * 100), 0, NOW_MS)
    assert len(marker_of(7)) > 70
    assert end(log, 7, True) == 0


def test_a_batch_of_the_brokers_own_gets_no_offset_that_is_not_reserved() -> None:
    log = open_at()
    log.offset_limit = 1
    log.append_own(batch(b"a"), 0, NOW_MS)
    with pytest.raises(StorageError, match="not reserved yet"):
        log.append_own(batch(b"b"), 0, NOW_MS)
    assert log.end_offset == 1


def test_the_broker_begins_transactions_in_a_producers_name() -> None:
    log = open_at()
    own = batch(b"a", producer_id=7, producer_epoch=2, transactional=True)
    log.append_own(bytearray(own), 0, NOW_MS)
    log.append_own(bytearray(own), 0, NOW_MS)
    assert log.producers.is_in_transaction(7, 2)
    assert log.producers.open.first_offset == 0
    assert values_in(log) == [b"a", b"a"], "without sequences nothing is a repetition"
    with pytest.raises(InvalidProducerEpoch):
        log.append_own(batch(b"b", producer_id=7, producer_epoch=1, transactional=True), 0, NOW_MS)
    with pytest.raises(InvalidTxnState):
        log.append_own(batch(b"b", producer_id=7, producer_epoch=2), 0, NOW_MS)
    assert log.end_offset == 2


# -- clients' batches


def test_a_client_begins_a_transaction_only_where_it_may() -> None:
    log = open_at()
    with pytest.raises(InvalidTxnState):
        log.append(sent(7, 0, b"a", transactional=True), 0, NOW_MS)
    assert (log.end_offset, log.has_transactions) == (0, False)
    write(log, 7, 0, b"a")
    assert log.has_transactions
    log.append(sent(7, 1, b"b", transactional=True), 0, NOW_MS)
    with pytest.raises(InvalidTxnState):
        log.append(sent(7, 2, b"c"), 0, NOW_MS)
    end(log, 7, True)
    with pytest.raises(InvalidTxnState):
        log.append(sent(7, 2, b"c", transactional=True), 0, NOW_MS)
    assert not log.producers.is_in_transaction(7, 0)


def test_a_sequence_that_comes_again_with_other_records_is_no_repetition() -> None:
    """librdkafka forgets, when it aborts, what it has sent and not heard of, and uses its sequences once more."""
    log = open_at()
    write(log, 7, 0, b"forgotten")
    end(log, 7, False)
    with pytest.raises(OutOfOrderSequence, match="reused sequence 0 for other records than those at offset 0"):
        write(log, 7, 0, b"another", timestamp_ms=NOW_MS + 10)
    assert write(log, 7, 0, b"forgotten").repeated
    assert not write(log, 7, 1, b"next", timestamp_ms=NOW_MS + 10).repeated


@pytest.mark.parametrize("topic", [{"log_append_time": True}, {}])
def test_a_batch_without_a_time_of_its_own_is_known_again_all_the_same(topic: dict[str, bool]) -> None:
    log = open_at(**topic)
    timestamp_ms = NOW_MS if topic else -1
    write(log, 7, 0, b"a", timestamp_ms=timestamp_ms)
    data = sent(7, 0, b"a", transactional=True, timestamp_ms=timestamp_ms)
    assert log.append(data, 0, NOW_MS + 1000, may_begin=True).repeated


def test_a_marker_with_a_new_epoch_fences_what_the_old_one_still_sends() -> None:
    log = open_at()
    write(log, 7, 0, b"a")
    end(log, 7, True, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        write(log, 7, 1, b"late")
    write(log, 7, 0, b"b", epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        end(log, 7, False)
    assert log.producers.is_in_transaction(7, 1)


def test_an_older_coordinator_writes_no_marker() -> None:
    log = open_at()
    write(log, 7, 0, b"a")
    end(log, 7, True, coordinator=3)
    with pytest.raises(TransactionCoordinatorFenced):
        end(log, 7, False, coordinator=2)
    assert log.end_offset == 2


# -- the last stable offset


def test_nothing_from_the_first_open_transaction_on_is_stable() -> None:
    log = open_at()
    append(log, b"a")
    assert (log.producers.open.first_offset, log.last_stable_offset(1)) == (None, 1)
    write(log, 7, 0, b"b")
    append(log, b"c")
    write(log, 8, 0, b"d")
    assert (log.producers.open.first_offset, log.last_stable_offset(4)) == (1, 1)
    end(log, 7, True)
    assert (log.producers.open.first_offset, log.last_stable_offset(5)) == (3, 3)
    end(log, 8, False)
    assert (log.producers.open.first_offset, log.last_stable_offset(6)) == (None, 6)


def test_a_transaction_ends_when_its_marker_is_committed() -> None:
    log = open_at()
    write(log, 7, 0, b"a")
    append(log, b"b")
    assert end(log, 7, True) == 2
    assert log.producers.open.first_offset is None
    assert [log.last_stable_offset(watermark) for watermark in (0, 1, 2)] == [0, 0, 0]
    assert log.last_stable_offset(3) == 3


def test_transactions_beyond_the_high_watermark_do_not_delay_readers() -> None:
    log = open_at()
    append(log, b"a")
    write(log, 7, 0, b"b")
    assert log.last_stable_offset(1) == 1
    assert log.last_stable_offset(0) == 0


def test_open_transactions_removed_by_retention_do_not_delay_readers() -> None:
    log = open_at(segment_bytes=1024)
    write(log, 7, 0, b"x" * 600)
    for _ in range(4):
        append(log, b"y" * 600)
    log.trim(3)
    assert log.producers.open.first_offset == 0
    assert log.last_stable_offset(log.end_offset) == 3
    write(log, 7, 1, b"z")
    marker = end(log, 7, False)
    assert log.last_stable_offset(log.end_offset) == log.end_offset
    assert log.aborted_between(3, log.end_offset) == [AbortedTransaction(7, 0, marker, marker + 1)]
    assert committed_values(log) == [b"y" * 600] * 2


def test_retention_takes_segments_of_open_transactions_too() -> None:
    log = open_at(segment_bytes=1024, retention_bytes=1)
    write(log, 7, 0, b"x" * 600)
    for _ in range(3):
        append(log, b"y" * 600)
    retention.enforce(log, NOW_MS, log.end_offset)
    assert log.start_offset == 3
    assert log.producers.is_in_transaction(7, 0)
    assert log.last_stable_offset(4) == 3


def test_thousands_of_open_transactions_are_kept_in_order() -> None:
    log = open_at()
    for producer_id in range(3000):
        write(log, producer_id, 0, b"v")
    for producer_id in range(0, 3000, 2):
        end(log, producer_id, True)
    assert log.producers.open.first_offset == 1
    for producer_id in range(1, 3000, 2):
        end(log, producer_id, False)
    assert log.last_stable_offset(log.end_offset) == log.end_offset
    assert len(log.aborted_between(0, log.end_offset)) == 1500


# -- what was aborted


def test_readers_of_committed_records_see_no_others() -> None:
    log = open_at()
    write(log, 7, 0, b"good 1")
    write(log, 8, 0, b"bad 1")
    append(log, b"plain")
    write(log, 8, 1, b"bad 2")
    write(log, 7, 1, b"good 2")
    end(log, 8, False)
    assert committed_values(log) == [], "a transaction is open from the start"
    end(log, 7, True)
    write(log, 8, 2, b"good 3")
    end(log, 8, True)
    write(log, 8, 3, b"open")
    assert committed_values(log) == [b"good 1", b"plain", b"good 2", b"good 3"]
    assert log.aborted_between(0, log.end_offset) == [AbortedTransaction(8, 1, 5, 0)]


def test_exactly_what_was_aborted_in_a_range_is_listed() -> None:
    log = open_at()
    for number in range(4):  # offsets 5n to 5n+3, and the marker
        for row in range(4):
            write(log, 7, 4 * number + row, b"v")
        end(log, 7, False)
    found = [AbortedTransaction(7, 5 * number, 5 * number + 4, 5 * number + 5) for number in range(4)]
    assert log.aborted_between(0, 20) == found
    assert log.aborted_between(0, 5) == found[:1]
    assert log.aborted_between(0, 6) == found[:2]
    assert log.aborted_between(4, 6) == found[:2]
    assert log.aborted_between(5, 11) == found[1:3]
    assert log.aborted_between(7, 8) == found[1:2]
    assert log.aborted_between(19, 20) == found[3:]
    assert log.aborted_between(20, 20) == []


def test_transactions_are_listed_as_they_begin_though_they_end_in_another_order() -> None:
    log = open_at()
    for producer_id in (1, 2, 3):
        write(log, producer_id, 0, b"v")
    for producer_id in (3, 1, 2):
        end(log, producer_id, False)
    assert [(found.producer_id, found.first_offset) for found in log.aborted_between(0, 6)] == [
        (1, 0),
        (2, 1),
        (3, 2),
    ]


def test_a_transaction_that_ends_segments_later_is_listed_for_all_of_them() -> None:
    log = open_at(segment_bytes=1024)
    write(log, 7, 0, b"x" * 600)
    for number in range(6):
        append(log, b"y%0600d" % number)
    write(log, 7, 1, b"x" * 600)
    end(log, 7, False)
    assert len(log.segments) > 6
    for offset in range(8):
        assert [found.producer_id for found in log.aborted_between(offset, offset + 1)] == [7]
    assert committed_values(log) == [b"y%0600d" % number for number in range(6)]


def test_a_marker_that_ends_nothing_changes_nothing() -> None:
    log = open_at()
    write(log, 7, 0, b"a")
    end(log, 7, True)
    end(log, 7, False)  # said twice, or late
    end(log, 9, False)  # it is unknown
    assert log.aborted_between(0, log.end_offset) == []
    assert committed_values(log) == [b"a"]
    write(log, 7, 1, b"b")
    end(log, 7, True)
    assert committed_values(log) == [b"a", b"b"]


def test_a_log_of_plain_batches_has_no_lists() -> None:
    disk = MemoryDisk()
    log = open_at(disk)
    append(log, b"a")
    log.append(sent(7, 0, b"b"), 0, NOW_MS)
    log.append_own(batch(b"c"), 0, NOW_MS)
    assert (log.has_transactions, log.newest_abort) == (False, -1)
    write(log, 8, 0, b"d")
    end(log, 8, True)
    assert not [name for name in disk.names(FOLDER) if name.endswith(".aborted")]
    assert log.newest_abort == -1
    write(log, 8, 1, b"e")
    assert end(log, 8, False) == log.newest_abort == 6
    assert [name for name in disk.names(FOLDER) if name.endswith(".aborted")] == [f"{0:020d}.aborted"]


def test_a_list_goes_with_its_segment() -> None:
    disk = MemoryDisk()
    log = open_at(disk, segment_bytes=1024)
    for number in range(4):
        write(log, 7, number, b"x" * 600)
        end(log, 7, False)
    assert len([name for name in disk.names(FOLDER) if name.endswith(".aborted")]) == 4
    log.trim(log.segments[2].base_offset)
    stems = {name.partition(".")[0] for name in disk.names(FOLDER) if name.endswith(".aborted")}
    assert stems == {f"{segment.base_offset:020d}" for segment in log.segments}
    assert [found.first_offset for found in log.aborted_between(0, log.end_offset)] == [4, 6]


def test_records_are_found_by_time_only_below_the_last_stable_offset() -> None:
    log = open_at()
    append(log, b"a", timestamp_ms=NOW_MS)
    write(log, 7, 0, b"b", timestamp_ms=NOW_MS + 10)
    stable = log.last_stable_offset(log.end_offset)
    assert find_time(log, NOW_MS, stable) == (NOW_MS, 0)
    assert find_time(log, NOW_MS + 5, stable) is None
    assert find_time(log, NOW_MS + 5, log.end_offset) == (NOW_MS + 10, 1)


# -- a full disk


def test_on_a_full_disk_a_transaction_is_not_aborted_by_halves() -> None:
    """The list and the marker are two files: if either write fails, the transaction is open or ended."""
    for free_bytes in range(0, 150):
        disk = FullDisk(MemoryDisk())
        log = open_at(disk)
        write(log, 7, 0, b"a")
        disk.free_bytes = free_bytes
        try:
            end(log, 7, False)
        except StorageError:
            assert log.producers.is_in_transaction(7, 0)
            assert log.aborted_between(0, log.end_offset) == []
            assert (log.end_offset, log.last_stable_offset(1), log.segments[0].aborted.count) == (1, 0, 0)
            disk.free_bytes = 1000
            end(log, 7, True)
            assert committed_values(log) == [b"a"]
        else:
            assert free_bytes >= len(marker_of(7))
            assert committed_values(log) == []


# -- any history


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, str]]:
    steps = draw(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["write", "write", "commit", "abort", "roll"])))
    )
    return list(steps)


@given(steps=histories(), bumps=st.booleans(), max_bytes=st.sampled_from([1, 200, 5000]))
@examples(150, deadline=None)
def test_readers_see_committed_transactions_only(steps: list[tuple[int, str]], bumps: bool, max_bytes: int) -> None:
    """Producer 0 is in no transaction; `bumps`: every marker has a new epoch."""
    log = open_at(index_interval_bytes=0)
    epochs, sequences, open_ = {}, {}, {}
    records: list[tuple[int, bytes, str]] = []
    for number, (producer, what) in enumerate(steps):
        value, epoch = b"%d" % number, epochs.setdefault(producer, 0)
        if what == "roll":
            log.roll(NOW_MS)
        elif producer == 0:
            records.append((append(log, value).base_offset, value, "plain"))
        elif what == "write":
            sequence = sequences.get((producer, epoch), 0)
            offset = write(log, producer, sequence, value, epoch=epoch).base_offset
            sequences[producer, epoch] = sequence + 1
            open_.setdefault(producer, offset)
            records.append((offset, value, f"open {producer}"))
        else:
            epochs[producer] = epoch + bumps
            end(log, producer, what == "commit", epoch=epoch + bumps)
            open_.pop(producer, None)
            records = [(at, v, what if state == f"open {producer}" else state) for at, v, state in records]
    stable = min(open_.values(), default=log.end_offset)
    assert log.last_stable_offset(log.end_offset) == stable
    seen = [value for offset, value, state in records if offset < stable and state in ("plain", "commit")]
    assert committed_values(log, max_bytes=max_bytes) == seen
    aborted = log.aborted_between(0, stable)
    assert all(read_header(log.read(entry.last_offset, 1, ENDLESS)).is_control for entry in aborted)
