"""Disk jobs of a log: one at a time, in order, off the event loop."""

from collections.abc import Callable
from random import Random

import pytest

from penstock.foundation.errors import StorageError
from penstock.log.io_queue import IoQueue, Outcome
from penstock.log.log import Log
from tests.simulation.disk import FakeDisk
from tests.simulation.threads import FakeThreads

from .builders import NOW_MS, append, batch, offsets_in, open_at, sent, sync
from .test_trim_and_truncate import filled, reopened


def threaded() -> tuple[IoQueue, FakeThreads, list[str]]:
    threads = FakeThreads(Random(1))
    return IoQueue(threads.run), threads, []


def job(queue: IoQueue, name: str, events: list[str], fails: bool = False) -> None:
    def work() -> str:
        events.append(f"{name} works")
        if fails:
            raise StorageError("no space left")
        return name

    def begin() -> Callable[[], str]:
        events.append(f"{name} begins")
        return work

    def end(outcome: Outcome) -> None:
        events.append(f"{name} ends" if outcome.error is None else f"{name} fails: {outcome.error}")

    queue.add(begin, end)


def test_jobs_run_one_after_another() -> None:
    queue, threads, events = threaded()
    for name in ("a", "b"):
        job(queue, name, events)
    assert events == ["a begins"]
    assert queue.is_busy
    threads.run_all()
    assert events == [f"{name} {what}" for name in ("a", "b") for what in ("begins", "works", "ends")]
    assert not queue.is_busy


def test_without_threads_a_job_is_done_at_once() -> None:
    queue, events = IoQueue(), list[str]()
    job(queue, "a", events)
    assert events == ["a begins", "a works", "a ends"]
    assert not queue.is_busy


def test_a_job_that_another_one_adds_waits_for_its_turn() -> None:
    queue, threads, events = threaded()
    queue.add(lambda: lambda: events.append("works"), lambda outcome: job(queue, "last", events))
    job(queue, "next", events)
    threads.run_all()
    assert [line for line in events if "begins" in line] == ["next begins", "last begins"]


def test_a_job_that_fails_does_not_keep_others_from_running() -> None:
    queue, threads, events = threaded()
    job(queue, "a", events, fails=True)
    job(queue, "b", events)
    threads.run_all()
    assert events[2:] == ["a fails: no space left", "b begins", "b works", "b ends"]


def test_a_job_that_cannot_begin_fails() -> None:
    queue, _, events = threaded()

    def begin() -> None:
        raise StorageError("no space left")

    queue.add(begin, lambda outcome: events.append(str(outcome.error)))
    assert events == ["no space left"]
    assert not queue.is_busy


def test_a_job_with_nothing_left_to_do_is_passed_over() -> None:
    queue, threads, events = threaded()
    queue.add(lambda: None, lambda outcome: events.append("ended"))
    job(queue, "b", events)
    threads.run_all()
    assert events == ["b begins", "b works", "b ends"]


def test_a_queue_that_is_stopped_ends_the_job_that_runs_and_drops_the_others() -> None:
    queue, threads, events = threaded()
    for name in ("a", "b"):
        job(queue, name, events)
    queue.stop(lambda: events.append("stopped"))
    job(queue, "c", events)
    assert events[1:] == [f"{name} fails: the log is being closed" for name in ("b", "c")]
    threads.run_all()
    assert events[3:] == ["a works", "a ends", "stopped"]


def test_a_queue_without_jobs_is_stopped_at_once() -> None:
    queue, _, events = threaded()
    queue.stop(lambda: events.append("stopped"))
    assert events == ["stopped"]


# -- the jobs of a log


def sync_soon(log: Log) -> None:
    ticket = log.begin_sync()
    log.io.add(lambda: ticket.run, lambda outcome: log.end_sync(ticket))


@pytest.mark.parametrize("seed", range(20))
def test_a_sync_that_began_before_segments_were_dropped_does_not_deny_the_gap(seed: int) -> None:
    """It used to write the newest synced mark, which said that nothing is missing: damage, after power loss."""
    disk, threads = FakeDisk(Random(seed)), FakeThreads(Random(seed))
    log = filled(disk)
    sync(log)
    log.io = IoQueue(threads.run)
    append(log, b"more")
    sync_soon(log)
    log.drop_segments({segment.base_offset for segment in log.segments[1:-1]}, NOW_MS)
    threads.run_all()
    assert log.checkpoint.has_holes
    disk.sync_folder("")
    disk.lose_power()
    assert offsets_in(reopened(disk, "boot-2"))[-1] == 20


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_before_trimmed_segments_are_removed_is_no_damage(seed: int) -> None:
    """They are not synced any more, though what comes after them is."""
    disk, threads = FakeDisk(Random(seed)), FakeThreads(Random(seed))
    log = filled(disk)
    log.io = IoQueue(threads.run)
    log.io.add(lambda: lambda: None)
    log.trim(log.segments[3].base_offset + 1)
    start = log.start_offset
    log.sync()
    disk.lose_power()
    again = reopened(disk, "boot-2")
    assert (again.start_offset, again.end_offset) == (start, 20)
    assert offsets_in(again) == list(range(start, 20))


def logs_in(disk: FakeDisk, log: Log) -> list[str]:
    return [name for name in disk.names(log.folder) if name.endswith(".log")]


def test_segments_are_trimmed_for_readers_before_their_files_are_removed() -> None:
    disk, threads = FakeDisk(Random(1)), FakeThreads(Random(1))
    log = filled(disk)
    log.io = IoQueue(threads.run)
    before = logs_in(disk, log)
    log.trim(15)
    assert log.segments[0].base_offset <= 15
    assert offsets_in(log)[0] == 15
    assert logs_in(disk, log) == before
    threads.run_all()
    assert logs_in(disk, log) == before[-len(log.segments) :]


def test_a_snapshot_is_of_when_it_was_asked_for() -> None:
    disk, threads = FakeDisk(Random(1)), FakeThreads(Random(1))
    log = open_at(disk)
    log.io = IoQueue(threads.run)
    log.append(sent(7, 0, b"x"), 0, 0)
    log.snapshot_producers()
    threads.step()
    log.append(sent(7, 1, b"x"), 0, 0)
    log.snapshot_producers()
    log.append(batch(b"y"), 0, 0)
    threads.run_all()
    assert [name for name in disk.names(log.folder) if name.endswith("producers")] == ["0" * 19 + "2.producers"]


def test_only_the_newest_of_the_snapshots_that_wait_is_written() -> None:
    """A disk that hangs must not pile them up."""
    disk, threads = FakeDisk(Random(1)), FakeThreads(Random(1))
    log = open_at(disk)
    log.io = IoQueue(threads.run)
    log.io.add(lambda: lambda: None)
    for sequence in range(10):
        log.append(sent(7, sequence, b"x"), 0, 0)
        log.snapshot_producers()
    before = disk.operations
    threads.run_all()
    assert disk.operations - before <= 4
    assert [name for name in disk.names(log.folder) if name.endswith("producers")] == ["0" * 18 + "10.producers"]


def test_only_one_job_that_warms_waits_at_a_time() -> None:
    queue, threads, events = threaded()
    job(queue, "a", events)
    for name in ("b", "c"):
        queue.add_warming(lambda name=name: events.append(name))
    threads.run_all()
    assert events == ["a begins", "a works", "a ends", "b"]
    queue.add_warming(lambda: events.append("d"))
    threads.run_all()
    assert events[-1] == "d"
