"""Group commit: one fsync for many appends, no acknowledgement before it, and none after it failed."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.cluster.image import PartitionState
from penstock.foundation.errors import StorageError
from penstock.log.disk import OsDisk

from ..log.builders import NOW_MS, SyncedDisk, batch
from .broker_state import NODE, World, deletion_of, world_at

FOLLOWER = 2
WAIT_S = 60.0


class Gate:
    """Stands before every fsync of a segment: lets it through, holds it, or fails it."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.fails = False
        self._loop = asyncio.get_running_loop()
        self._reached = asyncio.Event()
        self._is_open = threading.Event()
        self._is_open.set()

    def __call__(self, path: str) -> None:
        if not path.endswith(".log"):
            return
        self._loop.call_soon_threadsafe(self._reached.set)
        assert self._is_open.wait(WAIT_S)
        if self.fails:
            raise StorageError(f"{path} cannot be flushed: Input/output error")
        self.synced.append(path)

    def close(self) -> None:
        self._reached.clear()
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()

    async def reached(self) -> None:
        """An fsync has come to the gate."""
        async with asyncio.timeout(WAIT_S):
            await self._reached.wait()


@asynccontextmanager
async def gated(folder: Path) -> AsyncIterator[tuple[World, Gate]]:
    gate = Gate()
    async with world_at(folder, SyncedDisk(OsDisk(folder), gate)) as world:
        try:
            yield world, gate
        finally:
            gate.open()


async def committed(world: World, end_offset: int, name: str = "orders") -> None:
    done = asyncio.Event()
    world.partition(name).when_committed(end_offset, done.set)
    async with asyncio.timeout(WAIT_S):
        await done.wait()


async def test_an_append_is_committed_when_it_is_synced_and_not_before(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", flush="group")
        one = world.partition("orders")
        gate.close()
        one.append(batch(b"x"), NOW_MS)
        await gate.reached()
        assert one.high_watermark == 0
        assert gate.synced == []
        gate.open()
        await committed(world, 1)
        assert one.high_watermark == 1
        assert len(gate.synced) == 1
        assert one.log.checkpoint.synced_to == 1


async def test_everything_that_is_appended_during_an_fsync_shares_the_next_one(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", flush="group")
        one = world.partition("orders")
        gate.close()
        one.append(batch(b"first"), NOW_MS)
        await gate.reached()
        for _ in range(200):
            one.append(batch(b"meanwhile"), NOW_MS)
        gate.open()
        await committed(world, 1)
        assert one.high_watermark == 1, "the fsync began before the others were appended"
        await committed(world, 201)
        assert len(gate.synced) == 2


async def test_the_file_is_as_long_as_what_was_answered(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", flush="group")
        one = world.partition("orders")
        for number in range(5):
            one.append(batch(b"%d" % number), NOW_MS)
        await committed(world, 5)
        await world.disk_threads.idle()
        assert one.high_watermark == one.log.end_offset == 5
        assert len(gate.synced) <= 2


async def test_partitions_are_flushed_side_by_side(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", partitions=2, flush="group")
        gate.close()
        for number in (0, 1):
            world.partition("orders", number).append(batch(b"x"), NOW_MS)
        await gate.reached()
        gate.open()
        await world.disk_threads.idle()
        assert [world.partition("orders", number).high_watermark for number in (0, 1)] == [1, 1]
        assert len(set(gate.synced)) == 2


async def test_a_failed_fsync_takes_the_partition_offline_and_acknowledges_nothing(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", flush="group")
        await world.create("others", flush="group")
        one = world.partition("orders")
        gate.fails = True
        one.append(batch(b"x"), NOW_MS)
        await committed(world, 1)  # woken, though it is not
        assert not one.is_online
        assert "fsync failed" in one.offline_reason
        assert one.high_watermark == 0
        with pytest.raises(StorageError, match="orders-0 is offline"):
            one.append(batch(b"y"), NOW_MS)
        gate.fails = False
        world.partition("others").append(batch(b"x"), NOW_MS)
        await committed(world, 1, "others")
        assert world.partition("others").high_watermark == 1
    async with world_at(tmp_path) as world:
        assert world.partition("orders").is_online, "the next start reads what the disk has"


async def test_closed_segments_are_synced_though_no_request_waits_for_it(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", segment_bytes=1024)
        one = world.partition("orders")
        for _ in range(4):
            one.append(batch(b"x" * 900), NOW_MS)
        assert one.log.has_unsynced_segments
        assert gate.synced == []
        world.flusher.flush_soon(one)
        await world.disk_threads.idle()
        assert not one.log.has_unsynced_segments
        assert len(gate.synced) == 4
        assert one.log.checkpoint.synced_to == 4


async def test_records_during_a_sync_of_closed_segments_are_committed_by_followers(
    tmp_path: Path,
) -> None:
    """It was written before the sync ends, and is not in it."""
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", segment_bytes=1024)
        one = world.partition("orders")
        both = PartitionState(
            replicas=(NODE, FOLLOWER), leader=NODE, leader_epoch=1, isr=(NODE, FOLLOWER), leader_broker_epoch=1
        )
        one.lead(both, NODE, lag_max_ms=1000, now_ms=NOW_MS)
        for size in (900, 900, 100):
            one.append(batch(b"x" * size), NOW_MS)
        assert one.log.has_unsynced_segments
        gate.close()
        world.flusher.flush_soon(one)
        await gate.reached()
        end = one.append(batch(b"late"), NOW_MS).last_offset + 1
        gate.open()
        await world.disk_threads.idle()
        one.fetched(FOLLOWER, broker_epoch=1, offset=end, start_offset=0, now_ms=NOW_MS)
        assert one.has_committed(end)


async def test_a_flush_with_nothing_to_do_does_nothing(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders")
        world.flusher.flush_soon(world.partition("orders"))
        await world.disk_threads.idle()
        assert gate.synced == []


async def test_a_topic_that_is_deleted_during_its_fsync_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", flush="group")
        one = world.partition("orders")
        gate.close()
        one.append(batch(b"x"), NOW_MS)
        await gate.reached()
        await world.metadata.change(lambda image: deletion_of(image, "orders"))
        assert one.offline_reason == "the topic was deleted"
        assert (tmp_path / "logs" / "orders").exists(), "a thread still works on it"
        gate.open()
        await world.disk_threads.idle()
        assert not (tmp_path / "logs" / "orders").exists()
    assert [entry for entry in caplog.records if entry.levelno >= logging.ERROR] == []


async def test_a_segment_that_is_trimmed_before_its_fsync_is_no_failure(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, gate):
        await world.create("orders", segment_bytes=1024, flush="group")
        one = world.partition("orders")
        gate.close()
        for _ in range(4):
            one.append(batch(b"x" * 900), NOW_MS)
        await gate.reached()
        one.log.trim(3)
        gate.open()
        await world.disk_threads.idle()
        assert one.is_online
        assert one.high_watermark == 4
        assert one.log.checkpoint.synced_to == 4


async def test_waiting_requests_are_acknowledged_when_another_job_syncs_the_log(tmp_path: Path) -> None:
    async with gated(tmp_path) as (world, _):
        await world.create("orders", flush="group")
        one = world.partition("orders")
        one.log.io.add(lambda: lambda: None, lambda outcome: one.log.sync())
        one.append(batch(b"x"), NOW_MS)
        await committed(world, 1)
        assert one.high_watermark == 1
