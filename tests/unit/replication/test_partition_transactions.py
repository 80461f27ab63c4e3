"""Transactions in one partition: markers, what they change for readers, and their callbacks."""

from collections.abc import Callable

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    StorageError,
    TransactionCoordinatorFenced,
)
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import batches
from penstock.records.build import read_marker
from penstock.replication.partition import Partition

from ..log.builders import NOW_MS, batch, committed_values, headers_from, open_at, records_in, sent

SEVEN = ProducerKey(7, 0)
EIGHT = ProducerKey(8, 0)


def partition(**values: object) -> Partition:
    log = open_at(**values)
    return Partition(topic_id=b"\1" * 16, name=TopicPartition("orders", 3), leader_epoch=5, log=log)


def write(one: Partition, producer: ProducerKey, sequence: int, value: bytes) -> int:
    data = sent(producer.producer_id, sequence, value, epoch=producer.epoch, transactional=True)
    return one.append(data, NOW_MS, may_begin=True).base_offset


def watched(one: Partition, calls: list[int]) -> Callable[[], None]:
    return lambda: calls.append(one.last_stable_offset)


# -- the broker's own batches


def test_a_batch_of_the_brokers_own_is_committed_like_any_other() -> None:
    at_once = partition(flush="os")
    assert at_once.append_own(batch(b"a"), NOW_MS).base_offset == 0
    assert at_once.high_watermark == 1
    flushed = partition(flush="group")
    asked: list[Partition] = []
    flushed.on_append = asked.append
    flushed.append_own(batch(b"a"), NOW_MS)
    assert (flushed.high_watermark, asked) == (0, [flushed])
    assert flushed.log.epochs.entries == [(5, 0)]


def test_watchers_are_called_when_a_batch_of_the_broker_itself_is_committed() -> None:
    one, calls = partition(), list[int]()
    one.watch(watched(one, calls))
    one.when_committed(1, watched(one, calls))
    one.append_own(batch(b"a"), NOW_MS)
    assert calls == [1, 1]


def test_a_partition_that_is_offline_takes_no_markers() -> None:
    one = partition()
    one.go_offline("the disk is gone")
    for asking in (
        lambda: one.append_own(batch(), NOW_MS),
        lambda: one.write_marker(SEVEN, True, 0, NOW_MS),
        lambda: one.log.producers.marker_offset(7),
        lambda: one.last_stable_offset,
    ):
        with pytest.raises(StorageError, match="orders-3 is offline: the disk is gone"):
            asking()


# -- markers


def test_a_marker_ends_a_transaction_and_calls_back() -> None:
    one, calls = partition(), list[tuple[int, bool]]()
    one.on_marker = lambda producer_id, committed: calls.append((producer_id, committed))
    write(one, SEVEN, 0, b"a")
    write(one, EIGHT, 0, b"b")
    assert one.write_marker(SEVEN, True, 3, NOW_MS).base_offset == 2
    assert one.write_marker(EIGHT, False, 4, NOW_MS).base_offset == 3
    assert calls == [(7, True), (8, False)]
    data = one.read(2, 9999)
    found = [(header.producer_id, read_marker(data[at:])) for at, header in batches(data)]
    assert found == [(7, (True, 3)), (8, (False, 4))]
    assert [header.is_transactional and header.is_control for header in headers_from(one.log, 2)] == [True, True]
    assert committed_values(one.log) == [b"a"]


def test_a_marker_is_in_the_log_before_its_callback() -> None:
    one, calls = partition(), list[tuple[int, int]]()
    one.on_marker = lambda producer_id, committed: calls.append((one.log.end_offset, one.last_stable_offset))
    write(one, SEVEN, 0, b"a")
    one.write_marker(SEVEN, True, 0, NOW_MS)
    assert calls == [(2, 2)]


