import threading

import pytest

from penstock.api.core.handled import HandledFilter, SqliteHandled
from penstock.api.errors import Closed, InvalidArgument, NotConnected
from penstock.foundation.codes import ErrorCode

from .buffer_harness import OTHER, PLACE, BufferHarness, arrived


def test_messages_come_in_order_with_everything_they_say() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(4, tag="eu"), arrived(5))
    first, second = harness.one(), harness.one()
    assert (first.topic, first.partition, first.offset, first.tag) == ("orders", 0, 4, "eu")
    assert (first.timestamp_ms, first.value, first.key, first.attempt) == (1004, b"4", None, 1)
    assert (second.offset, second.headers) == (5, ())


def test_messages_of_revoked_partitions_are_dropped() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(4, OTHER), arrived(5))
    assert harness.one().offset == 5


def test_only_messages_with_a_selected_tag_are_delivered_and_others_count_as_finished() -> None:
    harness = BufferHarness(tags=frozenset({"eu", "uk"}), idle_timeout_s=5)
    harness.source.join(PLACE)
    harness.source.bring(arrived(0, tag="us"), arrived(1, tag="uk"), arrived(2), arrived(3, tag="eu"), arrived(4))
    assert [harness.one().offset, harness.one().offset] == [1, 3]
    assert harness.next() == []
    assert harness.source.committed == {PLACE: 5}


def test_a_loop_ends_when_it_has_had_enough() -> None:
    harness = BufferHarness(limit=2)
    harness.source.join(PLACE)
    harness.source.bring(*(arrived(offset) for offset in range(5)))
    assert [harness.one().offset, harness.one().offset] == [0, 1]
    assert harness.source.committed == {}
    assert harness.next(steps=1) == []
    assert harness.source.committed == {PLACE: 2}


def test_a_loop_ends_when_nothing_has_come_for_long_enough() -> None:
    harness = BufferHarness(idle_timeout_s=3)
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    harness.one()
    harness.clock.advance(60_000)  # the work took a minute: that is not idling
    began_s = harness.clock.monotonic_s()
    assert harness.next() == []
    assert 3 <= harness.clock.monotonic_s() - began_s < 4


def test_a_loop_is_not_idle_while_something_that_is_there_does_not_come() -> None:
    harness = BufferHarness(idle_timeout_s=3)
    harness.source.join(PLACE)
    harness.source.is_at_end = False
    began_s = harness.clock.monotonic_s()
    assert harness.next(steps=1000) == []
    assert 30 <= harness.clock.monotonic_s() - began_s < 31  # when the connection's patience ends


def test_idling_begins_when_it_is_known_which_partitions_are_ours() -> None:
    harness = BufferHarness(idle_timeout_s=3)
    assert harness.next(steps=20) == []  # ten seconds
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    assert harness.one().offset == 0


def test_a_group_that_never_comes_together_is_an_error() -> None:
    harness = BufferHarness(idle_timeout_s=3)
    with pytest.raises(NotConnected, match="penstock group describe") as caught:
        harness.next(steps=1000)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_message_that_is_retried_comes_again_next_and_is_not_committed() -> None:
    harness = BufferHarness(idle_timeout_s=5)
    harness.source.join(PLACE)
    harness.source.bring(arrived(0), arrived(1))
    harness.one().retry()
    harness.clock.advance(5000)
    again = harness.one()
    assert (again.offset, again.attempt) == (0, 2)
    assert harness.source.commits == [("later", {PLACE: 0})]
    again.retry()
    assert harness.one().attempt == 3
    assert harness.one().offset == 1
    assert harness.next() == []
    assert harness.source.committed == {PLACE: 2}


def test_in_order_means_that_the_others_wait_for_a_delayed_retry() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(0), arrived(1))
    harness.one().retry(delay_s=2)
    assert harness.next(steps=1) == []
    harness.clock.advance(2000)
    assert [harness.one().offset, harness.one().offset] == [0, 1]


def test_a_retry_lies_in_the_future_and_is_asked_for_once() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    message = harness.one()
    with pytest.raises(InvalidArgument, match="negative"):
        message.retry(delay_s=-1)
    message.retry()
    with pytest.raises(InvalidArgument, match="was retried before"):
        message.retry()
    again = harness.one()
    again.done()
    again.done()
    with pytest.raises(InvalidArgument, match="is finished"):
        again.retry()


def test_several_messages_may_be_in_flight_and_are_finished_one_by_one() -> None:
    harness = BufferHarness(max_in_flight=2, idle_timeout_s=5)
    harness.source.join(PLACE)
    harness.source.bring(*(arrived(offset) for offset in range(3)))
    first, second = harness.one(), harness.one()
    assert harness.next(steps=1) == []
    assert harness.source.paused_polls == 1  # the group must not think that we are dead
    second.done()
    harness.clock.advance(2000)
    third = harness.one()
    assert harness.source.commits == [("later", {PLACE: 0})]
    first.done()
    third.done()
    assert harness.next() == []
    assert harness.source.committed == {PLACE: 3}


