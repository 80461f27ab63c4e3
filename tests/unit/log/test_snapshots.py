"""Snapshots of producer state: which are kept, and which are valid."""

import pytest

from penstock.log.memory import MemoryDisk
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.log.snapshots import Snapshots
from penstock.log.transactions import AbortedTransaction
from penstock.records.batch import read_header

from .builders import FOLDER, NOW_MS, FullDisk, marker_of, sent


def state(*sequences: int) -> Producers:
    producers = Producers()
    for sequence in sequences:
        header = read_header(sent(7, sequence, b"v"))
        producers.apply(header, sequence, header.max_timestamp, NOW_MS)
    return producers


def known(producers: Producers) -> list[int]:
    return [batch.first_sequence for batch in producers.by_id[7].batches] if 7 in producers.by_id else []


def put(segment: Segment, data: bytearray, offset: int) -> None:
    position = segment.size
    segment.file.append(data)
    segment.index_batch(position, len(data), offset, offset, NOW_MS, 100)


def segment_with(disk: MemoryDisk | FullDisk, base: int, *sequences: int) -> Segment:
    """A segment whose batch at each offset has that sequence."""
    segment = Segment(disk, FOLDER, base)
    for sequence in sequences:
        data = sent(7, sequence, b"v", base_offset=sequence)
        put(segment, data, sequence)
    return segment


def test_the_newest_snapshot_and_those_at_segments_are_kept() -> None:
    snapshots = Snapshots(MemoryDisk(), FOLDER)
    for offset in (10, 20, 30, 40, 50):
        assert snapshots.save(offset, state(0).take_snapshot())
    snapshots.prune([20, 35, 40])
    assert snapshots.offsets() == [20, 40, 50]
    snapshots.prune([])
    assert snapshots.offsets() == [50]


def test_a_full_disk_takes_no_snapshot() -> None:
    disk = FullDisk(MemoryDisk(), 0)
    snapshots = Snapshots(disk, FOLDER)
    assert not snapshots.save(10, state(0).take_snapshot())
    assert snapshots.offsets() == []


def test_the_state_is_the_last_snapshot_and_the_batches_after_it() -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    segments = [segment_with(disk, 0, 0, 1, 2), segment_with(disk, 3, 3, 4)]
    snapshots.save(2, state(0, 1).take_snapshot())
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
    snapshots.save(3, state(0, 1, 2).take_snapshot())
    assert known(snapshots.restore([segment_with(disk, 3, 3, 4)], 5, NOW_MS)) == [0, 1, 2, 3, 4]


def test_snapshots_after_the_end_are_removed_and_not_believed() -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    segments = [segment_with(disk, 0, 0, 1, 2)]
    snapshots.save(2, state(0, 1).take_snapshot())
    snapshots.save(9, state(0, 1, 2, 3, 4, 5, 6, 7, 8).take_snapshot())
    assert known(snapshots.restore(segments, 3, NOW_MS)) == [0, 1, 2]
    assert snapshots.offsets() == [2]


@pytest.mark.parametrize("damage", [b"", b"PSP2", b"\0" * 60])
def test_a_damaged_snapshot_gives_way_to_the_one_before(damage: bytes) -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    segments = [segment_with(disk, 0, 0, 1, 2, 3)]
    snapshots.save(1, state(0).take_snapshot())
    snapshots.save(3, state(0, 1, 2).take_snapshot())
    disk.store(f"{FOLDER}/{3:020d}.producers", damage)
    assert known(snapshots.restore(segments, 4, NOW_MS)) == [0, 1, 2, 3]
    assert snapshots.offsets() == [1]


def test_a_log_of_producers_without_ids_has_no_state() -> None:
    disk = MemoryDisk()
    restored = Snapshots(disk, FOLDER).restore([Segment(disk, FOLDER, 0)], 0, NOW_MS)
    assert (restored.by_id, restored.changes) == ({}, 0)


def test_older_snapshots_are_removed_on_demand() -> None:
    snapshots = Snapshots(MemoryDisk(), FOLDER)
    for offset in (10, 20, 30):
        snapshots.save(offset, state(0).take_snapshot())
    assert snapshots.has_before(11)
    assert not snapshots.has_before(10)
    snapshots.remove_before(20)
    assert snapshots.offsets() == [20, 30]


