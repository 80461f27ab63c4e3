"""Lookups in a segment: by offset, by time, with a whole, partial or missing index."""

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import StorageError
from penstock.log.disk import Disk
from penstock.log.memory import MemoryDisk
from penstock.log.segment import BatchPosition, Segment, segment_name
from tests.examples import examples

from .builders import FOLDER, NOW_MS, batch


def put(
    segment: Segment, base: int, *values: bytes, timestamp_ms: int = NOW_MS, interval: int = 200
) -> BatchPosition:
    data = batch(*values, timestamp_ms=timestamp_ms, base_offset=base)
    position, last = segment.size, base + len(values) - 1
    segment.file.append(data)
    segment.index_batch(position, len(data), base, last, timestamp_ms, interval)
    return BatchPosition(position, len(data), base, last)


def filled(disk: Disk, base: int = 1000, count: int = 50, interval: int = 200) -> tuple[Segment, list[BatchPosition]]:
    """Batches of one to three records with gaps between some, as after compaction."""
    segment, places, offset = Segment(disk, FOLDER, base), [], base
    for number in range(count):
        values = [b"x" * (number % 40)] * (number % 3 + 1)
        places.append(put(segment, offset, *values, timestamp_ms=NOW_MS + number % 10, interval=interval))
        offset = places[-1].last_offset + 1 + (number % 7 == 0) * 3
    return segment, places


def check(segment: Segment, places: list[BatchPosition]) -> None:
    for offset in range(places[0].base_offset - 2, places[-1].last_offset + 3):
        number = bisect_left(places, offset, key=lambda place: place.last_offset)
        assert segment.locate(offset) == (places[number] if number < len(places) else None)
    assert segment.end_offset == places[-1].last_offset + 1
    assert [at for at, _ in segment.headers()] == [place.position for place in places]


def test_names_sort_as_offsets_do() -> None:
    assert segment_name(42) == "00000000000000000042"
    assert sorted(map(segment_name, (10**18, 9, 10))) == [segment_name(9), segment_name(10), segment_name(10**18)]


@pytest.mark.parametrize("interval", [0, 200, 1 << 20])
def test_the_batch_that_holds_an_offset_is_found_or_the_first_after_it(interval: int) -> None:
    disk = MemoryDisk()
    segment, places = filled(disk, interval=interval)
    check(segment, places)
    segment.index.seal()
    check(Segment(disk, FOLDER, 1000), places)


def test_without_its_index_a_segment_is_slower_and_still_right() -> None:
    disk = MemoryDisk()
    segment, places = filled(disk)
    segment.close()
    disk.remove(f"{FOLDER}/{segment_name(1000)}.index")
    check(Segment(disk, FOLDER, 1000), places)


def test_an_index_is_rebuilt_from_the_batches() -> None:
    disk = MemoryDisk()
    segment, places = filled(disk)
    segment.index.seal()
    path = f"{FOLDER}/{segment_name(1000)}.index"
    before = disk.load(path)
    disk.store(path, b"garbage that is no index at all.")
    segment = Segment(disk, FOLDER, 1000)
    segment.rebuild_index(200)
    check(segment, places)
    segment.index.seal()
    assert disk.load(path) == before


def test_the_times_of_a_segment_are_those_of_its_batches() -> None:
    disk = MemoryDisk()
    segment = Segment(disk, FOLDER, 0)
    assert (segment.first_timestamp_ms, segment.latest_ms) == (-1, -1)
    for number, time_ms in enumerate((500, 900, 300, 700)):
        put(segment, number, b"x" * 100, timestamp_ms=time_ms, interval=0)
    assert (segment.first_timestamp_ms, segment.latest_ms) == (500, 900)
    segment.index.seal()
    again = Segment(disk, FOLDER, 0)
    assert (again.first_timestamp_ms, again.latest_ms) == (500, 900)
    segment.cut(0)
    assert (segment.first_timestamp_ms, segment.latest_ms) == (-1, -1)


