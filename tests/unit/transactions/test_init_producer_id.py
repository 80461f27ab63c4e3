"""InitProducerId with a transactional id."""

from dataclasses import replace

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.transactions.commands import InitProducer
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from .coordinator_harness import SETTINGS, START_MS, A, B, CoordinatorHarness, asked


def is_refused(answer: InitProducerIdResponse, code: ErrorCode) -> bool:
    return (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


def at_epoch(harness: CoordinatorHarness, epoch: int, name: str = "id") -> ProducerKey:
    """An id whose producer has come this far."""
    harness.producer(name)
    harness.records.append(harness.state(name)._replace(epoch=epoch).to_record())
    harness.restart()
    return harness.state(name).producer


def fenced(harness: CoordinatorHarness, *, came: ProducerKey | None = None) -> None:
    """InitProducerId aborts the open transaction."""
    assert is_refused(harness.init(came=came), ErrorCode.CONCURRENT_TRANSACTIONS)
    harness.write_markers()


# -- requests that make no sense


def test_an_empty_transactional_id_is_refused() -> None:
    harness = CoordinatorHarness()
    assert is_refused(harness.init(""), ErrorCode.INVALID_REQUEST)
    assert harness.records == []


def test_a_transactional_id_that_no_record_can_hold_is_refused() -> None:
    harness = CoordinatorHarness()
    assert is_refused(harness.init("é" * 16_384), ErrorCode.INVALID_REQUEST)
    assert harness.init("é" * 16_383).error_code == ErrorCode.NONE


@pytest.mark.parametrize("timeout_ms", [0, -1, SETTINGS.timeout_max_ms + 1])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    assert is_refused(CoordinatorHarness().init(timeout_ms=timeout_ms), ErrorCode.INVALID_TRANSACTION_TIMEOUT)


@pytest.mark.parametrize("timeout_ms", [1, SETTINGS.timeout_max_ms])
def test_a_timeout_at_its_bounds_is_taken(timeout_ms: int) -> None:
    harness = CoordinatorHarness()
    harness.producer(timeout_ms=timeout_ms)
    assert harness.state().timeout_ms == timeout_ms


def test_the_longest_timeout_is_that_of_the_settings_of_now() -> None:
    harness = CoordinatorHarness()
    harness.machine.settings = replace(SETTINGS, timeout_max_ms=1000)
    assert is_refused(harness.init(timeout_ms=1001), ErrorCode.INVALID_TRANSACTION_TIMEOUT)


@pytest.mark.parametrize("came", [ProducerKey(5, -1), ProducerKey(-1, 5)])
def test_a_producer_id_comes_with_an_epoch_or_not_at_all(came: ProducerKey) -> None:
    assert is_refused(CoordinatorHarness().init(came=came), ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("enable_2pc", "keep", "code"),
    [
        (True, False, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (False, True, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_foreign_two_phase_commits_are_refused(enable_2pc: bool, keep: bool, code: ErrorCode) -> None:
    request = InitProducerIdRequest(
        transactional_id="id", transaction_timeout_ms=1000, enable_2pc=enable_2pc, keep_prepared_txn=keep
    )
    answer = CoordinatorHarness().submit(InitProducer(request=asked(request, 6), fresh_producer_id=1))
    assert is_refused(answer, code)


# -- producer ids and epochs


def test_a_new_id_gets_an_unused_producer_id() -> None:
    harness = CoordinatorHarness()
    assert harness.producer("one") == (1001, 0)
    assert harness.producer("two") == (1002, 0)
    assert harness.state("one").state is State.EMPTY


def test_a_producer_that_comes_with_an_id_of_an_unknown_transactional_id_gets_a_new_one() -> None:
    # Its transactional id has expired (KIP-360).
    assert CoordinatorHarness().producer(came=ProducerKey(7, 4)) == (1001, 0)


def test_each_producer_that_comes_raises_the_epoch() -> None:
    harness = CoordinatorHarness()
    assert [harness.producer() for _ in range(3)] == [(1001, 0), (1001, 1), (1001, 2)]


def test_the_timeout_is_that_of_the_last_producer() -> None:
    harness = CoordinatorHarness()
    harness.producer(timeout_ms=5000)
    harness.producer(timeout_ms=7000)
    assert harness.state().timeout_ms == 7000


def test_a_producer_that_comes_after_a_transaction_raises_the_epoch() -> None:
    harness = CoordinatorHarness()
    harness.committed(harness.producer(), version=3)
    assert harness.producer() == (1001, 1)


def test_the_producer_before_is_fenced() -> None:
    harness = CoordinatorHarness()
    old = harness.producer()
    harness.producer()
    assert harness.add(old, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert harness.join(old, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert harness.end(old, version=3).error_code == ErrorCode.PRODUCER_FENCED
    assert harness.end(old).error_code == ErrorCode.PRODUCER_FENCED
    assert is_refused(harness.init(came=old), ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
def test_older_clients_get_invalid_producer_epoch(version: int, code: ErrorCode) -> None:
    harness = CoordinatorHarness()
    old = harness.producer()
    harness.producer()
    assert is_refused(harness.init(came=old, version=version), code)


# -- a transaction is in the way


def test_a_transaction_under_way_is_aborted_first() -> None:
    harness = CoordinatorHarness()
    old = harness.producer()
    harness.add(old, A, B)
    assert is_refused(harness.init(), ErrorCode.CONCURRENT_TRANSACTIONS)
    (order,) = harness.orders
    assert (order.committed, order.producer, order.partitions) == (False, (1001, 1), {A, B})
    assert is_refused(harness.init(), ErrorCode.CONCURRENT_TRANSACTIONS)
    assert len(harness.orders) == 1
    harness.write_markers()
    assert harness.producer() == (1001, 2)


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_that_is_ending_is_waited_for(committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A)
    harness.end(producer, committed=committed, version=3)
    assert is_refused(harness.init(), ErrorCode.CONCURRENT_TRANSACTIONS)
    assert is_refused(harness.init(came=producer), ErrorCode.CONCURRENT_TRANSACTIONS)
    harness.write_markers()
    assert harness.producer() == (1001, 1)


def test_the_producer_whose_transaction_was_aborted_for_another_does_not_come_back() -> None:
    harness = CoordinatorHarness()
    old = harness.producer()
    harness.add(old, A)
    fenced(harness)
    assert is_refused(harness.init(came=old), ErrorCode.PRODUCER_FENCED)
    assert harness.end(old, committed=False).error_code == ErrorCode.PRODUCER_FENCED
    assert harness.end(old, committed=False, version=3).error_code == ErrorCode.PRODUCER_FENCED


def test_an_abort_that_could_not_be_persisted_leaves_the_transaction_as_it_was() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A)
    harness.broken = True
    assert harness.init() is None
    harness.broken = False
    assert harness.orders == []
    assert harness.end(producer, version=3).error_code == ErrorCode.NONE
    (order,) = harness.orders
    assert (order.committed, order.producer) == (True, producer)


# -- going on after an error (KIP-360)


def test_a_producer_goes_on_under_the_next_epoch() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    assert harness.producer(came=producer) == (1001, 1)
    assert harness.producer(came=ProducerKey(1001, 1)) == (1001, 2)


def test_a_producer_that_missed_the_answer_gets_it_again() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    assert [harness.producer(came=producer) for _ in range(3)] == [(1001, 1)] * 3


def test_a_producer_that_missed_the_answer_gets_it_again_from_another_coordinator() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    assert harness.producer(came=producer) == (1001, 1)
    harness.restart()
    assert harness.producer(came=producer) == (1001, 1)


def test_an_answer_that_was_used_is_not_given_again() -> None:
    harness = CoordinatorHarness()
    old = harness.producer()
    harness.committed(harness.producer(came=old), version=3)
    assert is_refused(harness.init(came=old), ErrorCode.PRODUCER_FENCED)


def test_a_producer_with_a_transaction_under_way_goes_on_once_it_is_aborted() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.add(producer, A)
    fenced(harness, came=producer)
    assert harness.producer(came=producer) == (1001, 1)


def test_an_old_epoch_does_not_abort_the_transaction_under_way() -> None:
    harness = CoordinatorHarness()
    old = harness.producer()
    new = harness.producer(came=old)
    harness.add(new, A)
    assert is_refused(harness.init(came=old), ErrorCode.PRODUCER_FENCED)
    assert harness.end(new, version=3).error_code == ErrorCode.NONE


def test_another_producer_id_is_fenced() -> None:
    harness = CoordinatorHarness()
    harness.producer()
    assert is_refused(harness.init(came=ProducerKey(999, 0)), ErrorCode.PRODUCER_FENCED)


# -- the epochs are used up


def test_after_the_last_epoch_comes_another_producer_id() -> None:
    harness = CoordinatorHarness()
    at_epoch(harness, EPOCH_LAST - 1)
    assert harness.producer() == (1001, EPOCH_LAST)
    assert harness.producer() == (harness.fresh, 0)
    assert harness.state().previous_producer_id == 1001


def test_a_producer_that_goes_on_after_the_last_epoch_gets_another_producer_id_once() -> None:
    harness = CoordinatorHarness()
    producer = at_epoch(harness, EPOCH_LAST)
    first = harness.producer(came=producer)
    assert first == (harness.fresh, 0)
    assert harness.producer(came=producer) == first
    harness.restart()
    assert harness.producer(came=producer) == first


def test_the_last_epoch_is_returned_again_after_a_lost_response() -> None:
    harness = CoordinatorHarness()
    producer = at_epoch(harness, EPOCH_LAST - 1)
    assert harness.producer(came=producer) == (1001, EPOCH_LAST)
    assert harness.producer(came=producer) == (1001, EPOCH_LAST)


def test_an_exhausted_producer_id_that_is_not_the_one_before_is_fenced() -> None:
    harness = CoordinatorHarness()
    at_epoch(harness, EPOCH_LAST)
    harness.producer()
    assert is_refused(harness.init(came=ProducerKey(1001, EPOCH_LAST)), ErrorCode.PRODUCER_FENCED)


def test_no_producer_is_given_the_highest_epoch() -> None:
    harness = CoordinatorHarness()
    producer = at_epoch(harness, EPOCH_LAST)
    harness.add(producer, A)
    fenced(harness, came=producer)
    assert harness.state().producer == (1001, EPOCH_MAX)
    first = harness.producer(came=producer)
    assert first == (harness.fresh, 0)
    assert harness.producer(came=producer) == first


def test_a_takeover_at_the_highest_epoch_gets_another_producer_id() -> None:
    harness = CoordinatorHarness()
    harness.add(at_epoch(harness, EPOCH_LAST), A)
    fenced(harness)
    assert harness.producer() == (harness.fresh, 0)


def test_the_id_begins_again_when_it_is_initialised() -> None:
    harness = CoordinatorHarness()
    harness.committed(harness.producer(), version=3)
    harness.advance(5)
    harness.producer()
    state = harness.state()
    assert (state.state, state.started_ms, state.updated_ms) == (State.EMPTY, -1, START_MS + 5)
