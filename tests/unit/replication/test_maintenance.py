"""Periodic maintenance of logs."""

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.topic_changes import RESERVED_OFFSETS
from penstock.foundation.errors import StorageError
from penstock.log.checkpoint import CheckpointFile
from penstock.log.disk import Disk, File, OsDisk
from penstock.log.folder import LogFolder
from penstock.replication import maintenance as maintenance_module

from ..log.builders import batch, sent, values_in
from .broker_state import World, world_at

DAY_MS = 86_400_000


async def ticked(world: World, after_ms: int = 0) -> None:
    """A tick, and all that it began."""
    world.clock.advance(after_ms)
    await world.maintenance.tick()
    await world.maintenance.close()
    await world.disk_threads.idle()


def put(world: World, name: str, value: bytes, key: bytes = b"k") -> None:
    now_ms = world.clock.now_ms()
    world.partition(name).append(batch(value, key=key, timestamp_ms=now_ms), now_ms)


async def test_a_tick_notes_how_far_a_log_may_be_trusted(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        put(world, "orders", b"x")
        log = world.partition("orders").log
        assert log.checkpoint_is_stale
        await ticked(world)
        assert not log.checkpoint_is_stale
        found = CheckpointFile(OsDisk(tmp_path), log.folder).load("boot-1")
        assert found is not None
        assert found.written_to == 1


async def test_a_tick_syncs_closed_segments(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders", segment_bytes=1024)
        for _ in range(3):
            put(world, "orders", b"x" * 900)
        log = world.partition("orders").log
        await ticked(world)
        assert not log.has_unsynced_segments
        assert log.checkpoint.synced_to == 3


async def test_retention_looks_at_its_interval(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        world.intervals = replace(world.intervals, retention_ms=1000)
        await world.create("orders", retention_ms=100)
        await ticked(world)
        put(world, "orders", b"x")
        await ticked(world, 500)
        assert world.partition("orders").log.start_offset == 0
        await ticked(world, 500)
        assert world.partition("orders").log.start_offset == 1


async def test_uncommitted_records_are_not_deleted(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders", retention_ms=100, flush="group")
        one = world.partition("orders")
        one.on_append = lambda partition: None
        put(world, "orders", b"x")
        world.clock.advance(5000)
        await world.maintenance.tick()
        assert one.log.start_offset == 0
        await world.maintenance.close()
        await world.disk_threads.idle()


async def test_a_topic_in_memory_is_looked_at_with_every_tick(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        world.intervals = replace(world.intervals, retention_ms=DAY_MS)
        await world.create("orders", storage="memory", retention_ms=100)
        await ticked(world)
        put(world, "orders", b"x")
        await ticked(world, 101)
        assert world.partition("orders").log.start_offset == 1


async def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        world.intervals = replace(world.intervals, producer_expiry_ms=2000)
        await world.create("orders")
        one = world.partition("orders")
        one.append(sent(7, 0, b"x"), world.clock.now_ms())
        await ticked(world, 2000)
        assert list(one.log.producers.by_id) == [7]
        await ticked(world, 1001)
        assert list(one.log.producers.by_id) == []


# -- compaction


async def fill_compacted(world: World, name: str) -> None:
    await world.create(name, cleanup_policy="compact", segment_bytes=1024, min_cleanable_dirty_ratio=0)
    for number in range(20):
        put(world, name, b"%0300d" % number)


async def test_compacted_topics_are_compacted_once_they_are_synced(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await fill_compacted(world, "orders")
        log = world.partition("orders").log
        is_synced = threading.Event()
        log.io.add(lambda: is_synced.wait)
        await world.maintenance.tick()
        await world.maintenance.close()
        assert len(values_in(log)) == 20
        is_synced.set()
        await world.disk_threads.idle()
        await ticked(world, 1000)
        assert len(values_in(log)) < 4
        assert values_in(log)[-1] == b"%0300d" % 19
        assert log.checkpoint.clean_to > 0


async def test_compaction_looks_at_its_interval(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        world.intervals = replace(world.intervals, compaction_ms=60_000)
        await ticked(world)
        await fill_compacted(world, "orders")
        await ticked(world, 59_999)
        assert len(values_in(world.partition("orders").log)) == 20
        await ticked(world, 1)
        assert len(values_in(world.partition("orders").log)) < 4


async def test_a_topic_that_is_deleted_while_it_is_compacted_is_no_failure(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await fill_compacted(world, "orders")
        await fill_compacted(world, "others")
        await ticked(world)
        world.clock.advance(1000)
        await world.maintenance.tick()
        await world.delete("orders")
        await world.maintenance.close()
        assert len(values_in(world.partition("others").log)) < 4
        assert not (tmp_path / "logs" / "orders").exists()


class SpoiltDisk:
    """A disk whose segments of one topic cannot be opened once it is spoilt."""

    def __init__(self, disk: Disk, topic: str) -> None:
        self._disk = disk
        self._inside = f"/{topic}/"
        self.is_spoilt = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str) -> File:
        if self.is_spoilt and self._inside in path and path.endswith((".log", ".cleaned")):
            raise StorageError(f"{path} cannot be opened: Input/output error")
        return self._disk.open(path)


async def test_a_log_that_cannot_be_compacted_keeps_no_other_from_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SpoiltDisk(OsDisk(tmp_path), "bad")
    async with world_at(tmp_path, disk) as world:
        for name in ("bad", "good"):
            await fill_compacted(world, name)
            await world.disk_threads.idle()
            world.partition(name).log.sync()
        disk.is_spoilt = True
        await ticked(world)
        assert len(values_in(world.partition("good").log)) < 4
        assert len(values_in(world.partition("bad").log)) == 20
        disk.is_spoilt = False
        await ticked(world, 1000)
        assert len(values_in(world.partition("bad").log)) < 4
    assert [entry for entry in caplog.records if "compaction_failed partition=bad-0" in entry.getMessage()]


# -- offsets in memory


async def test_offsets_are_reserved_before_they_run_out(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders", storage="memory")
        log = world.partition("orders").log
        await ticked(world)
        assert log.offset_limit == RESERVED_OFFSETS
        log.end_offset = RESERVED_OFFSETS // 2 + 1
        await ticked(world)
        assert log.offset_limit == 2 * RESERVED_OFFSETS
        await ticked(world)
        assert log.offset_limit == 2 * RESERVED_OFFSETS


async def test_offsets_that_cannot_be_reserved_are_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders", storage="memory")
        log = world.partition("orders").log
        log.end_offset = RESERVED_OFFSETS // 2 + 1
        world.store.is_down = True
        await ticked(world)
        assert log.offset_limit == RESERVED_OFFSETS
        world.store.is_down = False
        await ticked(world)
        assert log.offset_limit == 2 * RESERVED_OFFSETS
    assert any("offsets_not_reserved partition=orders-0" in entry.getMessage() for entry in caplog.records)


async def test_ticks_come_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_module, "TICK_S", 0)
    async with world_at(tmp_path) as world:
        await world.create("orders")
        put(world, "orders", b"x")
        log = world.partition("orders").log
        running = asyncio.create_task(world.maintenance.run())
        for _ in range(2):  # the first tick may still be running
            world.ticked.clear()
            async with asyncio.timeout(10):
                await world.ticked.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert log.checkpoint.written_to == 1


# -- failures


async def test_one_failing_partition_does_not_keep_the_others_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class NoCheckpoints(SpoiltDisk):
        def open(self, path: str) -> File:
            if self.is_spoilt and self._inside in path:
                raise StorageError(f"{path} cannot be opened: Input/output error")
            return self._disk.open(path)

    disk = NoCheckpoints(OsDisk(tmp_path), "bad")
    async with world_at(tmp_path, disk) as world:
        for name in ("bad", "good"):
            await world.create(name)
            put(world, name, b"x")
        disk.is_spoilt = True
        await ticked(world)
        assert world.partition("bad").log.checkpoint_is_stale
        assert not world.partition("good").log.checkpoint_is_stale
        disk.is_spoilt = False
        await ticked(world)
        assert not world.partition("bad").log.checkpoint_is_stale
    assert [entry for entry in caplog.records if entry.levelno == logging.WARNING]


async def test_offline_partitions_are_left_alone(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders")
        one = world.partition("orders")
        folder = tmp_path / LogFolder.path(one.name, topic_id)
        one.go_offline("gone")
        before = sorted(path.name for path in folder.iterdir())
        await ticked(world)
        assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("set_by_ms", [2 * DAY_MS, -2 * DAY_MS])
async def test_a_producer_is_not_forgotten_because_the_clock_was_set(tmp_path: Path, set_by_ms: int) -> None:
    """What it repeats would be taken for new."""
    async with world_at(tmp_path) as world:
        world.intervals = replace(world.intervals, producer_expiry_ms=DAY_MS)
        await world.create("orders")
        partition = world.partition("orders")
        log = partition.log
        partition.append(sent(1, 0, b"before"), world.clock.now_ms())
        await ticked(world, after_ms=2000)
        world.clock.set_by(set_by_ms)
        now_ms = world.clock.now_ms()
        partition.append(sent(2, 0, b"meanwhile", timestamp_ms=now_ms), now_ms)
        for _ in range(3):
            await ticked(world, after_ms=2000)
        assert set(log.producers.by_id) == {1, 2}
        world.clock.set_by(0)
        for _ in range(3):
            await ticked(world, after_ms=2000)
        assert set(log.producers.by_id) == {1, 2}
        await ticked(world, after_ms=3 * DAY_MS)
        assert not log.producers.by_id


async def test_retention_counts_no_day_that_has_not_passed(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders", retention_ms=DAY_MS, segment_bytes=1024)
        for _ in range(3):
            put(world, "orders", b"x" * 900)
        log = world.partition("orders").log
        await ticked(world)
        world.clock.set_by(30 * DAY_MS)
        await ticked(world, after_ms=2000)
        assert log.start_offset == 0
        world.clock.set_by(-30 * DAY_MS)
        await ticked(world, after_ms=2000)
        world.clock.set_by(0)
        await ticked(world, after_ms=2 * DAY_MS)
        assert log.start_offset > 0
