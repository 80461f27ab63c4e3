"""Counts available, in-flight and delayed messages of a queue (ApproximateNumberOfMessages).

The state machine counts messages below the share group's end offset, which were delivered before; never-delivered
messages are counted in the log. If the log has no markers, aborted records or gaps, offsets are enough. Otherwise
batch headers are read once, and counts are cached.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final

from penstock.broker.queues.message_reader import read_batches, readable_end
from penstock.broker.queues.partition import QueuePartition
from penstock.foundation.errors import OffsetOutOfRange, PenstockError
from penstock.log.disk import ColdRead
from penstock.log.log import Log
from penstock.log.timestamp_lookup import TimestampAndOffset, find_time
from penstock.queues.commands import Counts
from penstock.records.batch import batches
from penstock.records.layout import HEADER_BYTES
from penstock.replication.partition import Partition

SCAN_BYTES: Final = 24 << 10
SUM_EVERY: Final = 1000
"""Minimum distance, in offsets, between two offsets for which the number of earlier messages is cached."""
READ_MAX: Final = 5000
"""Maximum number of never-delivered messages that one call reads to find their due times."""
DELAYED_MAX: Final = 100_000
"""Maximum number of delayed messages whose due times are remembered per share group."""


class MessageCounter:
    """Counts messages in a partition's log. Caches how many are below some offsets, so that only new data is read."""

    def __init__(self, partition: Partition, threads: Executor) -> None:
        self._partition = partition
        self._threads = threads
        self._offsets: list[int] = []
        self._sums: list[int] = []
        self._to = 0
        self._sum = 0

    @property
    def is_plain(self) -> bool:
        """Whether every offset of the log is a message: no control records and no gaps."""
        log = self._partition.log
        return not log.has_transactions and not log.checkpoint.has_holes

    async def between(self, first: int, end: int) -> int:
        """Returns the number of messages in the offsets [first, end). `end` is at most the last stable offset."""
        start = self._partition.log.start_offset
        first = max(first, start)
        if first >= end:
            return 0
        if self.is_plain:
            return end - first
        if not self._offsets or start > self._offsets[0]:
            self._begin(start)
        while self._to < end:
            try:
                if not self._scan(end):
                    break
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
            await asyncio.sleep(0)
        return await self._sum_below(end) - await self._sum_below(first)

    def _begin(self, start: int) -> None:
        """Restarts the cache at `start`, the log start offset. Keeps counts only if `start` is a cached offset."""
        at = bisect_right(self._offsets, start)
        self._offsets, self._sums = self._offsets[max(0, at - 1) :], self._sums[max(0, at - 1) :]
        if not self._offsets or self._offsets[0] < start:
            self._offsets, self._sums = [start], [0]
            self._to, self._sum = start, 0

    def _scan(self, end: int) -> bool:
        """Counts messages in the next SCAN_BYTES of the log; returns whether there was any data. Raises ColdRead if
        it is not in the page cache."""
        before = self._to
        self._to, found = _count_messages(self._partition, before, end)
        self._sum += found
        if self._to - self._offsets[-1] >= SUM_EVERY:
            self._offsets.append(self._to)
            self._sums.append(self._sum)
        return self._to > before

    async def _sum_below(self, offset: int) -> int:
        at = bisect_right(self._offsets, offset) - 1
        known, total = self._offsets[at], self._sums[at]
        while known < offset:
            try:
                following, found = _count_messages(self._partition, known, offset)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
                continue
            if following == known:
                break
            known, total = following, total + found
            await asyncio.sleep(0)
        return total


def _count_messages(partition: Partition, offset: int, end: int) -> tuple[int, int]:
    """Reads batches from `offset` on; returns the offset after them (at most `end`) and the number of messages."""
    log = partition.log
    data = log.read(offset, SCAN_BYTES, partition.last_stable_offset)
    found, before = 0, offset
    aborted: list[tuple[int, int, int]] | None = None
    for _, header in batches(data):
        if header.base_offset >= end:
            offset = end
            break
        offset = min(header.next_offset, end)
        if header.is_control or header.next_offset <= before:
            continue
        if header.is_transactional:
            if aborted is None:
                aborted = [entry[:3] for entry in log.aborted_between(before, end)]
            if any(pid == header.producer_id and low <= header.base_offset <= high for pid, low, high in aborted):
                continue
        whole = header.base_offset >= before and header.next_offset <= end
        found += header.count if whole else max(0, offset - max(header.base_offset, before))
    return (end if offset == before else offset), found


