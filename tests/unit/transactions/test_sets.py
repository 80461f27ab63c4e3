"""CommitSet: the transactions of one query, ended by one decision."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, Decision, ProducerKey, StateRecord
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.ids import TopicPartition
from penstock.foundation.spark_ids import transactional_id
from penstock.foundation.steps import run_steps
from penstock.records.build import build_pairs
from penstock.transactions.commands import CommitPreparedSet
from penstock.transactions.commit_sets import ABORTED_MAX, SET_BYTES_MAX, STEP_MASK, prepare_steps
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.errors import SetTooLarge, TooManyQueries
from penstock.transactions.records import DECIDED
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX, Transaction
from penstock.wire.messages.commit_set import (
    ABORT,
    BATCH_ID_MAX,
    BROKEN_MAX,
    CLOSE,
    COMMITTED,
    DECIDED_BEFORE,
    FORGET,
    PARTICIPANTS_MAX,
    CommitSetParticipant,
    CommitSetRequest,
)
from penstock.wire.state import kind_of
from tests.examples import examples

from .coordinator_harness import DAY_MS, SETTINGS, TICKET, A, B, C, CoordinatorHarness, asked

FIRST, SECOND, THIRD = (transactional_id("q", number, "0.0") for number in range(3))
AGAIN = transactional_id("q", 0, "0.1")
"""A second attempt of the first task."""


def task(harness: CoordinatorHarness, name: str = FIRST, *partitions: TopicPartition, **options: Any) -> ProducerKey:
    """A task that has written, and left its transaction open."""
    producer = harness.producer(name, **options)
    assert set(harness.join(producer, *(partitions or (A,)), name=name).values()) == {ErrorCode.NONE}
    return producer


def tasks(harness: CoordinatorHarness, *names: str) -> dict[str, ProducerKey]:
    return {name: task(harness, name, A, B) for name in names or (FIRST, SECOND)}


def decided(harness: CoordinatorHarness, query: str = "q") -> int:
    return harness.machine.queries.last_batch_of(query)


def states(harness: CoordinatorHarness, *names: str) -> list[State]:
    return [harness.state(name).state for name in names]


def set_request(batch_id: int, participants: dict[str, ProducerKey]) -> CommitSetRequest:
    return CommitSetRequest(
        query="q",
        action=0,
        batch_id=batch_id,
        participants=[
            CommitSetParticipant(transactional_id=name, producer_id=key.producer_id, producer_epoch=key.epoch)
            for name, key in participants.items()
        ],
    )


def decide(harness: CoordinatorHarness, batch_id: int, participants: dict[str, ProducerKey]) -> Decision:
    """What would be done, without doing it."""
    return harness.machine.decide(TICKET, asked(set_request(batch_id, participants), 0), harness.now_ms)


# -- committing


def test_a_set_is_committed_whole_and_its_markers_are_written() -> None:
    harness = CoordinatorHarness()
    answer = harness.commit_set(0, tasks(harness))
    assert (answer.error_code, answer.outcome, answer.last_batch_id) == (0, COMMITTED, 0)
    assert (answer.aborted, answer.still_open, list(answer.broken)) == (0, 0, [])
    assert decided(harness) == 0
    assert states(harness, FIRST, SECOND) == [State.PREPARE_COMMIT] * 2
    orders = harness.write_markers()
    assert {(order.transactional_id, order.committed) for order in orders} == {(FIRST, True), (SECOND, True)}
    assert all(order.partitions == {A, B} for order in orders)
    assert states(harness, FIRST, SECOND) == [State.COMPLETE_COMMIT] * 2


def test_the_decision_and_every_commit_are_one_whole_of_records() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    left_open = task(harness, AGAIN)
    decision = decide(harness, 0, participants)
    assert decision.is_atomic
    assert [kind_of(record.key) for record in decision.persist] == [DECIDED, 0, 0, 0]
    assert [order.transactional_id for order in decision.effects] == [FIRST, SECOND, AGAIN]
    assert harness.state(AGAIN).producer == left_open, "nothing holds before it is persisted"


def test_a_set_that_could_not_be_persisted_can_be_asked_for_again() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    harness.broken = True
    assert harness.commit_set(0, participants) is None
    assert states(harness, FIRST, SECOND) == [State.ONGOING] * 2
    harness.broken = False
    assert harness.commit_set(0, participants).outcome == COMMITTED
    assert states(harness, FIRST, SECOND) == [State.PREPARE_COMMIT] * 2


def test_other_open_transactions_of_the_query_are_aborted_and_those_of_other_queries_not() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    task(harness, AGAIN)
    task(harness, THIRD)
    other = transactional_id("other", 0, "0.0")
    task(harness, other)
    task(harness, "id")
    answer = harness.commit_set(4, participants)
    assert (answer.error_code, answer.aborted) == (0, 2)
    assert states(harness, FIRST, SECOND) == [State.PREPARE_COMMIT] * 2
    assert states(harness, AGAIN, THIRD) == [State.PREPARE_ABORT] * 2
    assert states(harness, other, "id") == [State.ONGOING] * 2


def test_a_batch_without_participants_is_a_decision_too() -> None:
    harness = CoordinatorHarness()
    task(harness, AGAIN)
    answer = harness.commit_set(3, {})
    assert (answer.error_code, answer.outcome, answer.last_batch_id, answer.aborted) == (0, COMMITTED, 3, 1)
    assert decided(harness) == 3
    assert harness.commit_set(3, tasks(harness)).outcome == DECIDED_BEFORE


def test_batch_ids_may_skip_but_never_go_back() -> None:
    harness = CoordinatorHarness()
    for batch_id in (7, 8, 30):
        participants = tasks(harness)
        assert harness.commit_set(batch_id, participants).outcome == COMMITTED
        harness.write_markers()
    assert harness.commit_set(29, tasks(harness)).outcome == DECIDED_BEFORE
    assert decided(harness) == 30


def test_the_tasks_of_the_next_batch_use_the_same_ids() -> None:
    harness = CoordinatorHarness()
    lives = set()
    for batch_id in range(5):
        participants = tasks(harness)
        lives |= set(participants.values())
        assert harness.commit_set(batch_id, participants).outcome == COMMITTED
        harness.write_markers()
    assert len(lives) == 10, "each batch's task is a producer of its own"


def test_a_producer_whose_epochs_are_used_up_is_committed_and_followed_by_another() -> None:
    harness = CoordinatorHarness()
    known = Transaction(
        transactional_id=FIRST,
        producer_id=5,
        epoch=EPOCH_LAST - 1,
        timeout_ms=60_000,
        updated_ms=harness.now_ms,
    )
    harness.records.append(known.to_record())
    harness.restart()
    participants = {FIRST: task(harness)}
    assert participants[FIRST] == ProducerKey(5, EPOCH_LAST)
    assert harness.commit_set(0, participants).outcome == COMMITTED
    (order,) = harness.write_markers()
    assert (order.producer, order.committed) == (ProducerKey(5, EPOCH_MAX), True)
    assert task(harness) == ProducerKey(harness.fresh, 0)


# -- a set that is broken


def assert_broken(
    harness: CoordinatorHarness, participants: dict[str, ProducerKey], name: str, code: ErrorCode
) -> None:
    """Nothing of it is committed, and nothing of the query is open after it."""
    answer = harness.commit_set(0, participants)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert [(one.transactional_id, one.error_code) for one in answer.broken] == [(name, code)]
    assert name in (answer.error_message or "")
    assert decided(harness) == -1
    assert harness.machine.queries.open_of("q") == []
    assert not [order for order in harness.orders if order.committed]
    assert State.PREPARE_COMMIT not in states(harness, *harness.machine.transactions)


def test_a_participant_that_timed_out_breaks_the_set() -> None:
    harness = CoordinatorHarness()
    participants = {FIRST: task(harness, timeout_ms=1000), SECOND: task(harness, SECOND)}
    harness.advance(30_000)
    assert harness.state(FIRST).state is State.PREPARE_ABORT
    task(harness, AGAIN)
    assert_broken(harness, participants, FIRST, ErrorCode.PRODUCER_FENCED)
    assert states(harness, FIRST, SECOND, AGAIN) == [State.PREPARE_ABORT] * 3
    harness.write_markers()
    assert_broken(harness, participants | {SECOND: task(harness, SECOND)}, FIRST, ErrorCode.PRODUCER_FENCED)


def test_a_participant_that_was_replaced_breaks_the_set() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    assert harness.init(FIRST).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    harness.write_markers()
    task(harness, FIRST)
    assert_broken(harness, participants, FIRST, ErrorCode.PRODUCER_FENCED)


def test_a_participant_that_has_written_nothing_breaks_the_set() -> None:
    harness = CoordinatorHarness()
    participants = {FIRST: harness.producer(FIRST), SECOND: task(harness, SECOND)}
    assert_broken(harness, participants, FIRST, ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize("version", [4, 5])
def test_a_participant_that_ended_by_itself_breaks_the_set(version: int) -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    assert harness.end(participants[FIRST], committed=False, name=FIRST, version=version).error_code == 0
    code = ErrorCode.INVALID_TXN_STATE if version == 4 else ErrorCode.PRODUCER_FENCED
    assert_broken(harness, participants, FIRST, code)


def test_an_unknown_participant_breaks_the_set() -> None:
    harness = CoordinatorHarness()
    participants = {FIRST: ProducerKey(77, 0), SECOND: task(harness, SECOND)}
    assert_broken(harness, participants, FIRST, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_a_participant_under_another_producer_id_breaks_the_set() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    participants[SECOND] = ProducerKey(participants[SECOND].producer_id + 1000, participants[SECOND].epoch)
    assert_broken(harness, participants, SECOND, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_a_set_that_was_broken_is_broken_when_it_is_asked_for_again_and_its_batch_can_be_repeated() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness) | {THIRD: ProducerKey(77, 0)}
    first, second = harness.commit_set(0, participants), harness.commit_set(0, participants)
    assert (len(first.broken), len(second.broken)) == (1, 3)
    harness.write_markers()
    assert harness.commit_set(0, tasks(harness)).outcome == COMMITTED


def test_of_many_that_are_gone_the_first_are_named() -> None:
    harness = CoordinatorHarness()
    gone = {transactional_id("q", number, "0.0"): ProducerKey(7, 0) for number in range(BROKEN_MAX + 5)}
    answer = harness.commit_set(0, gone)
    assert [one.transactional_id for one in answer.broken] == list(gone)[:BROKEN_MAX]
    assert f"{BROKEN_MAX + 5} of its {BROKEN_MAX + 5}" in (answer.error_message or "")


# -- a batch that was decided before


@pytest.mark.parametrize("marked", [False, True])
def test_the_same_request_again_is_answered_as_the_first_time(marked: bool) -> None:
    """The answer was lost: the participants are prepared still, or complete."""
    harness = CoordinatorHarness()
    participants = tasks(harness)
    harness.commit_set(0, participants)
    if marked:
        harness.write_markers()
    before, records = dict(harness.machine.transactions), len(harness.records)
    answer = harness.commit_set(0, participants)
    assert (answer.error_code, answer.outcome, answer.aborted) == (0, COMMITTED, 0)
    assert harness.machine.transactions == before
    assert len(harness.records) == records


def test_a_batch_that_is_repeated_by_others_is_dropped() -> None:
    """The driver died between the decision and Spark's own commit; the next one has the batch written again."""
    harness = CoordinatorHarness()
    harness.commit_set(0, tasks(harness))
    harness.write_markers()
    repeated = tasks(harness)
    answer = harness.commit_set(0, repeated)
    assert (answer.error_code, answer.outcome, answer.aborted) == (0, DECIDED_BEFORE, 2)
    assert [order.committed for order in harness.write_markers()] == [False, False]
    assert states(harness, FIRST, SECOND) == [State.COMPLETE_ABORT] * 2
    assert harness.commit_set(0, repeated).outcome == DECIDED_BEFORE


