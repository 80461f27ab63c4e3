"""Periodic log maintenance: retention, compaction, checkpoints, fsync of closed segments, producer expiration."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from penstock.cluster.metadata import Metadata
from penstock.cluster.topic_changes import RESERVED_OFFSETS, plan_reserve
from penstock.foundation.clock import Clock, conservative_now_ms
from penstock.foundation.errors import PenstockError, StorageError
from penstock.log import compaction, retention
from penstock.log.io_queue import Outcome
from penstock.log.log import Log
from penstock.log.removal import TornLog
from penstock.log.settings import Storage
from penstock.replication.disk_threads import DiskThreads
from penstock.replication.flusher import Flusher
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions

logger = logging.getLogger(__name__)

TICK_S: Final = 1.0
SLICE: Final = 50
"""Number of partitions maintained per time slice of the event loop, which takes at most about 10 ms."""
CLOCK_JUMP_MS: Final = 1000
"""Minimum clock change between two ticks, in milliseconds, that counts as a jump; NTP slewing changes it by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals of the maintenance jobs in milliseconds, read at every tick."""

    first_retention_ms: int
    """Delay of the first retention run after startup, as in Kafka: gives operators time to raise retention."""
    retention_ms: int
    compaction_ms: int
    producer_expiry_ms: int
    compaction_keys_max: int

    @classmethod
    def of(cls, setting: Callable[[str], int]) -> "Intervals":
        """Builds the intervals from the broker's settings."""
        return cls(
            first_retention_ms=setting("log.initial.task.delay.ms"),
            retention_ms=setting("log.retention.check.interval.ms"),
            compaction_ms=setting("log.cleaner.backoff.ms"),
            producer_expiry_ms=setting("producer.id.expiration.ms"),
            compaction_keys_max=setting("log.cleaner.keys.max"),
        )


