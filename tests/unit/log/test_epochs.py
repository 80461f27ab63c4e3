"""Leader epochs and where they end: the rules of KIP-101 and KIP-320, as Kafka's LeaderEpochFileCache has them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.epochs import LeaderEpochCache
from tests.examples import examples

from .builders import NOW_MS, append, open_at

UNKNOWN = (-1, -1)


def test_an_epoch_begins_where_its_first_batch_stands() -> None:
    epochs = LeaderEpochCache()
    assert epochs.assign(3, 10)
    assert epochs.assign(5, 20)
    assert epochs.entries == [(3, 10), (5, 20)]
    assert epochs.latest == 5


def test_later_batches_of_an_epoch_change_nothing() -> None:
    epochs = LeaderEpochCache([(3, 10)])
    assert not epochs.assign(3, 15)
    assert not epochs.assign(2, 15)
    assert epochs.entries == [(3, 10)]


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next() -> None:
    epochs = LeaderEpochCache([(1, 0), (2, 10)])
    epochs.assign(4, 10)
    assert epochs.entries == [(1, 0), (4, 10)]
    epochs.assign(6, 5)
    assert epochs.entries == [(1, 0), (6, 5)]


def test_an_epoch_that_wrote_nothing_gives_way_to_an_older_one_whose_batch_is_there() -> None:
    """A leader wrote nothing, then followed another one that has a batch from before."""
    epochs = LeaderEpochCache([(7, 10), (10, 19)])
    assert epochs.assign(8, 19)
    assert epochs.entries == [(7, 10), (8, 19)]
    assert epochs.assign(13, 21)
    assert epochs.end_offset_for(8, log_end=30) == (8, 21)


def test_a_follower_knows_the_epochs_of_its_batches_though_it_has_led_without_writing() -> None:
    log = open_at()
    append(log, b"a", epoch=7)
    log.note_epoch(10, log.end_offset)
    leader = open_at()
    append(leader, b"a", epoch=7)
    append(leader, b"b", epoch=8)
    append(leader, b"c", epoch=12)
    log.append_replica(leader.read(1, 1 << 20, leader.end_offset), NOW_MS)
    assert log.epochs.entries == leader.epochs.entries == [(7, 0), (8, 1), (12, 2)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, UNKNOWN),  # no epoch at all
        (5, (5, 10)),  # earlier than any we know: it ends where the first known one begins
        (6, (6, 20)),
        (7, (6, 20)),  # between two: the largest below, which ends where the next one begins
        (8, (6, 20)),
        (9, (9, 35)),  # the latest ends with the log
        (10, UNKNOWN),  # later than any we know
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(asked: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochCache([(6, 10), (9, 20)]).end_offset_for(asked, log_end=35) == answer


def test_nothing_is_known_of_any_epoch_in_an_empty_log() -> None:
    assert LeaderEpochCache().end_offset_for(0, log_end=0) == UNKNOWN
    assert LeaderEpochCache().latest == -1
    assert LeaderEpochCache().at(0) == -1


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 6), (19, 6), (20, 9), (1000, 9)])
def test_an_offset_has_the_epoch_that_began_last_before_it(offset: int, epoch: int) -> None:
    assert LeaderEpochCache([(6, 10), (9, 20)]).at(offset) == epoch


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        (30, [(1, 0), (2, 10), (3, 20)]),
        (21, [(1, 0), (2, 10), (3, 20)]),
        (20, [(1, 0), (2, 10)]),
        (10, [(1, 0)]),
        (0, []),
    ],
)
def test_a_log_that_ends_earlier_forgets_the_epochs_after_its_end(end: int, kept: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochCache([(1, 0), (2, 10), (3, 20)])
    assert epochs.truncate_from_end(end) is (len(kept) < 3)
    assert epochs.entries == kept


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (0, [(1, 5), (2, 10), (3, 20)]),
        (5, [(1, 5), (2, 10), (3, 20)]),
        (7, [(1, 7), (2, 10), (3, 20)]),
        (10, [(2, 10), (3, 20)]),
        (15, [(2, 15), (3, 20)]),
        (99, [(3, 99)]),
    ],
)
def test_a_log_that_starts_later_begins_in_the_epoch_it_starts_in(start: int, kept: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochCache([(1, 5), (2, 10), (3, 20)])
    assert epochs.truncate_from_start(start) is (kept != [(1, 5), (2, 10), (3, 20)])
    assert epochs.entries == kept


def test_epochs_are_read_back() -> None:
    epochs = LeaderEpochCache([(1, 5), (2**31 - 1, 2**62)])
    assert LeaderEpochCache.load(epochs.dump()).entries == epochs.entries
    assert LeaderEpochCache.load(LeaderEpochCache().dump()).entries == []


@pytest.mark.parametrize("data", [b"", b"\0" * 40, b"[[1, 2], [3", b"[1, 2]", b"[[1]]", b"7", b'{"1": 2}', b"\xff"])
def test_epochs_that_are_damaged_are_not_taken_for_none(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        LeaderEpochCache.load(data)


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=30),
    start=st.integers(0, 60),
    end=st.integers(0, 60),
)
@examples(100, deadline=None)
def test_epochs_say_what_every_batch_in_the_log_says(steps: list[tuple[int, int]], start: int, end: int) -> None:
    """Against a log in which each offset knows its own epoch."""
    epochs, model, epoch = LeaderEpochCache(), [], 0
    for more, count in steps:
        epoch += more
        epochs.assign(epoch, len(model))
        model += [epoch] * count
    end = min(end, len(model))
    start = min(start, end)
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    for offset in range(start, end):
        assert epochs.at(offset) == model[offset]
    for asked in set(model[start:end]):
        last = max(offset for offset in range(start, end) if model[offset] == asked)
        assert epochs.end_offset_for(asked, end) == (asked, last + 1)
    entries = epochs.entries
    assert entries == sorted(entries)
    assert len({begin for _, begin in entries}) == len(entries)
