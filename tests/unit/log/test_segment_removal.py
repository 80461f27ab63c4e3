"""Removal of finished segments from the middle of a log."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import OutOfOrderSequence
from penstock.log.files import EPOCHS_FILE
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from tests.examples import examples
from tests.simulation.disk import FakeDisk, Killed

from .builders import (
    ENDLESS,
    FOLDER,
    NOW_MS,
    append,
    committed_values,
    end,
    offsets_in,
    open_at,
    records_in,
    sent,
    sync,
    write,
)
from .test_trim_and_truncate import filled, reopened


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def left_without(log: Log, gone: set[int]) -> list[int]:
    """The offsets that are there once segments are not."""
    ends = [*bases(log)[1:], log.end_offset]
    return [
        offset for base, end in zip(bases(log), ends, strict=True) if base not in gone for offset in range(base, end)
    ]


def test_readers_pass_over_what_was_dropped() -> None:
    log = filled()
    gone = set(bases(log)[1:3])
    wanted, size = left_without(log, gone), log.size_bytes
    freed: list[int] = []
    log.drop_segments(gone, NOW_MS, lambda outcome: freed.append(outcome.result()))
    assert offsets_in(log) == wanted
    assert [log.size_bytes] == [size - each for each in freed]
    (first,) = records_in(log.read(min(gone), 1, ENDLESS))
    assert first.offset == bases(log)[1]
    append(log, b"more")
    assert offsets_in(log) == [*wanted, 20]


def test_where_a_log_begins_and_where_it_grows_stay() -> None:
    log = filled()
    log.drop_segments({bases(log)[0], bases(log)[-1]}, NOW_MS)
    assert offsets_in(log) == list(range(20))
    log.drop_segments(set(bases(log)), NOW_MS)
    assert len(log.segments) == 2


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_removed_segment_is_no_damage_at_the_next_start(boot: str) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    sync(log)
    gone = set(bases(log)[1:-1:2])
    wanted = left_without(log, gone)
    log.drop_segments(gone, NOW_MS)
    log.abandon()
    again = reopened(disk, boot)
    assert offsets_in(again) == wanted
    assert again.end_offset == 20


def test_producer_state_survives_the_removal_of_its_segment() -> None:
    disk = MemoryDisk()
    log = open_at(disk, segment_bytes=1024)
    for number in range(20):
        log.append(sent(7, number, b"%0150d" % number), 0, NOW_MS)
    log.roll(NOW_MS)
    append(log, b"x")
    log.drop_segments(set(bases(log)), NOW_MS)
    log.abandon()
    again = open_at(disk, segment_bytes=1024)
    assert again.append(sent(7, 19, b"%0150d" % 19), 0, NOW_MS).repeated
    with pytest.raises(OutOfOrderSequence):
        again.append(sent(7, 25, b"x"), 0, NOW_MS)


def test_aborted_records_stay_aborted() -> None:
    log = open_at(segment_bytes=1024)
    write(log, 1, 0, b"aborted" * 20)
    for _ in range(4):
        append(log, b"%0200d" % 0)
    end(log, 1, False)
    log.roll(NOW_MS)
    append(log, b"last")
    before = committed_values(log)
    ended_in = [segment.base_offset for segment in log.segments if segment.aborted.count]
    log.drop_segments(set(bases(log)), NOW_MS)
    assert set(ended_in) <= set(bases(log))
    assert b"aborted" * 20 not in committed_values(log)
    assert set(committed_values(log)) <= set(before)


@given(die_after=st.integers(0, 40), seed=st.integers(0, 2**32), loses_power=st.booleans())
@examples(60, deadline=None)
def test_a_crash_in_the_middle_leaves_some_of_it_and_no_damage(die_after: int, seed: int, loses_power: bool) -> None:
    disk = FakeDisk(Random(seed))
    log = filled(disk)
    sync(log)
    log.save_checkpoint()
    gone = set(bases(log)[1:-1])
    kept = left_without(log, gone)
    disk.die_after(die_after)
    try:
        log.drop_segments(gone, NOW_MS)
    except Killed:
        pass
    else:
        disk.disarm()
    if loses_power:
        disk.lose_power()
    else:
        disk.restart()
    again = reopened(disk, "boot-2" if loses_power else "boot-1")
    assert set(kept) <= set(offsets_in(again)) <= set(range(20))
    assert again.end_offset == 20
    append(again, b"next")
    assert offsets_in(again)[-1] == 20


def test_producer_state_survives_a_truncation_after_a_removal() -> None:
    """A snapshot of the log's end does not help when the log ends earlier: there is one behind what was dropped."""
    disk = MemoryDisk()
    log = open_at(disk, segment_bytes=1024)
    for number in range(20):
        log.append(sent(7, number, b"%0150d" % number), 0, NOW_MS)
    log.roll(NOW_MS)
    for _ in range(3):
        append(log, b"x")
    for name in [name for name in disk.files if name.endswith(".producers")]:
        disk.remove(name)  # as if the disk had been too full for them
    log.drop_segments(set(bases(log)), NOW_MS)
    log.snapshot_producers(even_if_unchanged=True)
    log.truncate(21, NOW_MS)
    assert log.append(sent(7, 19, b"%0150d" % 19), 0, NOW_MS).repeated
    with pytest.raises(OutOfOrderSequence):
        log.append(sent(7, 25, b"x"), 0, NOW_MS)


def test_epochs_are_read_anew_if_power_loss_brings_back_what_was_trimmed_behind_a_gap() -> None:
    """The list of epochs was cut with the trim, and is newer than the mark of where the log begins."""
    disk = MemoryDisk()
    log = open_at(disk)
    for epoch in range(1, 5):  # each in a segment of its own
        append(log, b"a", b"b", epoch=epoch)
        log.roll(NOW_MS)
    append(log, b"last", epoch=5)
    sync(log)
    log.drop_segments({2}, NOW_MS)
    log.trim(3)
    assert bases(log) == [0, 4, 6, 8], "the first segment has nothing from offset 3 on: this tests nothing"
    sync(log)
    log.abandon()
    disk.store(f"{FOLDER}/{EPOCHS_FILE}", b"[[4, 6], [5, 8]]")
    again = open_at(disk, boot="after power loss")
    assert [again.epochs.at(offset) for offset in (4, 6, 8)] == [3, 4, 5]
