"""The leader's side of one partition: commits, watchers, and going offline."""

from collections.abc import Callable

import pytest

from penstock.cluster.image import PartitionState
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError, StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.log import Log
from penstock.replication.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from penstock.replication.partition import Partition

from ..log.builders import NOW_MS, batch, open_at, records_in, sent, settings

NAME = TopicPartition("orders", 3)


def partition_of(log: Log | None, leader_epoch: int = 5) -> Partition:
    return Partition(topic_id=b"\1" * 16, name=NAME, leader_epoch=leader_epoch, log=log)


def partition(**values: object) -> Partition:
    return partition_of(open_at(**values))


class Calls(list[str]):
    """The calls, in order."""

    def __call__(self, name: str) -> Callable[[], None]:
        return lambda: self.append(name)


# -- what is committed


def test_records_from_before_the_start_are_committed() -> None:
    log = open_at()
    log.append(batch(b"a", b"b"), 0, NOW_MS)
    assert partition_of(log).high_watermark == 2


def test_an_append_is_committed_at_once_unless_it_is_flushed_first() -> None:
    at_once = partition(flush="os")
    at_once.append(batch(b"a", b"b"), NOW_MS)
    assert at_once.high_watermark == 2
    flushed = partition(flush="group")
    asked: list[Partition] = []
    flushed.on_append = asked.append
    flushed.append(batch(b"a", b"b"), NOW_MS)
    assert flushed.high_watermark == 0
    assert asked == [flushed]


def test_batches_are_appended_under_the_leaders_epoch() -> None:
    one = partition()
    one.append(batch(), NOW_MS)
    assert one.log.epochs.entries == [(5, 0)]


def test_nothing_above_the_high_watermark_is_read() -> None:
    one = partition(flush="group")
    for value in (b"a", b"b"):
        one.append(batch(value), NOW_MS)
    assert one.read(0, 9999) == b""
    one.advance(1)
    assert [record.value for record in records_in(one.read(0, 9999))] == [b"a"]


def test_the_high_watermark_never_retreats() -> None:
    one = partition(flush="group")
    for _ in range(3):
        one.append(batch(), NOW_MS)
    calls = Calls()
    one.watch(calls("x"))
    one.advance(2)
    one.watch(calls("y"))
    one.advance(1)
    one.advance(2)
    assert one.high_watermark == 2
    assert calls == ["x"]


def test_a_batch_that_is_sent_again_before_it_is_committed_asks_for_its_flush_again() -> None:
    one = partition(flush="group")
    asked: list[Partition] = []
    one.on_append = asked.append
    one.append(sent(7, 0, b"x"), NOW_MS)
    assert one.append(sent(7, 0, b"x"), NOW_MS).repeated
    assert len(asked) == 2
    one.advance(1)
    one.append(sent(7, 0, b"x"), NOW_MS)
    assert len(asked) == 2


# -- watchers


def test_watchers_of_an_offset_are_called_once_in_order() -> None:
    one, calls = partition(flush="group"), Calls()
    for _ in range(5):
        one.append(batch(), NOW_MS)
    for name, end_offset in (("c", 3), ("a", 1), ("b", 2), ("b again", 2)):
        one.when_committed(end_offset, calls(name))
    one.advance(2)
    assert calls == ["a", "b", "b again"]
    one.advance(4)
    one.advance(5)
    assert calls == ["a", "b", "b again", "c"]


def test_a_late_watcher_is_called_at_once() -> None:
    one, calls = partition(flush="os"), Calls()
    one.append(batch(), NOW_MS)
    one.when_committed(1, calls("late"))
    assert calls == ["late"]


def test_watchers_are_called_at_the_next_advance_and_not_again() -> None:
    one, calls = partition(), Calls()
    one.watch(calls("a"))
    one.watch(calls("b"))
    one.append(batch(), NOW_MS)
    one.append(batch(), NOW_MS)
    assert calls == ["a", "b"]


def test_a_removed_watcher_is_not_called() -> None:
    one, calls = partition(), Calls()
    ticket = one.watch(calls("a"))
    one.watch(calls("b"))
    one.unwatch(ticket)
    one.unwatch(ticket)
    one.append(batch(), NOW_MS)
    assert calls == ["b"]


