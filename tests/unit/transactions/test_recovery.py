"""The whole state is in the records: a new coordinator continues."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import NO_PRODUCER, ProducerKey, StateRecord
from penstock.foundation.ids import TopicPartition
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.draft import Draft
from penstock.transactions.spark_queries import Decided
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, TV_2, Transaction
from penstock.wire.messages.commit_set import ABORT, CLOSE, COMMIT, FORGET
from penstock.wire.messages.end_txn import EndTxnRequest
from tests.examples import examples

from .coordinator_harness import SETTINGS, START_MS, A, B, CoordinatorHarness, asked
from .test_init_producer_id import at_epoch

TASK = "spark/q/0/0.0"
NAMES = ("one", TASK)
EPOCHS = (-1, 0, 1, 2, 3, EPOCH_LAST - 1, EPOCH_LAST)

steps = st.one_of(
    st.tuples(st.just("init"), st.sampled_from(NAMES), st.none() | st.sampled_from(EPOCHS)),
    st.tuples(st.just("join"), st.sampled_from(NAMES), st.sampled_from((A, B)), st.booleans()),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.booleans(), st.sampled_from((3, 5)), st.integers(0, 1)),
    st.tuples(st.just("set"), st.integers(0, 4), st.sampled_from((COMMIT, ABORT, FORGET, CLOSE))),
    st.tuples(st.just("mark"), st.integers(0, 3)),
    st.tuples(st.just("pass"), st.sampled_from((1, 5000, 70_000))),
    st.tuples(st.just("break"), st.booleans()),
    st.tuples(st.just("restart")),
)


def take(harness: CoordinatorHarness, step: tuple[Any, ...]) -> Any:
    """One step of a life; what was answered."""
    kind, *rest = step
    if kind == "init":
        name, epoch = rest
        known = harness.machine.transactions.get(name)
        came = None if epoch is None or epoch < 0 or known is None else ProducerKey(known.producer_id, epoch)
        return harness.init(name, came=came)
    if kind == "join":
        name, partition, verify_only = rest
        return harness.join(producer_of(harness, name), partition, name=name, verify_only=verify_only)
    if kind == "end":
        name, committed, version, back = rest
        producer = producer_of(harness, name)
        came = ProducerKey(producer.producer_id, producer.epoch - back)
        return harness.end(came, name=name, committed=committed, version=version)
    if kind == "set":
        batch_id, action = rest
        return harness.commit_set(batch_id, {TASK: producer_of(harness, TASK)}, action=action)
    if kind == "mark":
        if rest[0] < len(harness.orders):
            harness.tell(harness.orders[rest[0]].written())
    elif kind == "pass":
        harness.advance(rest[0])
    elif kind == "break":
        harness.broken = rest[0]
    elif kind == "restart":
        harness.restart()
    return None


def producer_of(harness: CoordinatorHarness, name: str) -> ProducerKey:
    known = harness.machine.transactions.get(name)
    return known.producer if known else ProducerKey(1, 0)


Known = tuple[dict[str, Transaction], dict[str, Decided], list[str]]


def known_to(machine: TransactionCoordinator) -> Known:
    return machine.transactions, machine.queries.decided, machine.queries.open_of("q")


def rebuilt(records: list[StateRecord]) -> Known:
    machine = TransactionCoordinator(settings=SETTINGS, coordinator_epoch=99)
    for record in records:
        machine.apply(record, NO_PRODUCER)
    return known_to(machine)


@given(st.lists(steps, max_size=40), st.sampled_from((0, EPOCH_LAST - 2, EPOCH_LAST)))
@examples(200)
def test_a_coordinator_is_recovered_from_its_records(life: list[Any], epoch: int) -> None:
    harness = CoordinatorHarness()
    at_epoch(harness, epoch, "one")
    for step in life:
        take(harness, step)
        assert rebuilt(harness.records) == known_to(harness.machine)
        newest = {record.key: record for record in harness.records}
        assert rebuilt(list(newest.values())) == known_to(harness.machine), "compaction loses nothing"


@given(st.lists(steps.filter(lambda step: step[0] in ("init", "join", "end", "set")), max_size=30))
@examples(200)
def test_a_life_with_restarts_is_answered_like_one_without(life: list[Any]) -> None:
    whole, broken_up = CoordinatorHarness(), CoordinatorHarness()
    for step in life:
        assert take(whole, step) == take(broken_up, step)
        whole.write_markers()
        broken_up.restart()
        broken_up.advance(0)
        broken_up.write_markers()
        assert known_to(whole.machine) == known_to(broken_up.machine)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [4, 5])
def test_the_markers_of_what_was_decided_are_ordered_again(committed: bool, version: int) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.join(producer, A, B)
    harness.end(producer, committed=committed, version=version)
    (before,) = harness.orders
    harness.restart()
    assert harness.machine.wake_at_ms == harness.now_ms
    harness.advance(0)
    (order,) = harness.orders
    assert (order.transactional_id, order.producer, order.committed) == ("id", before.producer, committed)
    assert order.partitions == {A, B}
    assert (before.coordinator_epoch, order.coordinator_epoch) == (1, 2)
    harness.tell(before.written())
    assert harness.state().is_prepared, "only the markers of the present coordinator count"
    harness.tell(order.written())
    assert harness.state().state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)


def test_the_markers_of_many_are_ordered_again_at_once() -> None:
    harness = CoordinatorHarness()
    for number in range(20):
        producer = harness.producer(f"id-{number}")
        harness.join(producer, A, name=f"id-{number}")
        if number % 2:
            harness.end(producer, name=f"id-{number}")
    harness.restart()
    harness.advance(0)
    assert {order.transactional_id for order in harness.orders} == {f"id-{number}" for number in range(1, 20, 2)}


def test_markers_are_ordered_again_though_nothing_can_be_persisted() -> None:
    harness = CoordinatorHarness()
    harness.producer("hung")
    harness.join(harness.state("hung").producer, A, name="hung")
    producer = harness.producer()
    harness.join(producer, A)
    harness.end(producer)
    harness.now_ms += 10_000_000
    harness.restart()
    harness.broken = True
    harness.advance(SETTINGS.abort_interval_ms)
    assert [order.transactional_id for order in harness.orders] == ["id"]


def test_a_decision_without_partitions_is_completed_when_it_is_read_back() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.end(producer, committed=False)
    harness.records.pop()  # the completion, lost with the end of the log
    harness.restart()
    assert harness.state().state is State.PREPARE_ABORT
    harness.advance(0)
    assert (harness.state().state, harness.orders) == (State.COMPLETE_ABORT, [])


def test_records_of_a_newer_broker_are_passed_over() -> None:
    harness = CoordinatorHarness()
    harness.producer()
    harness.records.append(StateRecord(key=b"\x00\x63anything", value=b"\x00\x00anything"))
    harness.restart()
    assert set(harness.machine.transactions) == {"id"}


def test_markers_in_the_state_topic_change_nothing() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    before = harness.state()
    harness.machine.end_transaction(producer.producer_id, True)
    assert harness.state() == before


# -- several ids in one decision


def test_several_ids_can_be_decided_on_together() -> None:
    harness = CoordinatorHarness()
    for name in NAMES:
        harness.join(harness.producer(name), TopicPartition(name, 0), name=name)
    draft = Draft(harness.machine.transactions, harness.machine.queries)
    for name in NAMES:
        draft.end(harness.state(name).prepared(True, TV_2, NO_PRODUCER, START_MS), START_MS)
    assert [transaction.transactional_id for transaction in draft.to_mark] == list(NAMES)
    for record in draft.records:
        harness.machine.apply(record, NO_PRODUCER)
    assert {harness.state(name).state for name in NAMES} == {State.PREPARE_COMMIT}


def test_a_draft_changes_nothing_by_itself() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.join(producer, A)
    request = EndTxnRequest(
        transactional_id="id", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=True
    )
    decision = harness.machine.decide(1, asked(request, 5), START_MS)
    assert decision.persist
    assert harness.state().state is State.ONGOING
    assert harness.join(producer, B) == {B: ErrorCode.NONE}
