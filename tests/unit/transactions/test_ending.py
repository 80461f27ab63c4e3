"""EndTxn: transactions commit and abort, and clients ask again."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.transactions.coordinator import RETRY_MS
from penstock.transactions.errors import NeedsProducerId
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

from .driving import START_MS, A, B, Place, asked
from .test_initialising import at_epoch, fenced

OLD, NEW = 4, 5
"""Versions of EndTxn before and since each transaction has an epoch of its own."""

both_outcomes = pytest.mark.parametrize("committed", [True, False])
both_versions = pytest.mark.parametrize("version", [OLD, NEW])
COMPLETE = {True: State.COMPLETE_COMMIT, False: State.COMPLETE_ABORT}
PREPARE = {True: State.PREPARE_COMMIT, False: State.PREPARE_ABORT}


def told(answer: EndTxnResponse) -> tuple[int, ProducerKey]:
    return answer.error_code, ProducerKey(answer.producer_id, answer.producer_epoch)


NOT_TOLD = ProducerKey(-1, -1)


def ongoing(place: Place, name: str = "id") -> ProducerKey:
    producer = place.producer(name)
    place.join(producer, A, B, name=name)
    return producer


def ended(place: Place, *, committed: bool, version: int) -> ProducerKey:
    """A transaction that is over; who its producer was."""
    producer = ongoing(place)
    assert place.end(producer, committed=committed, version=version).error_code == ErrorCode.NONE
    place.write_markers()
    assert place.state().state is COMPLETE[committed]
    return producer


# -- in both versions


@both_versions
@both_outcomes
def test_a_transaction_is_decided_then_marked_then_complete(committed: bool, version: int) -> None:
    place = Place()
    producer = ongoing(place)
    place.advance(5)
    assert place.end(producer, committed=committed, version=version).error_code == ErrorCode.NONE
    assert (place.state().state, place.state().updated_ms) == (PREPARE[committed], START_MS + 5)
    (order,) = place.orders
    assert (order.transactional_id, order.committed, order.partitions) == ("id", committed, {A, B})
    assert (order.coordinator_epoch, order.producer) == (place.epoch, place.state().producer)
    assert order.transaction_version == (2 if version == NEW else 0)
    place.advance(5)
    place.tell(order.written())
    state = place.state()
    assert (state.state, state.partitions, state.updated_ms) == (COMPLETE[committed], frozenset(), START_MS + 10)
    assert state.started_ms == START_MS


@both_versions
@both_outcomes
def test_a_decision_that_could_not_be_persisted_can_be_made_again(committed: bool, version: int) -> None:
    place = Place()
    producer = ongoing(place)
    place.broken = True
    assert place.end(producer, committed=committed, version=version) is None
    place.broken = False
    assert place.state().state is State.ONGOING
    assert place.orders == []
    assert place.end(producer, committed=committed, version=version).error_code == ErrorCode.NONE
    place.write_markers()
    assert place.state().state is COMPLETE[committed]


@both_versions
@both_outcomes
@pytest.mark.parametrize("asked_for", [True, False])
def test_while_the_markers_are_written_nothing_else_is_decided(
    committed: bool, version: int, asked_for: bool
) -> None:
    place = Place()
    producer = ongoing(place)
    place.end(producer, committed=committed, version=version)
    again = place.end(producer, committed=asked_for, version=version)
    assert told(again) == (ErrorCode.CONCURRENT_TRANSACTIONS, NOT_TOLD)
    assert len(place.orders) == 1


@both_versions
def test_an_empty_transactional_id_is_refused(version: int) -> None:
    answer = Place().end(ProducerKey(1, 0), name="", version=version)
    assert told(answer) == (ErrorCode.INVALID_REQUEST, NOT_TOLD)


@both_versions
def test_an_id_that_is_not_known_is_refused(version: int) -> None:
    answer = Place().end(ProducerKey(1, 0), version=version)
    assert told(answer) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NOT_TOLD)


@both_versions
@both_outcomes
def test_the_producer_id_of_another_is_refused(committed: bool, version: int) -> None:
    place = Place()
    ongoing(place)
    answer = place.end(ProducerKey(999, 0), committed=committed, version=version)
    assert told(answer) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, NOT_TOLD)


@both_versions
@both_outcomes
@pytest.mark.parametrize("epoch", [0, 2])
def test_another_epoch_is_fenced(committed: bool, version: int, epoch: int) -> None:
    place = Place()
    place.producer()
    ongoing(place)
    answer = place.end(ProducerKey(1001, epoch), committed=committed, version=version)
    assert told(answer) == (ErrorCode.PRODUCER_FENCED, NOT_TOLD)
    assert place.state().state is State.ONGOING


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_older_clients_are_told_that_their_epoch_is_invalid(version: int, code: ErrorCode) -> None:
    place = Place()
    producer = place.producer()
    place.producer()
    assert place.end(producer, version=version).error_code == code


@both_versions
def test_a_commit_without_a_begin_is_invalid(version: int) -> None:
    place = Place()
    answer = place.end(place.producer(), version=version)
    assert told(answer) == (ErrorCode.INVALID_TXN_STATE, NOT_TOLD)


# -- clients that keep their epoch


def test_an_older_client_is_not_told_of_an_epoch() -> None:
    place = Place()
    producer = ongoing(place)
    assert told(place.end(producer, version=OLD)) == (ErrorCode.NONE, NOT_TOLD)
    place.write_markers()
    assert place.state().producer == producer


@both_outcomes
def test_an_older_client_that_asks_again_hears_the_same(committed: bool) -> None:
    place = Place()
    producer = ended(place, committed=committed, version=OLD)
    recorded = len(place.records)
    assert told(place.end(producer, committed=committed, version=OLD)) == (ErrorCode.NONE, NOT_TOLD)
    # Said again: a coordinator that has been replaced, and may not know of a later transaction, cannot do that.
    assert place.records[recorded:] == place.records[recorded - 1 : recorded]


@both_outcomes
def test_an_older_client_cannot_have_it_otherwise(committed: bool) -> None:
    place = Place()
    producer = ended(place, committed=committed, version=OLD)
    answer = place.end(producer, committed=not committed, version=OLD)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert place.state().state is COMPLETE[committed]


def test_an_older_client_that_has_not_begun_has_nothing_to_abort() -> None:
    place = Place()
    answer = place.end(place.producer(), committed=False, version=OLD)
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE


def test_an_older_client_runs_one_transaction_after_the_other_in_one_epoch() -> None:
    place = Place()
    producer = place.producer()
    for _ in range(3):
        assert place.committed(producer, version=OLD) == producer


# -- clients whose transactions have epochs of their own (KIP-890)


@both_outcomes
def test_a_newer_client_is_told_of_its_next_epoch(committed: bool) -> None:
    place = Place()
    producer = ongoing(place)
    following = ProducerKey(producer.producer_id, producer.epoch + 1)
    assert told(place.end(producer, committed=committed)) == (ErrorCode.NONE, following)
    (order,) = place.orders
    assert order.producer == following
    place.write_markers()
    assert place.join(following, A) == {A: ErrorCode.NONE}
    assert place.join(producer, A) == {A: ErrorCode.PRODUCER_FENCED}


@both_outcomes
def test_a_newer_client_that_asks_again_hears_the_same(committed: bool) -> None:
    place = Place()
    producer = ended(place, committed=committed, version=NEW)
    recorded = len(place.records)
    for _ in range(2):
        assert told(place.end(producer, committed=committed)) == (ErrorCode.NONE, place.state().producer)
        place.restart()
    assert len(place.records) == recorded


def test_who_has_committed_cannot_abort_by_asking_again() -> None:
    place = Place()
    producer = ended(place, committed=True, version=NEW)
    assert place.end(producer, committed=False).error_code == ErrorCode.INVALID_TXN_STATE


def test_who_commits_what_was_aborted_is_fenced() -> None:
    place = Place()
    producer = ended(place, committed=False, version=NEW)
    assert place.end(producer, committed=True).error_code == ErrorCode.PRODUCER_FENCED


@both_outcomes
def test_a_newer_client_that_has_not_begun_cannot_commit(committed: bool) -> None:
    place = Place()
    ended(place, committed=committed, version=NEW)
    assert place.end(place.state().producer, committed=True).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("before", [None, True, False])
def test_a_newer_client_that_does_not_know_whether_it_has_begun_can_abort(before: bool | None) -> None:
    place = Place()
    if before is None:
        place.producer()
    else:
        ended(place, committed=before, version=NEW)
    producer = place.state().producer
    place.advance(5)
    following = ProducerKey(producer.producer_id, producer.epoch + 1)
    assert told(place.end(producer, committed=False)) == (ErrorCode.NONE, following)
    state = place.state()
    assert (state.state, state.producer, state.started_ms) == (State.COMPLETE_ABORT, following, START_MS + 5)
    assert place.orders == []
    assert told(place.end(producer, committed=False)) == (ErrorCode.NONE, following)


@both_outcomes
def test_who_asks_again_after_another_came_is_fenced(committed: bool) -> None:
    place = Place()
    producer = ended(place, committed=committed, version=NEW)
    place.producer()
    assert place.end(producer, committed=committed).error_code == ErrorCode.PRODUCER_FENCED


@both_outcomes
def test_who_asks_again_after_the_next_transaction_began_is_fenced(committed: bool) -> None:
    place = Place()
    producer = ended(place, committed=committed, version=NEW)
    place.join(place.state().producer, A)
    assert place.end(producer, committed=committed).error_code == ErrorCode.PRODUCER_FENCED
    assert place.state().state is State.ONGOING


@both_outcomes
def test_a_producer_is_not_given_the_epoch_of_the_older_client_that_took_over(committed: bool) -> None:
    place = Place()
    old = place.producer()
    ended(place, committed=committed, version=OLD)  # by another, one epoch later
    assert place.state().epoch == old.epoch + 1
    assert place.end(old, committed=committed).error_code == ErrorCode.PRODUCER_FENCED


def test_the_epoch_before_the_first_is_not_one_that_asks_again() -> None:
    place = Place()
    producer = ongoing(place)
    place.end(producer, committed=False, version=OLD)
    place.write_markers()
    assert place.end(ProducerKey(producer.producer_id, -1), committed=False).error_code == ErrorCode.PRODUCER_FENCED


def test_older_and_newer_clients_take_turns_at_one_id() -> None:
    place = Place()
    newer = place.committed(place.committed(place.producer()))
    assert newer == (1001, 2)
    older = place.producer()
    assert older == (1001, 3)
    assert place.committed(place.committed(older, version=OLD), version=OLD) == older
    assert place.join(newer, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert place.committed(place.producer()) == (1001, 5)


# -- the epochs are used up


@both_outcomes
def test_after_the_last_epoch_a_newer_client_is_given_another_producer_id(committed: bool) -> None:
    place = Place()
    producer = at_epoch(place, EPOCH_LAST)
    place.join(producer, A)
    answer = place.end(producer, committed=committed)
    following = ProducerKey(place.fresh, 0)
    assert told(answer) == (ErrorCode.NONE, following)
    (order,) = place.orders
    assert order.producer == (producer.producer_id, EPOCH_MAX)
    place.restart()
    place.advance(0)
    place.write_markers()
    assert place.state().producer == following
    for _ in range(2):
        assert told(place.end(producer, committed=committed)) == (ErrorCode.NONE, following)
        place.restart()
    assert place.join(following, A) == {A: ErrorCode.NONE}
    assert place.end(producer, committed=committed).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_fresh_producer_id_is_asked_for_only_when_it_is_needed() -> None:
    place = Place()
    producer = at_epoch(place, EPOCH_LAST)
    place.join(producer, A)
    request = EndTxnRequest(
        transactional_id="id", producer_id=producer.producer_id, producer_epoch=EPOCH_LAST, committed=True
    )
    with pytest.raises(NeedsProducerId, match="1001"):
        place.submit(asked(request, NEW))
    assert place.state().state is State.ONGOING
    assert place.submit(asked(request, OLD)).error_code == ErrorCode.NONE


def test_who_was_shut_out_at_the_last_epoch_is_given_another_producer_id() -> None:
    place = Place()
    producer = at_epoch(place, EPOCH_LAST)
    place.join(producer, A)
    fenced(place, came=producer)
    assert place.state().epoch == EPOCH_MAX
    assert place.end(producer, committed=True).error_code == ErrorCode.PRODUCER_FENCED
    answer = place.end(producer, committed=False)
    assert told(answer) == (ErrorCode.NONE, ProducerKey(place.fresh, 0))
    assert told(place.end(producer, committed=False)) == told(answer)


# -- markers


def test_markers_that_are_written_twice_complete_it_once() -> None:
    place = Place()
    producer = ongoing(place)
    place.end(producer, version=OLD)
    (order,) = place.orders
    place.tell(order.written())
    recorded = len(place.records)
    place.tell(order.written())
    assert len(place.records) == recorded


def test_news_of_the_markers_of_one_transaction_does_not_complete_the_next() -> None:
    place = Place()
    producer = ongoing(place)
    place.end(producer, version=OLD)
    (late,) = place.orders
    place.write_markers()
    place.join(producer, A)
    place.end(producer, version=OLD)
    place.tell(late.written())
    assert place.state().state is State.PREPARE_COMMIT
    place.write_markers()
    assert place.state().state is State.COMPLETE_COMMIT


def test_news_of_markers_of_an_id_that_is_gone_changes_nothing() -> None:
    place = Place()
    ongoing(place)
    place.end(place.state().producer)
    (order,) = place.orders
    other = Place()
    other.tell(order.written())
    assert other.records == []


def test_a_completion_that_could_not_be_persisted_is_tried_again() -> None:
    place = Place()
    place.end(ongoing(place))
    place.broken = True
    place.write_markers()
    place.advance(3 * RETRY_MS)
    assert place.state().state is State.PREPARE_COMMIT
    place.broken = False
    place.advance(RETRY_MS)
    assert place.state().state is State.COMPLETE_COMMIT
    recorded = len(place.records)
    place.advance(10 * RETRY_MS)
    assert len(place.records) == recorded


def test_a_transaction_without_partitions_needs_no_markers() -> None:
    place = Place()
    producer = place.producer()
    place.add(producer)
    assert place.state().state is State.ONGOING
    assert place.end(producer, version=OLD).error_code == ErrorCode.NONE
    assert place.state().state is State.COMPLETE_COMMIT
    assert place.orders == []