class Maintenance:
    """Maintenance task for all logs on this broker: retention, compaction, checkpoints, fsync of closed segments,
    and expiration of producer state. Compaction and fsyncs run on disk threads."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        metadata: Metadata,
        flusher: Flusher,
        clock: Clock,
        disk_threads: DiskThreads,
        intervals: Callable[[], Intervals],
    ) -> None:
        self._metadata = metadata
        self._secret = secrets.token_bytes(16)
        self._flusher = flusher
        self._partitions = partitions
        self._clock = clock
        self._disk_threads = disk_threads
        self._intervals = intervals
        self._ahead_ms = clock.now_ms() - clock.steady_ms()
        self._retention_at_ms = 0
        self._compaction_at_ms = 0
        self._compacting: asyncio.Task[None] | None = None
        self._reserving: dict[Log, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Runs due maintenance (retention, compaction, checkpoints, fsync) every TICK_S seconds until cancelled."""
        intervals = self._intervals()
        self._retention_at_ms = self._clock.steady_ms() + min(intervals.first_retention_ms, intervals.retention_ms)
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick()

    async def tick(self) -> None:
        """Runs due maintenance of all partitions (retention, compaction, checkpoints, fsync) in time slices."""
        steady_ms = self._clock.steady_ms()
        now_ms, set_by_ms = self._detect_clock_change(steady_ms)
        if set_by_ms:
            await self._shift_clocks(set_by_ms)
        intervals = self._intervals()
        if self._partitions.is_incomplete:
            self._partitions.retry()
        do_retention = steady_ms >= self._retention_at_ms
        if do_retention:
            self._retention_at_ms = steady_ms + intervals.retention_ms
        async for partition in self._online():
            try:
                self._maintain(partition, now_ms, do_retention, intervals)
            except StorageError as error:
                logger.warning("maintenance_failed partition=%s reason=%r", partition.name, str(error))
        if steady_ms >= self._compaction_at_ms and self._compacting is None:
            self._compaction_at_ms = steady_ms + intervals.compaction_ms
            self._compacting = asyncio.get_running_loop().create_task(self._compact(intervals.compaction_keys_max))

    async def _shift_clocks(self, by_ms: int) -> None:
        """Adjusts the last-seen times of all producers after the wall clock was set, in time slices."""
        async for partition in self._online():
            for _ in partition.log.producers.shift_clock(by_ms, self._clock.now_ms):
                await asyncio.sleep(0)

    async def _online(self) -> AsyncIterator[Partition]:
        """Yields all partitions whose logs are online; lets other tasks run after each time slice."""
        for number, partition in enumerate(self._partitions.with_companions(), 1):
            if partition.is_online:
                yield partition
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _detect_clock_change(self, steady_ms: int) -> tuple[int, int]:
        """Returns the wall-clock time, and by how much the wall clock was set since the last tick (0: it was not),
        in ms. `steady_ms`: the current time by a clock that does not change when the wall clock is set."""
        now_ms = self._clock.now_ms()
        before_ms, self._ahead_ms = self._ahead_ms, now_ms - steady_ms
        by_ms = self._ahead_ms - before_ms
        if abs(by_ms) < CLOCK_JUMP_MS:
            return now_ms, 0
        logger.warning("clock_was_set by_ms=%d", by_ms)
        return now_ms, by_ms

    def _maintain(self, partition: Partition, now_ms: int, do_retention: bool, intervals: Intervals) -> None:
        log = partition.log
        if do_retention or log.settings.storage is Storage.MEMORY:
            visibility, limit = partition.visibility, partition.high_watermark
            if visibility is not None:
                limit = min(limit, visibility.keep_from)
            freed_bytes = retention.enforce(log, conservative_now_ms(self._clock), limit)
            if freed_bytes:
                logger.info("retention partition=%s freed_bytes=%d", partition.name, freed_bytes)
        if log.offset_limit - log.end_offset < RESERVED_OFFSETS // 2 and log not in self._reserving:
            self._reserving[log] = asyncio.get_running_loop().create_task(self._reserve(partition, log))
        if do_retention:
            log.producers.expire(now_ms - intervals.producer_expiry_ms)
        if log.checkpoint_is_stale:
            log.save_checkpoint()
        if log.has_unsynced_segments:
            self._flusher.flush_soon(partition)

    async def _reserve(self, partition: Partition, log: Log) -> None:
        (topic_id, number), beyond = partition.tp, log.offset_limit
        try:
            await self._metadata.change(lambda image: plan_reserve(image, topic_id, number, beyond))
        except PenstockError as error:  # retried at the next tick
            logger.warning("offsets_not_reserved partition=%s reason=%r", partition.name, str(error))
        finally:
            del self._reserving[log]

    async def _compact(self, keys_max: int) -> None:
        """Compacts due partitions one after another; a compaction pass holds at most `keys_max` keys in memory."""
        try:
            async for partition in self._online():
                try:
                    await self._compact_one(partition, keys_max)
                except TornLog as error:
                    logger.error("partition_offline partition=%s reason=%r", partition.name, str(error))
                    partition.go_offline(str(error))
                except PenstockError as error:
                    logger.warning("compaction_failed partition=%s reason=%r", partition.name, str(error))
        finally:
            self._compacting = None

    async def _compact_one(self, partition: Partition, keys_max: int) -> None:
        log = partition.log
        now_ms = conservative_now_ms(self._clock)
        job = compaction.plan(log, now_ms, partition.high_watermark, keys_max, self._secret)
        if job is None:
            return
        result = await self._disk_threads.call(job.run)
        if not partition.is_online or partition.log is not log:
            await self._disk_threads.call(lambda: job.discard(result))
            return
        installed: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        job.install(log, result, installed.set_result)
        (await installed).result()
        logger.info(
            "compacted partition=%s bytes_before=%d bytes_after=%d records_before=%d records_after=%d",
            partition.name,
            result.bytes_before,
            result.bytes_after,
            result.records_before,
            result.records_after,
        )

    async def close(self) -> None:
        """Waits for running maintenance jobs."""
        tasks = [*self._reserving.values(), *([self._compacting] if self._compacting else [])]
        await asyncio.gather(*tasks)
