"""What a partition remembers of its idempotent producers."""

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidProducerEpoch, OutOfOrderSequence
from penstock.log import producers as producers_module
from penstock.log.producers import WINDOW, Producers, SentBatch, sequence_after
from penstock.records.batch import BatchHeader, read_header
from penstock.records.build import control_marker

from .making import NOW_MS, sent

LAST = 2**31 - 1


def header(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(sent(producer_id, sequence, *[b"v"] * count, epoch=epoch))


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


def test_a_producer_that_nobody_knows_may_begin_anywhere() -> None:
    assert Producers().check(header(12345)) is None


def test_producers_do_not_mind_each_other() -> None:
    state = Producers()
    for producer_id in (1, 2):
        take(state, header(0, producer_id=producer_id), producer_id)
    assert take(state, header(0, producer_id=1), 0) == SentBatch(0, 0, 1, 1, NOW_MS)
    assert take(state, header(0, producer_id=2), 0) == SentBatch(0, 0, 2, 2, NOW_MS)


def test_a_marker_raises_the_epoch_and_is_no_batch() -> None:
    state = with_sequences(0, 1)
    marker = control_marker(commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=3, timestamp_ms=NOW_MS)
    state.apply(read_header(marker), 50, NOW_MS, NOW_MS)
    assert state.by_id[7].epoch == 3
    assert not state.by_id[7].batches
    with pytest.raises(InvalidProducerEpoch):
        state.check(header(2))


# -- forgetting


def test_producers_that_are_silent_for_long_are_forgotten() -> None:
    state = Producers()
    for producer_id, heard_ms in ((1, 100), (2, 200), (3, 300)):
        take(state, header(0, producer_id=producer_id), 0, now_ms=heard_ms)
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


def test_past_the_bound_the_one_heard_of_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_module, "PRODUCERS_MAX", 3)
    state = Producers()
    for number, producer_id in enumerate((1, 2, 3)):
        take(state, header(0, producer_id=producer_id), number, now_ms=number)
    take(state, header(1, producer_id=1), 5, now_ms=5)
    take(state, header(0, producer_id=4), 6, now_ms=6)
    assert sorted(state.by_id) == [1, 3, 4]
    for producer_id in range(10, 60):
        take(state, header(0, producer_id=producer_id), 0, now_ms=producer_id)
    assert sorted(state.by_id) == [57, 58, 59]


# -- snapshots

STATES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 4), st.integers(0, 10_000)), max_size=40
)


def state_of(steps: list[tuple[int, int, int, int]]) -> Producers:
    """Whatever these batches lead to; those that are refused are left out."""
    state = Producers()
    for offset, (producer_id, epoch, count, now_ms) in enumerate(steps):
        known = state.by_id.get(producer_id)
        begun = known is not None and epoch <= known.epoch
        first = sequence_after(known.batches[-1].last_sequence) if known and begun else 0
        batch = header(first, count, producer_id=producer_id, epoch=max(epoch, known.epoch if known else 0))
        take(state, batch, 10 * offset, now_ms)
    return state


def plain(state: Producers | None) -> dict[int, tuple[int, int, list[SentBatch]]]:
    assert state is not None
    return {known: (p.epoch, p.heard_ms, list(p.batches)) for known, p in state.by_id.items()}


@given(steps=STATES)
@examples(max_examples=60, deadline=None)
def test_a_snapshot_holds_the_whole_state(steps: list[tuple[int, int, int, int]]) -> None:
    state = state_of(steps)
    again = Producers.restore(state.snapshot())
    assert plain(again) == plain(state)
    assert again is not None
    assert again.changes == 0
    assert again.snapshot() == state.snapshot()


def test_a_snapshot_that_is_damaged_anywhere_is_not_believed() -> None:
    data = state_of([(number % 3, 0, 2, number) for number in range(12)]).snapshot()
    for at in range(len(data)):
        for flip in (0x01, 0xFF):
            spoilt = bytearray(data)
            spoilt[at] ^= flip
            assert Producers.restore(bytes(spoilt)) is None, f"byte {at}"
    for size in range(len(data)):
        assert Producers.restore(data[:size]) is None
    assert Producers.restore(data + b"\0") is None
    assert Producers.restore(bytes(len(data))) is None
