"""The lists of aborted transactions: lookups, and damage."""

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import StorageError
from penstock.log.aborted import ENTRY_BYTES, AbortedList, aborted_between
from penstock.log.disk import OsDisk
from penstock.log.memory import MemoryDisk
from penstock.log.transactions import AbortedTransaction
from tests.examples import examples
from tests.simulation.disk import FakeDisk, Killed

from .builders import FullDisk

PATH = "folder/0.aborted"


def entries(count: int, base: int = 0) -> list[AbortedTransaction]:
    """One after another, ten offsets each; the first is at `base`."""
    return [AbortedTransaction(n % 3, base + 10 * n, base + 10 * n + 9, base + 10 * n + 10) for n in range(count)]


def filled(count: int, disk: MemoryDisk | FullDisk | None = None) -> AbortedList:
    found = AbortedList(disk or MemoryDisk(), PATH)
    for entry in entries(count):
        found.add(entry)
    return found


def measured(disk: MemoryDisk, base: int = 0) -> tuple[AbortedList, int | None]:
    """The list as a new process finds it."""
    found = AbortedList(disk, PATH)
    return found, found.measure(base)


def test_entries_are_found_from_any_marker_on() -> None:
    found = filled(200)
    for offset in (0, 9, 10, 11, 1005, 1999, 2000):
        assert list(found.ended_from(offset)) == [entry for entry in entries(200) if entry.last_offset >= offset]
    assert (found.count, found.newest) == (200, 1999)


def test_an_empty_list_has_no_file() -> None:
    disk = MemoryDisk()
    found = AbortedList(disk, PATH)
    assert (found.count, list(found.ended_from(0))) == (0, [])
    assert found.measure(0) is None
    found.sync()
    assert not disk.files
    found.make()
    assert list(disk.files) == [PATH]


def test_a_list_that_was_emptied_by_a_process_before_is_still_to_be_synced() -> None:
    """Or power loss brings back what was cut off."""
    disk = MemoryDisk()
    disk.store(PATH, b"")
    found, _ = measured(disk)
    assert found.take_unsynced() is not None
    assert found.take_unsynced() is None


def test_a_list_is_there_after_a_restart() -> None:
    disk = MemoryDisk()
    filled(5, disk)
    found, gap = measured(disk)
    assert gap is None
    assert list(found.ended_from(0)) == entries(5)
    found.add(AbortedTransaction(1, 60, 70, 71))
    assert measured(disk)[0].count == 6


def test_the_newest_entry_is_removed() -> None:
    disk = MemoryDisk()
    found = filled(3, disk)
    found.remove_newest()
    assert list(found.ended_from(0)) == entries(2)
    assert measured(disk)[0].count == 2
    found.add(entries(3)[2])
    assert list(found.ended_from(0)) == entries(3)


def test_a_full_disk_adds_nothing() -> None:
    disk = FullDisk(MemoryDisk())
    found = filled(2, disk)
    disk.free_bytes = ENTRY_BYTES - 1
    with pytest.raises(StorageError):
        found.add(AbortedTransaction(1, 20, 29, 30))
    assert list(found.ended_from(0)) == entries(2)


# -- damage


@pytest.mark.parametrize("size", range(1, ENTRY_BYTES))
def test_a_torn_entry_is_seen_until_it_is_replaced(size: int) -> None:
    """A start that finds it may be killed: the next one has to know of it as well."""
    disk = MemoryDisk()
    filled(3, disk)
    disk.files[PATH].truncate(2 * ENTRY_BYTES + size)
    for _ in range(2):
        found, gap = measured(disk)
        assert (found.count, gap) == (2, 20)
    found.replace_from(20, [])
    assert disk.load(PATH) is not None
    found, gap = measured(disk)
    assert (found.count, gap) == (2, None)


def test_a_torn_entry_is_gone_when_another_is_added() -> None:
    disk = MemoryDisk()
    filled(3, disk)
    disk.files[PATH].truncate(2 * ENTRY_BYTES + 7)
    found, _ = measured(disk)
    found.add(entries(3)[2])
    found, gap = measured(disk)
    assert (list(found.ended_from(0)), gap) == (entries(3), None)


def test_a_replacement_that_is_killed_leaves_what_was_there() -> None:
    """Found by the simulator (log, seed 982297): a part of the entries looked like all of them."""
    for step in range(1, 50):
        disk = FakeDisk(Random(step))
        disk.make_folder("folder")
        filled(4, disk).sync()
        disk.sync_folder("folder")
        found, _ = measured(disk)
        disk.die_after(step)
        try:
            found.replace_from(0, entries(5)[1:])
        except Killed:
            disk.restart()
            assert list(measured(disk)[0].ended_from(0)) in (entries(4), entries(5)[1:])
            continue
        disk.disarm()
        assert step > 1
        assert list(measured(disk)[0].ended_from(0)) == entries(5)[1:]
        return
    pytest.fail("it was killed at every step")