def test_a_driver_that_comes_too_late_leaves_a_later_batch_alone() -> None:
    """Its own transactions are aborted; those that are open for the next batch are not its own."""
    harness = CoordinatorHarness()
    late = tasks(harness)
    harness.commit_set(0, late)
    harness.write_markers()
    coming = tasks(harness)
    zombie = {AGAIN: task(harness, AGAIN)}
    assert harness.commit_set(0, late).outcome == DECIDED_BEFORE
    answer = harness.commit_set(0, zombie)
    assert (answer.outcome, answer.aborted) == (DECIDED_BEFORE, 1)
    assert states(harness, FIRST, SECOND) == [State.ONGOING] * 2
    assert harness.commit_set(1, coming).outcome == COMMITTED


def test_of_two_drivers_with_one_batch_the_first_wins() -> None:
    harness = CoordinatorHarness()
    one, other = {FIRST: task(harness)}, {AGAIN: task(harness, AGAIN)}
    assert harness.commit_set(5, one).aborted == 1
    assert harness.commit_set(5, other).outcome == DECIDED_BEFORE
    assert states(harness, FIRST, AGAIN) == [State.PREPARE_COMMIT, State.PREPARE_ABORT]


def test_participants_that_are_gone_do_not_matter_once_the_batch_is_decided() -> None:
    harness = CoordinatorHarness()
    harness.commit_set(0, tasks(harness))
    answer = harness.commit_set(0, {THIRD: ProducerKey(77, 0)})
    assert (answer.error_code, answer.outcome, list(answer.broken)) == (0, DECIDED_BEFORE, [])


