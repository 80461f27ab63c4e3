"""One partition's way to the broker: records wait in drafts, and one batch at a time is under way.

That keeps a partition in order whatever has to be sent again, and fills batches while the last one travels.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.records.build import Record

RECORD_OVERHEAD_BYTES: Final = 24
"""Lengths, deltas and attributes of a record: about this much, at most."""
UNKNOWN_OFFSET: Final = -1


class Published(NamedTuple):
    """Where a record went. The offset is UNKNOWN_OFFSET with acks=0."""

    partition: int
    offset: int


def record_bytes(record: Record) -> int:
    """About what a record takes in a batch."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 10
    return size


class Draft:
    """A batch to be: records, and who waits for each."""

    __slots__ = ("answers", "records", "size_bytes")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.answers: list[asyncio.Future[Published]] = []
        self.size_bytes = 0

    def add(self, record: Record, answer: asyncio.Future[Published], size_bytes: int) -> None:
        self.records.append(record)
        self.answers.append(answer)
        self.size_bytes += size_bytes

    def split(self) -> "tuple[Draft, Draft]":
        """Two halves."""
        middle = len(self.records) // 2
        halves = Draft(), Draft()
        for number, (record, answer) in enumerate(zip(self.records, self.answers, strict=True)):
            halves[number >= middle].add(record, answer, record_bytes(record))
        return halves

    def succeed(self, partition: int, base_offset: int) -> None:
        for number, answer in enumerate(self.answers):
            if not answer.done():
                offset = base_offset + number if base_offset >= 0 else UNKNOWN_OFFSET
                answer.set_result(Published(partition, offset))

    def fail(self, error: PenstockError) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(error)


class Lane:
    """The drafts of one partition, and the task that delivers them."""

    def __init__(
        self,
        name: TopicPartition,
        *,
        batch_bytes: int,
        linger_s: float,
        deliver: "Callable[[Lane, Draft], Awaitable[None]]",
        on_end: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.name: Final = name
        self.identity: tuple[int, int] | None = None
        self.next_sequence = 0
        """The sequence that the next batch of this identity begins with."""
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._deliver = deliver
        self._drafts: deque[Draft] = deque()
        self._ripe = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"producer {name}")
        self._task.add_done_callback(on_end)

    def add(self, record: Record, answer: asyncio.Future[Published]) -> bool:
        """Put a record in line; whether that filled a batch."""
        size_bytes = record_bytes(record)
        filled = False
        if self._drafts and self._drafts[-1].size_bytes + size_bytes > self._batch_bytes:
            filled = True
        if filled or not self._drafts:
            self._drafts.append(Draft())
        draft = self._drafts[-1]
        draft.add(record, answer, size_bytes)
        if filled or draft.size_bytes >= self._batch_bytes or not self._linger_s:
            self.hurry()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._linger_s, self.hurry)
        return filled

    def put_back(self, *drafts: Draft) -> None:
        """First in line again."""
        self._drafts.extendleft(reversed(drafts))
        self.hurry()

    def hurry(self) -> None:
        """Send what there is, without waiting for more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ripe.set()

    async def _run(self) -> None:
        while True:
            await self._ripe.wait()
            # What comes while a batch travels goes right after it: it has waited long enough.
            while self._drafts:
                await self._deliver(self, self._drafts.popleft())
            self._ripe.clear()

    async def close(self, error: PenstockError) -> None:
        """Stop; whoever still waits is told why."""
        self.hurry()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        while self._drafts:
            self._drafts.popleft().fail(error)
