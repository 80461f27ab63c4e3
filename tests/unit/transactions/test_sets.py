"""CommitSet: the transactions of one query, ended by one decision."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, Decision, ProducerKey, StateRecord
from penstock.foundation.errors import InvalidRequest
from penstock.foundation.ids import TopicPartition
from penstock.foundation.spark_ids import transactional_id
from penstock.foundation.steps import run_steps
from penstock.records.build import build_pairs
from penstock.transactions.commands import CommitPreparedSet
from penstock.transactions.commit_sets import SET_BYTES_MAX, prepare_steps
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.errors import SetTooLarge, TooManyQueries
from penstock.transactions.records import DECIDED
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX, Transaction
from penstock.wire.messages.commit_set import (
    ABORT,
    BATCH_ID_MAX,
    BROKEN_MAX,
    COMMITTED,
    DECIDED_BEFORE,
    FORGET,
    PARTICIPANTS_MAX,
    CommitSetParticipant,
    CommitSetRequest,
)
from penstock.wire.state import kind_of

from .driving import DAY_MS, SETTINGS, TICKET, A, B, C, Place, asked

FIRST, SECOND, THIRD = (transactional_id("q", number, "0.0") for number in range(3))
AGAIN = transactional_id("q", 0, "0.1")
"""A second attempt of the first task."""


def task(place: Place, name: str = FIRST, *partitions: TopicPartition, **options: Any) -> ProducerKey:
    """A task that has written, and left its transaction open."""
    producer = place.producer(name, **options)
    assert set(place.join(producer, *(partitions or (A,)), name=name).values()) == {ErrorCode.NONE}
    return producer


def tasks(place: Place, *names: str) -> dict[str, ProducerKey]:
    return {name: task(place, name, A, B) for name in names or (FIRST, SECOND)}


def decided(place: Place, query: str = "q") -> int:
    return place.machine.queries.last_batch_of(query)


def states(place: Place, *names: str) -> list[State]:
    return [place.state(name).state for name in names]


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


def decide(place: Place, batch_id: int, participants: dict[str, ProducerKey]) -> Decision:
    """What would be done, without doing it."""
    return place.machine.decide(TICKET, asked(set_request(batch_id, participants), 0), place.now_ms)


# -- committing


def test_a_set_is_committed_whole_and_its_partitions_are_told() -> None:
    place = Place()
    answer = place.commit_set(0, tasks(place))
    assert (answer.error_code, answer.outcome, answer.last_batch_id) == (0, COMMITTED, 0)
    assert (answer.aborted, answer.still_open, list(answer.broken)) == (0, 0, [])
    assert decided(place) == 0
    assert states(place, FIRST, SECOND) == [State.PREPARE_COMMIT] * 2
    orders = place.write_markers()
    assert {(order.transactional_id, order.committed) for order in orders} == {(FIRST, True), (SECOND, True)}
    assert all(order.partitions == {A, B} for order in orders)
    assert states(place, FIRST, SECOND) == [State.COMPLETE_COMMIT] * 2


def test_the_decision_and_every_commit_are_one_whole_of_records() -> None:
    place = Place()
    participants = tasks(place)
    left_open = task(place, AGAIN)
    decision = decide(place, 0, participants)
    assert decision.is_atomic
    assert [kind_of(record.key) for record in decision.persist] == [DECIDED, 0, 0, 0]
    assert [order.transactional_id for order in decision.effects] == [FIRST, SECOND, AGAIN]
    assert place.state(AGAIN).producer == left_open, "nothing holds before it is persisted"


def test_a_set_that_could_not_be_persisted_can_be_asked_for_again() -> None:
    place = Place()
    participants = tasks(place)
    place.broken = True
    assert place.commit_set(0, participants) is None
    assert states(place, FIRST, SECOND) == [State.ONGOING] * 2
    place.broken = False
    assert place.commit_set(0, participants).outcome == COMMITTED
    assert states(place, FIRST, SECOND) == [State.PREPARE_COMMIT] * 2


def test_whatever_else_the_query_has_open_is_aborted_and_no_other_query_is() -> None:
    place = Place()
    participants = tasks(place)
    task(place, AGAIN)
    task(place, THIRD)
    other = transactional_id("other", 0, "0.0")
    task(place, other)
    task(place, "id")
    answer = place.commit_set(4, participants)
    assert (answer.error_code, answer.aborted) == (0, 2)
    assert states(place, FIRST, SECOND) == [State.PREPARE_COMMIT] * 2
    assert states(place, AGAIN, THIRD) == [State.PREPARE_ABORT] * 2
    assert states(place, other, "id") == [State.ONGOING] * 2


def test_a_batch_without_participants_is_a_decision_too() -> None:
    place = Place()
    task(place, AGAIN)
    answer = place.commit_set(3, {})
    assert (answer.error_code, answer.outcome, answer.last_batch_id, answer.aborted) == (0, COMMITTED, 3, 1)
    assert decided(place) == 3
    assert place.commit_set(3, tasks(place)).outcome == DECIDED_BEFORE


def test_batch_ids_may_skip_but_never_go_back() -> None:
    place = Place()
    for batch_id in (7, 8, 30):
        participants = tasks(place)
        assert place.commit_set(batch_id, participants).outcome == COMMITTED
        place.write_markers()
    assert place.commit_set(29, tasks(place)).outcome == DECIDED_BEFORE
    assert decided(place) == 30


def test_the_tasks_of_the_next_batch_use_the_same_ids() -> None:
    place = Place()
    lives = set()
    for batch_id in range(5):
        participants = tasks(place)
        lives |= set(participants.values())
        assert place.commit_set(batch_id, participants).outcome == COMMITTED
        place.write_markers()
    assert len(lives) == 10, "each batch's task is a producer of its own"


def test_a_producer_whose_epochs_are_used_up_is_committed_and_followed_by_another() -> None:
    place = Place()
    known = Transaction(
        transactional_id=FIRST,
        producer_id=5,
        epoch=EPOCH_LAST - 1,
        timeout_ms=60_000,
        updated_ms=place.now_ms,
    )
    place.records.append(known.to_record())
    place.restart()
    participants = {FIRST: task(place)}
    assert participants[FIRST] == ProducerKey(5, EPOCH_LAST)
    assert place.commit_set(0, participants).outcome == COMMITTED
    (order,) = place.write_markers()
    assert (order.producer, order.committed) == (ProducerKey(5, EPOCH_MAX), True)
    assert task(place) == ProducerKey(place.fresh, 0)


# -- a set that is broken


def assert_broken(place: Place, participants: dict[str, ProducerKey], name: str, code: ErrorCode) -> None:
    """Nothing of it is committed, and nothing of the query is open after it."""
    answer = place.commit_set(0, participants)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert [(one.transactional_id, one.error_code) for one in answer.broken] == [(name, code)]
    assert name in (answer.error_message or "")
    assert decided(place) == -1
    assert place.machine.queries.open_of("q") == []
    assert not [order for order in place.orders if order.committed]
    assert State.PREPARE_COMMIT not in states(place, *place.machine.transactions)


def test_a_participant_that_timed_out_breaks_the_set() -> None:
    place = Place()
    participants = {FIRST: task(place, timeout_ms=1000), SECOND: task(place, SECOND)}
    place.advance(30_000)
    assert place.state(FIRST).state is State.PREPARE_ABORT
    task(place, AGAIN)
    assert_broken(place, participants, FIRST, ErrorCode.PRODUCER_FENCED)
    assert states(place, FIRST, SECOND, AGAIN) == [State.PREPARE_ABORT] * 3
    place.write_markers()
    assert_broken(place, participants | {SECOND: task(place, SECOND)}, FIRST, ErrorCode.PRODUCER_FENCED)


def test_a_participant_that_was_replaced_breaks_the_set() -> None:
    place = Place()
    participants = tasks(place)
    assert place.init(FIRST).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    place.write_markers()
    task(place, FIRST)
    assert_broken(place, participants, FIRST, ErrorCode.PRODUCER_FENCED)


def test_a_participant_that_has_written_nothing_breaks_the_set() -> None:
    place = Place()
    participants = {FIRST: place.producer(FIRST), SECOND: task(place, SECOND)}
    assert_broken(place, participants, FIRST, ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize("version", [4, 5])
def test_a_participant_that_ended_by_itself_breaks_the_set(version: int) -> None:
    place = Place()
    participants = tasks(place)
    assert place.end(participants[FIRST], committed=False, name=FIRST, version=version).error_code == 0
    code = ErrorCode.INVALID_TXN_STATE if version == 4 else ErrorCode.PRODUCER_FENCED
    assert_broken(place, participants, FIRST, code)


def test_a_participant_that_nobody_knows_breaks_the_set() -> None:
    place = Place()
    participants = {FIRST: ProducerKey(77, 0), SECOND: task(place, SECOND)}
    assert_broken(place, participants, FIRST, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_a_participant_under_another_producer_id_breaks_the_set() -> None:
    place = Place()
    participants = tasks(place)
    participants[SECOND] = ProducerKey(participants[SECOND].producer_id + 1000, participants[SECOND].epoch)
    assert_broken(place, participants, SECOND, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def test_a_set_that_was_broken_is_broken_when_it_is_asked_for_again_and_its_batch_can_be_repeated() -> None:
    place = Place()
    participants = tasks(place) | {THIRD: ProducerKey(77, 0)}
    first, second = place.commit_set(0, participants), place.commit_set(0, participants)
    assert (len(first.broken), len(second.broken)) == (1, 3)
    place.write_markers()
    assert place.commit_set(0, tasks(place)).outcome == COMMITTED


def test_of_many_that_are_gone_the_first_are_named() -> None:
    place = Place()
    gone = {transactional_id("q", number, "0.0"): ProducerKey(7, 0) for number in range(BROKEN_MAX + 5)}
    answer = place.commit_set(0, gone)
    assert [one.transactional_id for one in answer.broken] == list(gone)[:BROKEN_MAX]
    assert f"{BROKEN_MAX + 5} of its {BROKEN_MAX + 5}" in (answer.error_message or "")


# -- a batch that was decided before


@pytest.mark.parametrize("marked", [False, True])
def test_the_same_request_again_is_answered_as_the_first_time(marked: bool) -> None:
    """The answer was lost: the participants are prepared still, or complete."""
    place = Place()
    participants = tasks(place)
    place.commit_set(0, participants)
    if marked:
        place.write_markers()
    before, records = dict(place.machine.transactions), len(place.records)
    answer = place.commit_set(0, participants)
    assert (answer.error_code, answer.outcome, answer.aborted) == (0, COMMITTED, 0)
    assert place.machine.transactions == before
    assert len(place.records) == records


def test_a_batch_that_is_repeated_by_others_is_dropped() -> None:
    """The driver died between the decision and Spark's own commit; the next one has the batch written again."""
    place = Place()
    place.commit_set(0, tasks(place))
    place.write_markers()
    repeated = tasks(place)
    answer = place.commit_set(0, repeated)
    assert (answer.error_code, answer.outcome, answer.aborted) == (0, DECIDED_BEFORE, 2)
    assert [order.committed for order in place.write_markers()] == [False, False]
    assert states(place, FIRST, SECOND) == [State.COMPLETE_ABORT] * 2
    assert place.commit_set(0, repeated).outcome == DECIDED_BEFORE