# -- tasks that do not know


def test_a_task_that_goes_on_after_the_decision_is_fenced() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    left_open = task(harness, AGAIN)
    harness.commit_set(0, participants)
    zombies = [(FIRST, participants[FIRST]), (AGAIN, left_open)]
    for name, producer in zombies:
        assert harness.join(producer, C, name=name) == {C: ErrorCode.CONCURRENT_TRANSACTIONS}
    harness.write_markers()
    for name, producer in zombies:
        assert harness.join(producer, C, name=name) == {C: ErrorCode.PRODUCER_FENCED}
        assert harness.join(producer, A, name=name, verify_only=True) == {A: ErrorCode.PRODUCER_FENCED}
        for committed in (False, True):
            assert harness.end(producer, committed=committed, name=name).error_code == ErrorCode.PRODUCER_FENCED
        assert harness.init(name, came=producer).error_code == ErrorCode.PRODUCER_FENCED
    assert states(harness, FIRST, AGAIN) == [State.COMPLETE_COMMIT, State.COMPLETE_ABORT]


def test_transactions_opened_after_the_decision_are_aborted_with_the_next_one() -> None:
    harness = CoordinatorHarness()
    harness.commit_set(0, tasks(harness))
    harness.write_markers()
    task(harness, AGAIN)
    answer = harness.commit_set(1, tasks(harness))
    assert (answer.outcome, answer.aborted) == (COMMITTED, 1)
    assert harness.state(AGAIN).state is State.PREPARE_ABORT


