"""A query that is closed: whoever closes it knows for good which of its batches was decided last."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.ids import TopicPartition
from penstock.transactions.coordinator import EXPIRED_MAX, RETRY_MS
from penstock.transactions.errors import TooManyQueries
from penstock.transactions.states import State
from penstock.wire.messages.commit_set import (
    ABORT,
    BATCH_ID_MAX,
    CLOSE,
    COMMITTED,
    DECIDED_BEFORE,
    FORGET,
    CommitSetResponse,
)

from .driving import SETTINGS, Place

FIRST, SECOND = "spark/q/0/0.0", "spark/q/1/0.0"
ORDERS = TopicPartition("orders", 0)


def task(place: Place, name: str = FIRST) -> dict[str, ProducerKey]:
    """A task that has written, and left its transaction open."""
    producer = place.producer(name)
    place.join(producer, ORDERS, name=name)
    return {name: producer}


def close(place: Place) -> CommitSetResponse:
    answer = place.commit_set(-1, {}, action=CLOSE)
    assert isinstance(answer, CommitSetResponse)
    return answer


def test_who_closes_a_query_that_decided_nothing_has_what_is_open_aborted() -> None:
    place = Place()
    participants = task(place)
    answer = close(place)
    assert (answer.error_code, answer.last_batch_id, answer.aborted) == (0, -1, 1)
    assert [order.committed for order in place.write_markers()] == [False]
    late = place.commit_set(0, participants)
    assert (late.error_code, late.outcome, late.last_batch_id) == (0, DECIDED_BEFORE, -1)


def test_a_driver_that_goes_on_after_its_query_was_closed_commits_nothing() -> None:
    place = Place()
    participants = task(place)
    close(place)
    answer = place.commit_set(0, participants)
    assert (answer.outcome, answer.aborted) == (DECIDED_BEFORE, 0)
    assert [order.committed for order in place.write_markers()] == [False]
    assert place.commit_set(BATCH_ID_MAX, participants).outcome == DECIDED_BEFORE
    assert close(place).last_batch_id == -1


def test_a_task_that_goes_on_after_its_query_was_closed_begins_no_transaction() -> None:
    """No driver is left to end it: read_committed consumers would be blocked until it times out."""
    place = Place()
    early = place.producer(FIRST)
    task(place, SECOND)
    close(place)
    place.write_markers()
    assert set(place.join(early, ORDERS, name=FIRST).values()) == {ErrorCode.PRODUCER_FENCED}
    for name in (FIRST, SECOND, "spark/q/2/0.0"):
        assert place.init(name).error_code == ErrorCode.PRODUCER_FENCED
    place.restart()
    assert place.init(FIRST).error_code == ErrorCode.PRODUCER_FENCED
    assert {known.state for known in place.machine.transactions.values()} == {State.EMPTY, State.COMPLETE_ABORT}
    task(place, "spark/another/0/0.0")
    task(place, "no task")


def test_a_query_that_is_closed_is_forgotten_in_the_end() -> None:
    place = Place()
    place.commit_set(0, {}, query="open")
    close(place)
    place.advance(SETTINGS.id_expiration_ms - 1)
    assert place.machine.queries.is_closed("q")
    place.advance(SETTINGS.expiry_interval_ms)
    assert not place.machine.queries.is_closed("q")
    assert set(place.machine.queries.decided) == {"open"}, "what may be started again is kept"
    task(place)


def test_many_queries_that_are_closed_are_forgotten_in_several_steps() -> None:
    place = Place()
    for number in range(EXPIRED_MAX + 5):
        place.commit_set(-1, {}, query=f"q{number}", action=CLOSE)
    place.advance(SETTINGS.id_expiration_ms - 1)
    while len(place.machine.queries.closed) > EXPIRED_MAX:
        place.now_ms = place.machine.wake_at_ms or 0
        decision = place.machine.wake(place.now_ms)
        assert len(decision.persist) <= EXPIRED_MAX
        place.carry_out(decision)
    assert len(place.machine.queries.closed) == 5
    place.advance(RETRY_MS)
    assert not place.machine.queries.closed


@pytest.mark.parametrize("batch_id", [0, 7, BATCH_ID_MAX])
def test_what_was_decided_is_told_to_everybody_who_closes(batch_id: int) -> None:
    place = Place()
    participants = task(place)
    assert place.commit_set(batch_id, participants).outcome == COMMITTED
    place.write_markers()
    assert close(place).last_batch_id == batch_id
    place.restart()
    assert close(place).last_batch_id == batch_id
    assert place.commit_set(-1, {}, action=ABORT).last_batch_id == batch_id
    again = place.commit_set(batch_id, participants)
    assert (again.outcome, again.last_batch_id) == (COMMITTED, batch_id), "its own driver may ask once more"


def test_to_close_twice_writes_nothing() -> None:
    place = Place()
    close(place)
    records = len(place.records)
    close(place)
    assert len(place.records) == records


def test_a_query_that_is_forgotten_is_closed_no_more() -> None:
    place = Place()
    close(place)
    place.commit_set(-1, {}, action=FORGET)
    assert not place.machine.queries.is_closed("q")
    assert place.commit_set(0, task(place)).outcome == COMMITTED


def test_no_more_queries_are_closed_than_can_be_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transactions.commit_sets.QUERIES_MAX", 1)
    place = Place()
    place.commit_set(0, {}, query="another")
    with pytest.raises(TooManyQueries, match="forget those that have ended"):
        close(place)