def test_a_watcher_may_watch_again_and_append() -> None:
    one, calls = partition(), Calls()

    def again() -> None:
        calls.append("called")
        if len(calls) < 3:
            one.watch(again)
            one.append(batch(), NOW_MS)

    one.watch(again)
    one.append(batch(), NOW_MS)
    assert calls == ["called"] * 3
    assert one.high_watermark == one.log.end_offset == 3


# -- offline


def test_offline_wakes_everyone_and_answers_with_a_storage_error() -> None:
    one, calls = partition(flush="group"), Calls()
    one.append(batch(), NOW_MS)
    one.watch(calls("watcher"))
    one.when_committed(1, calls("waiter"))
    one.when_committed(99, calls("waiter for more"))
    one.go_offline("the disk is gone")
    assert sorted(calls) == ["waiter", "waiter for more", "watcher"]
    assert not one.is_online
    for asking in (lambda: one.append(batch(), NOW_MS), lambda: one.read(0, 1), lambda: one.log):
        with pytest.raises(StorageError, match="orders-3 is offline: the disk is gone") as refused:
            asking()
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_watcher_of_an_offline_partition_is_called_at_once() -> None:
    one, calls = partition_of(None), Calls()
    one.when_committed(1, calls("waiter"))
    assert calls == ["waiter"]


def test_a_partition_without_a_log_is_offline_from_the_start() -> None:
    one = partition_of(None)
    assert (one.is_online, one.high_watermark) == (False, 0)


# -- epochs (KIP-320)


@pytest.mark.parametrize(
    ("epoch", "error", "code"),
    [
        (4, FencedLeaderEpoch, ErrorCode.FENCED_LEADER_EPOCH),
        (0, FencedLeaderEpoch, ErrorCode.FENCED_LEADER_EPOCH),
        (6, UnknownLeaderEpoch, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_client_that_names_another_epoch_is_refused(
    epoch: int, error: type[PenstockError], code: ErrorCode
) -> None:
    with pytest.raises(error, match=f"has leader epoch 5, the request has {epoch}") as refused:
        partition().check_epoch(epoch)
    assert refused.value.code is code


def test_a_client_that_names_this_epoch_or_none_is_served() -> None:
    one = partition()
    one.check_epoch(5)
    one.check_epoch(-1)
    one.lead(PartitionState(replicas=(1,), leader=1, leader_epoch=6, isr=(1,)), 1, 1000, NOW_MS)
    with pytest.raises(FencedLeaderEpoch):
        one.check_epoch(5)
    assert one.leader_epoch == 6


# -- settings


@pytest.mark.parametrize(
    ("values", "allows_fast_path"),
    [
        ({}, True),
        ({"flush": "group"}, False),
        ({"cleanup_policy": "compact"}, False),
        ({"compression_type": "gzip"}, False),
        ({"message_timestamp_type": "LogAppendTime"}, False),
    ],
)
def test_the_fast_path_is_for_batches_that_need_no_decompression_and_no_waiting(
    values: dict[str, str], allows_fast_path: bool
) -> None:
    one = partition()
    assert not one.allows_fast_path
    one.configure(settings(**values))
    assert one.allows_fast_path is allows_fast_path
    one.go_offline("gone")
    assert not one.allows_fast_path
    one.configure(settings())
    assert not one.allows_fast_path


def test_new_settings_reach_the_log() -> None:
    one = partition()
    one.configure(settings(max_message_bytes=10))
    with pytest.raises(PenstockError, match=r"max.message.bytes is 10"):
        one.append(batch(), NOW_MS)


def test_a_topic_that_stops_flushing_commits_what_waited() -> None:
    one, calls = partition(flush="group"), Calls()
    one.append(batch(), NOW_MS)
    one.when_committed(1, calls("waiter"))
    one.configure(settings(flush="os"))
    one.append(batch(), NOW_MS)
    assert one.high_watermark == 2
    assert calls == ["waiter"]
