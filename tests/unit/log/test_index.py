"""The sparse index against a plain list of entries."""

from bisect import bisect_right
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import StorageError
from penstock.log import index as index_module
from penstock.log.index import ENTRY, Entry, Index
from penstock.log.memory import MemoryDisk
from tests.examples import examples
from tests.simulation.disk import FakeDisk

from .builders import FullDisk

PATH = "logs/t/0/index"


@pytest.fixture(autouse=True)
def _few_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries go to the disk after eight instead of 256."""
    monkeypatch.setattr(index_module, "PENDING_MAX", 8)


def entries_from(steps: list[tuple[int, int, int]]) -> list[Entry]:
    """Entries that grow by the given steps of offset, position and time."""
    found, offset, position, latest_ms = [], 0, 0, -1
    for more_offset, more_position, more_ms in steps:
        offset, position, latest_ms = offset + more_offset, position + more_position, latest_ms + more_ms
        found.append(Entry(offset, position, latest_ms))
    return found


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 99), st.integers(0, 5)), max_size=40)
HINTS = st.lists(st.integers(0, 60), max_size=5)


def check(index: Index, model: list[Entry]) -> None:
    """Every question has the answer that the list gives."""
    for offset in {0, *(entry.offset + step for entry in model for step in (-1, 0, 1))}:
        count = bisect_right(model, offset, key=lambda entry: entry.offset)
        assert index.floor(offset) == (model[count - 1] if count else None)
    for time_ms in {0, *(entry.latest_ms + step for entry in model for step in (0, 1))}:
        older = [entry for entry in model if entry.latest_ms < time_ms]
        assert index.before_time(time_ms) == (older[-1] if older else None)
    assert index.last() == (model[-1] if model else None)


@given(steps=STEPS, write_out_at=HINTS, seal_at=HINTS)
@examples(100, deadline=None)
def test_an_index_answers_as_a_plain_list_would(
    steps: list[tuple[int, int, int]], write_out_at: list[int], seal_at: list[int]
) -> None:
    disk = MemoryDisk()
    index, model = Index(disk, PATH), entries_from(steps)
    for number, entry in enumerate(model):
        index.add(entry)
        if number in write_out_at:
            index.write_out()
        if number in seal_at:
            index.seal()
            index = Index(disk, PATH)
        assert index.last() == entry
    check(index, model)
    index.seal()
    check(Index(disk, PATH), model)


@given(steps=STEPS, position=st.integers(0, 2000), more=STEPS, sealed=st.booleans())
@examples(100, deadline=None)
def test_truncated_entries_are_removed_at_every_position(
    steps: list[tuple[int, int, int]], position: int, more: list[tuple[int, int, int]], sealed: bool
) -> None:
    disk = MemoryDisk()
    index, model = Index(disk, PATH), entries_from(steps)
    for entry in model:
        index.add(entry)
    if sealed:
        index.seal()
        index = Index(disk, PATH)
    index.cut(position)
    model = [entry for entry in model if entry.position < position]
    check(index, model)
    start = model[-1] if model else Entry(0, 0, -1)
    for entry in entries_from(more):
        later = Entry(
            start.offset + entry.offset, start.position + entry.position, start.latest_ms + entry.latest_ms + 1
        )
        index.add(later)
        model.append(later)
    check(index, model)
    index.seal()
    check(Index(disk, PATH), model)


@given(steps=STEPS, free_bytes=st.integers(0, 40 * ENTRY.size))
@examples(100, deadline=None)
def test_a_full_disk_makes_an_index_sparser_and_never_wrong(
    steps: list[tuple[int, int, int]], free_bytes: int
) -> None:
    disk = FullDisk(MemoryDisk(), free_bytes)
    index, model = Index(disk, PATH), entries_from(steps)
    for entry in model:
        index.add(entry)
    for entry in model:
        found = index.floor(entry.offset)
        assert found is None or (found in model and found.offset <= entry.offset)
        found = index.before_time(entry.latest_ms)
        assert found is None or (found in model and found.latest_ms < entry.latest_ms)
    disk.free_bytes = 1 << 30
    index.seal()
    again = Index(disk, PATH)
    assert again.is_sane(1 << 30)
    assert again.last() == index.last()


def test_a_full_disk_bounds_what_an_index_holds_in_memory() -> None:
    disk = FullDisk(MemoryDisk(), 0)
    index = Index(disk, PATH)
    for number in range(1000):
        index.add(Entry(number, number, number))
    with pytest.raises(StorageError):
        index.write_out()
    disk.free_bytes = 1 << 30
    index.seal()
    stored = disk.load(PATH)
    assert stored is not None
    assert 0 < len(stored) <= 8 * ENTRY.size


def test_entries_that_were_not_written_out_go_with_the_process() -> None:
    disk = MemoryDisk()
    index = Index(disk, PATH)
    for number in range(11):
        index.add(Entry(number, number * 10, number))
    index.close()
    assert Index(disk, PATH).last() == Entry(7, 70, 7)


def test_half_an_entry_at_the_end_is_cut_off() -> None:
    disk = MemoryDisk()
    disk.store(PATH, ENTRY.pack(1, 10, 5) + ENTRY.pack(2, 20, 6)[:7])
    index = Index(disk, PATH)
    assert index.last() == Entry(1, 10, 5)
    index.add(Entry(3, 30, 7))
    index.seal()
    check(Index(disk, PATH), [Entry(1, 10, 5), Entry(3, 30, 7)])


def test_an_index_that_is_removed_begins_anew() -> None:
    disk = MemoryDisk()
    index = Index(disk, PATH)
    for number in range(20):
        index.add(Entry(number, number, number))
    index.remove()
    assert disk.load(PATH) is None
    index.add(Entry(5, 50, 500))
    check(index, [Entry(5, 50, 500)])


@pytest.mark.parametrize(
    ("entries", "sane"),
    [
        ([], True),
        ([(1, 10, 5), (2, 20, 5), (2, 30, 6)], True),
        ([(1, 10, 5), (0, 0, 0)], False),
        ([(0, 0, 0)], False),
        ([(0, 10, -1)], True),
        ([(1, 10, 5), (2, 10, 6)], False),
        ([(5, 10, 5), (4, 20, 6)], False),
        ([(1, 10, 7), (2, 20, 6)], False),
        ([(1, 10, 5), (2, 100, 6)], False),
        ([(1, 10, 5), (2, 99, 6)], True),
    ],
)
def test_an_index_is_sane_if_it_could_be_that_of_its_segment(entries: list[tuple[int, int, int]], sane: bool) -> None:
    disk = MemoryDisk()
    disk.store(PATH, b"".join(ENTRY.pack(*entry) for entry in entries))
    assert Index(disk, PATH).is_sane(segment_bytes=100) is sane


@pytest.mark.parametrize("seed", range(20))
def test_entries_that_were_cut_do_not_come_back_with_power_loss(seed: int) -> None:
    disk = FakeDisk(Random(seed))
    index = Index(disk, PATH)
    for number in range(1, 201):
        index.add(Entry(number, number * 10, number))
    index.seal()
    disk.open(PATH).sync()  # the kernel writes it back whenever it likes
    disk.sync_folder("logs/t/0")
    index.cut(500)
    model = [Entry(number, number * 10, number) for number in range(1, 50)]
    for number in range(50, 300):
        model.append(Entry(number, number * 17, number))
        index.add(model[-1])
    index.seal()
    disk.lose_power()
    found = Index(disk, PATH)
    assert not found.is_sane(1 << 30) or {found.floor(number) for number in range(300)} <= {None, *model}