def test_an_abandoned_transaction_of_an_attempt_times_out() -> None:
    harness = CoordinatorHarness()
    task(harness, AGAIN, timeout_ms=1000)
    harness.advance(30_000)
    assert harness.state(AGAIN).state is State.PREPARE_ABORT
    assert harness.machine.queries.open_of("q") == []


# -- aborting and forgetting


def test_all_that_a_query_has_open_is_aborted_on_request() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    other = transactional_id("other", 0, "0.0")
    task(harness, other)
    answer = harness.commit_set(-1, {}, action=ABORT)
    assert (answer.error_code, answer.aborted, answer.still_open) == (0, 2, 0)
    assert states(harness, FIRST, SECOND, other) == [State.PREPARE_ABORT, State.PREPARE_ABORT, State.ONGOING]
    assert harness.commit_set(-1, {}, action=ABORT).aborted == 0
    harness.write_markers()
    assert harness.end(participants[FIRST], name=FIRST, committed=False).error_code == ErrorCode.PRODUCER_FENCED
    assert harness.commit_set(0, tasks(harness)).outcome == COMMITTED


@pytest.mark.parametrize("action", [ABORT, CLOSE, FORGET])
def test_one_request_aborts_a_limited_number_of_transactions(action: int) -> None:
    """Aborting 5,000 at once held up the event loop for 220 ms."""
    count = 2 * ABORTED_MAX + 1
    harness = CoordinatorHarness()
    for number in range(count):
        task(harness, transactional_id("q", number, "0.0"))
    answers = []
    while not answers or answers[-1].still_open:
        answers.append(harness.commit_set(-1, {}, action=action))
    assert [(answer.aborted, answer.still_open) for answer in answers] == [
        (ABORTED_MAX, ABORTED_MAX + 1),
        (ABORTED_MAX, 1),
        (1, 0),
    ]
    assert harness.machine.queries.open_of("q") == []


