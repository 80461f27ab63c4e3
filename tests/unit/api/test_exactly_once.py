"""Exactly once despite failures: batches, aborts, rebalances, and an end in the middle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.core.encoding import encode
from penstock.api.core.message import Message, Outgoing
from penstock.api.errors import PublishFailed
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from tests.examples import examples

from .buffer_harness import OTHER, PLACE, BufferHarness, PlayedLedger, arrived


def publish(harness: BufferHarness, message: Message) -> None:
    harness.commits.publish(encode("out", Outgoing(b"%d:%d" % (message.partition, message.offset))))


def staged(count: int, **options: object) -> BufferHarness:
    harness = BufferHarness("within", **options)
    harness.source.join(PLACE)
    harness.source.bring(*(arrived(offset) for offset in range(count)))
    return harness


def test_offsets_are_committed_with_published_messages() -> None:
    harness = staged(3, idle_timeout_s=5)
    for _ in range(3):
        publish(harness, harness.one())
    assert harness.ledger.log == []
    assert harness.next() == []
    assert harness.ledger.log == [b"0:0", b"0:1", b"0:2"]
    assert harness.ledger.offsets == {PLACE: 3}
    assert harness.commits.committed == 1


def test_a_batch_ends_by_count() -> None:
    harness = staged(5, batch=2)
    for _ in range(5):
        publish(harness, harness.one())
    assert harness.ledger.log == [b"0:0", b"0:1", b"0:2", b"0:3"]
    assert harness.ledger.offsets == {PLACE: 4}


def test_a_batch_ends_by_time_even_if_nothing_more_comes() -> None:
    harness = staged(1)
    publish(harness, harness.one())
    assert harness.next(steps=3) == []
    assert harness.ledger.log == [b"0:0"]


def test_messages_that_give_rise_to_nothing_are_committed_too() -> None:
    harness = staged(2, idle_timeout_s=5, tags=frozenset({"eu"}))
    assert harness.next() == []
    assert harness.ledger.offsets == {PLACE: 2}
    assert harness.ledger.log == []


def test_nothing_at_all_needs_no_transaction() -> None:
    harness = staged(0, idle_timeout_s=2)
    assert harness.next() == []
    harness.buffer.close()
    assert harness.commits.committed == 0


def test_a_transaction_that_is_aborted_comes_again_from_its_beginning() -> None:
    harness = staged(4, batch=2, idle_timeout_s=5)
    harness.ledger.is_failing = True
    seen = []
    while messages := harness.next():
        seen.append((messages[0].offset, messages[0].attempt))
        publish(harness, messages[0])
    assert seen == [(0, 1), (1, 1), (0, 2), (1, 2), (2, 1), (3, 1)]
    assert harness.ledger.log == [b"0:0", b"0:1", b"0:2", b"0:3"]
    assert harness.ledger.offsets == {PLACE: 4}


def test_publishing_in_an_aborted_transaction_has_its_batch_delivered_again() -> None:
    harness = staged(3, idle_timeout_s=5)
    publish(harness, harness.one())
    harness.ledger.is_aborted = True
    publish(harness, harness.one())
    seen = []
    while messages := harness.next():
        seen.append((messages[0].offset, messages[0].attempt))
        publish(harness, messages[0])
    assert seen == [(0, 2), (1, 2), (2, 1)]
    assert harness.ledger.log == [b"0:0", b"0:1", b"0:2"]


def test_messages_of_a_lost_partition_count_towards_the_limit_when_they_come_again() -> None:
    harness = staged(2, limit=3)
    publish(harness, harness.one())
    publish(harness, harness.one())
    harness.buffer.finish_delivered()
    harness.buffer.on_lost([PLACE])
    harness.source.join(PLACE)
    harness.source.bring(*(arrived(offset) for offset in range(4)))
    while messages := harness.next():
        publish(harness, messages[0])
    assert harness.ledger.log == [b"0:0", b"0:1", b"0:2"]
    assert harness.ledger.offsets == {PLACE: 3}


def test_a_retry_gives_up_the_batch_and_all_of_it_comes_again() -> None:
    harness = staged(3, idle_timeout_s=5)
    publish(harness, harness.one())
    message = harness.one()
    publish(harness, message)
    message.retry()
    seen = []
    while messages := harness.next():
        seen.append((messages[0].offset, messages[0].attempt))
        publish(harness, messages[0])
    assert seen == [(0, 2), (1, 2), (2, 1)]
    assert harness.ledger.aborts == 1
    assert harness.ledger.log == [b"0:0", b"0:1", b"0:2"]


def test_a_delayed_retry_waits() -> None:
    harness = staged(1)
    harness.one().retry(delay_s=10)
    began_s = harness.clock.monotonic_s()
    harness.buffer.finish_delivered()
    harness.buffer.catch_up()
    assert harness.buffer.take() == []
    harness.clock.advance(10_000)
    assert harness.one().attempt == 2
    assert harness.clock.monotonic_s() - began_s >= 10


def test_a_partition_that_goes_takes_its_offsets_with_the_batch() -> None:
    harness = staged(3)
    publish(harness, harness.one())
    harness.buffer.finish_delivered()
    harness.buffer.on_revoked([PLACE])
    assert harness.ledger.offsets == {PLACE: 1}
    assert harness.next(steps=2) == []


def test_a_partition_that_is_lost_takes_nothing_and_what_is_left_comes_again() -> None:
    harness = BufferHarness("within")
    harness.source.join(PLACE, OTHER)
    harness.source.bring(arrived(0), arrived(0, OTHER))
    publish(harness, harness.one())
    publish(harness, harness.one())
    harness.buffer.finish_delivered()
    harness.buffer.on_lost([PLACE])
    assert harness.ledger.aborts == 1
    harness.clock.advance(1000)
    again = harness.one()
    assert (again.partition, again.attempt) == (1, 2)


def test_an_end_in_the_middle_of_a_message_gives_up_the_batch_if_it_has_published() -> None:
    harness = staged(3)
    publish(harness, harness.one())
    publish(harness, harness.one())
    harness.buffer.close()
    assert (harness.ledger.log, harness.ledger.offsets, harness.ledger.aborts) == ([], {}, 1)


def test_an_end_in_the_middle_of_a_message_that_has_published_nothing_keeps_what_is_finished() -> None:
    harness = staged(3)
    publish(harness, harness.one())
    harness.one()
    harness.buffer.close()
    assert (harness.ledger.log, harness.ledger.offsets) == ([b"0:0"], {PLACE: 1})


def test_an_end_after_done_keeps_everything() -> None:
    harness = staged(3)
    message = harness.one()
    publish(harness, message)
    message.done()
    harness.buffer.close()
    assert (harness.ledger.log, harness.ledger.offsets) == ([b"0:0"], {PLACE: 1})


def test_a_message_that_can_never_be_published_ends_the_loop_and_nothing_of_its_batch_counts() -> None:
    harness = staged(3)
    publish(harness, harness.one())
    message = harness.one()
    harness.ledger.failure = PublishFailed("too large", ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(PublishFailed):
        publish(harness, message)
    harness.buffer.close()
    assert (harness.ledger.log, harness.ledger.offsets) == ([], {})


def test_nothing_is_committed_after_a_commit_that_failed_for_good() -> None:
    """The messages are finished, but what they published is gone: their offsets must not count."""
    harness = staged(2)
    publish(harness, harness.one())
    publish(harness, harness.one())
    harness.ledger.failure = PublishFailed("too large", ErrorCode.MESSAGE_TOO_LARGE)
    harness.clock.advance(1000)
    with pytest.raises(PublishFailed):
        harness.next()
    harness.ledger.failure = None
    harness.buffer.on_revoked([PLACE])
    harness.buffer.close()
    assert (harness.ledger.log, harness.ledger.offsets) == ([], {})


def test_a_broken_ledger_is_left_alone_at_the_end() -> None:
    harness = staged(1)
    publish(harness, harness.one())
    harness.ledger.is_broken = True
    harness.buffer.close()
    assert harness.ledger.aborts == 0
    assert harness.source.is_closed


COUNTS = {PLACE: 12, OTHER: 7}


@examples(300)
@given(st.data())
def test_every_message_gives_rise_to_its_result_exactly_once(data: st.DataObject) -> None:
    """Members come and go, transactions fail, work is retried or ends in the middle; what is committed is read on."""
    ledger = PlayedLedger()
    for _ in range(200):
        if ledger.offsets == COUNTS:
            break
        _live(data, ledger)
    assert sorted(ledger.log) == sorted(
        b"%d:%d" % (place.partition, offset) for place, count in COUNTS.items() for offset in range(count)
    )


def _live(data: st.DataObject, ledger: PlayedLedger) -> None:
    """One member's life: it reads on from what is committed, until it is over or it ends."""
    harness = BufferHarness("within", batch=data.draw(st.integers(1, 5)), idle_timeout_s=2)
    harness.commits._producer = harness.ledger = ledger
    places = [PLACE, OTHER]
    harness.source.join(*places)
    for place in places:
        _bring_rest(harness, place, data.draw(st.integers(1, 6)))
    for _ in range(60):
        event = data.draw(st.sampled_from(["go on"] * 8 + ["fail", "retry", "revoke", "lose", "end", "end early"]))
        if event == "fail":
            ledger.is_failing = True
        messages = harness.next()
        if not messages:
            break
        (message,) = messages
        if event == "end early":
            break
        publish(harness, message)
        if event == "end":
            break
        if event == "retry":
            message.retry()
        if event in ("revoke", "lose"):
            place = TopicPartition(message.topic, message.partition)
            harness.buffer.finish_delivered()
            (harness.buffer.on_revoked if event == "revoke" else harness.buffer.on_lost)([place])
            harness.source.forget(place)
            harness.source.join(place)
            _bring_rest(harness, place, 6)
    harness.buffer.close()


def _bring_rest(harness: BufferHarness, place: TopicPartition, size: int) -> None:
    rest = range(harness.ledger.offsets.get(place, 0), COUNTS[place])
    for start in range(0, len(rest), size):
        harness.source.bring(*(arrived(offset, place) for offset in rest[start : start + size]))
