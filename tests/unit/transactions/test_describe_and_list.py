"""DescribeTransactions and ListTransactions."""

from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

from .coordinator_harness import START_MS, A, B, C, CoordinatorHarness, asked


def described(harness: CoordinatorHarness, *names: str) -> list[TransactionState]:
    request = DescribeTransactionsRequest(transactional_ids=names)
    return list(harness.submit(asked(request, 0)).transaction_states)


def listed(harness: CoordinatorHarness, **filters: Any) -> ListTransactionsResponse:
    request = ListTransactionsRequest(
        state_filters=filters.pop("states", ()), producer_id_filters=filters.pop("producers", ()), **filters
    )
    return harness.submit(asked(request, 2))


def names(response: ListTransactionsResponse) -> set[str]:
    assert response.error_code == ErrorCode.NONE
    return {entry.transactional_id for entry in response.transaction_states}


def some() -> CoordinatorHarness:
    """Four ids in four states, begun a second after the other."""
    harness = CoordinatorHarness()
    harness.producer("empty")
    for name, committed in (("ongoing", None), ("preparing", False), ("complete", True)):
        producer = harness.producer(name)
        harness.advance(1000)
        harness.join(producer, A, C, B, name=name)
        if committed is not None:
            harness.end(producer, committed=committed, name=name)
    (preparing, complete) = harness.orders
    harness.tell(complete.written())
    assert preparing.transactional_id == "preparing"
    return harness


def test_a_transaction_is_described() -> None:
    (state,) = described(some(), "ongoing")
    assert (state.error_code, state.transactional_id) == (ErrorCode.NONE, "ongoing")
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert state.transaction_start_time_ms == START_MS + 1000
    assert (state.producer_id, state.producer_epoch) == (1002, 0)
    assert [(topic.topic, list(topic.partitions)) for topic in state.topics] == [("a", [0]), ("b", [1, 2])]


def test_every_id_is_described_in_the_order_asked_for() -> None:
    found = described(some(), "complete", "empty", "preparing")
    assert [(state.transactional_id, state.transaction_state) for state in found] == [
        ("complete", "CompleteCommit"),
        ("empty", "Empty"),
        ("preparing", "PrepareAbort"),
    ]
    assert [state.transaction_start_time_ms for state in found] == [START_MS + 3000, -1, START_MS + 2000]


def test_an_id_that_is_not_known_is_not_found() -> None:
    found = described(some(), "missing", "empty")
    assert [state.error_code for state in found] == [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NONE]
    assert (found[0].transactional_id, found[0].transaction_state) == ("missing", "")


def test_an_empty_id_is_not_described() -> None:
    (state,) = described(CoordinatorHarness(), "")
    assert state.error_code == ErrorCode.INVALID_REQUEST


def test_all_ids_are_listed() -> None:
    response = listed(some())
    assert {
        (entry.transactional_id, entry.producer_id, entry.transaction_state) for entry in response.transaction_states
    } == {
        ("empty", 1001, "Empty"),
        ("ongoing", 1002, "Ongoing"),
        ("preparing", 1003, "PrepareAbort"),
        ("complete", 1004, "CompleteCommit"),
    }
    assert list(response.unknown_state_filters) == []


def test_they_are_listed_by_state() -> None:
    harness = some()
    assert names(listed(harness, states=["Ongoing"])) == {"ongoing"}
    assert names(listed(harness, states=["Empty", "CompleteCommit"])) == {"empty", "complete"}
    assert names(listed(harness, states=["Dead"])) == set()


def test_unknown_states_are_reported() -> None:
    response = listed(some(), states=["Ongoing", "Sleeping", "ongoing"])
    assert names(response) == {"ongoing"}
    assert list(response.unknown_state_filters) == ["Sleeping", "ongoing"]


def test_a_filter_of_states_that_are_not_known_lets_nothing_through() -> None:
    assert names(listed(some(), states=["Sleeping"])) == set()


def test_they_are_listed_by_producer_id() -> None:
    assert names(listed(some(), producers=[1001, 1003, 4711])) == {"empty", "preparing"}


def test_they_are_listed_by_how_long_they_have_lasted() -> None:
    harness = some()  # at START_MS + 3000
    assert names(listed(harness, duration_filter=-1)) == {"empty", "ongoing", "preparing", "complete"}
    assert names(listed(harness, duration_filter=0)) == {"empty", "ongoing", "preparing"}
    assert names(listed(harness, duration_filter=1000)) == {"empty", "ongoing"}
    assert names(listed(harness, duration_filter=2000)) == {"empty"}
    assert names(listed(harness, duration_filter=1999)) == {"empty", "ongoing"}


def test_they_are_listed_by_a_pattern_of_the_whole_id() -> None:
    harness = some()
    assert names(listed(harness, transactional_id_pattern=".*ng")) == {"ongoing", "preparing"}
    assert names(listed(harness, transactional_id_pattern="ong")) == set()
    assert names(listed(harness, transactional_id_pattern="")) == {"empty", "ongoing", "preparing", "complete"}


def test_a_pattern_that_makes_no_sense_is_refused() -> None:
    response = listed(some(), transactional_id_pattern="(ongoing")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(response.transaction_states) == []


def test_all_filters_hold_together() -> None:
    harness = some()
    response = listed(
        harness,
        states=["Ongoing", "Empty"],
        producers=[1001, 1002],
        duration_filter=1500,
        transactional_id_pattern="[a-z]+",
    )
    assert names(response) == {"empty", "ongoing"}


@pytest.mark.parametrize("command", [asked(HeartbeatRequest(group_id="", generation_id=0, member_id=""), 0), "hello"])
def test_other_requests_are_refused(command: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"does not handle (HeartbeatRequest|str)"):
        CoordinatorHarness().submit(command)