def test_a_query_that_is_forgotten_begins_anew() -> None:
    harness = CoordinatorHarness()
    done = tasks(harness)
    harness.commit_set(9, done)
    harness.write_markers()
    task(harness, AGAIN)
    answer = harness.commit_set(-1, {}, action=FORGET)
    assert (answer.error_code, answer.last_batch_id, answer.aborted) == (0, 9, 1)
    assert decided(harness) == -1
    harness.write_markers()
    assert harness.commit_set(9, done).error_code == ErrorCode.INVALID_TXN_STATE, "what is complete is not done again"
    records = len(harness.records)
    assert harness.commit_set(-1, {}, action=FORGET).error_code == 0
    assert len(harness.records) == records
    assert harness.commit_set(0, tasks(harness)).outcome == COMMITTED


def test_decisions_are_kept_when_the_ids_have_expired() -> None:
    harness = CoordinatorHarness()
    harness.commit_set(9, tasks(harness))
    harness.write_markers()
    harness.advance(30 * DAY_MS)
    assert not harness.machine.transactions
    assert decided(harness) == 9
    harness.restart()
    assert harness.commit_set(9, tasks(harness)).outcome == DECIDED_BEFORE


def test_a_new_coordinator_knows_decisions_and_open_transactions() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    task(harness, AGAIN)
    harness.commit_set(3, participants)
    task(harness, THIRD)
    before = dict(harness.machine.queries.decided)
    harness.restart()
    assert harness.machine.queries.decided == before
    assert harness.machine.queries.open_of("q") == [THIRD]
    assert harness.commit_set(3, participants).outcome == COMMITTED
    harness.advance(0)
    assert {(order.transactional_id, order.committed) for order in harness.write_markers()} == {
        (FIRST, True),
        (SECOND, True),
        (AGAIN, False),
    }


def test_a_coordinator_that_is_older_passes_over_what_it_does_not_know() -> None:
    machine = TransactionCoordinator(settings=SETTINGS, coordinator_epoch=1)
    machine.apply(StateRecord(key=b"\x75\x31\x00\x01q", value=b"\x00\x07from the future"), NO_PRODUCER)
    assert not machine.transactions
    assert not machine.queries.decided


# -- what makes no sense, and what is too much