def test_a_driver_that_comes_too_late_leaves_a_later_batch_alone() -> None:
    """Its own transactions are aborted; those that are open for the next batch are not its own."""
    place = Place()
    late = tasks(place)
    place.commit_set(0, late)
    place.write_markers()
    coming = tasks(place)
    zombie = {AGAIN: task(place, AGAIN)}
    assert place.commit_set(0, late).outcome == DECIDED_BEFORE
    answer = place.commit_set(0, zombie)
    assert (answer.outcome, answer.aborted) == (DECIDED_BEFORE, 1)
    assert states(place, FIRST, SECOND) == [State.ONGOING] * 2
    assert place.commit_set(1, coming).outcome == COMMITTED


def test_of_two_drivers_with_one_batch_the_first_wins() -> None:
    place = Place()
    one, other = {FIRST: task(place)}, {AGAIN: task(place, AGAIN)}
    assert place.commit_set(5, one).aborted == 1
    assert place.commit_set(5, other).outcome == DECIDED_BEFORE
    assert states(place, FIRST, AGAIN) == [State.PREPARE_COMMIT, State.PREPARE_ABORT]


def test_participants_that_are_gone_do_not_matter_once_the_batch_is_decided() -> None:
    place = Place()
    place.commit_set(0, tasks(place))
    answer = place.commit_set(0, {THIRD: ProducerKey(77, 0)})
    assert (answer.error_code, answer.outcome, list(answer.broken)) == (0, DECIDED_BEFORE, [])