def test_a_loop_is_not_over_while_something_is_in_flight() -> None:
    harness = BufferHarness(max_in_flight=2, idle_timeout_s=1)
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    message = harness.one()
    assert harness.next(steps=20) == []
    assert not harness.source.committed
    message.done()
    assert harness.next(steps=20) == []
    assert harness.source.committed == {PLACE: 1}


def test_retries_that_wait_take_up_their_places_in_flight() -> None:
    harness = BufferHarness(max_in_flight=2)
    harness.source.join(PLACE)
    harness.source.bring(*(arrived(offset) for offset in range(5)))
    for _ in range(2):
        harness.one().retry(delay_s=60)
    assert harness.next(steps=1) == []
    harness.clock.advance(60_000)
    assert sorted([harness.one().offset, harness.one().offset]) == [0, 1]


def test_finishing_a_message_on_another_thread_wakes_the_loop() -> None:
    harness = BufferHarness(max_in_flight=1000)
    harness.source.join(PLACE)
    for start in range(0, 1000, 100):
        harness.source.bring(*(arrived(offset) for offset in range(start, start + 100)))
    given = [harness.one() for _ in range(1000)]
    threads = [
        threading.Thread(target=lambda part: [each.done() for each in part], args=(given[n::4],)) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for _ in range(50):
        harness.commits.commit_due()  # which looks at what they change
    for thread in threads:
        thread.join()
    harness.buffer.close()
    assert harness.source.committed == {PLACE: 1000}


def test_a_partition_that_goes_is_committed_first_and_its_messages_are_forgotten() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE, OTHER)
    harness.source.bring(arrived(0), arrived(0, OTHER), arrived(1), arrived(2))
    harness.one()
    harness.one()
    harness.buffer.finish_delivered()
    harness.buffer.on_revoked([PLACE])
    assert harness.source.committed == {PLACE: 1}
    assert harness.next(steps=1) == []


def test_nothing_is_committed_for_a_partition_that_is_lost() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(0), arrived(1))
    message = harness.one()
    message.retry()
    harness.buffer.on_lost([PLACE])
    assert harness.source.commits == []
    assert harness.next(steps=1) == []
    harness.source.join(PLACE)
    message.done()
    harness.buffer.close()
    assert harness.source.committed == {}


def test_a_retry_that_goes_with_its_partition_does_not_count_towards_the_limit() -> None:
    harness = BufferHarness(limit=1)
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    harness.one().retry(delay_s=60)
    harness.buffer.on_lost([PLACE])
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    assert harness.one().offset == 0
    assert harness.next() == []
    assert harness.source.committed == {PLACE: 1}


def test_a_message_retried_after_its_partition_was_lost_does_not_count_towards_the_limit() -> None:
    harness = BufferHarness(limit=1)
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    message = harness.one()
    harness.buffer.on_lost([PLACE])
    message.retry()
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    assert harness.one().offset == 0
    assert harness.next() == []
    assert harness.source.committed == {PLACE: 1}


