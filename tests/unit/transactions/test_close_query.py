"""Closing a query: the response names the last decided batch, and no later one can be decided."""

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

from .coordinator_harness import SETTINGS, CoordinatorHarness

FIRST, SECOND = "spark/q/0/0.0", "spark/q/1/0.0"
ORDERS = TopicPartition("orders", 0)


def task(harness: CoordinatorHarness, name: str = FIRST) -> dict[str, ProducerKey]:
    """A task that has written, and left its transaction open."""
    producer = harness.producer(name)
    harness.join(producer, ORDERS, name=name)
    return {name: producer}


def close(harness: CoordinatorHarness) -> CommitSetResponse:
    answer = harness.commit_set(-1, {}, action=CLOSE)
    assert isinstance(answer, CommitSetResponse)
    return answer


def test_closing_a_query_without_decisions_aborts_its_open_transactions() -> None:
    harness = CoordinatorHarness()
    participants = task(harness)
    answer = close(harness)
    assert (answer.error_code, answer.last_batch_id, answer.aborted) == (0, -1, 1)
    assert [order.committed for order in harness.write_markers()] == [False]
    late = harness.commit_set(0, participants)
    assert (late.error_code, late.outcome, late.last_batch_id) == (0, DECIDED_BEFORE, -1)


def test_a_driver_that_goes_on_after_its_query_was_closed_commits_nothing() -> None:
    harness = CoordinatorHarness()
    participants = task(harness)
    close(harness)
    answer = harness.commit_set(0, participants)
    assert (answer.outcome, answer.aborted) == (DECIDED_BEFORE, 0)
    assert [order.committed for order in harness.write_markers()] == [False]
    assert harness.commit_set(BATCH_ID_MAX, participants).outcome == DECIDED_BEFORE
    assert close(harness).last_batch_id == -1


def test_a_task_that_goes_on_after_its_query_was_closed_begins_no_transaction() -> None:
    """No driver is left to end it: read_committed consumers would be blocked until it times out."""
    harness = CoordinatorHarness()
    early = harness.producer(FIRST)
    task(harness, SECOND)
    close(harness)
    harness.write_markers()
    assert set(harness.join(early, ORDERS, name=FIRST).values()) == {ErrorCode.PRODUCER_FENCED}
    for name in (FIRST, SECOND, "spark/q/2/0.0"):
        assert harness.init(name).error_code == ErrorCode.PRODUCER_FENCED
    harness.restart()
    assert harness.init(FIRST).error_code == ErrorCode.PRODUCER_FENCED
    assert {known.state for known in harness.machine.transactions.values()} == {State.EMPTY, State.COMPLETE_ABORT}
    task(harness, "spark/another/0/0.0")
    task(harness, "no task")


def test_a_query_that_is_closed_is_forgotten_in_the_end() -> None:
    harness = CoordinatorHarness()
    harness.commit_set(0, {}, query="open")
    close(harness)
    harness.advance(SETTINGS.id_expiration_ms - 1)
    assert harness.machine.queries.is_closed("q")
    harness.advance(SETTINGS.expiry_interval_ms)
    assert not harness.machine.queries.is_closed("q")
    assert set(harness.machine.queries.decided) == {"open"}, "what may be started again is kept"
    task(harness)


def test_many_queries_that_are_closed_are_forgotten_in_several_steps() -> None:
    harness = CoordinatorHarness()
    for number in range(EXPIRED_MAX + 5):
        harness.commit_set(-1, {}, query=f"q{number}", action=CLOSE)
    harness.advance(SETTINGS.id_expiration_ms - 1)
    while len(harness.machine.queries.closed) > EXPIRED_MAX:
        harness.now_ms = harness.machine.wake_at_ms or 0
        decision = harness.machine.wake(harness.now_ms)
        assert len(decision.persist) <= EXPIRED_MAX
        harness.carry_out(decision)
    assert len(harness.machine.queries.closed) == 5
    harness.advance(RETRY_MS)
    assert not harness.machine.queries.closed


@pytest.mark.parametrize("batch_id", [0, 7, BATCH_ID_MAX])
def test_every_close_returns_the_last_decided_batch(batch_id: int) -> None:
    harness = CoordinatorHarness()
    participants = task(harness)
    assert harness.commit_set(batch_id, participants).outcome == COMMITTED
    harness.write_markers()
    assert close(harness).last_batch_id == batch_id
    harness.restart()
    assert close(harness).last_batch_id == batch_id
    assert harness.commit_set(-1, {}, action=ABORT).last_batch_id == batch_id
    again = harness.commit_set(batch_id, participants)
    assert (again.outcome, again.last_batch_id) == (COMMITTED, batch_id), "its own driver may ask once more"


def test_to_close_twice_writes_nothing() -> None:
    harness = CoordinatorHarness()
    close(harness)
    records = len(harness.records)
    close(harness)
    assert len(harness.records) == records


def test_a_query_that_is_forgotten_is_closed_no_more() -> None:
    harness = CoordinatorHarness()
    close(harness)
    harness.commit_set(-1, {}, action=FORGET)
    assert not harness.machine.queries.is_closed("q")
    assert harness.commit_set(0, task(harness)).outcome == COMMITTED


def test_no_more_queries_are_closed_than_can_be_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transactions.commit_sets.QUERIES_MAX", 1)
    harness = CoordinatorHarness()
    harness.commit_set(0, {}, query="another")
    with pytest.raises(TooManyQueries, match="forget those that have ended"):
        close(harness)
