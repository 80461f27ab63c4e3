"""Compaction of a log in use: several passes, grouped segments, producers, races, full disks and kills."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.foundation.errors import StorageError
from penstock.log.compaction import CLEANED, MANIFEST, Job, Result
from penstock.log.disk import Disk, OsDisk
from penstock.log.io_queue import IoQueue, Outcome, Work
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.records.build import Record
from tests.simulation.disk import FakeDisk, Killed

from .builders import (
    ENDLESS,
    FOLDER,
    NOW_MS,
    FullDisk,
    all_records,
    batch,
    headers_from,
    offsets_in,
    open_at,
    pairs,
    records_in,
    sent,
)
from .compacted_logs import compact, compacted_log, end_segment, install, planned, put, state
from .descriptors import open_below


def filled(disk: Disk | None = None, count: int = 60, keys: int = 10, **values: object) -> Log:
    """Ten keys over and over, a few to a segment, all of it closed."""
    log = compacted_log(disk, **values)
    for number in range(count):
        put(log, (f"key {number % keys}", b"%0100d" % number))
    end_segment(log)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def ran(log: Log) -> tuple[Job, Result]:
    """A pass that has written its segments and not put them in place."""
    job = planned(log)
    assert job is not None
    return job, job.run()


def leftovers(disk: Disk) -> list[str]:
    return [name for name in disk.names(FOLDER) if name.endswith(CLEANED) or name.startswith(MANIFEST)]


# -- several passes


@pytest.mark.parametrize("keys_max", [1, 3, 7])
def test_more_keys_than_fit_into_memory_take_several_passes(keys_max: int) -> None:
    log = filled()
    expected = compacted(filled())
    clean_to = [0]
    while (job := planned(log, keys_max=keys_max)) is not None:
        assert install(job, log, job.run())
        clean_to.append(log.checkpoint.clean_to)
        assert state(log) == state(expected)
    assert len(clean_to) > 3
    assert clean_to == sorted(set(clean_to)), "a pass made no progress"
    assert pairs(all_records(log)) == pairs(all_records(expected))


def compacted(log: Log) -> Log:
    compact(log)
    return log


def test_a_batch_with_more_keys_than_fit_is_taken_whole() -> None:
    log = compacted_log()
    for round_ in range(3):
        put(log, *((f"key {number}", b"%d" % round_) for number in range(20)))
    end_segment(log)
    while (job := planned(log, keys_max=5)) is not None:
        assert install(job, log, job.run())
    assert offsets_in(log) == list(range(40, 60))


# -- grouped segments


def test_small_neighbours_become_one_segment() -> None:
    log = filled()
    before = bases(log)
    compact(log)
    assert bases(log) == before, "no two of them fit into one"
    put(log, ("key 0", b"new"))
    end_segment(log)
    compact(log)
    assert len(log.segments) < len(before)
    assert all(segment.size <= log.settings.segment_bytes for segment in log.segments)
    assert offsets_in(log) == list(range(51, 61))


def test_neighbours_too_far_apart_for_one_index_stay_apart() -> None:
    log = compacted_log()
    for skip_to in (0, 2**31 - 2, 2**31 + 10, 2**31 + 50):
        log.end_offset = skip_to
        put(log, (f"at {skip_to}", b"1"))
        end_segment(log)
    compact(log)
    assert bases(log) == [0, 2**31 - 1, 2**31 + 51]
    assert offsets_in(log) == [0, 2**31 - 2, 2**31 + 10, 2**31 + 50]


def test_a_segment_that_is_left_empty_is_read_across() -> None:
    log = compacted_log(segment_bytes=1024)
    for _ in range(3):
        for number in range(4):
            put(log, (f"key {number}", b"x" * 200))
        end_segment(log)
    compact(log)
    for offset in range(12):
        (first, *_) = all_records_from(log, offset)
        assert first.offset == max(offset, 8)
    assert log.read(12, 100, ENDLESS) == b""


def all_records_from(log: Log, offset: int) -> list[Record]:
    return [record for record in records_in(log.read(offset, 9999, ENDLESS)) if record.offset >= offset]


# -- producers


def test_a_producers_last_batch_leaves_a_trace() -> None:
    disk = MemoryDisk()
    log = compacted_log(disk)
    log.append(sent(7, 0, b"first"), 0, NOW_MS)
    log.append(sent(7, 1, b"second", b"third"), 0, NOW_MS)
    log.append(sent(8, 0, b"last of its key"), 0, NOW_MS)
    end_segment(log)
    compact(log)
    assert pairs(all_records(log)) == [(3, b"k", b"last of its key")]
    trace, kept = headers_from(log, 0)
    assert (trace.base_offset, trace.last_offset, trace.count) == (1, 2, 0)
    assert (trace.producer_id, trace.base_sequence, trace.attributes) == (7, 1, 0)
    assert kept.producer_id == 8
    log.abandon()
    for name in disk.names(FOLDER):
        if name.endswith(".producers"):
            disk.remove(f"{FOLDER}/{name}")
    log = compacted_log(disk)
    assert log.append(sent(7, 1, b"second", b"third"), 0, NOW_MS).base_offset == 1
    assert not log.append(sent(7, 3, b"next"), 0, NOW_MS).repeated


def test_a_trace_goes_when_its_producer_has_written_again() -> None:
    log = compacted_log()
    log.append(sent(7, 0, b"first"), 0, NOW_MS)
    log.append(sent(8, 0, b"other"), 0, NOW_MS)
    end_segment(log)
    compact(log)
    assert [header.count for header in headers_from(log, 0)] == [0, 1]
    log.append(sent(7, 1, b"again"), 0, NOW_MS)
    end_segment(log)
    compact(log)
    assert [(header.base_offset, header.count) for header in headers_from(log, 0)] == [(1, 0), (2, 1)]


# -- races


def test_records_written_during_compaction_are_kept() -> None:
    log = filled()
    job, result = ran(log)
    put(log, ("key 3", b"meanwhile"))
    assert install(job, log, result)
    assert state(log)[b"key 3"] == b"meanwhile"
    assert log.checkpoint.clean_to == 60


def test_segments_that_were_trimmed_meanwhile_do_not_come_back() -> None:
    disk = MemoryDisk()
    log = filled(disk, cleanup_policy="compact,delete")
    job, result = ran(log)
    log.trim(bases(log)[2])
    before = offsets_in(log)
    assert not install(job, log, result)
    assert offsets_in(log) == before
    assert leftovers(disk) == []
    assert log.checkpoint.clean_to == 0
    compact(log)
    assert len(state(log)) == 10


def test_a_trim_inside_the_first_segment_is_no_hindrance() -> None:
    log = filled(cleanup_policy="compact,delete")
    job, result = ran(log)
    log.trim(1)
    assert install(job, log, result)
    assert log.start_offset == 1
    assert len(state(log)) == 10


def test_a_log_that_was_truncated_meanwhile_stays_as_it_is() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    job, result = ran(log)
    log.truncate(30, NOW_MS)
    assert not install(job, log, result)
    assert offsets_in(log) == list(range(30))
    assert leftovers(disk) == []


def test_readers_go_on_while_segments_are_replaced(tmp_path: Path) -> None:
    log = filled(OsDisk(tmp_path), count=3000, segment_bytes=200_000)
    held = log.read(0, 1 << 20, ENDLESS, blocking=False)
    before = bytes(held)
    compact(log)
    assert bytes(held) == before
    assert len(all_records(log)) == 10


# -- full disks


def test_a_full_disk_stops_a_pass_and_nothing_else() -> None:
    disk = FullDisk(MemoryDisk())
    log = filled(disk)
    for free_bytes in range(0, 3000, 200):
        job = planned(log)
        assert job is not None
        disk.free_bytes = free_bytes
        try:
            install(job, log, job.run())
        except StorageError:
            assert leftovers(disk) == []
            assert len(offsets_in(log)) == 60
        else:
            break
        finally:
            disk.free_bytes = 1 << 30
    assert len(offsets_in(log)) == 10


def test_nothing_is_compacted_that_a_full_disk_cannot_vouch_for() -> None:
    disk = FullDisk(MemoryDisk())
    log = filled(disk)
    job, result = ran(log)
    log.note_epoch(9, log.end_offset)
    put(log, ("key 1", b"under a new leader"))
    disk.free_bytes = 0
    with pytest.raises(StorageError):
        install(job, log, result)
    assert leftovers(disk) == []
    assert len(offsets_in(log)) == 61


def test_producer_snapshots_stay_if_a_full_disk_cannot_hold_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(MemoryDisk())
    log = filled(disk)
    job, result = ran(log)
    log._snapshots.save(1, log.producers.take_snapshot())
    before = log._snapshots.offsets()
    monkeypatch.setattr(type(log._snapshots), "save", lambda *_, **__: False)
    with pytest.raises(StorageError, match="too full for a producer snapshot"):
        install(job, log, result)
    assert log._snapshots.offsets() == before
    assert leftovers(disk) == []
    assert len(offsets_in(log)) == 60


def test_a_pass_that_fails_uses_up_no_descriptors(tmp_path: Path) -> None:
    disk = FullDisk(OsDisk(tmp_path))
    log = filled(disk)
    planned(log)
    before = open_below(tmp_path)
    for _ in range(5):
        job = planned(log)
        assert job is not None
        disk.free_bytes = 500
        with pytest.raises(StorageError):
            job.run()
        disk.free_bytes = 1 << 30
    log.abandon()
    assert open_below(tmp_path) <= before


# -- interrupted


class StoppingDisk:
    """A real disk whose process ends before the n-th removal or renaming."""

    def __init__(self, disk: Disk, changes: int) -> None:
        self._disk = disk
        self.changes = changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def _count(self) -> None:
        self.changes -= 1
        if self.changes < 0:
            raise Killed

    def remove(self, path: str) -> None:
        self._count()
        self._disk.remove(path)

    def rename(self, old: str, new: str) -> None:
        self._count()
        self._disk.rename(old, new)


def test_an_interrupted_swap_is_finished_from_every_step(tmp_path: Path) -> None:
    expected = pairs(all_records(compacted(filled())))
    for changes in range(1000):
        disk = OsDisk(tmp_path / str(changes))
        log = filled(disk)
        job, result = ran(log)
        job.disk = StoppingDisk(disk, changes)
        try:
            install(job, log, result)
        except Killed:
            assert MANIFEST in disk.names(FOLDER)
        else:
            break
        log.abandon()
        again = compacted_log(disk)
        assert pairs(all_records(again)) == expected
        assert leftovers(disk) == []
        again.close()
    assert changes > 10


def test_new_segments_without_a_manifest_are_thrown_away(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    log = filled(disk)
    ran(log)
    assert leftovers(disk)
    log.abandon()
    log = compacted_log(disk)
    assert leftovers(disk) == []
    assert offsets_in(log) == list(range(60))


def test_a_manifest_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    filled(disk).close()
    disk.store(f"{FOLDER}/{MANIFEST}", b"[[0, [0, 8")
    with pytest.raises(StorageError, match="is damaged"):
        compacted_log(disk)


def test_a_manifest_names_what_replaces_what() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    job, result = ran(log)
    stopping = StoppingDisk(disk, 0)
    job.disk = stopping
    with pytest.raises(Killed):
        install(job, log, result)
    swaps = json.loads(disk.load(f"{FOLDER}/{MANIFEST}") or b"")
    assert [base for _, gone in swaps for base in gone] == bases(log)[:-1]
    assert all(base == gone[0] for base, gone in swaps)


@pytest.mark.parametrize("seed", range(30))
def test_power_loss_while_segments_are_replaced_loses_no_key(seed: int) -> None:
    rng = Random(seed)
    disk = FakeDisk(Random(seed))
    log = filled(disk)
    expected = state(log)
    job = planned(log)
    assert job is not None
    disk.die_after(rng.randint(1, 120))
    with suppress(Killed):
        install(job, log, job.run())
    disk.disarm()
    disk.lose_power()
    again = compacted_log(disk, boot="boot-2")
    assert state(again) == expected
    assert leftovers(disk) == []


# -- a topic that is not compacted any more


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_holes_are_no_damage_in_a_log_that_is_not_compacted_any_more(boot: str) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    compact(log)
    records = pairs(all_records(log))
    log.abandon()
    log = open_at(disk, boot=boot, segment_bytes=1024)
    assert pairs(all_records(log)) == records
    log.append(batch(b"next"), 0, NOW_MS)
    log.close()
    assert pairs(all_records(open_at(disk, boot=boot)))[:-1] == records


def test_holes_are_no_damage_though_the_process_ended_while_they_were_made() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    job, result = ran(log)
    job.disk = StoppingDisk(disk, 3)
    with pytest.raises(Killed):
        install(job, log, result)
    compacted_log(disk).close()
    assert len(all_records(open_at(disk))) == 10


# -- the files of another run


class LaterRunner:
    """Runs the jobs of a log on demand, as busy disk threads do."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Work, Callable[[Outcome], None]]] = []

    def __call__(self, work: Work, done: Callable[[Outcome], None]) -> None:
        self._waiting.append((work, done))

    def run_all(self) -> None:
        while self._waiting:
            work, done = self._waiting.pop(0)
            done(Outcome.of(work))


def test_a_run_that_cannot_be_installed_removes_its_files_before_it_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by the simulator (log, seed 980229): its files had the names of those of the next run."""
    log = filled()
    expected = state(log)
    runner = LaterRunner()
    log.io = IoQueue(runner)
    job, result = ran(log)
    outcomes: list[Outcome] = []

    def fail(*args: object) -> Work:
        raise StorageError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(log, "begin_replacement", fail)
        job.install(log, result, outcomes.append)
    assert outcomes == [], "reported while its files are still there"
    runner.run_all()
    assert [str(outcome.error) for outcome in outcomes] == ["too many open files"]
    assert leftovers(log.disk) == []
    job, result = ran(log)
    job.install(log, result, outcomes.append)
    runner.run_all()
    assert outcomes[-1].result()
    assert state(log) == expected
    assert offsets_in(log) == list(range(50, 60))


def test_old_segments_stay_if_a_new_one_is_missing() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    before = all_records(log)
    job, result = ran(log)
    job.discard(result)
    with pytest.raises(StorageError, match="is missing"):
        install(job, log, result)
    assert all_records(log) == before
    assert all_records(open_at(disk)) == before