@pytest.mark.parametrize(
    ("query", "batch_id", "names", "action"),
    [
        ("", 0, [], 0),
        ("a/b", 0, [], 0),
        ("q" * 101, 0, [], 0),
        ("q", -1, [], 0),
        ("q", 0, ["id"], 0),
        ("q", 0, ["spark/other/0/0.0"], 0),
        ("q", BATCH_ID_MAX + 1, [], 0),
        ("q", 0, [], 4),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(query: str, batch_id: int, names: list[str], action: int) -> None:
    harness = CoordinatorHarness()
    with pytest.raises(InvalidRequest):
        harness.commit_set(batch_id, dict.fromkeys(names, ProducerKey(1, 0)), query=query, action=action)


def test_a_participant_that_is_named_twice_is_refused() -> None:
    harness = CoordinatorHarness()
    producer = task(harness)
    one = CommitSetParticipant(
        transactional_id=FIRST, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )
    request = CommitSetRequest(query="q", action=0, batch_id=0, participants=[one, one])
    with pytest.raises(InvalidRequest, match="2 times"):
        harness.submit(asked(request, 0))
    assert harness.state(FIRST).state is State.ONGOING


def test_more_participants_than_are_allowed_are_refused() -> None:
    harness = CoordinatorHarness()
    many = {transactional_id("q", number, "0.0"): ProducerKey(1, 0) for number in range(PARTICIPANTS_MAX + 1)}
    with pytest.raises(SetTooLarge, match=f"{PARTICIPANTS_MAX + 1} transactions"):
        harness.commit_set(0, many)


def wide(harness: CoordinatorHarness, count: int, partitions: int) -> dict[str, ProducerKey]:
    """Tasks that have written to many partitions each."""
    everywhere = [TopicPartition("t", number) for number in range(partitions)]
    return {
        name: task(harness, name, *everywhere) for name in (transactional_id("q", n, "0.0") for n in range(count))
    }


def test_a_set_that_does_not_fit_into_one_batch_is_refused_and_stays_as_it_is() -> None:
    harness = CoordinatorHarness()
    participants = wide(harness, 30, 9000)
    with pytest.raises(SetTooLarge, match="fewer tasks"):
        harness.commit_set(0, participants)
    assert set(states(harness, *participants)) == {State.ONGOING}
    fitting = dict(list(participants.items())[:20])
    decision = decide(harness, 0, fitting)
    pairs = [(record.key, record.value) for record in decision.persist]
    assert len(build_pairs(pairs, harness.now_ms)) <= SET_BYTES_MAX < 1 << 20
    answer = harness.commit_set(0, fitting)
    assert answer.error_code == 0
    assert 0 < answer.aborted < 10, "as many of the others as fit beside them"
    assert answer.aborted + answer.still_open == 10
    assert harness.commit_set(-1, {}, action=ABORT).aborted == answer.still_open
    assert harness.machine.queries.open_of("q") == []


def test_only_so_many_queries_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transactions.commit_sets.QUERIES_MAX", 2)
    harness = CoordinatorHarness()
    for query in ("one", "two"):
        assert harness.commit_set(0, {}, query=query).error_code == 0
    with pytest.raises(TooManyQueries, match="forget"):
        harness.commit_set(0, {}, query="three")
    assert harness.commit_set(1, {}, query="two").error_code == 0
    assert harness.commit_set(-1, {}, query="one", action=FORGET).error_code == 0
    assert harness.commit_set(0, {}, query="three").error_code == 0


# -- properties


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "commit", "stale", "abort", "mark", "restart", "wait", "end"]),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=40,
)