# -- tasks that do not know


def test_a_task_that_goes_on_after_the_decision_is_shut_out() -> None:
    place = Place()
    participants = tasks(place)
    left_open = task(place, AGAIN)
    place.commit_set(0, participants)
    zombies = [(FIRST, participants[FIRST]), (AGAIN, left_open)]
    for name, producer in zombies:
        assert place.join(producer, C, name=name) == {C: ErrorCode.CONCURRENT_TRANSACTIONS}
    place.write_markers()
    for name, producer in zombies:
        assert place.join(producer, C, name=name) == {C: ErrorCode.PRODUCER_FENCED}
        assert place.join(producer, A, name=name, verify_only=True) == {A: ErrorCode.PRODUCER_FENCED}
        for committed in (False, True):
            assert place.end(producer, committed=committed, name=name).error_code == ErrorCode.PRODUCER_FENCED
        assert place.init(name, came=producer).error_code == ErrorCode.PRODUCER_FENCED
    assert states(place, FIRST, AGAIN) == [State.COMPLETE_COMMIT, State.COMPLETE_ABORT]


def test_what_an_attempt_opens_after_the_decision_is_aborted_with_the_next_one() -> None:
    place = Place()
    place.commit_set(0, tasks(place))
    place.write_markers()
    task(place, AGAIN)
    answer = place.commit_set(1, tasks(place))
    assert (answer.outcome, answer.aborted) == (COMMITTED, 1)
    assert place.state(AGAIN).state is State.PREPARE_ABORT


