import threading

import pytest

from penstock.api.core.handled import HandledFilter, SqliteHandled
from penstock.api.errors import Closed, InvalidArgument, NotConnected
from penstock.foundation.codes import ErrorCode

from .playing import OTHER, PLACE, Stage, arrived


def test_messages_come_in_order_with_everything_they_say() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(arrived(4, tag="eu"), arrived(5))
    first, second = stage.one(), stage.one()
    assert (first.topic, first.partition, first.offset, first.tag) == ("orders", 0, 4, "eu")
    assert (first.timestamp_ms, first.value, first.key, first.attempt) == (1004, b"4", None, 1)
    assert (second.offset, second.headers) == (5, ())


def test_what_belongs_to_somebody_else_by_now_is_dropped() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(arrived(4, OTHER), arrived(5))
    assert stage.one().offset == 5


def test_only_messages_with_a_wanted_tag_are_handed_over_and_the_others_count_as_finished() -> None:
    stage = Stage(tags=frozenset({"eu", "uk"}), idle_timeout_s=5)
    stage.source.join(PLACE)
    stage.source.bring(arrived(0, tag="us"), arrived(1, tag="uk"), arrived(2), arrived(3, tag="eu"), arrived(4))
    assert [stage.one().offset, stage.one().offset] == [1, 3]
    assert stage.next() == []
    assert stage.source.committed == {PLACE: 5}


def test_a_loop_ends_when_it_has_had_enough() -> None:
    stage = Stage(limit=2)
    stage.source.join(PLACE)
    stage.source.bring(*(arrived(offset) for offset in range(5)))
    assert [stage.one().offset, stage.one().offset] == [0, 1]
    assert stage.source.committed == {}
    assert stage.next(steps=1) == []
    assert stage.source.committed == {PLACE: 2}


def test_a_loop_ends_when_nothing_has_come_for_long_enough() -> None:
    stage = Stage(idle_timeout_s=3)
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    stage.one()
    stage.clock.advance(60_000)  # the work took a minute: that is not idling
    began_s = stage.clock.monotonic_s()
    assert stage.next() == []
    assert 3 <= stage.clock.monotonic_s() - began_s < 4


def test_a_loop_is_not_idle_while_something_that_is_there_does_not_come() -> None:
    stage = Stage(idle_timeout_s=3)
    stage.source.join(PLACE)
    stage.source.is_at_end = False
    began_s = stage.clock.monotonic_s()
    assert stage.next(steps=1000) == []
    assert 30 <= stage.clock.monotonic_s() - began_s < 31  # when the connection's patience ends


def test_idling_begins_when_it_is_known_which_partitions_are_ours() -> None:
    stage = Stage(idle_timeout_s=3)
    assert stage.next(steps=20) == []  # ten seconds
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    assert stage.one().offset == 0


def test_a_group_that_never_comes_together_is_an_error() -> None:
    stage = Stage(idle_timeout_s=3)
    with pytest.raises(NotConnected, match="penstock group describe") as caught:
        stage.next(steps=1000)
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_message_that_is_retried_comes_again_next_and_is_not_committed() -> None:
    stage = Stage(idle_timeout_s=5)
    stage.source.join(PLACE)
    stage.source.bring(arrived(0), arrived(1))
    stage.one().retry()
    stage.clock.advance(5000)
    again = stage.one()
    assert (again.offset, again.attempt) == (0, 2)
    assert stage.source.commits == [("later", {PLACE: 0})]
    again.retry()
    assert stage.one().attempt == 3
    assert stage.one().offset == 1
    assert stage.next() == []
    assert stage.source.committed == {PLACE: 2}


def test_in_order_means_that_the_others_wait_for_a_delayed_retry() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(arrived(0), arrived(1))
    stage.one().retry(delay_s=2)
    assert stage.next(steps=1) == []
    stage.clock.advance(2000)
    assert [stage.one().offset, stage.one().offset] == [0, 1]


def test_a_retry_lies_in_the_future_and_is_asked_for_once() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    message = stage.one()
    with pytest.raises(InvalidArgument, match="negative"):
        message.retry(delay_s=-1)
    message.retry()
    with pytest.raises(InvalidArgument, match="was retried before"):
        message.retry()
    again = stage.one()
    again.done()
    again.done()
    with pytest.raises(InvalidArgument, match="is finished"):
        again.retry()


def test_several_messages_may_be_in_flight_and_are_finished_one_by_one() -> None:
    stage = Stage(max_in_flight=2, idle_timeout_s=5)
    stage.source.join(PLACE)
    stage.source.bring(*(arrived(offset) for offset in range(3)))
    first, second = stage.one(), stage.one()
    assert stage.next(steps=1) == []
    assert stage.source.paused_polls == 1  # the group must not think that we are dead
    second.done()
    stage.clock.advance(2000)
    third = stage.one()
    assert stage.source.commits == [("later", {PLACE: 0})]
    first.done()
    third.done()
    assert stage.next() == []
    assert stage.source.committed == {PLACE: 3}