def test_a_marker_that_is_written_twice_does_no_harm() -> None:
    one = partition()
    write(one, SEVEN, 0, b"a")
    for _ in range(3):
        one.write_marker(SEVEN, True, 0, NOW_MS)
    one.write_marker(SEVEN, False, 0, NOW_MS)
    assert one.last_stable_offset == one.high_watermark == 5
    assert committed_values(one.log) == [b"a"]


def test_a_marker_where_nothing_was_written_does_no_harm() -> None:
    one = partition()
    assert one.write_marker(SEVEN, False, 0, NOW_MS).base_offset == 0
    assert one.last_stable_offset == 1
    assert one.log.aborted_between(0, 1) == []


def test_an_older_instance_of_a_producer_has_no_say() -> None:
    one, calls = partition(), list[int]()
    one.on_marker = lambda producer_id, committed: calls.append(producer_id)
    write(one, ProducerKey(7, 2), 0, b"a")
    with pytest.raises(InvalidProducerEpoch, match="has epoch 1, its newer instance has 2") as refused:
        one.write_marker(ProducerKey(7, 1), True, 0, NOW_MS)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (one.log.end_offset, calls, one.last_stable_offset) == (1, [], 0)


def test_an_older_coordinator_has_no_say() -> None:
    one = partition()
    write(one, SEVEN, 0, b"a")
    one.write_marker(SEVEN, True, 4, NOW_MS)
    write(one, SEVEN, 1, b"b")
    with pytest.raises(TransactionCoordinatorFenced) as refused:
        one.write_marker(SEVEN, False, 3, NOW_MS)
    assert refused.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert one.last_stable_offset == 2
    one.write_marker(SEVEN, True, 4, NOW_MS)
    assert committed_values(one.log) == [b"a", b"b"]


def test_a_marker_with_a_bumped_epoch_gives_the_producer_that_epoch() -> None:
    """KIP-890: so that nothing that is late becomes part of the next transaction."""
    one = partition()
    write(one, SEVEN, 0, b"a")
    bumped = ProducerKey(7, 1)
    one.write_marker(bumped, True, 0, NOW_MS, transaction_version=2)
    with pytest.raises(InvalidProducerEpoch):
        write(one, SEVEN, 1, b"late")
    write(one, bumped, 0, b"b")
    with pytest.raises(InvalidProducerEpoch):
        one.write_marker(bumped, True, 0, NOW_MS, transaction_version=2)  # the first one, come late
    assert one.log.producers.is_in_transaction(7, 1)
    one.write_marker(ProducerKey(7, 2), False, 0, NOW_MS, transaction_version=2)
    one.write_marker(ProducerKey(7, 2), False, 0, NOW_MS, transaction_version=2)  # again: nothing is open
    assert committed_values(one.log) == [b"a"]


# -- which producers may begin


def test_a_transaction_begins_in_partitions_that_the_coordinator_has_added() -> None:
    one = partition()
    with pytest.raises(InvalidTxnState, match="not part of an ongoing transaction") as refused:
        one.append(sent(7, 0, b"a", transactional=True), NOW_MS)
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE
    write(one, SEVEN, 0, b"a")
    one.append(sent(7, 1, b"b", transactional=True), NOW_MS)
    one.write_marker(SEVEN, True, 0, NOW_MS)
    with pytest.raises(InvalidTxnState):
        one.append(sent(7, 2, b"c", transactional=True), NOW_MS)


def test_a_guard_changes_with_every_marker_of_its_producer_and_with_no_other() -> None:
    one = partition()
    markers = [one.log.producers.marker_offset(7)]
    write(one, SEVEN, 0, b"a")
    write(one, EIGHT, 0, b"b")
    assert one.log.producers.marker_offset(7) == markers[0]
    for _ in range(3):
        one.write_marker(SEVEN, True, 0, NOW_MS)
        markers.append(one.log.producers.marker_offset(7))
        one.write_marker(EIGHT, False, 0, NOW_MS)
        assert one.log.producers.marker_offset(7) == markers[-1]
    assert len(set(markers)) == 4