def test_what_an_attempt_opens_and_nobody_ends_times_out() -> None:
    place = Place()
    task(place, AGAIN, timeout_ms=1000)
    place.advance(30_000)
    assert place.state(AGAIN).state is State.PREPARE_ABORT
    assert place.machine.queries.open_of("q") == []


# -- aborting and forgetting


def test_all_that_a_query_has_open_is_aborted_on_request() -> None:
    place = Place()
    participants = tasks(place)
    other = transactional_id("other", 0, "0.0")
    task(place, other)
    answer = place.commit_set(-1, {}, action=ABORT)
    assert (answer.error_code, answer.aborted, answer.still_open) == (0, 2, 0)
    assert states(place, FIRST, SECOND, other) == [State.PREPARE_ABORT, State.PREPARE_ABORT, State.ONGOING]
    assert place.commit_set(-1, {}, action=ABORT).aborted == 0
    place.write_markers()
    assert place.end(participants[FIRST], name=FIRST, committed=False).error_code == ErrorCode.PRODUCER_FENCED
    assert place.commit_set(0, tasks(place)).outcome == COMMITTED


def test_a_query_that_is_forgotten_begins_anew() -> None:
    place = Place()
    done = tasks(place)
    place.commit_set(9, done)
    place.write_markers()
    task(place, AGAIN)
    answer = place.commit_set(-1, {}, action=FORGET)
    assert (answer.error_code, answer.last_batch_id, answer.aborted) == (0, 9, 1)
    assert decided(place) == -1
    place.write_markers()
    assert place.commit_set(9, done).error_code == ErrorCode.INVALID_TXN_STATE, "what is complete is not done again"
    records = len(place.records)
    assert place.commit_set(-1, {}, action=FORGET).error_code == 0
    assert len(place.records) == records
    assert place.commit_set(0, tasks(place)).outcome == COMMITTED


