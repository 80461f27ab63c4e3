"""Transactions that last too long are aborted; ids that nobody uses are removed."""

from dataclasses import replace

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.transactions import coordinator
from penstock.transactions.draft import size_bytes_of
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX

from .driving import DAY_MS, SETTINGS, START_MS, A, B, Place
from .test_initialising import at_epoch

CHECK_MS = SETTINGS.abort_interval_ms
EXPIRY_MS = SETTINGS.id_expiration_ms
HOUR_MS = SETTINGS.expiry_interval_ms


def hung(place: Place, name: str = "id", timeout_ms: int = 60_000) -> ProducerKey:
    """A producer that begins, and is not heard of again."""
    producer = place.producer(name, timeout_ms=timeout_ms)
    place.join(producer, A, B, name=name)
    return producer


def test_nothing_is_due_before_there_is_anything() -> None:
    assert Place().machine.wake_at_ms is None


def test_a_transaction_that_lasts_too_long_is_aborted_under_a_new_epoch() -> None:
    place = Place()
    producer = hung(place)
    place.advance(60_000)
    assert place.state().state is State.ONGOING
    place.advance(CHECK_MS)
    assert place.state().state is State.PREPARE_ABORT
    (order,) = place.orders
    assert (order.committed, order.partitions) == (False, {A, B})
    assert order.producer == (producer.producer_id, producer.epoch + 1)
    place.write_markers()
    assert place.state().state is State.COMPLETE_ABORT