# -- what readers see


def test_readers_of_committed_records_stop_where_a_transaction_is_open() -> None:
    one = partition()
    one.append(batch(b"a"), NOW_MS)
    write(one, SEVEN, 0, b"b")
    one.append(batch(b"c"), NOW_MS)
    assert (one.last_stable_offset, one.high_watermark) == (1, 3)
    assert [record.value for record in records_in(one.read(0, 9999))] == [b"a", b"b", b"c"]
    assert [record.value for record in records_in(one.read(0, 9999, stable=True))] == [b"a"]
    assert one.read(1, 9999, stable=True) == b""
    assert one.read(2, 9999, stable=True) == b"", "behind the last stable offset there is nothing yet"
    one.write_marker(SEVEN, True, 0, NOW_MS)
    assert one.last_stable_offset == 4
    assert len(list(batches(one.read(0, 9999, stable=True)))) == 4


def test_without_transactions_everything_committed_is_stable() -> None:
    one = partition(flush="group")
    one.append(batch(b"a"), NOW_MS)
    one.append(sent(7, 0, b"b"), NOW_MS)
    assert one.last_stable_offset == 0
    one.advance(1)
    assert one.last_stable_offset == 1
    one.advance(2)
    assert one.last_stable_offset == 2


def test_a_transaction_is_over_when_its_marker_is_committed_and_not_before() -> None:
    one = partition(flush="group")
    write(one, SEVEN, 0, b"a")
    one.append(batch(b"b"), NOW_MS)
    one.advance(2)
    assert one.last_stable_offset == 0
    one.write_marker(SEVEN, True, 0, NOW_MS)
    one.append(batch(b"c"), NOW_MS)
    assert one.last_stable_offset == 0, "a marker that no follower has may yet be lost"
    one.advance(3)
    assert one.last_stable_offset == 3
    one.advance(4)
    assert one.last_stable_offset == 4


def test_a_younger_transaction_that_is_decided_waits_for_an_older_one_that_is_not() -> None:
    one = partition(flush="group")
    write(one, SEVEN, 0, b"a")
    write(one, EIGHT, 0, b"b")
    one.write_marker(EIGHT, True, 0, NOW_MS)
    one.advance(3)
    assert one.last_stable_offset == 0
    one.write_marker(SEVEN, True, 0, NOW_MS)
    assert one.last_stable_offset == 0
    one.advance(4)
    assert one.last_stable_offset == 4


@pytest.mark.parametrize("flush", ["os", "group"])
def test_watchers_are_called_when_the_last_stable_offset_moves(flush: str) -> None:
    one, calls = partition(flush=flush), list[int]()
    write(one, SEVEN, 0, b"a")
    one.append(batch(b"b"), NOW_MS)
    one.advance(2)
    one.watch(watched(one, calls))
    one.write_marker(SEVEN, False, 0, NOW_MS)
    one.advance(3)
    assert calls == [3]


def test_a_trim_over_an_open_transaction_moves_the_last_stable_offset_with_the_start() -> None:
    one = partition()
    write(one, SEVEN, 0, b"a")
    for value in (b"b", b"c"):
        one.append(batch(value), NOW_MS)
    one.log.trim(2)
    assert one.last_stable_offset == 2
    assert one.read(2, 9999, stable=True) == b""


def test_ended_transactions_are_forgotten() -> None:
    one = partition()
    for number in range(50):
        write(one, SEVEN, number, b"v")
        one.write_marker(SEVEN, number % 2 == 0, 0, NOW_MS)
    assert one.log.producers.open.ended == []
    flushed = partition(flush="group")
    for number in range(50):
        write(flushed, SEVEN, number, b"v")
        flushed.write_marker(SEVEN, True, 0, NOW_MS)
        flushed.advance(flushed.log.end_offset - 4)
    assert len(flushed.log.producers.open.ended) <= 4