def test_what_was_decided_is_kept_when_the_ids_have_expired() -> None:
    place = Place()
    place.commit_set(9, tasks(place))
    place.write_markers()
    place.advance(30 * DAY_MS)
    assert not place.machine.transactions
    assert decided(place) == 9
    place.restart()
    assert place.commit_set(9, tasks(place)).outcome == DECIDED_BEFORE


def test_who_takes_over_knows_what_was_decided_and_what_is_open() -> None:
    place = Place()
    participants = tasks(place)
    task(place, AGAIN)
    place.commit_set(3, participants)
    task(place, THIRD)
    before = dict(place.machine.queries.decided)
    place.restart()
    assert place.machine.queries.decided == before
    assert place.machine.queries.open_of("q") == [THIRD]
    assert place.commit_set(3, participants).outcome == COMMITTED
    place.advance(0)
    assert {(order.transactional_id, order.committed) for order in place.write_markers()} == {
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
    place = Place()
    with pytest.raises(InvalidRequest):
        place.commit_set(batch_id, dict.fromkeys(names, ProducerKey(1, 0)), query=query, action=action)


def test_a_participant_that_is_named_twice_is_refused() -> None:
    place = Place()
    producer = task(place)
    one = CommitSetParticipant(
        transactional_id=FIRST, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )
    request = CommitSetRequest(query="q", action=0, batch_id=0, participants=[one, one])
    with pytest.raises(InvalidRequest, match="2 times"):
        place.submit(asked(request, 0))
    assert place.state(FIRST).state is State.ONGOING


def test_more_participants_than_are_allowed_are_refused() -> None:
    place = Place()
    many = {transactional_id("q", number, "0.0"): ProducerKey(1, 0) for number in range(PARTICIPANTS_MAX + 1)}
    with pytest.raises(SetTooLarge, match=f"{PARTICIPANTS_MAX + 1} transactions"):
        place.commit_set(0, many)


def wide(place: Place, count: int, partitions: int) -> dict[str, ProducerKey]:
    """Tasks that have written to many partitions each."""
    everywhere = [TopicPartition("t", number) for number in range(partitions)]
    return {name: task(place, name, *everywhere) for name in (transactional_id("q", n, "0.0") for n in range(count))}


def test_a_set_that_does_not_fit_into_one_batch_is_refused_and_stays_as_it_is() -> None:
    place = Place()
    participants = wide(place, 30, 9000)
    with pytest.raises(SetTooLarge, match="fewer tasks"):
        place.commit_set(0, participants)
    assert set(states(place, *participants)) == {State.ONGOING}
    fitting = dict(list(participants.items())[:20])
    decision = decide(place, 0, fitting)
    pairs = [(record.key, record.value) for record in decision.persist]
    assert len(build_pairs(pairs, place.now_ms)) <= SET_BYTES_MAX < 1 << 20
    answer = place.commit_set(0, fitting)
    assert answer.error_code == 0
    assert 0 < answer.aborted < 10, "as many of the others as fit beside them"
    assert answer.aborted + answer.still_open == 10
    assert place.commit_set(-1, {}, action=ABORT).aborted == answer.still_open
    assert place.machine.queries.open_of("q") == []


def test_only_so_many_queries_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transactions.commit_sets.QUERIES_MAX", 2)
    place = Place()
    for query in ("one", "two"):
        assert place.commit_set(0, {}, query=query).error_code == 0
    with pytest.raises(TooManyQueries, match="forget"):
        place.commit_set(0, {}, query="three")
    assert place.commit_set(1, {}, query="two").error_code == 0
    assert place.commit_set(-1, {}, query="one", action=FORGET).error_code == 0
    assert place.commit_set(0, {}, query="three").error_code == 0


# -- properties


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "commit", "stale", "abort", "mark", "restart", "wait", "end"]),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None, database=None)
@given(STEPS)
def test_whatever_happens_a_batch_is_committed_once_and_whole(steps: list[tuple[str, int, int]]) -> None:
    place = Place()
    names = [transactional_id("q", number % 2, f"0.{number // 2}") for number in range(4)]
    lives: dict[str, ProducerKey] = {}
    committed: dict[int, list[frozenset[tuple[str, ProducerKey]]]] = {}
    for step, number, batch_id in steps:
        name = names[number]
        if step == "write":
            answer = place.init(name, timeout_ms=1000)
            if answer.error_code == 0:
                lives[name] = ProducerKey(answer.producer_id, answer.producer_epoch)
                place.join(lives[name], A, name=name)
        elif step in ("commit", "stale"):
            given_now = dict(lives) if step == "commit" else dict(list(lives.items())[: number + 1])
            before = set(place.machine.queries.open_of("q"))
            last = decided(place)
            reply = place.commit_set(batch_id, given_now)
            if batch_id > last and reply.error_code == 0:
                assert set(given_now) <= before
                committed.setdefault(batch_id, []).append(frozenset(given_now.items()))
                assert place.machine.queries.open_of("q") == []
        elif step == "abort":
            place.commit_set(-1, {}, action=ABORT)
        elif step == "mark":
            place.write_markers()
        elif step == "restart":
            place.restart()
            place.advance(0)
        elif step == "end" and name in lives:
            place.end(lives[name], committed=False, name=name)
        else:
            place.advance(12_000)
    assert all(len(sets) == 1 for sets in committed.values())
    assert sorted(committed) == list(committed), "batches are decided in their order"
    ongoing = {name for name, known in place.machine.transactions.items() if known.state is State.ONGOING}
    assert set(place.machine.queries.open_of("q")) == ongoing