@examples(150, deadline=None, database=None)
@given(STEPS)
def test_a_batch_is_committed_once_and_whole_in_random_sequences(steps: list[tuple[str, int, int]]) -> None:
    harness = CoordinatorHarness()
    names = [transactional_id("q", number % 2, f"0.{number // 2}") for number in range(4)]
    lives: dict[str, ProducerKey] = {}
    committed: dict[int, list[frozenset[tuple[str, ProducerKey]]]] = {}
    for step, number, batch_id in steps:
        name = names[number]
        if step == "write":
            answer = harness.init(name, timeout_ms=1000)
            if answer.error_code == 0:
                lives[name] = ProducerKey(answer.producer_id, answer.producer_epoch)
                harness.join(lives[name], A, name=name)
        elif step in ("commit", "stale"):
            given_now = dict(lives) if step == "commit" else dict(list(lives.items())[: number + 1])
            before = set(harness.machine.queries.open_of("q"))
            last = decided(harness)
            reply = harness.commit_set(batch_id, given_now)
            if batch_id > last and reply.error_code == 0:
                assert set(given_now) <= before
                committed.setdefault(batch_id, []).append(frozenset(given_now.items()))
                assert harness.machine.queries.open_of("q") == []
        elif step == "abort":
            harness.commit_set(-1, {}, action=ABORT)
        elif step == "mark":
            harness.write_markers()
        elif step == "restart":
            harness.restart()
            harness.advance(0)
        elif step == "end" and name in lives:
            harness.end(lives[name], committed=False, name=name)
        else:
            harness.advance(12_000)
    assert all(len(sets) == 1 for sets in committed.values())
    assert sorted(committed) == list(committed), "batches are decided in their order"
    ongoing = {name for name, known in harness.machine.transactions.items() if known.state is State.ONGOING}
    assert set(harness.machine.queries.open_of("q")) == ongoing


# -- prepared before it is decided


def prepared_decision(
    harness: CoordinatorHarness, batch_id: int, participants: dict[str, ProducerKey], change: str = ""
) -> Decision:
    """As `decide`, prepared first; `change` is a task that ends by itself in between."""
    request = set_request(batch_id, participants)
    prepared = run_steps(prepare_steps(harness.machine.transactions, request, harness.now_ms))
    if change:
        harness.end(participants[change], name=change, committed=False)
    return harness.machine.decide(TICKET, CommitPreparedSet(asked(request, 0), prepared), harness.now_ms)


def test_a_set_that_was_prepared_is_decided_as_one_that_was_not() -> None:
    names = [transactional_id("q", number, "0.0") for number in range(100)]
    plain, other = CoordinatorHarness(), CoordinatorHarness()
    expected = decide(plain, 0, tasks(plain, *names))
    found = prepared_decision(other, 0, tasks(other, *names))
    assert found.persist == expected.persist
    assert [effect.transactional_id for effect in found.effects] == names
    assert found.replies == expected.replies
    assert found.is_atomic


def test_the_decision_encodes_no_record_of_a_task_that_was_prepared() -> None:
    """Encoding takes most of the time, and the preparation is done in time slices."""
    harness = CoordinatorHarness()
    request = set_request(0, tasks(harness, *(transactional_id("q", number, "0.0") for number in range(300))))
    steps = prepare_steps(harness.machine.transactions, request, harness.now_ms)
    breaks = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            prepared = end.value
            break
        breaks += 1
    assert breaks == 2 * (300 // (STEP_MASK + 1)), "names are checked, then records are encoded"
    decision = harness.machine.decide(TICKET, CommitPreparedSet(asked(request, 0), prepared), harness.now_ms)
    assert [id(record) for record in decision.persist[1:]] == [id(one.record) for one in prepared.values()]


def test_a_task_that_changes_after_it_was_prepared_is_looked_at_again() -> None:
    harness = CoordinatorHarness()
    participants = tasks(harness)
    decision = prepared_decision(harness, 0, participants, change=SECOND)
    (reply,) = decision.replies
    assert reply.value.error_code == ErrorCode.INVALID_TXN_STATE
    assert [entry.transactional_id for entry in reply.value.broken] == [SECOND]


def test_invalid_requests_are_found_in_the_preparation() -> None:
    harness = CoordinatorHarness()
    request = set_request(0, {"spark/other/0/0.0": ProducerKey(1, 0)})
    with pytest.raises(InvalidRequest, match="is not in query"):
        run_steps(prepare_steps(harness.machine.transactions, request, harness.now_ms))
