"""Producer state on disk: which snapshots are kept, which are believed."""

import pytest

from penstock.log.memory import MemoryDisk
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.log.snapshots import Snapshots
from penstock.records.batch import read_header

from .making import FOLDER, NOW_MS, FullDisk, sent


def state(*sequences: int) -> Producers:
    producers = Producers()
    for sequence in sequences:
        header = read_header(sent(7, sequence, b"v"))
        producers.apply(header, sequence, header.max_timestamp, NOW_MS)
    return producers


def known(producers: Producers) -> list[int]:
    return [batch.first_sequence for batch in producers.by_id[7].batches] if 7 in producers.by_id else []


def segment_with(disk: MemoryDisk | FullDisk, base: int, *sequences: int) -> Segment:
    """A segment whose batch at each offset has that sequence."""
    segment = Segment(disk, FOLDER, base)
    for sequence in sequences:
        data = sent(7, sequence, b"v", base_offset=sequence)
        segment.append(data, sequence, sequence, NOW_MS, 100)
    return segment


def test_the_newest_snapshot_and_those_at_segments_are_kept() -> None:
    snapshots = Snapshots(MemoryDisk(), FOLDER)
    for offset in (10, 20, 30, 40, 50):
        assert snapshots.save(offset, state(0))
    snapshots.prune([20, 35, 40])
    assert snapshots.offsets() == [20, 40, 50]
    snapshots.prune([])
    assert snapshots.offsets() == [50]


def test_a_full_disk_takes_no_snapshot() -> None:
    disk = FullDisk(MemoryDisk(), 0)
    snapshots = Snapshots(disk, FOLDER)
    assert not snapshots.save(10, state(0))
    assert snapshots.offsets() == []


def test_the_state_is_the_last_snapshot_and_the_batches_after_it() -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    segments = [segment_with(disk, 0, 0, 1, 2), segment_with(disk, 3, 3, 4)]
    snapshots.save(2, state(0, 1))
    assert known(snapshots.restore(segments, 5, NOW_MS)) == [0, 1, 2, 3, 4]


def test_without_a_snapshot_all_batches_are_read() -> None:
    disk = MemoryDisk()
    segments = [segment_with(disk, 0, 0, 1, 2), segment_with(disk, 3, 3, 4)]
    restored = Snapshots(disk, FOLDER).restore(segments, 5, NOW_MS)
    assert known(restored) == [0, 1, 2, 3, 4]
    assert restored.changes == 5


def test_a_snapshot_outlives_the_segments_before_it() -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    snapshots.save(3, state(0, 1, 2))
    assert known(snapshots.restore([segment_with(disk, 3, 3, 4)], 5, NOW_MS)) == [0, 1, 2, 3, 4]


def test_snapshots_after_the_end_are_removed_and_not_believed() -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    segments = [segment_with(disk, 0, 0, 1, 2)]
    snapshots.save(2, state(0, 1))
    snapshots.save(9, state(0, 1, 2, 3, 4, 5, 6, 7, 8))
    assert known(snapshots.restore(segments, 3, NOW_MS)) == [0, 1, 2]
    assert snapshots.offsets() == [2]


@pytest.mark.parametrize("damage", [b"", b"PSP2", b"\0" * 60])
def test_a_damaged_snapshot_gives_way_to_the_one_before(damage: bytes) -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    segments = [segment_with(disk, 0, 0, 1, 2, 3)]
    snapshots.save(1, state(0))
    snapshots.save(3, state(0, 1, 2))
    disk.store(f"{FOLDER}/{3:020d}.producers", damage)
    assert known(snapshots.restore(segments, 4, NOW_MS)) == [0, 1, 2, 3]
    assert snapshots.offsets() == [1]


def test_a_log_of_producers_without_ids_has_no_state() -> None:
    disk = MemoryDisk()
    restored = Snapshots(disk, FOLDER).restore([Segment(disk, FOLDER, 0)], 0, NOW_MS)
    assert (restored.by_id, restored.changes) == ({}, 0)
