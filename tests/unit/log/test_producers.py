"""The state of idempotent producers in a partition."""

import struct
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    StorageError,
    TransactionCoordinatorFenced,
)
from penstock.foundation.steps import run_steps
from penstock.log.producer_state import WINDOW
from penstock.log.producers import (
    EVICTION_SCAN,
    EXPIRED_MAX,
    REFUSED_MAX,
    SHIFTED_AT_ONCE,
    Producer,
    Producers,
    SentBatch,
    sequence_after,
)
from penstock.log.transactions import AbortedTransaction
from penstock.records.batch import BatchHeader, read_header
from penstock.records.build import Marker
from tests.examples import examples

from .builders import NOW_MS, batch, sent

LAST = 2**31 - 1
FULL = StorageError("the disk is full")


def header(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    return read_header(sent(producer_id, sequence, *[b"v"] * count, epoch=epoch, transactional=transactional))


def take(state: Producers, batch: BatchHeader, offset: int, now_ms: int = NOW_MS) -> SentBatch | None:
    """What a log does with a batch: the one it repeats, or None once it is applied."""
    repeated = state.check(batch)
    if repeated is None:
        state.apply(batch, offset, batch.max_timestamp, now_ms)
    return repeated


def with_sequences(*sequences: int) -> Producers:
    state = Producers()
    for sequence in sequences:
        take(state, header(sequence), 100 + sequence)
    return state


def test_sequences_follow_each_other() -> None:
    state = Producers()
    assert take(state, header(0, 3), 10) is None
    assert take(state, header(3, 2), 20) is None
    assert take(state, header(5), 30) is None
    assert [batch.last_offset for batch in state.by_id[7].batches] == [12, 21, 30]


def test_a_batch_that_is_sent_again_gets_the_offsets_it_got_first() -> None:
    state = Producers()
    take(state, header(0, 3), 10)
    take(state, header(3, 2), 20)
    assert take(state, header(0, 3), 99) == SentBatch(0, 2, 10, 12, NOW_MS)
    assert take(state, header(3, 2), 99) == SentBatch(3, 4, 20, 21, NOW_MS)
    assert state.changes == 2


def test_the_last_five_batches_are_remembered_and_no_others() -> None:
    state = with_sequences(*range(8))
    for sequence in range(8 - WINDOW, 8):
        assert take(state, header(sequence), 0) is not None
    for sequence in range(8 - WINDOW):
        with pytest.raises(OutOfOrderSequence):
            state.check(header(sequence))


@pytest.mark.parametrize("wrong", [0, 1, 2, 4, 5, 1000])
def test_a_gap_or_a_step_back_is_refused(wrong: int) -> None:
    state = Producers()
    take(state, header(0, 3), 10)  # 3 is next
    with pytest.raises(OutOfOrderSequence, match=f"sent sequence {wrong}, expected 3") as refused:
        state.check(header(wrong))
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_overlaps_another_is_no_repetition() -> None:
    state = Producers()
    take(state, header(0, 3), 10)
    for first, count in ((0, 2), (0, 4), (1, 2)):
        with pytest.raises(OutOfOrderSequence):
            state.check(header(first, count))


def test_nothing_takes_the_place_of_a_first_batch_that_was_refused_for_now() -> None:
    state = Producers()
    state.refuse(header(1), FULL)
    state.refuse(header(0), FULL)
    state.refuse(header(2), FULL)
    with pytest.raises(StorageError, match="sent sequence 3; 0 was rejected before it"):
        state.check(header(3))
    take(state, header(0), 10)
    take(state, header(1), 11)


def test_batches_after_a_retriable_refusal_are_refused_for_the_same_reason() -> None:
    """Not for its sequence: librdkafka would then begin another epoch, and send again what it does not know about."""
    state = Producers()
    take(state, header(0), 10)
    state.refuse(header(1), FULL)
    for sequence in (2, 3):
        with pytest.raises(StorageError, match=f"sent sequence {sequence}; 1 was rejected before it"):
            state.check(header(sequence))
    assert take(state, header(0), 10) is not None, "one that was taken before is known as such"
    take(state, header(1), 11)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 3, expected 2"):
        state.check(header(3))
    take(state, header(2), 12)


def test_an_accepted_retry_clears_the_earlier_refusal() -> None:
    state = with_sequences(0)
    for sequence in (1, 2, 3):
        state.refuse(header(sequence), FULL)
        with pytest.raises(StorageError, match=f"{sequence} was rejected before it"):
            state.check(header(sequence + 1))
        take(state, header(sequence), 200 + sequence)


def test_a_new_epoch_does_not_wait_for_what_was_refused_in_the_last_one() -> None:
    state = Producers()
    take(state, header(0), 10)
    state.refuse(header(1), FULL)
    take(state, header(0, epoch=1), 11)
    state.refuse(header(2, epoch=1), FULL)
    with pytest.raises(OutOfOrderSequence):
        state.check(header(2, epoch=1))


def test_so_many_refusals_are_remembered_and_no_more() -> None:
    state = Producers()
    for number in range(REFUSED_MAX + 1):
        state.refuse(header(0)._replace(producer_id=100 + number), FULL)
    assert state.check(header(5)._replace(producer_id=100)) is None, "the oldest is forgotten"
    with pytest.raises(StorageError):
        state.check(header(5)._replace(producer_id=101))


def test_sequences_begin_again_after_the_largest() -> None:
    state = Producers()
    take(state, header(LAST - 1), 10)
    take(state, header(LAST), 11)
    assert sequence_after(LAST) == 0
    take(state, header(0), 12)
    assert take(state, header(LAST), 0) == SentBatch(LAST, LAST, 11, 11, NOW_MS)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 2, expected 1"):
        state.check(header(2))


def test_a_batch_may_lie_across_the_largest_sequence() -> None:
    state = Producers()
    take(state, header(LAST - 1, 4), 10)  # LAST-1, LAST, 0, 1
    assert state.by_id[7].batches[-1].last_sequence == 1
    assert take(state, header(LAST - 1, 4), 0) == SentBatch(LAST - 1, 1, 10, 13, NOW_MS)
    take(state, header(2), 14)
    with pytest.raises(OutOfOrderSequence):
        state.check(header(LAST))


def test_a_new_epoch_begins_at_zero() -> None:
    state = with_sequences(0, 1, 2)
    with pytest.raises(OutOfOrderSequence, match="began epoch 1 with sequence 3, expected 0"):
        state.check(header(3, epoch=1))
    assert take(state, header(0, epoch=1), 50) is None
    assert state.by_id[7].epoch == 1
    assert len(state.by_id[7].batches) == 1
    with pytest.raises(OutOfOrderSequence):
        state.check(header(3, epoch=1))


def test_an_older_epoch_is_fenced() -> None:
    state = with_sequences(0, 1)
    take(state, header(0, epoch=5), 50)
    for epoch, sequence in ((4, 0), (0, 1), (0, 2)):
        with pytest.raises(InvalidProducerEpoch, match="its newer instance has 5") as refused:
            state.check(header(sequence, epoch=epoch))
        assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert Producers().check(header(12345)) is None


def test_producers_do_not_mind_each_other() -> None:
    state = Producers()
    for producer_id in (1, 2):
        take(state, header(0, producer_id=producer_id), producer_id)
    assert take(state, header(0, producer_id=1), 0) == SentBatch(0, 0, 1, 1, NOW_MS)
    assert take(state, header(0, producer_id=2), 0) == SentBatch(0, 0, 2, 2, NOW_MS)


# -- transactions


def begun(state: Producers, sequence: int, offset: int, *, producer_id: int = 7, epoch: int = 0) -> None:
    """A batch in a transaction, which may begin with it."""
    batch = header(sequence, producer_id=producer_id, epoch=epoch, transactional=True)
    assert state.check(batch, may_begin=True) is None
    state.apply(batch, offset, NOW_MS, NOW_MS)


def ended(
    state: Producers, offset: int, *, producer_id: int = 7, epoch: int = 0, commit: bool = True, coordinator: int = 0
) -> AbortedTransaction | None:
    marker = Marker(commit, coordinator)
    aborted = state.aborted_by(producer_id, marker, offset)
    state.end(ProducerKey(producer_id, epoch), marker, offset, NOW_MS)
    return aborted


def own(producer_id: int, epoch: int, transactional: bool = True) -> BatchHeader:
    """A batch that the broker made in a producer's name."""
    return read_header(batch(producer_id=producer_id, producer_epoch=epoch, transactional=transactional))


def test_a_transaction_begins_with_its_first_batch_and_ends_with_its_marker() -> None:
    state = Producers()
    begun(state, 0, 10)
    begun(state, 1, 15)
    assert state.by_id[7].first_offset == state.open.first_offset == 10
    assert state.is_in_transaction(7, 0)
    assert not state.is_in_transaction(7, 1)
    assert not state.is_in_transaction(8, 0)
    ended(state, 20)
    assert not state.is_in_transaction(7, 0)
    assert state.by_id[7].first_offset == -1
    assert state.open.first_offset is None


def test_a_transaction_begins_only_if_the_coordinator_knows_of_it() -> None:
    """KIP-890: else a late batch would begin one that is never ended."""
    state = Producers()
    late = header(0, transactional=True)
    for known in (False, True):
        with pytest.raises(InvalidTxnState, match="not part of an ongoing transaction") as refused:
            state.check(late)
        assert refused.value.code == ErrorCode.INVALID_TXN_STATE
        if not known:
            begun(state, 0, 10)
            ended(state, 11)
            late = header(1, transactional=True)


def test_within_a_transaction_no_further_verification_is_needed() -> None:
    state = Producers()
    begun(state, 0, 10)
    assert state.check(header(1, transactional=True)) is None


def test_a_new_epoch_does_not_go_on_with_the_transaction_of_the_old_one() -> None:
    state = Producers()
    begun(state, 0, 10)
    with pytest.raises(InvalidTxnState):
        state.check(header(0, epoch=1, transactional=True))
    assert state.check(header(0, epoch=1, transactional=True), may_begin=True) is None


def test_a_batch_of_a_transaction_that_is_sent_again_is_recognised_even_when_that_has_ended() -> None:
    state = Producers()
    begun(state, 0, 10)
    again = header(0, transactional=True)
    assert state.check(again) == SentBatch(0, 0, 10, 10, NOW_MS)
    ended(state, 11)
    assert state.check(again) == SentBatch(0, 0, 10, 10, NOW_MS)


def test_a_plain_batch_in_the_middle_of_a_transaction_is_refused() -> None:
    state = Producers()
    begun(state, 0, 10)
    with pytest.raises(InvalidTxnState, match="non-transactional batch while its transaction is open") as refused:
        state.check(header(1))
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE
    with pytest.raises(InvalidTxnState):
        state.check(header(0, epoch=1))
    with pytest.raises(InvalidTxnState):
        state.check_own(own(7, 0, transactional=False))
    ended(state, 11)
    assert state.check(header(1)) is None
    state.check_own(own(7, 0, transactional=False))


def test_after_a_marker_of_the_same_epoch_sequences_go_on() -> None:
    state = Producers()
    begun(state, 0, 10)
    ended(state, 11)
    begun(state, 1, 12)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 0, expected 2"):
        state.check(header(0, 3, transactional=True))


def test_after_a_marker_with_a_new_epoch_the_producer_has_that_epoch_and_begins_at_zero() -> None:
    """KIP-890, transaction version 2."""
    state = Producers()
    begun(state, 0, 10)
    ended(state, 11, epoch=1)
    assert state.by_id[7].epoch == 1
    assert not state.by_id[7].batches
    with pytest.raises(InvalidProducerEpoch, match="has epoch 0, its newer instance has 1") as refused:
        state.check(header(1, transactional=True), may_begin=True)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(OutOfOrderSequence, match="sent sequence 1, expected 0"):
        state.check(header(1, epoch=1, transactional=True), may_begin=True)
    begun(state, 0, 12, epoch=1)


def test_batches_of_the_brokers_own_have_no_sequence() -> None:
    state = Producers()
    state.check_own(own(7, 3))
    state.apply(own(7, 3), 10, NOW_MS, NOW_MS)
    state.check_own(own(7, 3))
    state.apply(own(7, 3), 11, NOW_MS, NOW_MS)
    assert list(state.by_id[7].batches) == [SentBatch(-1, -1, 10, 10, NOW_MS), SentBatch(-1, -1, 11, 11, NOW_MS)]
    assert state.open.first_offset == 10
    assert state.check(header(0, epoch=3, transactional=True)) is None, "a client begins at zero after them"
    with pytest.raises(OutOfOrderSequence):
        state.check(header(1, epoch=3, transactional=True))


def test_a_fenced_producer_gets_nothing_written_in_its_name() -> None:
    state = Producers()
    state.apply(own(7, 3), 10, NOW_MS, NOW_MS)
    with pytest.raises(InvalidProducerEpoch):
        state.check_own(own(7, 2))
    with pytest.raises(InvalidProducerEpoch):
        state.check_marker(ProducerKey(7, 2), 5)


def test_a_marker_may_have_the_producers_epoch_or_a_newer_one() -> None:
    state = Producers()
    state.check_marker(ProducerKey(7, 0), 5)
    begun(state, 0, 10, epoch=3)
    state.check_marker(ProducerKey(7, 3), 5)
    state.check_marker(ProducerKey(7, 4), 5)


def test_an_older_coordinator_ends_nothing() -> None:
    state = Producers()
    begun(state, 0, 10)
    ended(state, 11, coordinator=5)
    assert state.by_id[7].coordinator_epoch == 5
    begun(state, 1, 12)
    with pytest.raises(TransactionCoordinatorFenced, match="has epoch 4, but one with the newer epoch 5") as refused:
        state.check_marker(ProducerKey(7, 0), 4)
    assert refused.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    state.check_marker(ProducerKey(7, 0), 5)
    state.check_marker(ProducerKey(7, 0), 6)


def test_a_late_marker_does_not_end_the_transaction_after_its_own() -> None:
    """KIP-890: from version 2 on a marker's epoch is newer than that of the transaction it ends."""
    state = Producers()
    begun(state, 0, 10)
    state.check_marker(ProducerKey(7, 1), 0, transaction_version=2)
    ended(state, 11, epoch=1)
    state.check_marker(ProducerKey(7, 1), 0, transaction_version=2)  # again, and nothing is open
    begun(state, 0, 12, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        state.check_marker(ProducerKey(7, 1), 0, transaction_version=2)
    state.check_marker(ProducerKey(7, 1), 0, transaction_version=1)  # in which it is the transaction's own
    state.check_marker(ProducerKey(7, 2), 0, transaction_version=2)


def test_an_abort_says_what_it_aborts_and_up_to_where_all_is_decided_then() -> None:
    state = Producers()
    begun(state, 0, 10, producer_id=1)
    begun(state, 0, 11, producer_id=2)
    begun(state, 0, 12, producer_id=3)
    assert ended(state, 20, producer_id=2, commit=False) == AbortedTransaction(2, 11, 20, 10)
    assert ended(state, 21, producer_id=1, commit=True) is None
    assert ended(state, 22, producer_id=3, commit=False) == AbortedTransaction(3, 12, 22, 23)
    assert ended(state, 23, producer_id=3, commit=False) is None, "nothing was open"
    assert ended(state, 24, producer_id=4, commit=False) is None, "it is unknown"


def test_a_marker_of_an_unknown_producer_sets_its_epoch() -> None:
    state = Producers()
    ended(state, 5, epoch=4, coordinator=2)
    assert (state.by_id[7].epoch, state.by_id[7].coordinator_epoch, state.by_id[7].marker_offset) == (4, 2, 5)
    with pytest.raises(InvalidProducerEpoch):
        state.check(header(0, epoch=3))


def test_an_emptied_control_batch_tells_an_epoch_and_nothing_else() -> None:
    state = Producers()
    begun(state, 0, 10)
    state.end(ProducerKey(7, 2), None, 11, NOW_MS)
    assert state.by_id[7].epoch == 2
    assert state.by_id[7].first_offset == 10


# -- forgetting


def test_producers_that_are_silent_for_long_are_forgotten() -> None:
    state = Producers()
    for producer_id, last_seen_ms in ((1, 100), (2, 200), (3, 300)):
        take(state, header(0, producer_id=producer_id), 0, now_ms=last_seen_ms)
    changes = state.changes
    assert state.expire(before_ms=200) == 1
    assert sorted(state.by_id) == [2, 3]
    assert state.changes > changes, "or the snapshot would bring it back"
    assert state.expire(before_ms=200) == 0


def test_a_batch_is_a_sign_of_life() -> None:
    state = with_sequences(0)
    take(state, header(1), 1, now_ms=NOW_MS + 500)
    assert state.expire(NOW_MS + 500) == 0
    assert state.expire(NOW_MS + 501) == 1


def test_many_producers_expire_in_several_calls() -> None:
    """Expiring 100,000 at once held up the event loop for 50 ms."""
    state = Producers(limit=3 * EXPIRED_MAX)
    for producer_id in range(2 * EXPIRED_MAX + 1):
        take(state, header(0, producer_id=producer_id), producer_id)
    assert [state.expire(NOW_MS + 1) for _ in range(4)] == [EXPIRED_MAX, EXPIRED_MAX, 1, 0]


@pytest.mark.parametrize(("by_ms", "expected_ms"), [(500, NOW_MS + 500), (-500, NOW_MS - 500)])
def test_last_seen_times_are_shifted_in_steps(by_ms: int, expected_ms: int) -> None:
    """After a step, producers may come, go and be seen again."""
    count = 3 * SHIFTED_AT_ONCE
    state = Producers(limit=2 * count)
    for producer_id in range(count):
        take(state, header(0, producer_id=producer_id), producer_id)
    clock_ms = NOW_MS + by_ms
    steps = state.shift_clock(by_ms, lambda: clock_ms)
    for done in range(SHIFTED_AT_ONCE, count, SHIFTED_AT_ONCE):
        next(steps)
        assert sum(producer.last_seen_ms == expected_ms for producer in state.by_id.values()) == done
    clock_ms += 100
    seen_again, gone, new = count - 1, count - 2, count
    take(state, header(1, producer_id=seen_again), count, now_ms=clock_ms)
    del state.by_id[gone]
    take(state, header(0, producer_id=new), count + 1, now_ms=clock_ms)
    run_steps(steps)
    assert gone not in state.by_id
    assert min(state.by_id[known].last_seen_ms for known in (seen_again, new)) >= clock_ms, "not too early"
    others = {producer.last_seen_ms for known, producer in state.by_id.items() if known < gone}
    assert others == {expected_ms}


def test_past_the_limit_the_least_recently_seen_one_is_forgotten() -> None:
    state = Producers(limit=3)
    for number, producer_id in enumerate((1, 2, 3)):
        take(state, header(0, producer_id=producer_id), number, now_ms=number)
    take(state, header(1, producer_id=1), 5, now_ms=5)
    take(state, header(0, producer_id=4), 6, now_ms=6)
    assert sorted(state.by_id) == [1, 3, 4]
    for producer_id in range(10, 60):
        take(state, header(0, producer_id=producer_id), 0, now_ms=producer_id)
    assert sorted(state.by_id) == [57, 58, 59]


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    state = Producers()
    begun(state, 0, 10, producer_id=1)
    take(state, header(0, producer_id=2), 11)
    assert state.expire(NOW_MS + 1) == 1
    assert list(state.by_id) == [1]
    state.limit = 2
    for producer_id in (3, 4, 5):
        take(state, header(0, producer_id=producer_id), 20 + producer_id, now_ms=NOW_MS + producer_id)
    assert list(state.by_id) == [1, 5]
    ended(state, 30, producer_id=1)
    assert state.expire(NOW_MS + 9) == 2


def test_with_as_many_open_transactions_as_are_allowed_no_one_new_is_taken() -> None:
    state = Producers(limit=2)
    begun(state, 0, 10, producer_id=1)
    begun(state, 0, 11, producer_id=2)
    with pytest.raises(StorageError, match="has 2 open transactions"):
        state.check(header(0, producer_id=3))
    with pytest.raises(StorageError):
        state.check_own(own(3, 0))
    begun(state, 1, 12, producer_id=1)
    ended(state, 13, producer_id=1)
    begun(state, 0, 14, producer_id=3)
    assert sorted(state.by_id) == [2, 3]


def test_a_partition_remembers_no_more_producers_than_its_limit() -> None:
    state = Producers(limit=5000)
    begun(state, 0, 0, producer_id=1)
    for producer_id in range(2, 20_000):
        take(state, header(0, producer_id=producer_id), producer_id, now_ms=producer_id)
        assert len(state.by_id) <= 5000
    assert state.is_in_transaction(1, 0), "an open transaction must be ended by its coordinator"
    assert len(state.by_id) > 4000, "no more are evicted than need be"
    assert 19_999 in state.by_id


def test_eviction_spares_producers_that_have_sent_lately() -> None:
    state = Producers(limit=1000)
    for number in range(10_000):
        take(state, header(0, producer_id=100 + number), number, now_ms=number)
        take(state, header(number, producer_id=7), number, now_ms=number)
    assert state.by_id[7].batches[-1].last_sequence == 9999


def test_eviction_looks_at_a_bounded_number_of_producers() -> None:
    """For any limit: this is done on the event loop, in the middle of an append."""

    class Counted(dict[int, Producer]):
        looked_at = 0

        def __getitem__(self, known: int) -> Producer:
            self.looked_at += 1
            return super().__getitem__(known)

    state = Producers(limit=50_000)
    state.by_id = Counted({known: Producer(epoch=0, last_seen_ms=known) for known in range(50_000)})
    state.apply(header(0, producer_id=50_001), 0, NOW_MS, NOW_MS)
    assert 0 < state.by_id.looked_at <= 3 * EVICTION_SCAN
    assert 0 not in state.by_id
    assert 40_000 in state.by_id


def test_a_lower_limit_is_reached_step_by_step() -> None:
    state = Producers(limit=5000)
    for producer_id in range(5000):
        take(state, header(0, producer_id=producer_id), producer_id, now_ms=producer_id)
    state.limit = 100
    for producer_id in range(5000, 5300):
        take(state, header(0, producer_id=producer_id), producer_id, now_ms=producer_id)
    assert len(state.by_id) <= 100
    assert 5299 in state.by_id


def test_a_producer_takes_little_memory() -> None:
    """103 MB for 100,000 was too much: each had a deque of its own."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        state = Producers(limit=2000)
        for producer_id in range(2000):
            for sequence in range(5):
                batch_header = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, 10**9 + producer_id, 0, 1000 + sequence, 1)
                state.apply(batch_header, 10**12 + producer_id, NOW_MS + sequence, NOW_MS + sequence)
        used_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used_bytes / 2000 < 650, "bytes per producer with a full window"


def test_all_transactions_are_forgotten_at_once() -> None:
    state = Producers()
    begun(state, 0, 10, producer_id=1)
    begun(state, 0, 11, producer_id=2)
    ended(state, 12, producer_id=1)
    state.forget_transactions()
    assert state.open.is_empty
    assert not state.is_in_transaction(2, 0)
    assert sorted(state.by_id) == [1, 2]


# -- snapshots

STATES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 4), st.integers(0, 10_000)), max_size=40
)


def state_of(steps: list[tuple[int, int, int, int]]) -> Producers:
    """The state after random batches: of idempotent producers (ids below 3) and of transactional ones."""
    state = Producers()
    for number, (producer_id, epoch, count, now_ms) in enumerate(steps):
        known = state.by_id.get(producer_id)
        epoch = max(epoch, known.epoch if known else 0)
        if producer_id >= 3 and known and count == 4:
            ended(
                state, 10 * number, producer_id=producer_id, epoch=epoch, coordinator=number, commit=now_ms % 2 == 0
            )
            continue
        has_begun = known is not None and epoch == known.epoch and known.batches
        first = sequence_after(known.batches[-1].last_sequence) if known and has_begun else 0
        sending = header(first, count, producer_id=producer_id, epoch=epoch, transactional=producer_id >= 3)
        assert state.check(sending, may_begin=True) is None
        state.apply(sending, 10 * number, sending.max_timestamp, now_ms)
    return state


def plain(state: Producers | None) -> tuple[list[object], list[object]]:
    assert state is not None
    found = [
        (known, p.epoch, p.last_seen_ms, p.coordinator_epoch, p.first_offset, list(p.batches))
        for known, p in state.by_id.items()
    ]
    undecided: list[object] = [state.open.first_unstable_offset(watermark) for watermark in range(0, 410, 10)]
    return list(found), undecided


@given(steps=STATES)
@examples(60, deadline=None)
def test_a_snapshot_holds_the_whole_state(steps: list[tuple[int, int, int, int]]) -> None:
    state = state_of(steps)
    written = state.take_snapshot().encode()
    again = Producers.restore(written)
    assert again is not None
    assert again.changes == 0
    assert again.take_snapshot().encode() == written
    assert plain(again) == plain(state)


def test_a_frozen_state_does_not_change_any_more() -> None:
    """It is encoded on a thread, while the log goes on."""
    state = with_sequences(0, 1)
    begun(state, 0, 10, producer_id=8)
    written, frozen = state.take_snapshot().encode(), state.take_snapshot()
    take(state, header(2), 20)
    take(state, header(0, producer_id=9), 21)
    ended(state, 22, producer_id=8)
    state.expire(NOW_MS + 1)
    assert frozen.encode() == written
    assert state.take_snapshot().encode() != written


def test_a_snapshot_that_is_damaged_anywhere_is_not_believed() -> None:
    data = state_of([(number % 3, 0, 2, number) for number in range(12)]).take_snapshot().encode()
    for at in range(len(data)):
        for flip in (0x01, 0xFF):
            spoilt = bytearray(data)
            spoilt[at] ^= flip
            assert Producers.restore(bytes(spoilt)) is None, f"byte {at}"
    for size in range(len(data)):
        assert Producers.restore(data[:size]) is None
    assert Producers.restore(data + b"\0") is None
    assert Producers.restore(bytes(len(data))) is None


def test_a_snapshot_of_before_there_were_transactions_is_read() -> None:
    """As it was written by version PSP2: one producer, two batches."""
    body = struct.pack(">IqhqB", 1, 7, 3, NOW_MS, 2)
    body += struct.pack(">iiqqq", 0, 1, 10, 11, NOW_MS) + struct.pack(">iiqqq", 2, 2, 12, 12, NOW_MS)
    state = Producers.restore(struct.pack(">4sI", b"PSP2", zlib.crc32(body)) + body)
    assert state is not None
    known = state.by_id[7]
    assert (known.epoch, known.last_seen_ms, known.first_offset, known.coordinator_epoch) == (3, NOW_MS, -1, -1)
    assert list(known.batches) == [SentBatch(0, 1, 10, 11, NOW_MS), SentBatch(2, 2, 12, 12, NOW_MS)]
    assert state.open.is_empty