# -- transactions


def transactions_in(disk: MemoryDisk) -> list[Segment]:
    """Offsets 0 to 9: a transaction that is aborted at 3, one at 7, and one that stays open."""
    segments = [Segment(disk, FOLDER, base) for base in (0, 5)]
    parts = [
        sent(1, 0, b"v", transactional=True, base_offset=0),
        sent(2, 0, b"v", transactional=True, base_offset=1),
        sent(1, 1, b"v", transactional=True, base_offset=2),
        placed(marker_of(1, commit=False), 3),
        sent(1, 2, b"v", transactional=True, base_offset=4),
        sent(2, 1, b"v", transactional=True, base_offset=5),
        placed(marker_of(1, commit=True), 6),
        placed(marker_of(2, commit=False), 7),
        sent(3, 0, b"v", transactional=True, base_offset=8),
    ]
    for offset, data in enumerate(parts):
        put(segments[offset >= 5], data, offset)
    return segments


def placed(batch: bytearray, offset: int) -> bytearray:
    batch[:8] = offset.to_bytes(8, "big")
    return batch


ABORTED = [AbortedTransaction(1, 0, 3, 1), AbortedTransaction(2, 1, 7, 8)]


def listed(segments: list[Segment]) -> list[list[AbortedTransaction]]:
    return [list(segment.aborted.ended_from(0)) for segment in segments]


def test_markers_are_read_back_with_what_they_aborted() -> None:
    disk = MemoryDisk()
    segments = transactions_in(disk)
    producers = Snapshots(disk, FOLDER).restore(segments, 9, NOW_MS, aborted_known_to=0)
    assert listed(segments) == [ABORTED[:1], ABORTED[1:]]
    assert producers.open.first_offset == 8
    assert [producers.by_id[known].first_offset for known in (1, 2, 3)] == [-1, -1, 8]


def test_lists_that_are_known_to_be_whole_are_let_be() -> None:
    disk = MemoryDisk()
    segments = transactions_in(disk)
    Snapshots(disk, FOLDER).restore(segments, 9, NOW_MS)
    assert listed(segments) == [[], []]
    Snapshots(disk, FOLDER).restore(segments, 9, NOW_MS, aborted_known_to=5)
    assert listed(segments) == [[], ABORTED[1:]]


def test_an_entry_without_a_marker_is_cut_off() -> None:
    disk = MemoryDisk()
    segments = transactions_in(disk)
    segments[1].aborted.add(ABORTED[1])
    segments[1].aborted.add(AbortedTransaction(3, 8, 9, 10))
    Snapshots(disk, FOLDER).restore(segments, 9, NOW_MS)
    assert listed(segments) == [[], ABORTED[1:]]


@pytest.mark.parametrize("known_to", range(10))
def test_a_missing_range_is_recovered_though_the_newest_snapshot_is_younger(known_to: int) -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    whole = snapshots.restore(transactions_in(disk), 9, NOW_MS)
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    segments = transactions_in(disk)
    snapshots.save(9, whole.take_snapshot())
    for entry in ABORTED:
        if entry.last_offset < known_to:
            segments[entry.last_offset >= 5].aborted.add(entry)
    producers = snapshots.restore(segments, 9, NOW_MS, aborted_known_to=known_to)
    assert listed(segments) == [ABORTED[:1], ABORTED[1:]]
    assert producers.open.first_offset == 8
    assert snapshots.offsets() == [9], "it was right, and stays"


def test_transactions_of_a_snapshot_from_before_the_log_are_not_believed() -> None:
    disk = MemoryDisk()
    snapshots = Snapshots(disk, FOLDER)
    before = Producers()
    header = read_header(sent(7, 0, b"v", transactional=True))
    before.apply(header, 0, NOW_MS, NOW_MS)
    segments = [Segment(disk, FOLDER, 4)]
    for offset, first in ((4, 0), (3, None)):
        snapshots.save(offset, before.take_snapshot())
        assert snapshots.restore(segments, 4, NOW_MS).open.first_offset == first
        snapshots.remove_before(9)
