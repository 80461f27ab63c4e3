"""How many messages a group has on a partition: what it has looked at, the machine knows; the rest is in the log.

In a log that has only ever been appended to, offsets tell. Where there are markers, aborted records or gaps, batches
are looked at once, by their headers, and sums are kept now and then.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final

from penstock.broker.queues.message_reader import read_on, readable_to
from penstock.broker.queues.partition import QueuePartition
from penstock.foundation.errors import OffsetOutOfRange, PenstockError
from penstock.log.disk import ColdRead
from penstock.log.times import find_time
from penstock.queues.commands import Counts
from penstock.records.batch import batches
from penstock.records.layout import HEADER_BYTES
from penstock.replication.partition import Partition

SCAN_BYTES: Final = 24 << 10
SUM_EVERY: Final = 1000
"""Batches between two sums that are kept."""
LOOK_MAX: Final = 5000
"""Messages that were never looked at are asked one by one whether they are due, so many at a time."""
LATE_MAX: Final = 100_000
"""Of those that are not, so many are remembered."""


class Tally:
    """Messages of one partition below each of some offsets. Grows with the log, and costs by what is new."""

    def __init__(self, partition: Partition, threads: Executor) -> None:
        self._partition = partition
        self._threads = threads
        self._offsets: list[int] = []
        self._sums: list[int] = []
        self._to = 0
        self._sum = 0

    @property
    def is_plain(self) -> bool:
        """Whether every offset is a message."""
        log = self._partition.log
        return not log.has_transactions and not log.checkpoint.has_holes

    async def between(self, first: int, end: int) -> int:
        """Messages from an offset on, up to another that is at most the last stable one."""
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
        """What lies before the log's start counts no more."""
        at = bisect_right(self._offsets, start)
        self._offsets, self._sums = self._offsets[max(0, at - 1) :], self._sums[max(0, at - 1) :]
        if not self._offsets or self._offsets[0] < start:
            self._offsets, self._sums = [start], [0]
            self._to, self._sum = start, 0

    def _scan(self, end: int) -> bool:
        """Look at a piece; whether there was one. Raises ColdRead."""
        before = self._to
        self._to, found = _messages(self._partition, before, end)
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
                following, found = _messages(self._partition, known, offset)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
                continue
            if following == known:
                break
            known, total = following, total + found
            await asyncio.sleep(0)
        return total


def _messages(partition: Partition, offset: int, end: int) -> tuple[int, int]:
    """The offset behind the batches that were looked at, at most `end`, and how many messages they have. A batch that
    holds `end` counts up to there."""
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
            if any(who == header.producer_id and low <= header.base_offset <= high for who, low, high in aborted):
                continue
        whole = header.base_offset >= before and header.next_offset <= end
        found += header.count if whole else max(0, offset - max(header.base_offset, before))
    return (end if offset == before else offset), found


class _Late:
    """Messages that a group has not looked at and that say when they are due, as far as the log was looked at."""

    def __init__(self) -> None:
        self.to = 0
        self._dues: deque[tuple[int, int]] = deque()

    def begin(self, end: int) -> None:
        """What lies before the group's end, the machine knows."""
        self.to = max(self.to, end)
        while self._dues and self._dues[0][0] < end:
            self._dues.popleft()

    def note(self, offset: int, due_ms: int) -> None:
        self._dues.append((offset, due_ms))

    @property
    def is_full(self) -> bool:
        return len(self._dues) >= LATE_MAX

    def count(self, now_ms: int) -> int:
        return sum(due_ms > now_ms for _, due_ms in self._dues)


class Counting:
    """Counts the messages of groups on partitions that are led here."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._tallies: dict[QueuePartition, tuple[Tally, dict[str, _Late]]] = {}

    async def counts(self, partition: QueuePartition, group: str, delay_ms: int) -> Counts:
        """What is available, in flight, delayed, and on its way elsewhere. Exact when nothing happens meanwhile."""
        if partition not in self._tallies:
            self._tallies = {known: kept for known, kept in self._tallies.items() if not known.is_closed}
            self._tallies[partition] = Tally(partition.partition, self._threads), {}
        tally, lates = self._tallies[partition]
        log, stable, now_ms = partition.partition.log, partition.partition.last_stable_offset, partition.now_ms
        delivery = partition.machine.group(group)
        end = log.start_offset if delivery is None else max(delivery.end, log.start_offset)
        known = Counts(0, 0, 0, 0) if delivery is None else delivery.counts(now_ms)
        try:
            waiting = await tally.between(end, stable)
            late = lates.setdefault(group, _Late())
            late.begin(end)
            delayed = await self._not_due(partition, late, stable, delay_ms) if waiting else 0
            readable = max(end, readable_to(partition.partition))
            delayed += await tally.between(readable, stable) if readable < stable else 0
        except OffsetOutOfRange:  # it was trimmed meanwhile
            return known
        delayed = min(delayed, waiting)
        return Counts(known.available + waiting - delayed, known.in_flight, known.delayed + delayed, known.moving)

    def estimate(self, partition: QueuePartition, group: str) -> Counts:
        """As `counts`, from what is known without a look at messages: markers count, and delays are not seen."""
        delivery, log = partition.machine.group(group), partition.partition.log
        end = log.start_offset if delivery is None else max(delivery.end, log.start_offset)
        known = Counts(0, 0, 0, 0) if delivery is None else delivery.counts(partition.now_ms)
        return known._replace(available=known.available + max(0, partition.partition.last_stable_offset - end))

    async def _not_due(self, queue: QueuePartition, late: _Late, end: int, delay_ms: int) -> int:
        """Messages that nobody has looked at, and that are not due: those that say so themselves, if they are among
        the first, and others by their times."""
        partition, looked = queue.partition, 0
        while late.to < end and looked < LOOK_MAX and not late.is_full:
            try:
                found, following = read_on(partition, late.to, SCAN_BYTES)
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
                continue
            for batch in found:
                try:
                    batch.open()
                except ColdRead as cold:
                    await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)
                looked += batch.count
                for offset, due_ms in batch.dues(late.to, delay_ms):
                    late.note(offset, due_ms)
            if following == late.to:
                break
            late.to = following
            await asyncio.sleep(0)
        now_ms, rest = queue.now_ms, 0
        if late.to < end and delay_ms:
            first = find_time(partition.log, now_ms - delay_ms, end)
            rest = end - max(late.to, first[1]) if first is not None else 0
        return late.count(now_ms) + rest


def oldest_ms(partition: QueuePartition, group: str) -> int | None:
    """When the first message was sent that is not finished; None if there is none, or nobody can say right now."""
    log, delivery = partition.partition.log, partition.machine.group(group)
    start = log.start_offset if delivery is None else max(delivery.start, log.start_offset)
    try:
        data = partition.partition.read(start, HEADER_BYTES, stable=True)
    except PenstockError:  # or it is not in the page cache
        return None
    for _, header in batches(data):
        return header.max_timestamp if header.is_log_append_time else header.base_timestamp
    return None


def sum_counts(counts: Iterable[Counts]) -> Counts:
    """Of a queue, from those of its partitions."""
    total = Counts(0, 0, 0, 0)
    for each in counts:
        total = Counts(*(one + other for one, other in zip(total, each, strict=True)))
    return total
