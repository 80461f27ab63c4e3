"""The states of a transactional id."""

import pytest

from penstock.transactions.states import ALLOWED, AT_REST, BY_LABEL, PREPARED, State
from penstock.transactions.transaction import TV_0, TV_2, Transaction

from .coordinator_harness import START_MS

KAFKA = {
    0: "Empty",
    1: "Ongoing",
    2: "PrepareCommit",
    3: "PrepareAbort",
    4: "CompleteCommit",
    5: "CompleteAbort",
    6: "Dead",
    7: "PrepareEpochFence",
}


def test_states_have_the_numbers_and_names_that_kafka_gives_them() -> None:
    assert {state.value: state.label for state in State} == KAFKA
    assert {label: state.value for label, state in BY_LABEL.items()} == {
        name: number for number, name in KAFKA.items()
    }


def test_every_state_says_what_may_follow() -> None:
    assert set(ALLOWED) == set(State)


def test_a_decided_transaction_can_only_be_completed() -> None:
    assert ALLOWED[State.PREPARE_COMMIT] == {State.COMPLETE_COMMIT}
    assert ALLOWED[State.PREPARE_ABORT] == {State.COMPLETE_ABORT}


def test_only_what_was_prepared_is_complete() -> None:
    before = {state for state, following in ALLOWED.items() if State.COMPLETE_COMMIT in following}
    assert before == {State.PREPARE_COMMIT}
    before = {state for state, following in ALLOWED.items() if State.COMPLETE_ABORT in following}
    assert before == {State.PREPARE_ABORT}


def test_only_an_id_at_rest_expires() -> None:
    assert {state for state, following in ALLOWED.items() if State.DEAD in following} == AT_REST
    assert not ALLOWED[State.DEAD]


def in_state(state: State) -> Transaction:
    return Transaction(
        transactional_id="id", producer_id=1, epoch=0, timeout_ms=1000, updated_ms=START_MS, state=state
    )


@pytest.mark.parametrize("state", PREPARED)
def test_a_step_that_is_not_in_the_table_is_not_taken(state: State) -> None:
    known = in_state(state)
    with pytest.raises(AssertionError, match=f"{state.label} to Ongoing"):
        known.joined([], TV_0, START_MS)
    with pytest.raises(AssertionError, match=f"{state.label} to Empty"):
        known.initialised(known.producer, -1, 1000, START_MS)
    with pytest.raises(AssertionError, match=f"{state.label} to PrepareAbort"):
        known.fenced(-1, START_MS)


@pytest.mark.parametrize("state", AT_REST)
def test_an_id_at_rest_has_nothing_to_commit(state: State) -> None:
    with pytest.raises(AssertionError, match=f"{state.label} to PrepareCommit"):
        in_state(state).prepared(True, TV_2, 2, START_MS)
