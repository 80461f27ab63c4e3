"""Planning of reads: offset ranges are split into tasks, and limits are shared."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.ids import TopicPartition
from penstock.spark.positions import read_positions, write_positions
from penstock.spark.read_plan import OffsetRange, limit_offsets, split

NAMES = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))


def ranges() -> st.SearchStrategy[list[OffsetRange]]:
    sizes = st.dictionaries(NAMES, st.tuples(st.integers(0, 10**12), st.integers(-5, 10**6)), max_size=8)
    return sizes.map(lambda found: [OffsetRange(name, start, start + size) for name, (start, size) in found.items()])


A, B, C = (TopicPartition("t", n) for n in range(3))


def test_by_default_every_partition_is_one_task_and_empty_ones_are_none() -> None:
    wanted = [OffsetRange(A, 0, 10), OffsetRange(B, 5, 5), OffsetRange(C, 7, 3)]
    assert split(wanted, tasks_min=None, records_max=None) == [OffsetRange(A, 0, 10)]


def test_a_partition_is_cut_into_as_many_tasks_as_are_wanted() -> None:
    assert split([OffsetRange(A, 0, 10)], tasks_min=3, records_max=None) == [
        OffsetRange(A, 0, 3),
        OffsetRange(A, 3, 6),
        OffsetRange(A, 6, 10),
    ]


def test_large_partitions_are_cut_and_small_ones_stay_whole() -> None:
    found = split([OffsetRange(A, 0, 100), OffsetRange(B, 0, 1)], tasks_min=4, records_max=None)
    assert [part.size for part in found if part.tp == A] == [33, 33, 34]
    assert [part for part in found if part.tp == B] == [OffsetRange(B, 0, 1)]


def test_no_task_has_more_records_than_allowed() -> None:
    found = split([OffsetRange(A, 0, 10)], tasks_min=None, records_max=4)
    assert found == [OffsetRange(A, 0, 3), OffsetRange(A, 3, 6), OffsetRange(A, 6, 10)]


@given(ranges(), st.none() | st.integers(1, 50), st.none() | st.integers(1000, 10**6))
def test_tasks_cover_every_offset_just_once(
    wanted: list[OffsetRange], tasks_min: int | None, records_max: int | None
) -> None:
    found = split(wanted, tasks_min=tasks_min, records_max=records_max)
    for whole in wanted:
        parts = [part for part in found if part.tp == whole.tp]
        if whole.size <= 0:
            assert not parts
            continue
        assert [parts[0].start, parts[-1].end] == [whole.start, whole.end]
        assert all(left.end == right.start for left, right in pairwise(parts))
    assert all(part.size > 0 for part in found)
    assert records_max is None or all(part.size <= records_max for part in found)


@given(st.integers(1, 10**7), st.dictionaries(NAMES, st.tuples(st.integers(0, 10**12), st.integers(0, 10**6))))
def test_no_partition_is_read_past_its_end_or_starved(
    limit: int, sizes: dict[TopicPartition, tuple[int, int]]
) -> None:
    start = {name: first for name, (first, _) in sizes.items()}
    end = {name: first + size for name, (first, size) in sizes.items()}
    found = limit_offsets(limit, start, end)
    assert found.keys() == end.keys()
    assert all(start[name] <= found[name] <= end[name] for name in found)
    assert all(found[name] > start[name] for name in found if end[name] > start[name])
    assert sum(found[name] - start[name] for name in found) <= limit + len(found)


def test_a_limit_is_shared_out_by_how_far_each_is_behind() -> None:
    assert limit_offsets(100, {A: 0, B: 0, C: 9}, {A: 900, B: 100, C: 9}) == {A: 90, B: 10, C: 9}


@given(st.dictionaries(NAMES, st.integers(0, 2**62)))
def test_positions_are_read_as_they_were_written(positions: dict[TopicPartition, int]) -> None:
    assert read_positions(write_positions(positions)) == positions


def test_equal_positions_are_written_alike_and_partitions_in_the_order_of_their_numbers() -> None:
    names = [TopicPartition("t", n) for n in (10, 9, 1)]
    one = write_positions(dict.fromkeys(names, 5))
    assert list(one["t"]) == ["1", "9", "10"]
    assert str(one) == str(write_positions(dict.fromkeys(reversed(names), 5)))