# -- prepared before it is decided


def prepared_decision(
    place: Place, batch_id: int, participants: dict[str, ProducerKey], change: str = ""
) -> Decision:
    """As `decide`, prepared first; `change` is a task that ends by itself in between."""
    request = set_request(batch_id, participants)
    prepared = run_steps(prepare_steps(place.machine.transactions, request, place.now_ms))
    if change:
        place.end(participants[change], name=change, committed=False)
    return place.machine.decide(TICKET, CommitPreparedSet(asked(request, 0), prepared), place.now_ms)


def test_a_set_that_was_prepared_is_decided_as_one_that_was_not() -> None:
    names = [transactional_id("q", number, "0.0") for number in range(100)]
    plain, other = Place(), Place()
    expected = decide(plain, 0, tasks(plain, *names))
    found = prepared_decision(other, 0, tasks(other, *names))
    assert found.persist == expected.persist
    assert [effect.transactional_id for effect in found.effects] == names
    assert found.replies == expected.replies
    assert found.is_atomic


def test_a_task_that_changes_after_it_was_prepared_is_looked_at_again() -> None:
    place = Place()
    participants = tasks(place)
    decision = prepared_decision(place, 0, participants, change=SECOND)
    (reply,) = decision.replies
    assert reply.value.error_code == ErrorCode.INVALID_TXN_STATE
    assert [entry.transactional_id for entry in reply.value.broken] == [SECOND]


def test_what_is_wrong_with_a_request_is_found_while_it_is_prepared() -> None:
    place = Place()
    request = set_request(0, {"spark/other/0/0.0": ProducerKey(1, 0)})
    with pytest.raises(InvalidRequest, match="is not in query"):
        run_steps(prepare_steps(place.machine.transactions, request, place.now_ms))
