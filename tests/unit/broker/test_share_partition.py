"""Acknowledgements of share group members, and the acquired ranges in their responses."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.share.partition import ACCEPT, RELEASE, RENEW, acquired_records, check_acknowledged, runs_of
from penstock.foundation.errors import InvalidRequest
from penstock.queues.commands import Acquired
from penstock.wire.messages.share_fetch import AcknowledgementBatch


def _said(first: int, last: int, *kinds: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)


def _ranges(ranges: list[tuple[int, int, int]], sizes: list[int], batch_size: int) -> list[tuple[int, int, int]]:
    """With batches of these sizes from offset 0 on."""
    ends = [sum(sizes[: index + 1]) - 1 for index in range(len(sizes))]
    acquired = tuple(Acquired(first, last, count, 0, 0) for first, last, count in ranges)
    found = acquired_records(acquired, ends, batch_size)
    return [(one.first_offset, one.last_offset, one.delivery_count) for one in found]


def test_neighbours_that_are_acknowledged_alike_are_one() -> None:
    said = [_said(0, 3, ACCEPT), _said(5, 9, ACCEPT, ACCEPT, RELEASE, RELEASE, ACCEPT)]
    assert runs_of(said) == [(0, 3, ACCEPT), (5, 6, ACCEPT), (7, 8, RELEASE), (9, 9, ACCEPT)]


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30))
def test_no_message_is_lost_between_them(kinds: list[int]) -> None:
    runs = runs_of([_said(10, 10 + len(kinds) - 1, *kinds)])
    assert [kind for first, last, kind in runs for _ in range(first, last + 1)] == kinds
    assert [first for first, _, _ in runs[1:]] == [last + 1 for _, last, _ in runs[:-1]]
    assert all(one[2] != other[2] for one, other in itertools.pairwise(runs))


def test_valid_acknowledgements_are_accepted() -> None:
    check_acknowledged([], version=1, is_renew=False)
    check_acknowledged([_said(0, 3, 0), _said(4, 5, 1, 3)], version=1, is_renew=False)
    check_acknowledged([_said(0, 3, RENEW), _said(4, 4, ACCEPT)], version=2, is_renew=True)


@pytest.mark.parametrize(
    ("said", "version", "is_renew"),
    [
        ([_said(0, 3, RENEW)], 1, True),
        ([_said(0, 3, RENEW)], 2, False),
        ([_said(0, 3, 5)], 2, True),
        ([_said(0, 3, -1)], 2, True),
        ([_said(0, 3)], 2, False),
        ([_said(0, 3, 1, 1, 1)], 2, False),
        ([_said(3, 0, 1)], 2, False),
        ([_said(-1, 0, 1)], 2, False),
        ([_said(0, 3, 1), _said(3, 4, 1)], 2, False),
    ],
)
def test_invalid_acknowledgements_are_refused(said: list[AcknowledgementBatch], version: int, is_renew: bool) -> None:
    with pytest.raises(InvalidRequest):
        check_acknowledged(said, version=version, is_renew=is_renew)


def test_ranges_are_cut_where_batches_end_once_they_are_large_enough() -> None:
    assert _ranges([(0, 11, 1)], [3, 3, 3, 3], 4) == [(0, 5, 1), (6, 11, 1)]
    assert _ranges([(0, 11, 1)], [3, 3, 3, 3], 100) == [(0, 11, 1)]
    assert _ranges([(0, 11, 1)], [12], 4) == [(0, 11, 1)], "a batch is not cut"
    assert _ranges([(1, 1, 2), (4, 11, 1)], [6, 6], 1) == [(1, 1, 2), (4, 5, 1), (6, 11, 1)]
    assert _ranges([(0, 11, 1)], [6, 6], 0) == [(0, 11, 1)], "without a batch size ranges are not split"


def test_delivery_counts_are_capped_at_the_largest_encodable_one() -> None:
    assert _ranges([(0, 0, 100_000)], [1], 10) == [(0, 0, 2**15 - 1)]


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    batch_size=st.integers(0, 10),
    cuts=st.lists(st.booleans(), min_size=48, max_size=48),
)
def test_responses_have_exactly_the_acquired_offsets(sizes: list[int], batch_size: int, cuts: list[bool]) -> None:
    offsets = [offset for offset in range(sum(sizes)) if cuts[offset]]
    ranges = [(offset, offset, 1 + offset % 2) for offset in offsets]
    found = _ranges(ranges, sizes, batch_size)
    assert [offset for first, last, _ in found for offset in range(first, last + 1)] == offsets
