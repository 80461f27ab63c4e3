"""Transactions that last too long are aborted; unused ids are removed."""

from dataclasses import replace

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.transactions import coordinator
from penstock.transactions.draft import size_bytes_of
from penstock.transactions.states import State
from penstock.transactions.transaction import EPOCH_LAST, EPOCH_MAX

from .coordinator_harness import DAY_MS, SETTINGS, START_MS, A, B, CoordinatorHarness
from .test_init_producer_id import at_epoch

CHECK_MS = SETTINGS.abort_interval_ms
EXPIRY_MS = SETTINGS.id_expiration_ms
HOUR_MS = SETTINGS.expiry_interval_ms


def hung(harness: CoordinatorHarness, name: str = "id", timeout_ms: int = 60_000) -> ProducerKey:
    """A producer that begins, and is not heard of again."""
    producer = harness.producer(name, timeout_ms=timeout_ms)
    harness.join(producer, A, B, name=name)
    return producer


def test_nothing_is_due_before_there_is_anything() -> None:
    assert CoordinatorHarness().machine.wake_at_ms is None


def test_a_transaction_that_lasts_too_long_is_aborted_under_a_new_epoch() -> None:
    harness = CoordinatorHarness()
    producer = hung(harness)
    harness.advance(60_000)
    assert harness.state().state is State.ONGOING
    harness.advance(CHECK_MS)
    assert harness.state().state is State.PREPARE_ABORT
    (order,) = harness.orders
    assert (order.committed, order.partitions) == (False, {A, B})
    assert order.producer == (producer.producer_id, producer.epoch + 1)
    harness.write_markers()
    assert harness.state().state is State.COMPLETE_ABORT


