"""Trims from the start and truncations from the end of a log."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.errors import OffsetOutOfRange, OutOfOrderSequence, StorageError
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.log.removal import TornLog
from penstock.log.timestamp_lookup import find_time
from tests.examples import examples
from tests.simulation.disk import FakeDisk, Killed

from .builders import (
    ENDLESS,
    FOLDER,
    NOW_MS,
    FullDisk,
    all_records,
    append,
    offsets_in,
    open_at,
    records_in,
    sent,
    settings,
    sync,
    values_in,
)


def filled(disk: MemoryDisk | FakeDisk | FullDisk | None = None, count: int = 20) -> Log:
    """Records one to a batch, about four to a segment, each a second later than the one before."""
    log = open_at(disk, segment_bytes=1024, index_interval_bytes=0)
    for number in range(count):
        append(log, b"%0150d" % number, timestamp_ms=NOW_MS + 1000 * number, epoch=number // 7)
    return log


def reopened(disk: MemoryDisk | FakeDisk, boot: str = "boot-1") -> Log:
    return open_at(disk, boot=boot, segment_bytes=1024, index_interval_bytes=0)


# -- trimming


def test_nothing_before_a_trim_is_read_any_more() -> None:
    log = filled()
    log.trim(9)
    assert log.start_offset == 9
    assert offsets_in(log) == list(range(9, 20))
    with pytest.raises(OffsetOutOfRange, match="holds offsets 9 to 20"):
        log.read(8, 100, ENDLESS)


def test_segments_wholly_before_a_trim_are_removed_with_their_files() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    bases = [segment.base_offset for segment in log.segments]
    before = log.size_bytes
    log.trim(bases[2] + 1)
    assert [segment.base_offset for segment in log.segments] == bases[2:]
    assert log.size_bytes == sum(segment.size for segment in log.segments) < before
    stems = {name.partition(".")[0] for name in disk.names(FOLDER) if name.endswith((".log", ".index"))}
    assert stems == {f"{base:020d}" for base in bases[2:]}


def test_a_trim_outside_the_log_is_refused() -> None:
    log = filled()
    log.trim(5)
    for offset in (4, 21):
        with pytest.raises(OffsetOutOfRange, match=f"cannot be trimmed to {offset}"):
            log.trim(offset)
    assert log.start_offset == 5


def test_a_trim_survives_a_restart() -> None:
    disk = MemoryDisk()
    filled(disk).trim(6)
    again = reopened(disk)
    assert again.start_offset == 6
    assert offsets_in(again) == list(range(6, 20))


def test_a_segment_trimmed_to_its_end_is_removed_when_it_is_closed() -> None:
    log = filled()
    log.trim(20)
    assert len(log.segments) == 1
    log.roll(NOW_MS)
    log.trim(20)
    assert log.size_bytes == 0
    append(log, b"next")
    assert offsets_in(log) == [20]


def test_the_epoch_that_a_trimmed_log_starts_in_begins_there() -> None:
    log = filled()
    assert log.epochs.entries == [(0, 0), (1, 7), (2, 14)]
    log.trim(10)
    assert log.epochs.entries == [(1, 10), (2, 14)]


def test_producers_outlive_the_segments_they_wrote_to() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    first = log.append(sent(7, 0, b"x"), 0, NOW_MS)
    for _ in range(20):
        append(log, b"x" * 150)
    log.trim(log.segments[-1].base_offset)
    log = reopened(disk)
    assert log.append(sent(7, 0, b"x"), 0, NOW_MS).base_offset == first.base_offset


def test_producers_that_were_read_back_outlive_a_trim_and_an_orderly_restart() -> None:
    """Snapshots may be lost with power; what was read back instead must be written before its batches go."""
    disk = MemoryDisk()
    log = filled(disk)
    log.append(sent(7, 0, b"x"), 0, NOW_MS)
    for _ in range(20):
        append(log, b"x" * 150)
    log.abandon()
    for name in disk.names(FOLDER):
        if name.endswith(".producers"):
            disk.remove(f"{FOLDER}/{name}")
    log = reopened(disk)
    log.trim(log.segments[-1].base_offset)
    log.close()
    assert reopened(disk).append(sent(7, 0, b"x"), 0, NOW_MS).repeated


def test_a_trim_needs_no_space() -> None:
    disk = FullDisk(MemoryDisk())
    log = filled(disk)
    log.append(sent(7, 0, b"x"), 0, NOW_MS)
    disk.free_bytes = 0
    log.trim(15)
    assert (log.start_offset, len(log.segments)) == (15, 2)
    log = open_at(disk, segment_bytes=1024)
    assert offsets_in(log) == list(range(15, 21))


# -- truncating


def test_truncated_records_are_gone_and_the_log_continues_there() -> None:
    log = filled()
    log.truncate(9, NOW_MS)
    assert log.end_offset == 9
    assert append(log, b"instead").base_offset == 9
    assert offsets_in(log) == list(range(10))
    assert values_in(log)[-1] == b"instead"


def test_a_truncation_beyond_the_end_does_nothing() -> None:
    log = filled()
    log.truncate(20, NOW_MS)
    log.truncate(99, NOW_MS)
    assert offsets_in(log) == list(range(20))


def test_a_truncation_before_the_first_segment_is_refused() -> None:
    log = filled()
    log.trim(10)
    with pytest.raises(OffsetOutOfRange, match="cannot end at 2"):
        log.truncate(2, NOW_MS)
    assert offsets_in(log) == list(range(10, 20))


def test_a_truncation_before_the_start_moves_the_start_too() -> None:
    log = filled()
    log.trim(10)
    base = log.segments[0].base_offset
    log.truncate(base, NOW_MS)
    assert (log.start_offset, log.end_offset) == (base, base)
    assert append(log).base_offset == base


def test_a_batch_that_holds_the_offset_goes_whole() -> None:
    disk = MemoryDisk()
    log = open_at(disk)
    append(log, b"0", b"1")
    append(log, b"2", b"3", b"4")
    log.truncate(3, NOW_MS)
    assert log.end_offset == 2
    append(log, b"again")
    log.close()
    assert values_in(open_at(disk)) == [b"0", b"1", b"again"]


def test_epochs_follow_a_truncation() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.truncate(14, NOW_MS)
    assert log.epochs.entries == [(0, 0), (1, 7)]
    assert reopened(disk).epochs.entries == [(0, 0), (1, 7)]


def test_a_truncation_that_finds_no_space_changes_nothing() -> None:
    """A file that is being sent cannot be truncated: what stays is copied, if there is free space."""
    disk = FakeDisk(Random(1))
    log = filled(disk)
    end = log.append(sent(7, 0, b"taken back"), 3, NOW_MS).last_offset + 1
    disk.free_bytes, spare = 10, disk.free_bytes
    with pytest.raises(StorageError, match="no space"):
        log.truncate(14, NOW_MS)
    assert log.end_offset == end
    assert offsets_in(log) == list(range(end))
    assert log.append(sent(7, 0, b"taken back"), 3, NOW_MS).repeated
    disk.free_bytes = spare
    log.truncate(14, NOW_MS)
    assert log.end_offset == 14
    assert not log.append(sent(7, 0, b"instead"), 3, NOW_MS).repeated
    log.close()
    assert offsets_in(reopened(disk)) == list(range(15))


def test_a_truncation_that_the_disk_breaks_off_leaves_a_log_that_is_not_to_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled()

    def fail(path: str) -> None:
        raise StorageError("input/output error")

    monkeypatch.setattr(log.disk, "sync_folder", fail)
    with pytest.raises(TornLog, match="could not be truncated to offset 3: input/output error"):
        log.truncate(3, NOW_MS)


def test_producers_follow_a_truncation() -> None:
    log = filled()
    log.append(sent(7, 0, b"kept"), 0, NOW_MS)
    end = log.end_offset
    for sequence in (1, 2):
        log.append(sent(7, sequence, b"taken back"), 0, NOW_MS)
    log.append(sent(8, 0, b"taken back"), 0, NOW_MS)
    log.truncate(end, NOW_MS)
    assert log.append(sent(7, 0, b"kept"), 0, NOW_MS).repeated
    assert not log.append(sent(7, 1, b"again"), 0, NOW_MS).repeated
    with pytest.raises(OutOfOrderSequence):
        log.append(sent(7, 4, b"gap"), 0, NOW_MS)
    assert 8 not in log.producers.by_id


def test_producers_follow_a_truncation_across_segments() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.append(sent(7, 0, b"kept"), 0, NOW_MS)
    end = log.end_offset
    for sequence in range(1, 20):
        log.append(sent(7, sequence, b"taken back" * 20), 0, NOW_MS)
    log.truncate(end, NOW_MS)
    assert [known.last_sequence for known in log.producers.by_id[7].batches] == [0]
    log.close()
    log = reopened(disk)
    assert [known.last_sequence for known in log.producers.by_id[7].batches] == [0]


def test_the_index_follows_a_truncation() -> None:
    log = filled()
    log.truncate(10, NOW_MS)
    for number in range(10, 25):
        append(log, b"%0170d" % number, timestamp_ms=NOW_MS + 2000 * number)
    assert offsets_in(log) == list(range(25))
    for number in range(25):
        assert offsets_in_read(log, number)[0] == number
    assert find_time(log, NOW_MS + 2000 * 17, ENDLESS) == (NOW_MS + 2000 * 17, 17)
    assert find_time(log, NOW_MS + 1000 * 5, ENDLESS) == (NOW_MS + 1000 * 5, 5)


def offsets_in_read(log: Log, offset: int) -> list[int]:
    return [record.offset for record in records_in(log.read(offset, 1, ENDLESS))]


def test_a_log_is_not_taken_for_clean_where_it_was_truncated() -> None:
    log = filled()
    log.end_replacement(0, 0, [], clean_to=18)
    log.truncate(10, NOW_MS)
    assert log.checkpoint.clean_to == 10


def test_a_log_that_was_truncated_to_nothing_begins_again() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.truncate(0, NOW_MS)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (0, 0, 0)
    append(log, b"new")
    log.close()
    assert values_in(reopened(disk)) == [b"new"]


@given(end=st.integers(0, 19), die_after=st.integers(1, 25), seed=st.integers(0, 2**32))
@examples(60, deadline=None)
def test_a_truncation_that_is_cut_short_leaves_a_log_that_opens(end: int, die_after: int, seed: int) -> None:
    """Killed in the middle, a follower finds all of its log or what it wanted to keep, and never damage."""
    disk = FakeDisk(Random(seed))
    log = filled(disk)
    sync(log)
    log.save_checkpoint()
    disk.die_after(die_after)
    try:
        log.truncate(end, NOW_MS)
    except Killed:
        disk.restart()
    else:
        disk.disarm()
        disk.restart()
    again = reopened(disk)
    assert end <= again.end_offset <= 20
    assert offsets_in(again) == list(range(again.end_offset))
    again.truncate(end, NOW_MS)
    append(again, b"instead")
    assert [record.value for record in all_records(again)][-1] == b"instead"
    assert again.end_offset == end + 1


@given(end=st.integers(0, 19), seed=st.integers(0, 2**32))
@examples(40, deadline=None)
def test_power_loss_after_a_truncation_never_looks_like_damage(end: int, seed: int) -> None:
    disk = FakeDisk(Random(seed))
    log = filled(disk)
    sync(log)
    log.truncate(end, NOW_MS)
    for _ in range(3):
        append(log, b"unsynced" * 30)
    disk.lose_power()
    again = reopened(disk, boot="boot-2")
    assert again.end_offset >= end
    assert offsets_in(again) == list(range(again.end_offset))


def test_a_closed_segment_that_is_the_last_again_keeps_its_age() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.close()
    log = reopened(disk)
    log.truncate(log.segments[1].base_offset + 1, NOW_MS)
    log.settings = settings(segment_bytes=1024, segment_ms=1_000_000, message_timestamp_after_max_ms=2**63 - 1)
    count = len(log.segments)
    append(log, b"soon", timestamp_ms=NOW_MS + 20_000)
    assert len(log.segments) == count
