"""Exactly once, whatever happens: batches, aborts, rebalances, and an end in the middle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.core.encoding import encode
from penstock.api.core.message import Message, Outgoing
from penstock.api.errors import PublishFailed
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from tests.examples import examples

from .playing import OTHER, PLACE, PlayedLedger, Stage, arrived


def publish(stage: Stage, message: Message) -> None:
    stage.commits.publish(encode("out", Outgoing(b"%d:%d" % (message.partition, message.offset))))


def staged(count: int, **options: object) -> Stage:
    stage = Stage("within", **options)
    stage.source.join(PLACE)
    stage.source.bring(*(arrived(offset) for offset in range(count)))
    return stage


def test_what_was_read_is_committed_with_what_was_published() -> None:
    stage = staged(3, idle_timeout_s=5)
    for _ in range(3):
        publish(stage, stage.one())
    assert stage.ledger.log == []
    assert stage.next() == []
    assert stage.ledger.log == [b"0:0", b"0:1", b"0:2"]
    assert stage.ledger.offsets == {PLACE: 3}
    assert stage.commits.committed == 1


def test_a_batch_ends_by_count() -> None:
    stage = staged(5, batch=2)
    for _ in range(5):
        publish(stage, stage.one())
    assert stage.ledger.log == [b"0:0", b"0:1", b"0:2", b"0:3"]
    assert stage.ledger.offsets == {PLACE: 4}


def test_a_batch_ends_by_time_even_if_nothing_more_comes() -> None:
    stage = staged(1)
    publish(stage, stage.one())
    assert stage.next(steps=3) == []
    assert stage.ledger.log == [b"0:0"]


def test_messages_that_give_rise_to_nothing_are_committed_too() -> None:
    stage = staged(2, idle_timeout_s=5, tags=frozenset({"eu"}))
    assert stage.next() == []
    assert stage.ledger.offsets == {PLACE: 2}
    assert stage.ledger.log == []


def test_nothing_at_all_needs_no_transaction() -> None:
    stage = staged(0, idle_timeout_s=2)
    assert stage.next() == []
    stage.buffer.close()
    assert stage.commits.committed == 0


def test_a_transaction_that_is_aborted_comes_again_from_its_beginning() -> None:
    stage = staged(4, batch=2, idle_timeout_s=5)
    stage.ledger.is_failing = True
    seen = []
    while messages := stage.next():
        seen.append((messages[0].offset, messages[0].attempt))
        publish(stage, messages[0])
    assert seen == [(0, 1), (1, 1), (0, 2), (1, 2), (2, 1), (3, 1)]
    assert stage.ledger.log == [b"0:0", b"0:1", b"0:2", b"0:3"]
    assert stage.ledger.offsets == {PLACE: 4}


def test_publishing_in_an_aborted_transaction_has_its_batch_delivered_again() -> None:
    stage = staged(3, idle_timeout_s=5)
    publish(stage, stage.one())
    stage.ledger.is_aborted = True
    publish(stage, stage.one())
    seen = []
    while messages := stage.next():
        seen.append((messages[0].offset, messages[0].attempt))
        publish(stage, messages[0])
    assert seen == [(0, 2), (1, 2), (2, 1)]
    assert stage.ledger.log == [b"0:0", b"0:1", b"0:2"]


def test_messages_of_a_lost_partition_count_towards_the_limit_when_they_come_again() -> None:
    stage = staged(2, limit=3)
    publish(stage, stage.one())
    publish(stage, stage.one())
    stage.buffer.finish_delivered()
    stage.buffer.on_lost([PLACE])
    stage.source.join(PLACE)
    stage.source.bring(*(arrived(offset) for offset in range(4)))
    while messages := stage.next():
        publish(stage, messages[0])
    assert stage.ledger.log == [b"0:0", b"0:1", b"0:2"]
    assert stage.ledger.offsets == {PLACE: 3}


def test_a_retry_gives_up_the_batch_and_all_of_it_comes_again() -> None:
    stage = staged(3, idle_timeout_s=5)
    publish(stage, stage.one())
    message = stage.one()
    publish(stage, message)
    message.retry()
    seen = []
    while messages := stage.next():
        seen.append((messages[0].offset, messages[0].attempt))
        publish(stage, messages[0])
    assert seen == [(0, 2), (1, 2), (2, 1)]
    assert stage.ledger.aborts == 1
    assert stage.ledger.log == [b"0:0", b"0:1", b"0:2"]


def test_a_delayed_retry_waits() -> None:
    stage = staged(1)
    stage.one().retry(delay_s=10)
    began_s = stage.clock.monotonic_s()
    stage.buffer.finish_delivered()
    stage.buffer.catch_up()
    assert stage.buffer.take() == []
    stage.clock.advance(10_000)
    assert stage.one().attempt == 2
    assert stage.clock.monotonic_s() - began_s >= 10


def test_a_partition_that_goes_takes_its_offsets_with_the_batch() -> None:
    stage = staged(3)
    publish(stage, stage.one())
    stage.buffer.finish_delivered()
    stage.buffer.on_revoked([PLACE])
    assert stage.ledger.offsets == {PLACE: 1}
    assert stage.next(steps=2) == []


def test_a_partition_that_is_lost_takes_nothing_and_what_is_left_comes_again() -> None:
    stage = Stage("within")
    stage.source.join(PLACE, OTHER)
    stage.source.bring(arrived(0), arrived(0, OTHER))
    publish(stage, stage.one())
    publish(stage, stage.one())
    stage.buffer.finish_delivered()
    stage.buffer.on_lost([PLACE])
    assert stage.ledger.aborts == 1
    stage.clock.advance(1000)
    again = stage.one()
    assert (again.partition, again.attempt) == (1, 2)


def test_an_end_in_the_middle_of_a_message_gives_up_the_batch_if_it_has_published() -> None:
    stage = staged(3)
    publish(stage, stage.one())
    publish(stage, stage.one())
    stage.buffer.close()
    assert (stage.ledger.log, stage.ledger.offsets, stage.ledger.aborts) == ([], {}, 1)


def test_an_end_in_the_middle_of_a_message_that_has_published_nothing_keeps_what_is_finished() -> None:
    stage = staged(3)
    publish(stage, stage.one())
    stage.one()
    stage.buffer.close()
    assert (stage.ledger.log, stage.ledger.offsets) == ([b"0:0"], {PLACE: 1})


def test_an_end_after_done_keeps_everything() -> None:
    stage = staged(3)
    message = stage.one()
    publish(stage, message)
    message.done()
    stage.buffer.close()
    assert (stage.ledger.log, stage.ledger.offsets) == ([b"0:0"], {PLACE: 1})


def test_a_message_that_can_never_be_published_ends_the_loop_and_nothing_of_its_batch_counts() -> None:
    stage = staged(3)
    publish(stage, stage.one())
    message = stage.one()
    stage.ledger.failure = PublishFailed("too large", ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(PublishFailed):
        publish(stage, message)
    stage.buffer.close()
    assert (stage.ledger.log, stage.ledger.offsets) == ([], {})


def test_nothing_is_committed_after_a_commit_that_failed_for_good() -> None:
    """The messages are finished, but what they published is gone: their offsets must not count."""
    stage = staged(2)
    publish(stage, stage.one())
    publish(stage, stage.one())
    stage.ledger.failure = PublishFailed("too large", ErrorCode.MESSAGE_TOO_LARGE)
    stage.clock.advance(1000)
    with pytest.raises(PublishFailed):
        stage.next()
    stage.ledger.failure = None
    stage.buffer.on_revoked([PLACE])
    stage.buffer.close()
    assert (stage.ledger.log, stage.ledger.offsets) == ([], {})


def test_a_broken_ledger_is_left_alone_at_the_end() -> None:
    stage = staged(1)
    publish(stage, stage.one())
    stage.ledger.is_broken = True
    stage.buffer.close()
    assert stage.ledger.aborts == 0
    assert stage.source.is_closed


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
    stage = Stage("within", batch=data.draw(st.integers(1, 5)), idle_timeout_s=2)
    stage.commits._producer = stage.ledger = ledger
    places = [PLACE, OTHER]
    stage.source.join(*places)
    for place in places:
        _bring_rest(stage, place, data.draw(st.integers(1, 6)))
    for _ in range(60):
        event = data.draw(st.sampled_from(["go on"] * 8 + ["fail", "retry", "revoke", "lose", "end", "end early"]))
        if event == "fail":
            ledger.is_failing = True
        messages = stage.next()
        if not messages:
            break
        (message,) = messages
        if event == "end early":
            break
        publish(stage, message)
        if event == "end":
            break
        if event == "retry":
            message.retry()
        if event in ("revoke", "lose"):
            place = TopicPartition(message.topic, message.partition)
            stage.buffer.finish_delivered()
            (stage.buffer.on_revoked if event == "revoke" else stage.buffer.on_lost)([place])
            stage.source.forget(place)
            stage.source.join(place)
            _bring_rest(stage, place, 6)
    stage.buffer.close()


def _bring_rest(stage: Stage, place: TopicPartition, size: int) -> None:
    rest = range(stage.ledger.offsets.get(place, 0), COUNTS[place])
    for start in range(0, len(rest), size):
        stage.source.bring(*(arrived(offset, place) for offset in rest[start : start + size]))