def test_a_loop_is_not_over_while_something_is_in_flight() -> None:
    stage = Stage(max_in_flight=2, idle_timeout_s=1)
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    message = stage.one()
    assert stage.next(steps=20) == []
    assert not stage.source.committed
    message.done()
    assert stage.next(steps=20) == []
    assert stage.source.committed == {PLACE: 1}


def test_retries_that_wait_take_up_their_places_in_flight() -> None:
    stage = Stage(max_in_flight=2)
    stage.source.join(PLACE)
    stage.source.bring(*(arrived(offset) for offset in range(5)))
    for _ in range(2):
        stage.one().retry(delay_s=60)
    assert stage.next(steps=1) == []
    stage.clock.advance(60_000)
    assert sorted([stage.one().offset, stage.one().offset]) == [0, 1]


def test_somebody_who_finishes_on_another_thread_wakes_the_loop() -> None:
    stage = Stage(max_in_flight=1000)
    stage.source.join(PLACE)
    for start in range(0, 1000, 100):
        stage.source.bring(*(arrived(offset) for offset in range(start, start + 100)))
    given = [stage.one() for _ in range(1000)]
    threads = [
        threading.Thread(target=lambda part: [each.done() for each in part], args=(given[n::4],)) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for _ in range(50):
        stage.commits.commit_due()  # which looks at what they change
    for thread in threads:
        thread.join()
    stage.buffer.close()
    assert stage.source.committed == {PLACE: 1000}


def test_a_partition_that_goes_is_committed_first_and_its_messages_are_forgotten() -> None:
    stage = Stage()
    stage.source.join(PLACE, OTHER)
    stage.source.bring(arrived(0), arrived(0, OTHER), arrived(1), arrived(2))
    stage.one()
    stage.one()
    stage.buffer.finish_delivered()
    stage.buffer.on_revoked([PLACE])
    assert stage.source.committed == {PLACE: 1}
    assert stage.next(steps=1) == []


def test_nothing_is_committed_for_a_partition_that_is_lost() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(arrived(0), arrived(1))
    message = stage.one()
    message.retry()
    stage.buffer.on_lost([PLACE])
    assert stage.source.commits == []
    assert stage.next(steps=1) == []
    stage.source.join(PLACE)
    message.done()
    stage.buffer.close()
    assert stage.source.committed == {}


def test_a_retry_that_goes_with_its_partition_does_not_count_towards_the_limit() -> None:
    stage = Stage(limit=1)
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    stage.one().retry(delay_s=60)
    stage.buffer.on_lost([PLACE])
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    assert stage.one().offset == 0
    assert stage.next() == []
    assert stage.source.committed == {PLACE: 1}


def test_who_was_busy_for_too_long_hears_what_has_happened_before_it_goes_on() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(arrived(0), arrived(1))
    stage.one()
    stage.source.is_overdue = True  # and somebody else has the partition
    assert stage.next(steps=2) == []
    assert stage.source.commits == []


def test_a_message_that_is_in_hand_when_it_ends_is_not_committed_unless_it_is_done() -> None:
    for is_done in (False, True):
        stage = Stage()
        stage.source.join(PLACE)
        stage.source.bring(arrived(0), arrived(1), arrived(2))
        stage.one()
        message = stage.one()
        if is_done:
            message.done()
        stage.buffer.close()
        assert stage.source.committed == {PLACE: 2 if is_done else 1}
        assert stage.source.is_closed


def test_a_message_that_is_finished_after_the_end_is_told_that_it_comes_again() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    message = stage.one()
    stage.buffer.close()
    stage.buffer.close()
    with pytest.raises(Closed, match="it is delivered again"):
        message.done()


def test_batches_are_as_large_as_what_is_there() -> None:
    stage = Stage(idle_timeout_s=5)
    stage.source.join(PLACE)
    stage.source.bring(*(arrived(offset) for offset in range(5)))
    assert [message.offset for message in stage.next(3)] == [0, 1, 2]
    assert [message.offset for message in stage.next(3)] == [3, 4]
    assert stage.next(3) == []
    assert stage.source.committed == {PLACE: 5}


# -- what was handled before


def handled_filter(store: SqliteHandled) -> HandledFilter:
    return HandledFilter(lambda message: (message.value or b"")[:1], store, None)


def test_a_message_that_was_handled_is_passed_over() -> None:
    store = SqliteHandled()
    store.mark(b"2")
    stage = Stage(handled_filter=handled_filter(store), idle_timeout_s=5)
    stage.source.join(PLACE)
    stage.source.bring(arrived(1), arrived(2), arrived(3), arrived(11))
    assert [stage.one().offset, stage.one().offset] == [1, 3]
    assert stage.next() == []  # 11 is the same as 1
    assert stage.source.committed == {PLACE: 12}
    store.close()


def test_a_message_is_marked_when_it_is_finished_and_not_before() -> None:
    store = SqliteHandled()
    stage = Stage(handled_filter=handled_filter(store))
    stage.source.join(PLACE)
    stage.source.bring(arrived(1), arrived(2))
    stage.one()
    assert not store.seen(b"1")
    message = stage.one()
    assert store.seen(b"1")
    assert not store.seen(b"2")
    message.retry()
    assert not store.seen(b"2")
    stage.one().done()
    assert store.seen(b"2")
    store.close()


def test_of_two_that_are_the_same_the_second_waits_for_what_becomes_of_the_first() -> None:
    for first_fails in (False, True):
        store = SqliteHandled()
        stage = Stage(handled_filter=handled_filter(store), max_in_flight=5)
        stage.source.join(PLACE)
        stage.source.bring(arrived(1), arrived(10))
        first = stage.one()
        assert stage.next(steps=1) == []
        if first_fails:
            first.retry(delay_s=60)
            assert stage.one().offset == 10
        else:
            first.done()
            assert stage.next(steps=1) == []
            assert store.seen(b"1")
        store.close()


# -- at most once


def test_at_most_once_commits_before_anything_is_handed_over() -> None:
    stage = Stage("before")
    stage.source.join(PLACE, OTHER)
    stage.source.bring(arrived(0), arrived(1), arrived(7, OTHER))
    stage.one()
    assert stage.source.commits == [("now", {PLACE: 2, OTHER: 8})]


def test_at_most_once_hands_nothing_over_that_could_not_be_committed() -> None:
    stage = Stage("before")
    stage.source.join(PLACE)
    stage.source.refusing.add(PLACE)
    stage.source.bring(arrived(0))
    assert stage.next(steps=3) == []
    assert not stage.source.committed
    stage.source.refusing.clear()
    stage.clock.advance(1000)
    assert stage.one().offset == 0
    assert stage.source.committed == {PLACE: 1}


def test_at_most_once_gives_back_what_nobody_has_seen() -> None:
    stage = Stage("before")
    stage.source.join(PLACE, OTHER)
    stage.source.bring(arrived(0), arrived(0, OTHER), arrived(1), arrived(1, OTHER))
    stage.one()
    stage.buffer.on_revoked([OTHER])
    assert stage.source.committed == {PLACE: 2, OTHER: 0}
    stage.buffer.close()
    assert stage.source.committed == {PLACE: 1, OTHER: 0}


def test_at_most_once_cannot_hand_over_again() -> None:
    stage = Stage("before")
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    with pytest.raises(InvalidArgument, match="delivery='at-least-once'"):
        stage.one().retry()


# -- alone


def test_a_lone_reader_commits_nothing_and_may_retry() -> None:
    stage = Stage("never", idle_timeout_s=5)
    stage.source.join(PLACE)
    stage.source.bring(arrived(0), arrived(1))
    stage.one().retry()
    assert [stage.one().offset, stage.one().offset] == [0, 1]
    assert stage.next() == []
    stage.buffer.on_revoked([PLACE])
    stage.buffer.close()
    assert stage.source.commits == []


# -- commits


def test_commits_are_gathered_for_a_while() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(*(arrived(offset) for offset in range(100)))
    for _ in range(50):
        stage.one()
        stage.clock.advance(100)
    assert [offsets[PLACE] for _, offsets in stage.source.commits] == [10, 20, 30, 40]


def test_a_commit_that_failed_is_asked_for_again() -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.bring(arrived(0))
    stage.one()
    stage.buffer.finish_delivered()
    stage.clock.advance(1000)
    stage.buffer.catch_up()
    stage.clock.advance(1000)
    stage.buffer.catch_up()
    assert stage.source.commits == [("later", {PLACE: 1})]
    stage.buffer.on_commit_result(PLACE, 1, is_committed=False)
    stage.clock.advance(1000)
    stage.buffer.catch_up()
    assert stage.source.commits == [("later", {PLACE: 1})] * 2


def test_a_commit_that_fails_at_the_end_is_only_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.source.join(PLACE)
    stage.source.refusing.add(PLACE)
    stage.source.bring(arrived(0))
    stage.one().done()
    stage.buffer.close()
    assert "commit_failed partition=orders-0" in caplog.text
    assert stage.source.is_closed