@pytest.mark.parametrize("timeout_ms", [1, 500, 60_000, 900_000])
def test_a_hung_producer_holds_nobody_up_past_its_timeout_and_one_check(timeout_ms: int) -> None:
    place = Place()
    place.advance(CHECK_MS)
    hung(place, "one", timeout_ms)
    place.advance(timeout_ms // 2)
    hung(place, "two", timeout_ms)
    place.advance(timeout_ms - timeout_ms // 2 + CHECK_MS)
    assert place.state("one").state is State.PREPARE_ABORT
    place.advance(timeout_ms // 2 + 1)
    assert place.state("two").state is State.PREPARE_ABORT


def test_partitions_that_join_late_do_not_make_it_last_longer() -> None:
    place = Place()
    producer = place.producer()
    place.join(producer, A)
    place.advance(59_999)
    place.join(producer, B)
    place.advance(CHECK_MS + 2)
    assert place.state().state is State.PREPARE_ABORT


def test_a_transaction_that_ended_in_time_is_left_alone() -> None:
    place = Place()
    place.committed(hung(place))
    recorded = len(place.records)
    place.advance(10 * 60_000)
    assert len(place.records) == recorded


def test_each_transaction_has_the_whole_time() -> None:
    place = Place()
    producer = hung(place)
    place.advance(40_000)
    producer = place.committed(producer)
    place.join(producer, A)
    place.advance(40_000)
    assert place.state().state is State.ONGOING


def test_what_is_decided_does_not_time_out() -> None:
    place = Place()
    place.end(hung(place))
    place.advance(10 * 60_000)
    assert place.state().state is State.PREPARE_COMMIT


def test_the_hung_producer_is_fenced() -> None:
    place = Place()
    producer = hung(place)
    place.advance(60_000 + CHECK_MS)
    place.write_markers()
    assert place.join(producer, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert place.join(producer, A, verify_only=True) == {A: ErrorCode.PRODUCER_FENCED}
    assert place.end(producer).error_code == ErrorCode.PRODUCER_FENCED
    assert place.end(producer, version=4).error_code == ErrorCode.PRODUCER_FENCED


def test_the_hung_producer_may_go_on_from_there() -> None:
    # By InitProducerId (KIP-360, KIP-588), or by an abort of its own (KIP-890).
    place = Place()
    producer = hung(place)
    place.advance(60_000 + CHECK_MS)
    place.write_markers()
    answer = place.end(producer, committed=False)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, producer.epoch + 1)
    assert place.producer(came=producer) == (producer.producer_id, producer.epoch + 1)


def test_a_producer_that_hangs_at_the_last_epoch_is_aborted_too() -> None:
    place = Place()
    producer = at_epoch(place, EPOCH_LAST)
    place.join(producer, A)
    place.advance(60_000 + CHECK_MS)
    (order,) = place.orders
    assert order.producer == (producer.producer_id, EPOCH_MAX)
    place.write_markers()
    assert place.producer(came=producer) == (place.fresh, 0)


def test_an_abort_that_could_not_be_persisted_is_tried_again() -> None:
    place = Place()
    hung(place)
    place.broken = True
    place.advance(60_000 + 3 * CHECK_MS)
    assert (place.state().state, place.orders) == (State.ONGOING, [])
    place.broken = False
    place.advance(CHECK_MS)
    assert place.state().state is State.PREPARE_ABORT
    assert len(place.orders) == 1


def test_a_producer_that_commits_before_the_abort_was_persisted_has_committed() -> None:
    place = Place()
    producer = hung(place)
    place.broken = True
    place.advance(60_000 + CHECK_MS)
    place.broken = False
    assert place.end(producer).error_code == ErrorCode.NONE
    place.write_markers()
    place.advance(5 * CHECK_MS)
    assert place.state().state is State.COMPLETE_COMMIT


def test_many_that_time_out_together_are_aborted_a_portion_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    for number in range(10):
        hung(place, f"id-{number}")
    monkeypatch.setattr(coordinator, "WAKE_BYTES", 3 * size_bytes_of(place.records[-1]))
    place.now_ms += 60_000 + CHECK_MS
    sizes = []
    while (at_ms := place.machine.wake_at_ms) is not None and at_ms <= place.now_ms:
        decision = place.machine.wake(place.now_ms)
        assert decision.is_atomic, "or some would be prepared, and wait for their markers in vain"
        sizes.append(len(decision.persist))
        place.carry_out(decision)
    assert sizes == [3, 3, 3, 1]
    assert len(place.orders) == 10


def test_those_that_time_out_within_one_interval_are_aborted_together() -> None:
    place = Place()
    for number in range(5):
        hung(place, f"id-{number}")
        place.advance(1000)
    place.advance(60_000 - 5000 + 1)
    assert len(place.orders) == 1
    place.advance(CHECK_MS - 1)
    assert len(place.orders) == 1
    place.advance(1)
    assert len(place.orders) == 5


# -- after a restart


def test_time_passes_while_there_is_no_coordinator() -> None:
    place = Place()
    hung(place)
    place.advance(50_000)
    place.now_ms += 20_000
    place.restart()
    place.advance(CHECK_MS - 1)
    assert place.state().state is State.ONGOING, "its producer has a moment to find the new coordinator"
    place.advance(1)
    assert place.state().state is State.PREPARE_ABORT


def test_a_transaction_from_a_clock_that_is_ahead_lasts_no_longer_than_its_timeout() -> None:
    place = Place()
    hung(place)
    place.now_ms -= DAY_MS
    place.restart()
    place.advance(60_000 + CHECK_MS)
    assert place.state().state is State.PREPARE_ABORT


# -- expiry


def test_an_id_that_nobody_uses_is_removed() -> None:
    place = Place()
    place.producer()
    place.advance(EXPIRY_MS - HOUR_MS)
    assert "id" in place.machine.transactions
    place.advance(2 * HOUR_MS)
    assert "id" not in place.machine.transactions
    assert place.records[-1].value is None
    assert place.machine.wake_at_ms is None


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("committed", [True, False])
def test_an_id_whose_last_transaction_is_over_is_removed(version: int, committed: bool) -> None:
    place = Place()
    producer = hung(place)
    place.end(producer, committed=committed, version=version)
    place.write_markers()
    place.advance(EXPIRY_MS + HOUR_MS)
    assert place.machine.transactions == {}


def test_an_id_that_is_used_stays() -> None:
    place = Place()
    producer = place.producer()
    for _ in range(10):
        place.advance(EXPIRY_MS - 2 * HOUR_MS)
        producer = place.committed(producer)
    assert place.state().producer == producer


def test_an_id_whose_transaction_is_in_the_way_stays() -> None:
    place = Place()
    place.end(hung(place))
    place.advance(2 * EXPIRY_MS)
    assert place.state().state is State.PREPARE_COMMIT
    place.write_markers()
    place.advance(EXPIRY_MS - HOUR_MS)
    assert place.state().state is State.COMPLETE_COMMIT
    place.advance(2 * HOUR_MS)
    assert place.machine.transactions == {}


def test_the_producer_of_a_removed_id_has_to_begin_again() -> None:
    place = Place()
    producer = place.producer()
    place.advance(EXPIRY_MS + HOUR_MS)
    assert place.join(producer, A) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert place.end(producer).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert place.producer(came=producer) == (place.fresh, 0)


def test_a_removal_that_could_not_be_persisted_is_tried_again() -> None:
    place = Place()
    place.producer()
    place.broken = True
    place.advance(EXPIRY_MS + HOUR_MS)
    assert "id" in place.machine.transactions
    place.broken = False
    place.advance(HOUR_MS)
    assert place.machine.transactions == {}


def test_many_ids_are_removed_a_portion_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "EXPIRED_MAX", 4)
    place = Place()
    for number in range(10):
        place.producer(f"id-{number}")
    place.now_ms += EXPIRY_MS
    sizes = []
    while place.machine.transactions:
        place.now_ms = max(place.now_ms, place.machine.wake_at_ms or 0)
        decision = place.machine.wake(place.now_ms)
        sizes.append(len(decision.persist))
        place.carry_out(decision)
    assert sizes == [4, 4, 2]
    assert place.now_ms < START_MS + EXPIRY_MS + HOUR_MS


def test_the_settings_of_now_say_how_long_ids_are_kept() -> None:
    place = Place()
    place.producer()
    place.machine.settings = replace(SETTINGS, id_expiration_ms=1000, expiry_interval_ms=500)
    place.advance(2000)
    assert place.machine.transactions == {}