def test_no_other_thread_can_finish_a_message_while_it_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    message = harness.one()
    is_free: list[bool] = []

    def retry(_: object) -> bool:
        thread = threading.Thread(target=lambda: is_free.append(harness.tracker.lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        return False

    monkeypatch.setattr(harness.buffer.commits, "retry", retry)
    message.retry()
    assert is_free == [False]
    assert harness.one().attempt == 2


def test_a_member_that_was_busy_for_too_long_handles_the_rebalance_first() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(0), arrived(1))
    harness.one()
    harness.source.is_overdue = True  # and another member has the partition
    assert harness.next(steps=2) == []
    assert harness.source.commits == []


def test_the_current_message_at_the_end_is_not_committed_unless_it_is_done() -> None:
    for is_done in (False, True):
        harness = BufferHarness()
        harness.source.join(PLACE)
        harness.source.bring(arrived(0), arrived(1), arrived(2))
        harness.one()
        message = harness.one()
        if is_done:
            message.done()
        harness.buffer.close()
        assert harness.source.committed == {PLACE: 2 if is_done else 1}
        assert harness.source.is_closed


def test_finishing_a_message_after_the_end_raises_since_it_comes_again() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    message = harness.one()
    harness.buffer.close()
    harness.buffer.close()
    with pytest.raises(Closed, match="it is delivered again"):
        message.done()


def test_batches_are_as_large_as_what_is_there() -> None:
    harness = BufferHarness(idle_timeout_s=5)
    harness.source.join(PLACE)
    harness.source.bring(*(arrived(offset) for offset in range(5)))
    assert [message.offset for message in harness.next(3)] == [0, 1, 2]
    assert [message.offset for message in harness.next(3)] == [3, 4]
    assert harness.next(3) == []
    assert harness.source.committed == {PLACE: 5}


# -- what was handled before


def handled_filter(store: SqliteHandled) -> HandledFilter:
    return HandledFilter(lambda message: (message.value or b"")[:1], store, None)


def test_a_message_that_was_handled_is_passed_over() -> None:
    store = SqliteHandled()
    store.mark(b"2")
    harness = BufferHarness(handled_filter=handled_filter(store), idle_timeout_s=5)
    harness.source.join(PLACE)
    harness.source.bring(arrived(1), arrived(2), arrived(3), arrived(11))
    assert [harness.one().offset, harness.one().offset] == [1, 3]
    assert harness.next() == []  # 11 is the same as 1
    assert harness.source.committed == {PLACE: 12}
    store.close()


def test_a_message_is_marked_when_it_is_finished_and_not_before() -> None:
    store = SqliteHandled()
    harness = BufferHarness(handled_filter=handled_filter(store))
    harness.source.join(PLACE)
    harness.source.bring(arrived(1), arrived(2))
    harness.one()
    assert not store.seen(b"1")
    message = harness.one()
    assert store.seen(b"1")
    assert not store.seen(b"2")
    message.retry()
    assert not store.seen(b"2")
    harness.one().done()
    assert store.seen(b"2")
    store.close()


def test_a_concurrent_duplicate_waits_for_the_outcome_of_the_first() -> None:
    for first_fails in (False, True):
        store = SqliteHandled()
        harness = BufferHarness(handled_filter=handled_filter(store), max_in_flight=5)
        harness.source.join(PLACE)
        harness.source.bring(arrived(1), arrived(10))
        first = harness.one()
        assert harness.next(steps=1) == []
        if first_fails:
            first.retry(delay_s=60)
            assert harness.one().offset == 10
        else:
            first.done()
            assert harness.next(steps=1) == []
            assert store.seen(b"1")
        store.close()


# -- at most once


def test_at_most_once_commits_before_it_delivers() -> None:
    harness = BufferHarness("before")
    harness.source.join(PLACE, OTHER)
    harness.source.bring(arrived(0), arrived(1), arrived(7, OTHER))
    harness.one()
    assert harness.source.commits == [("now", {PLACE: 2, OTHER: 8})]


def test_at_most_once_hands_nothing_over_that_could_not_be_committed() -> None:
    harness = BufferHarness("before")
    harness.source.join(PLACE)
    harness.source.refusing.add(PLACE)
    harness.source.bring(arrived(0))
    assert harness.next(steps=3) == []
    assert not harness.source.committed
    harness.source.refusing.clear()
    harness.clock.advance(1000)
    assert harness.one().offset == 0
    assert harness.source.committed == {PLACE: 1}


def test_at_most_once_does_not_commit_undelivered_messages() -> None:
    harness = BufferHarness("before")
    harness.source.join(PLACE, OTHER)
    harness.source.bring(arrived(0), arrived(0, OTHER), arrived(1), arrived(1, OTHER))
    harness.one()
    harness.buffer.on_revoked([OTHER])
    assert harness.source.committed == {PLACE: 2, OTHER: 0}
    harness.buffer.close()
    assert harness.source.committed == {PLACE: 1, OTHER: 0}


def test_at_most_once_cannot_redeliver() -> None:
    harness = BufferHarness("before")
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    with pytest.raises(InvalidArgument, match="delivery='at-least-once'"):
        harness.one().retry()


# -- alone


def test_a_lone_reader_commits_nothing_and_may_retry() -> None:
    harness = BufferHarness("never", idle_timeout_s=5)
    harness.source.join(PLACE)
    harness.source.bring(arrived(0), arrived(1))
    harness.one().retry()
    assert [harness.one().offset, harness.one().offset] == [0, 1]
    assert harness.next() == []
    harness.buffer.on_revoked([PLACE])
    harness.buffer.close()
    assert harness.source.commits == []


# -- commits


def test_commits_are_gathered_for_a_while() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(*(arrived(offset) for offset in range(100)))
    for _ in range(50):
        harness.one()
        harness.clock.advance(100)
    assert [offsets[PLACE] for _, offsets in harness.source.commits] == [10, 20, 30, 40]


def test_a_commit_that_failed_is_asked_for_again() -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.bring(arrived(0))
    harness.one()
    harness.buffer.finish_delivered()
    harness.clock.advance(1000)
    harness.buffer.catch_up()
    harness.clock.advance(1000)
    harness.buffer.catch_up()
    assert harness.source.commits == [("later", {PLACE: 1})]
    harness.buffer.on_commit_result(PLACE, 1, is_committed=False)
    harness.clock.advance(1000)
    harness.buffer.catch_up()
    assert harness.source.commits == [("later", {PLACE: 1})] * 2


def test_a_commit_that_fails_at_the_end_is_only_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    harness = BufferHarness()
    harness.source.join(PLACE)
    harness.source.refusing.add(PLACE)
    harness.source.bring(arrived(0))
    harness.one().done()
    harness.buffer.close()
    assert "commit_failed partition=orders-0" in caplog.text
    assert harness.source.is_closed