def test_a_damaged_byte_anywhere_is_noticed_and_nothing_after_it_is_believed() -> None:
    disk = MemoryDisk()
    filled(3, disk)
    data = disk.load(PATH)
    assert data is not None
    for at in range(len(data)):
        spoilt = bytearray(data)
        spoilt[at] ^= 0x10
        disk.store(PATH, bytes(spoilt))
        found, gap = measured(disk)
        number = at // ENTRY_BYTES
        assert (found.count, gap) == (number, 10 * number), f"byte {at}"


@pytest.mark.parametrize("zeroes", [1, ENTRY_BYTES, 5 * ENTRY_BYTES])
def test_zeroes_are_no_entries(zeroes: int) -> None:
    disk = MemoryDisk()
    filled(2, disk)
    disk.files[PATH].append(bytes(zeroes))
    found, gap = measured(disk)
    assert (found.count, gap) == (2, 20)


def test_markers_that_do_not_rise_or_lie_before_the_segment_are_damage() -> None:
    disk = MemoryDisk()
    found = AbortedList(disk, PATH)
    found.add(AbortedTransaction(1, 5, 20, 21))
    found.add(AbortedTransaction(1, 5, 20, 21))
    assert measured(disk)[1] == 21
    found, gap = measured(disk, base=21)
    assert (found.count, gap) == (0, 21)


def test_damage_that_comes_while_it_is_open_is_an_error_and_no_answer() -> None:
    disk = MemoryDisk()
    found = filled(3, disk)
    disk.files[PATH].write_at(ENTRY_BYTES + 3, b"\xff")
    with pytest.raises(StorageError, match="damaged in entry 1; restart the broker to rebuild it"):
        list(found.ended_from(0))


def test_entries_are_replaced_only_if_they_are_others() -> None:
    disk = FullDisk(MemoryDisk())
    found = filled(4, disk)
    disk.free_bytes = 0
    found.replace_from(20, entries(4)[2:])
    found.replace_from(40, [])
    assert list(found.ended_from(0)) == entries(4)
    disk.free_bytes = 1000
    other = AbortedTransaction(5, 21, 25, 26)
    found.replace_from(20, [other])
    assert list(found.ended_from(0)) == [*entries(2), other]


def test_a_file_needs_a_sync_when_it_has_changed_or_was_there_before(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    disk.make_folder("folder")
    found = AbortedList(disk, PATH)
    assert found.take_unsynced() is None
    found.add(entries(1)[0])
    assert found.take_unsynced() is not None
    assert found.take_unsynced() is None
    found.remove_newest()
    assert found.take_unsynced() is not None
    found.add(entries(1)[0])
    found.sync()
    assert found.take_unsynced() is None
    found.close()
    again = AbortedList(disk, PATH)
    again.measure(0)
    assert again.take_unsynced() is not None, "the process before may not have got to it"
    again.remove()
    assert disk.names("folder") == []


# -- questions


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """What a log with several producers lists: transactions overlap, some are committed, some stay open."""
    open_: dict[int, int] = {}
    found = []
    for offset, (producer, what) in enumerate(draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2))))):
        if producer not in open_:
            open_[producer] = offset
        elif what:
            first = open_.pop(producer)
            if what == 1:
                found.append(AbortedTransaction(producer, first, offset, min(open_.values(), default=offset + 1)))
    return found


@given(history=histories(), bounds=st.lists(st.integers(1, 60), max_size=4, unique=True), data=st.data())
@examples(300, deadline=None)
def test_aborted_transactions_of_a_range_are_found_across_segments(
    history: list[AbortedTransaction], bounds: list[int], data: st.DataObject
) -> None:
    edges = [0, *sorted(bounds), 1000]
    lists = []
    for start, stop in pairwise(edges):
        found = AbortedList(MemoryDisk(), PATH)
        for entry in history:
            if start <= entry.last_offset < stop:
                found.add(entry)
        lists.append((start, found))
    first = data.draw(st.integers(0, 60))
    end = first + data.draw(st.integers(0, 30))
    number = max(at for at, (start, _) in enumerate(lists) if start <= first)
    answer = aborted_between((found for _, found in lists[number:]), first, end)
    assert answer == [entry for entry in history if entry.last_offset >= first and entry.first_offset < end]


def test_no_more_is_read_than_is_asked_for() -> None:
    """Where everything was decided when a transaction was aborted, later ones cannot reach back."""
    disk = MemoryDisk()
    found = filled(1000, disk)
    disk.files[PATH].write_at(900 * ENTRY_BYTES, b"\xff")
    assert aborted_between([found], 4000, 4025) == entries(1000)[400:403]