class _DelayedMessages:
    """Due times of the delayed messages that a share group has never received, as far as the log was read."""

    def __init__(self) -> None:
        self.to = 0
        self._dues: deque[tuple[int, int]] = deque()

    def begin(self, end: int) -> None:
        """Prepares a new count of messages from `end`, the share group's end offset, on; forgets earlier messages."""
        self.to = max(self.to, end)
        while self._dues and self._dues[0][0] < end:
            self._dues.popleft()

    def note(self, offset: int, due_ms: int) -> None:
        self._dues.append((offset, due_ms))

    @property
    def is_full(self) -> bool:
        return len(self._dues) >= DELAYED_MAX

    def count(self, now_ms: int) -> int:
        return sum(due_ms > now_ms for _, due_ms in self._dues)


class QueueCounter:
    """Counts the messages of share groups on partitions led by this broker."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._counters: dict[QueuePartition, tuple[MessageCounter, dict[str, _DelayedMessages]]] = {}

    async def counts(self, partition: QueuePartition, group: str, delay_ms: int) -> Counts:
        """Returns approximate message counts by state. `delay_ms`: delay of messages without a delay header."""
        if partition not in self._counters:
            self._counters = {known: cached for known, cached in self._counters.items() if not known.is_closed}
            self._counters[partition] = MessageCounter(partition.partition, self._threads), {}
        counter, fresh_delayed_by_group = self._counters[partition]
        log, stable, now_ms = partition.partition.log, partition.partition.last_stable_offset, partition.now_ms
        delivery = partition.machine.group(group)
        end = log.start_offset if delivery is None else max(delivery.end, log.start_offset)
        known = Counts(0, 0, 0, 0) if delivery is None else delivery.counts(now_ms)
        try:
            waiting = await counter.between(end, stable)
            fresh_delayed = fresh_delayed_by_group.setdefault(group, _DelayedMessages())
            fresh_delayed.begin(end)
            delayed = await self._count_delayed(partition, fresh_delayed, stable, delay_ms) if waiting else 0
            readable = max(end, readable_end(partition.partition))
            delayed += await counter.between(readable, stable) if readable < stable else 0
        except OffsetOutOfRange:  # the log was trimmed meanwhile
            return known
        delayed = min(delayed, waiting)
        return Counts(known.available + waiting - delayed, known.in_flight, known.delayed + delayed, known.moving)

    def estimate(self, partition: QueuePartition, group: str) -> Counts:
        """Returns approximate counts without reading the log: counts transaction markers, too, and ignores delays."""
        delivery, log = partition.machine.group(group), partition.partition.log
        end = log.start_offset if delivery is None else max(delivery.end, log.start_offset)
        known = Counts(0, 0, 0, 0) if delivery is None else delivery.counts(partition.now_ms)
        return known._replace(available=known.available + max(0, partition.partition.last_stable_offset - end))

    async def _count_delayed(
        self, queue: QueuePartition, fresh_delayed: _DelayedMessages, end: int, delay_ms: int
    ) -> int:
        """Counts delayed never-delivered messages; reads up to READ_MAX of them, estimates the rest by timestamp."""
        partition, read_count = queue.partition, 0
        while fresh_delayed.to < end and read_count < READ_MAX and not fresh_delayed.is_full:
            try:
                found, following = read_batches(partition, fresh_delayed.to, SCAN_BYTES)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
                continue
            for batch in found:
                try:
                    batch.decode()
                except ColdRead as cold:
                    await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
                read_count += batch.count
                for offset, due_ms in batch.due_times(fresh_delayed.to, delay_ms):
                    fresh_delayed.note(offset, due_ms)
            if following == fresh_delayed.to:
                break
            fresh_delayed.to = following
            await asyncio.sleep(0)
        now_ms, rest = queue.now_ms, 0
        if fresh_delayed.to < end and delay_ms:
            first = await self._find_time(partition.log, now_ms - delay_ms, end)
            rest = end - max(fresh_delayed.to, first[1]) if first is not None else 0
        return fresh_delayed.count(now_ms) + rest

    async def _find_time(self, log: Log, timestamp_ms: int, limit: int) -> TimestampAndOffset | None:
        """Returns the result of `find_time`, reading data that is not in the page cache on a thread."""
        while True:
            try:
                return find_time(log, timestamp_ms, limit)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)


def oldest_ms(partition: QueuePartition, group: str) -> int | None:
    """Returns the timestamp of the oldest unfinished message; None if there is none or reading it needs the disk."""
    log, delivery = partition.partition.log, partition.machine.group(group)
    start = log.start_offset if delivery is None else max(delivery.start, log.start_offset)
    try:
        data = partition.partition.read(start, HEADER_BYTES, stable=True)
    except PenstockError:  # including ColdRead
        return None
    for _, header in batches(data):
        return header.max_timestamp if header.is_log_append_time else header.base_timestamp
    return None


def sum_counts(counts: Iterable[Counts]) -> Counts:
    """Adds up the counts of a queue's partitions."""
    total = Counts(0, 0, 0, 0)
    for each in counts:
        total = Counts(*(one + other for one, other in zip(total, each, strict=True)))
    return total
