"""Record accumulator of the producer: collects the records of a partition into batches (linger, batch size).

One batch of a partition is in flight at a time, which keeps the order when a batch is retried. New records go into
the next batch until the response arrives.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.records.build import Record

RECORD_OVERHEAD_BYTES: Final = 24
"""Upper estimate, in bytes, of the lengths, deltas and attributes of one record."""
UNKNOWN_OFFSET: Final = -1


class Published(NamedTuple):
    """The partition and offset of a published record. The offset is UNKNOWN_OFFSET with acks=0."""

    partition: int
    offset: int


def record_bytes(record: Record) -> int:
    """Returns an estimate of the bytes that a record takes in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 10
    return size


class ProducerBatch:
    """Records to be sent as one batch, each with the future that `send` returned for it."""

    __slots__ = ("futures", "records", "size_bytes")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.futures: list[asyncio.Future[Published]] = []
        self.size_bytes = 0

    def add(self, record: Record, future: asyncio.Future[Published], size_bytes: int) -> None:
        self.records.append(record)
        self.futures.append(future)
        self.size_bytes += size_bytes

    def split(self) -> "tuple[ProducerBatch, ProducerBatch]":
        """Returns two batches with half of the records each."""
        middle = len(self.records) // 2
        halves = ProducerBatch(), ProducerBatch()
        for number, (record, future) in enumerate(zip(self.records, self.futures, strict=True)):
            halves[number >= middle].add(record, future, record_bytes(record))
        return halves

    def succeed(self, partition: int, base_offset: int) -> None:
        for number, future in enumerate(self.futures):
            if not future.done():
                offset = base_offset + number if base_offset >= 0 else UNKNOWN_OFFSET
                future.set_result(Published(partition, offset))

    def fail(self, error: PenstockError) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error)


class PartitionAccumulator:
    """The queued batches of one partition, and the task that sends them one after the other."""

    def __init__(
        self,
        tp: TopicPartition,
        *,
        batch_bytes: int,
        linger_s: float,
        deliver: "Callable[[PartitionAccumulator, ProducerBatch], Awaitable[None]]",
        on_end: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.tp: Final = tp
        self.identity: tuple[int, int] | None = None
        self.next_sequence = 0
        """The base sequence number of the next batch under the current producer id and epoch."""
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._deliver = deliver
        self._batches: deque[ProducerBatch] = deque()
        self._ready = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"producer {tp}")
        self._task.add_done_callback(on_end)

    def add(self, record: Record, future: asyncio.Future[Published]) -> bool:
        """Appends a record. Returns True if the last batch was full, so that the record begins a new batch."""
        size_bytes = record_bytes(record)
        filled = False
        if self._batches and self._batches[-1].size_bytes + size_bytes > self._batch_bytes:
            filled = True
        if filled or not self._batches:
            self._batches.append(ProducerBatch())
        batch = self._batches[-1]
        batch.add(record, future, size_bytes)
        if filled or batch.size_bytes >= self._batch_bytes or not self._linger_s:
            self.send_now()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._linger_s, self.send_now)
        return filled

    def requeue(self, *drafts: ProducerBatch) -> None:
        """Puts batches back at the head of the queue."""
        self._batches.extendleft(reversed(drafts))
        self.send_now()

    def send_now(self) -> None:
        """Sends the queued records without waiting for the linger time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ready.set()

    async def _run(self) -> None:
        while True:
            await self._ready.wait()
            # Records added while a batch is in flight are sent right after it: they have waited long enough.
            while self._batches:
                await self._deliver(self, self._batches.popleft())
            self._ready.clear()

    async def close(self, error: PenstockError) -> None:
        """Stops the sending task; the futures of all queued records fail with `error`."""
        self.send_now()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        while self._batches:
            self._batches.popleft().fail(error)