@pytest.mark.parametrize("timeout_ms", [1, 500, 60_000, 900_000])
def test_a_hung_producer_delays_readers_no_longer_than_its_timeout_and_one_check(timeout_ms: int) -> None:
    harness = CoordinatorHarness()
    harness.advance(CHECK_MS)
    hung(harness, "one", timeout_ms)
    harness.advance(timeout_ms // 2)
    hung(harness, "two", timeout_ms)
    harness.advance(timeout_ms - timeout_ms // 2 + CHECK_MS)
    assert harness.state("one").state is State.PREPARE_ABORT
    harness.advance(timeout_ms // 2 + 1)
    assert harness.state("two").state is State.PREPARE_ABORT


def test_partitions_that_join_late_do_not_make_it_last_longer() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.join(producer, A)
    harness.advance(59_999)
    harness.join(producer, B)
    harness.advance(CHECK_MS + 2)
    assert harness.state().state is State.PREPARE_ABORT


def test_a_transaction_that_ended_in_time_is_left_alone() -> None:
    harness = CoordinatorHarness()
    harness.committed(hung(harness))
    recorded = len(harness.records)
    harness.advance(10 * 60_000)
    assert len(harness.records) == recorded


def test_each_transaction_has_the_whole_time() -> None:
    harness = CoordinatorHarness()
    producer = hung(harness)
    harness.advance(40_000)
    producer = harness.committed(producer)
    harness.join(producer, A)
    harness.advance(40_000)
    assert harness.state().state is State.ONGOING


def test_a_decided_transaction_does_not_time_out() -> None:
    harness = CoordinatorHarness()
    harness.end(hung(harness))
    harness.advance(10 * 60_000)
    assert harness.state().state is State.PREPARE_COMMIT


def test_the_hung_producer_is_fenced() -> None:
    harness = CoordinatorHarness()
    producer = hung(harness)
    harness.advance(60_000 + CHECK_MS)
    harness.write_markers()
    assert harness.join(producer, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert harness.join(producer, A, verify_only=True) == {A: ErrorCode.PRODUCER_FENCED}
    assert harness.end(producer).error_code == ErrorCode.PRODUCER_FENCED
    assert harness.end(producer, version=4).error_code == ErrorCode.PRODUCER_FENCED


def test_the_hung_producer_may_go_on_from_there() -> None:
    # By InitProducerId (KIP-360, KIP-588), or by an abort of its own (KIP-890).
    harness = CoordinatorHarness()
    producer = hung(harness)
    harness.advance(60_000 + CHECK_MS)
    harness.write_markers()
    answer = harness.end(producer, committed=False)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, producer.epoch + 1)
    assert harness.producer(came=producer) == (producer.producer_id, producer.epoch + 1)


def test_a_producer_that_hangs_at_the_last_epoch_is_aborted_too() -> None:
    harness = CoordinatorHarness()
    producer = at_epoch(harness, EPOCH_LAST)
    harness.join(producer, A)
    harness.advance(60_000 + CHECK_MS)
    (order,) = harness.orders
    assert order.producer == (producer.producer_id, EPOCH_MAX)
    harness.write_markers()
    assert harness.producer(came=producer) == (harness.fresh, 0)


def test_an_abort_that_could_not_be_persisted_is_tried_again() -> None:
    harness = CoordinatorHarness()
    hung(harness)
    harness.broken = True
    harness.advance(60_000 + 3 * CHECK_MS)
    assert (harness.state().state, harness.orders) == (State.ONGOING, [])
    harness.broken = False
    harness.advance(CHECK_MS)
    assert harness.state().state is State.PREPARE_ABORT
    assert len(harness.orders) == 1


def test_a_producer_that_commits_before_the_abort_was_persisted_has_committed() -> None:
    harness = CoordinatorHarness()
    producer = hung(harness)
    harness.broken = True
    harness.advance(60_000 + CHECK_MS)
    harness.broken = False
    assert harness.end(producer).error_code == ErrorCode.NONE
    harness.write_markers()
    harness.advance(5 * CHECK_MS)
    assert harness.state().state is State.COMPLETE_COMMIT


def test_many_that_time_out_together_are_aborted_a_portion_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = CoordinatorHarness()
    for number in range(10):
        hung(harness, f"id-{number}")
    monkeypatch.setattr(coordinator, "WAKE_BYTES", 3 * size_bytes_of(harness.records[-1]))
    harness.now_ms += 60_000 + CHECK_MS
    sizes = []
    while (at_ms := harness.machine.wake_at_ms) is not None and at_ms <= harness.now_ms:
        decision = harness.machine.wake(harness.now_ms)
        assert decision.is_atomic, "or some would be prepared, and wait for their markers in vain"
        sizes.append(len(decision.persist))
        harness.carry_out(decision)
    assert sizes == [3, 3, 3, 1]
    assert len(harness.orders) == 10


def test_those_that_time_out_within_one_interval_are_aborted_together() -> None:
    harness = CoordinatorHarness()
    for number in range(5):
        hung(harness, f"id-{number}")
        harness.advance(1000)
    harness.advance(60_000 - 5000 + 1)
    assert len(harness.orders) == 1
    harness.advance(CHECK_MS - 1)
    assert len(harness.orders) == 1
    harness.advance(1)
    assert len(harness.orders) == 5


# -- after a restart


def test_time_passes_while_there_is_no_coordinator() -> None:
    harness = CoordinatorHarness()
    hung(harness)
    harness.advance(50_000)
    harness.now_ms += 20_000
    harness.restart()
    harness.advance(CHECK_MS - 1)
    assert harness.state().state is State.ONGOING, "its producer has a moment to find the new coordinator"
    harness.advance(1)
    assert harness.state().state is State.PREPARE_ABORT


def test_a_transaction_from_a_clock_that_is_ahead_lasts_no_longer_than_its_timeout() -> None:
    harness = CoordinatorHarness()
    hung(harness)
    harness.now_ms -= DAY_MS
    harness.restart()
    harness.advance(60_000 + CHECK_MS)
    assert harness.state().state is State.PREPARE_ABORT


# -- expiry


def test_an_unused_id_is_removed() -> None:
    harness = CoordinatorHarness()
    harness.producer()
    harness.advance(EXPIRY_MS - HOUR_MS)
    assert "id" in harness.machine.transactions
    harness.advance(2 * HOUR_MS)
    assert "id" not in harness.machine.transactions
    assert harness.records[-1].value is None
    assert harness.machine.wake_at_ms is None


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("committed", [True, False])
def test_an_id_whose_last_transaction_is_over_is_removed(version: int, committed: bool) -> None:
    harness = CoordinatorHarness()
    producer = hung(harness)
    harness.end(producer, committed=committed, version=version)
    harness.write_markers()
    harness.advance(EXPIRY_MS + HOUR_MS)
    assert harness.machine.transactions == {}


def test_an_id_that_is_used_stays() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    for _ in range(10):
        harness.advance(EXPIRY_MS - 2 * HOUR_MS)
        producer = harness.committed(producer)
    assert harness.state().producer == producer


def test_an_id_whose_transaction_is_in_the_way_stays() -> None:
    harness = CoordinatorHarness()
    harness.end(hung(harness))
    harness.advance(2 * EXPIRY_MS)
    assert harness.state().state is State.PREPARE_COMMIT
    harness.write_markers()
    harness.advance(EXPIRY_MS - HOUR_MS)
    assert harness.state().state is State.COMPLETE_COMMIT
    harness.advance(2 * HOUR_MS)
    assert harness.machine.transactions == {}


def test_the_producer_of_a_removed_id_has_to_begin_again() -> None:
    harness = CoordinatorHarness()
    producer = harness.producer()
    harness.advance(EXPIRY_MS + HOUR_MS)
    assert harness.join(producer, A) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert harness.end(producer).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert harness.producer(came=producer) == (harness.fresh, 0)


def test_a_removal_that_could_not_be_persisted_is_tried_again() -> None:
    harness = CoordinatorHarness()
    harness.producer()
    harness.broken = True
    harness.advance(EXPIRY_MS + HOUR_MS)
    assert "id" in harness.machine.transactions
    harness.broken = False
    harness.advance(HOUR_MS)
    assert harness.machine.transactions == {}


def test_many_ids_are_removed_a_portion_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "EXPIRED_MAX", 4)
    harness = CoordinatorHarness()
    for number in range(10):
        harness.producer(f"id-{number}")
    harness.now_ms += EXPIRY_MS
    sizes = []
    while harness.machine.transactions:
        harness.now_ms = max(harness.now_ms, harness.machine.wake_at_ms or 0)
        decision = harness.machine.wake(harness.now_ms)
        sizes.append(len(decision.persist))
        harness.carry_out(decision)
    assert sizes == [4, 4, 2]
    assert harness.now_ms < START_MS + EXPIRY_MS + HOUR_MS


def test_ids_of_any_length_are_removed_in_batches_that_fit() -> None:
    """A batch above max.message.bytes would be refused for ever, with the aborts that are in the same decision."""
    harness = CoordinatorHarness()
    for number in range(60):
        harness.producer(f"{number:030000}")
    harness.now_ms += EXPIRY_MS
    while harness.machine.transactions:
        harness.now_ms = max(harness.now_ms, harness.machine.wake_at_ms or 0)
        decision = harness.machine.wake(harness.now_ms)
        assert sum(map(size_bytes_of, decision.persist)) < 2 * coordinator.WAKE_BYTES
        harness.carry_out(decision)
    assert harness.now_ms < START_MS + EXPIRY_MS + HOUR_MS


def test_the_settings_of_now_say_how_long_ids_are_kept() -> None:
    harness = CoordinatorHarness()
    harness.producer()
    harness.machine.settings = replace(SETTINGS, id_expiration_ms=1000, expiry_interval_ms=500)
    harness.advance(2000)
    assert harness.machine.transactions == {}