@given(
    times=st.lists(st.integers(-1, 50), min_size=1, max_size=40),
    asked=st.integers(-1, 55),
    interval=st.sampled_from([0, 150]),
)
@examples(80, deadline=None)
def test_no_batch_of_a_time_or_later_is_left_out(times: list[int], asked: int, interval: int) -> None:
    segment = Segment(MemoryDisk(), FOLDER, 0)
    for number, time_ms in enumerate(times):
        put(segment, number, b"x" * 30, timestamp_ms=time_ms, interval=interval)
    found = [header.base_offset for _, header in segment.headers_from_time(asked) if header.max_timestamp >= asked]
    assert found == [number for number, time_ms in enumerate(times) if time_ms >= asked]
    assert segment.latest_ms == max(times)


@given(cut_at=st.integers(0, 50), interval=st.sampled_from([0, 200]), sealed=st.booleans())
@examples(50, deadline=None)
def test_a_segment_that_is_cut_goes_on_as_if_it_had_never_been_longer(
    cut_at: int, interval: int, sealed: bool
) -> None:
    disk = MemoryDisk()
    segment, places = filled(disk, interval=interval)
    if sealed:
        segment.index.seal()
        segment = Segment(disk, FOLDER, 1000)
    position = places[cut_at].position if cut_at < len(places) else segment.size
    segment.cut(position)
    places = places[:cut_at]
    assert segment.size == position
    offset = places[-1].last_offset + 1 if places else 1000
    for number in range(20):
        places.append(put(segment, offset + number, b"y" * 77, timestamp_ms=NOW_MS + 100, interval=interval))
    check(segment, places)
    assert segment.latest_ms == NOW_MS + 100


def test_batches_larger_than_a_scan_are_found() -> None:
    segment = Segment(MemoryDisk(), FOLDER, 0)
    sizes = [10, 30_000, 10, 30_000, 10, 2_000_000, 10]
    check(segment, [put(segment, number, b"x" * size, interval=1 << 30) for number, size in enumerate(sizes)])


def test_a_truncated_batch_is_not_returned() -> None:
    disk = MemoryDisk()
    _, places = filled(disk, count=5)
    whole = disk.load(f"{FOLDER}/{segment_name(1000)}.log") or b""
    for missing in range(1, places[-1].size + 1):
        disk.store(f"{FOLDER}/{segment_name(1000)}.log", whole[:-missing])
        offsets = [header.base_offset for _, header, _ in Segment(disk, FOLDER, 1000).batches()]
        assert offsets == [place.base_offset for place in places[:-1]]


def test_a_length_that_cannot_be_is_damage() -> None:
    segment, places = filled(MemoryDisk(), count=5, interval=1 << 20)
    segment.file.write_at(places[2].position + 8, bytes(4))
    with pytest.raises(StorageError, match=f"is damaged at byte {places[2].position}"):
        segment.locate(places[3].base_offset)
    assert [at for at, _ in segment.headers()] == [place.position for place in places[:2]]


def test_a_segment_is_removed_with_its_index() -> None:
    disk = MemoryDisk()
    segment, _ = filled(disk)
    segment.index.seal()
    assert len(disk.names(FOLDER)) == 2
    segment.remove()
    assert disk.names(FOLDER) == []


def test_readers_leave_hints_that_are_right_and_few() -> None:
    segment, places = filled(MemoryDisk(), count=200, interval=1 << 20)
    for place in places:
        segment.read(place.position, segment.size, 400, True, True)
    starts = {place.position: place.base_offset for place in places} | {segment.size: segment.end_offset}
    assert 0 < len(segment.hints) <= 64
    for offset, position in segment.hints.items():
        assert starts[position] >= offset
        assert segment.locate(offset) == next((place for place in places if place.position == position), None)
    segment.cut(places[50].position)
    assert segment.hints == {}


def test_a_damaged_batch_leaves_no_hint() -> None:
    segment, places = filled(MemoryDisk(), base=0, count=5, interval=1 << 20)
    segment.file.write_at(places[2].position + 8, b"\x7f")
    segment.read(places[2].position, segment.size, 1 << 20, True, True)
    assert segment.locate(0) == places[0]
    assert all(position in {place.position for place in places} for position in segment.hints.values())
    assert 0 not in segment.hints
