"""EndTxn: transactions commit and abort, and clients retry."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.transactions.coordinator import RETRY_MS
from penstock.transactions.errors import NeedsProducerId
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

from .coordinator_harness import START_MS, A, B, CoordinatorHarness, asked
from .test_init_producer_id import at_epoch, fenced

OLD, NEW = 4, 5
"""Versions of EndTxn before and since each transaction has an epoch of its own."""

both_outcomes = pytest.mark.parametrize("committed", [True, False])
both_versions = pytest.mark.parametrize("version", [OLD, NEW])
COMPLETE = {True: State.COMPLETE_COMMIT, False: State.COMPLETE_ABORT}
PREPARE = {True: State.PREPARE_COMMIT, False: State.PREPARE_ABORT}


def outcome(answer: EndTxnResponse) -> tuple[int, ProducerKey]:
    return answer.error_code, ProducerKey(answer.producer_id, answer.producer_epoch)


NO_EPOCH = ProducerKey(-1, -1)


def ongoing(harness: CoordinatorHarness, name: str = "id") -> ProducerKey:
    producer = harness.producer(name)
    harness.join(producer, A, B, name=name)
    return producer


def ended(harness: CoordinatorHarness, *, committed: bool, version: int) -> ProducerKey:
    """A transaction that has ended; returns its producer id and epoch."""
    producer = ongoing(harness)
    assert harness.end(producer, committed=committed, version=version).error_code == ErrorCode.NONE
    harness.write_markers()
    assert harness.state().state is COMPLETE[committed]
    return producer


# -- in both versions


@both_versions
@both_outcomes
def test_a_transaction_is_decided_then_marked_then_complete(committed: bool, version: int) -> None:
    harness = CoordinatorHarness()
    producer = ongoing(harness)
    harness.advance(5)
    assert harness.end(producer, committed=committed, version=version).error_code == ErrorCode.NONE
    assert (harness.state().state, harness.state().updated_ms) == (PREPARE[committed], START_MS + 5)
    (order,) = harness.orders
    assert (order.transactional_id, order.committed, order.partitions) == ("id", committed, {A, B})
    assert (order.coordinator_epoch, order.producer) == (harness.epoch, harness.state().producer)
    assert order.transaction_version == (2 if version == NEW else 0)
    harness.advance(5)
    harness.tell(order.written())
    state = harness.state()
    assert (state.state, state.partitions, state.updated_ms) == (COMPLETE[committed], frozenset(), START_MS + 10)
    assert state.started_ms == START_MS


@both_versions
@both_outcomes
def test_a_decision_that_could_not_be_persisted_can_be_made_again(committed: bool, version: int) -> None:
    harness = CoordinatorHarness()
    producer = ongoing(harness)
    harness.broken = True
    assert harness.end(producer, committed=committed, version=version) is None
    harness.broken = False
    assert harness.state().state is State.ONGOING
    assert harness.orders == []
    assert harness.end(producer, committed=committed, version=version).error_code == ErrorCode.NONE
    harness.write_markers()
    assert harness.state().state is COMPLETE[committed]


@both_versions
@both_outcomes
@pytest.mark.parametrize("asked_for", [True, False])
def test_while_the_markers_are_written_nothing_else_is_decided(
    committed: bool, version: int, asked_for: bool
) -> None:
    harness = CoordinatorHarness()
    producer = ongoing(harness)
    harness.end(producer, committed=committed, version=version)
    again = harness.end(producer, committed=asked_for, version=version)
    assert outcome(again) == (ErrorCode.CONCURRENT_TRANSACTIONS, NO_EPOCH)
    assert len(harness.orders) == 1


@both_versions
def test_an_empty_transactional_id_is_refused(version: int) -> None:
    answer = CoordinatorHarness().end(ProducerKey(1, 0), name="", version=version)
    assert outcome(answer) == (ErrorCode.INVALID_REQUEST, NO_EPOCH)


@both_versions
def test_an_id_that_is_not_known_is_refused(version: int) -> None:
    answer = CoordinatorHarness().end(ProducerKey(1, 0), version=version)
    assert outcome(answer) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NO_EPOCH)


@both_versions
@both_outcomes
def test_the_producer_id_of_another_is_refused(committed: bool, version: int) -> None:
    harness = CoordinatorHarness()
    ongoing(harness)
    answer = harness.end(ProducerKey(999, 0), committed=committed, version=version)
    assert outcome(answer) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NO_EPOCH)


@both_versions
@both_outcomes
@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_is_fenced(committed: bool, version: int, epoch: int) -> None:
    harness = CoordinatorHarness()
    harness.producer()
    ongoing(harness)
    answer = harness.end(ProducerKey(1001, epoch), committed=committed, version=version)
    assert outcome(answer) == (ErrorCode.PRODUCER_FENCED, NO_EPOCH)
    assert harness.state().state is State.ONGOING


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_older_clients_get_invalid_producer_epoch(version: int, code: ErrorCode) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.producer()
    assert harness.end(producer, version=version).error_code == code


@both_versions
def test_a_commit_without_a_begin_is_invalid(version: int) -> None:
    harness = CoordinatorHarness()
    answer = harness.end(harness.producer(), version=version)
    assert outcome(answer) == (ErrorCode.INVALID_TXN_STATE, NO_EPOCH)


# -- clients that keep their epoch


def test_an_older_client_gets_no_epoch() -> None:
    harness = CoordinatorHarness()
    producer = ongoing(harness)
    assert outcome(harness.end(producer, version=OLD)) == (ErrorCode.NONE, NO_EPOCH)
    harness.write_markers()
    assert harness.state().producer == producer


@both_outcomes
def test_a_retry_of_an_older_client_gets_the_same_response(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = ended(harness, committed=committed, version=OLD)
    recorded = len(harness.records)
    assert outcome(harness.end(producer, committed=committed, version=OLD)) == (ErrorCode.NONE, NO_EPOCH)
    # Said again: a coordinator that has been replaced, and may not know of a later transaction, cannot do that.
    assert harness.records[recorded:] == harness.records[recorded - 1 : recorded]


@both_outcomes
def test_an_older_client_cannot_have_it_otherwise(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = ended(harness, committed=committed, version=OLD)
    answer = harness.end(producer, committed=not committed, version=OLD)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert harness.state().state is COMPLETE[committed]


def test_an_older_client_that_has_not_begun_has_nothing_to_abort() -> None:
    harness = CoordinatorHarness()
    answer = harness.end(harness.producer(), committed=False, version=OLD)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE


def test_an_older_client_runs_one_transaction_after_the_other_in_one_epoch() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    for _ in range(3):
        assert harness.committed(producer, version=OLD) == producer


# -- clients whose transactions have epochs of their own (KIP-890)


@both_outcomes
def test_a_newer_client_gets_its_next_epoch(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = ongoing(harness)
    following = ProducerKey(producer.producer_id, producer.epoch + 1)
    assert outcome(harness.end(producer, committed=committed)) == (ErrorCode.NONE, following)
    (order,) = harness.orders
    assert order.producer == following
    harness.write_markers()
    assert harness.join(following, A) == {A: ErrorCode.NONE}
    assert harness.join(producer, A) == {A: ErrorCode.PRODUCER_FENCED}


@both_outcomes
def test_a_retry_of_a_newer_client_gets_the_same_response(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = ended(harness, committed=committed, version=NEW)
    recorded = len(harness.records)
    for _ in range(2):
        assert outcome(harness.end(producer, committed=committed)) == (ErrorCode.NONE, harness.state().producer)
        harness.restart()
    assert len(harness.records) == recorded


def test_a_committed_transaction_cannot_be_aborted_by_a_retry() -> None:
    harness = CoordinatorHarness()
    producer = ended(harness, committed=True, version=NEW)
    assert harness.end(producer, committed=False).error_code == ErrorCode.INVALID_TXN_STATE


def test_a_commit_of_an_aborted_transaction_is_fenced() -> None:
    harness = CoordinatorHarness()
    producer = ended(harness, committed=False, version=NEW)
    assert harness.end(producer, committed=True).error_code == ErrorCode.PRODUCER_FENCED


@both_outcomes
def test_a_newer_client_that_has_not_begun_cannot_commit(committed: bool) -> None:
    harness = CoordinatorHarness()
    ended(harness, committed=committed, version=NEW)
    assert harness.end(harness.state().producer, committed=True).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("before", [None, True, False])
def test_a_newer_client_that_does_not_know_whether_it_has_begun_can_abort(before: bool | None) -> None:
    harness = CoordinatorHarness()
    if before is None:
        harness.producer()
    else:
        ended(harness, committed=before, version=NEW)
    producer = harness.state().producer
    harness.advance(5)
    following = ProducerKey(producer.producer_id, producer.epoch + 1)
    assert outcome(harness.end(producer, committed=False)) == (ErrorCode.NONE, following)
    state = harness.state()
    assert (state.state, state.producer, state.started_ms) == (State.COMPLETE_ABORT, following, START_MS + 5)
    assert harness.orders == []
    assert outcome(harness.end(producer, committed=False)) == (ErrorCode.NONE, following)


@both_outcomes
def test_a_retry_after_another_producer_was_initialised_is_fenced(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = ended(harness, committed=committed, version=NEW)
    harness.producer()
    assert harness.end(producer, committed=committed).error_code == ErrorCode.PRODUCER_FENCED


@both_outcomes
def test_a_retry_after_the_next_transaction_began_is_fenced(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = ended(harness, committed=committed, version=NEW)
    harness.join(harness.state().producer, A)
    assert harness.end(producer, committed=committed).error_code == ErrorCode.PRODUCER_FENCED
    assert harness.state().state is State.ONGOING


@both_outcomes
def test_a_producer_is_not_given_the_epoch_of_the_older_client_that_took_over(committed: bool) -> None:
    harness = CoordinatorHarness()
    old = harness.producer()
    ended(harness, committed=committed, version=OLD)  # by another, one epoch later
    assert harness.state().epoch == old.epoch + 1
    assert harness.end(old, committed=committed).error_code == ErrorCode.PRODUCER_FENCED


def test_the_epoch_before_the_first_is_not_one_that_asks_again() -> None:
    harness = CoordinatorHarness()
    producer = ongoing(harness)
    harness.end(producer, committed=False, version=OLD)
    harness.write_markers()
    assert harness.end(ProducerKey(producer.producer_id, -1), committed=False).error_code == ErrorCode.PRODUCER_FENCED


def test_older_and_newer_clients_take_turns_at_one_id() -> None:
    harness = CoordinatorHarness()
    newer = harness.committed(harness.committed(harness.producer()))
    assert newer == (1001, 2)
    older = harness.producer()
    assert older == (1001, 3)
    assert harness.committed(harness.committed(older, version=OLD), version=OLD) == older
    assert harness.join(newer, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert harness.committed(harness.producer()) == (1001, 5)


# -- the epochs are used up


@both_outcomes
def test_after_the_last_epoch_a_newer_client_is_given_another_producer_id(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = at_epoch(harness, EPOCH_LAST)
    harness.join(producer, A)
    answer = harness.end(producer, committed=committed)
    following = ProducerKey(harness.fresh, 0)
    assert outcome(answer) == (ErrorCode.NONE, following)
    (order,) = harness.orders
    assert order.producer == (producer.producer_id, EPOCH_MAX)
    harness.restart()
    harness.advance(0)
    harness.write_markers()
    assert harness.state().producer == following
    for _ in range(2):
        assert outcome(harness.end(producer, committed=committed)) == (ErrorCode.NONE, following)
        harness.restart()
    assert harness.join(following, A) == {A: ErrorCode.NONE}
    assert harness.end(producer, committed=committed).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_fresh_producer_id_is_asked_for_only_when_it_is_needed() -> None:
    harness = CoordinatorHarness()
    producer = at_epoch(harness, EPOCH_LAST)
    harness.join(producer, A)
    request = EndTxnRequest(
        transactional_id="id", producer_id=producer.producer_id, producer_epoch=EPOCH_LAST, committed=True
    )
    with pytest.raises(NeedsProducerId, match="1001"):
        harness.submit(asked(request, NEW))
    assert harness.state().state is State.ONGOING
    assert harness.submit(asked(request, OLD)).error_code == ErrorCode.NONE


def test_a_producer_fenced_at_the_last_epoch_gets_another_producer_id() -> None:
    harness = CoordinatorHarness()
    producer = at_epoch(harness, EPOCH_LAST)
    harness.join(producer, A)
    fenced(harness, came=producer)
    assert harness.state().epoch == EPOCH_MAX
    assert harness.end(producer, committed=True).error_code == ErrorCode.PRODUCER_FENCED
    answer = harness.end(producer, committed=False)
    assert outcome(answer) == (ErrorCode.NONE, ProducerKey(harness.fresh, 0))
    assert outcome(harness.end(producer, committed=False)) == outcome(answer)


# -- markers


def test_markers_that_are_written_twice_complete_it_once() -> None:
    harness = CoordinatorHarness()
    producer = ongoing(harness)
    harness.end(producer, version=OLD)
    (order,) = harness.orders
    harness.tell(order.written())
    recorded = len(harness.records)
    harness.tell(order.written())
    assert len(harness.records) == recorded


def test_news_of_the_markers_of_one_transaction_does_not_complete_the_next() -> None:
    harness = CoordinatorHarness()
    producer = ongoing(harness)
    harness.end(producer, version=OLD)
    (late,) = harness.orders
    harness.write_markers()
    harness.join(producer, A)
    harness.end(producer, version=OLD)
    harness.tell(late.written())
    assert harness.state().state is State.PREPARE_COMMIT
    harness.write_markers()
    assert harness.state().state is State.COMPLETE_COMMIT


def test_news_of_markers_of_an_id_that_is_gone_changes_nothing() -> None:
    harness = CoordinatorHarness()
    ongoing(harness)
    harness.end(harness.state().producer)
    (order,) = harness.orders
    other = CoordinatorHarness()
    other.tell(order.written())
    assert other.records == []


def test_a_completion_that_could_not_be_persisted_is_tried_again() -> None:
    harness = CoordinatorHarness()
    harness.end(ongoing(harness))
    harness.broken = True
    harness.write_markers()
    harness.advance(3 * RETRY_MS)
    assert harness.state().state is State.PREPARE_COMMIT
    harness.broken = False
    harness.advance(RETRY_MS)
    assert harness.state().state is State.COMPLETE_COMMIT
    recorded = len(harness.records)
    harness.advance(10 * RETRY_MS)
    assert len(harness.records) == recorded


def test_a_transaction_without_partitions_needs_no_markers() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer)
    assert harness.state().state is State.ONGOING
    assert harness.end(producer, version=OLD).error_code == ErrorCode.NONE
    assert harness.state().state is State.COMPLETE_COMMIT
    assert harness.orders == []
