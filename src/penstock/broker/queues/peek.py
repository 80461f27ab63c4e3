"""Peeks at the messages of a queue without receiving them, for developers and the console.

Nothing is written and no delivery is counted. The result is what the queue held when it was read; at the same time
receivers may acquire or finish the messages shown.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from penstock.broker.queues.message_reader import FreshMessages, MessageLookup, Window
from penstock.broker.queues.messages import Delivered
from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.partitions import QueuePartitions
from penstock.broker.queues.pending_reply import PendingReply
from penstock.cluster.queues import Queue
from penstock.foundation.errors import PenstockError
from penstock.log.disk import ColdRead
from penstock.queues.commands import Acquired
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.records import DeliveryRange
from penstock.wire.messages.queue_peek import DELAYED, IN_FLIGHT, VISIBLE

SCAN_CHUNK: Final = 100
"""Number of messages, or of ranges of messages in one state, scanned until other tasks of the event loop may run."""
SCAN_MAX: Final = 10_000
"""Maximum number of messages scanned per partition, even if fewer than requested were found."""

T = TypeVar("T")


class PeekRequest(NamedTuple):
    """A request to show messages of a queue without receiving them."""

    group: str
    """The name of the queue, which is also the name of its share group."""
    max_messages: int
    max_bytes: int
    """Maximum total bytes of the messages, including their headers; the first message is always shown."""
    shows_in_flight: bool = False
    shows_delayed: bool = False
    delay_ms: int = 0
    """Delay, in milliseconds, of messages without a delay header."""
    is_fifo: bool = False

    @classmethod
    def of(
        cls, queue: Queue, *, max_messages: int, max_bytes: int, shows_in_flight: bool, shows_delayed: bool
    ) -> "PeekRequest":
        settings = queue.settings
        delay_ms = settings.delay_s * 1000
        return cls(queue.name, max_messages, max_bytes, shows_in_flight, shows_delayed, delay_ms, settings.is_fifo)

    def wants(self, state: int) -> bool:
        return state == VISIBLE or (self.shows_in_flight if state == IN_FLIGHT else self.shows_delayed)


class PeekedMessage(NamedTuple):
    state: int
    """VISIBLE, IN_FLIGHT or DELAYED."""
    message: Delivered
    """The message as a receiver would get it, but `holder` is empty, and `count` has only the deliveries so far."""


class PeekResult(NamedTuple):
    """Messages of a queue, or of some of its partitions."""

    messages: list[PeekedMessage]
    has_more: bool

    def joined(self, other: "PeekResult") -> "PeekResult":
        return PeekResult(self.messages + other.messages, self.has_more or other.has_more)

    def rest_of(self, wanted: PeekRequest) -> PeekRequest | None:
        """Returns the request for the messages still missing; None if this result reaches the limits of `wanted`."""
        size = sum(size_of(each.message) for each in self.messages)
        left = wanted._replace(
            max_messages=wanted.max_messages - len(self.messages), max_bytes=wanted.max_bytes - size
        )
        return left if left.max_messages > 0 and left.max_bytes > 0 else None


TakePeekResult = Callable[[PeekResult | PenstockError], None]
AskToPeek = Callable[[int, Queue, PeekRequest, TakePeekResult], None]
"""Type of functions that ask a broker, by its id, to peek at the partitions it leads."""


class QueuePeeks:
    """Peeks at queues, on all brokers that lead their partitions."""

    def __init__(
        self,
        queue_partitions: QueuePartitions,
        others: Callable[[Queue], list[int]],
        ask: AskToPeek,
        threads: Executor,
    ) -> None:
        """`others`: returns the ids of the other brokers that lead partitions of a queue."""
        self._queue_partitions = queue_partitions
        self._others = others
        self._ask = ask
        self._threads = threads

    async def peek(self, queue: Queue, wanted: PeekRequest) -> PeekResult:
        """Returns messages of all partitions. Raises QueueUnavailable if a leader cannot be reached."""
        found = await self.peek_here(queue, wanted)
        for node in self._others(queue):
            left = found.rest_of(wanted)
            if left is None:
                return found._replace(has_more=True)
            reply: PendingReply[PeekResult] = PendingReply()
            self._ask(node, queue, left, reply)
            found = found.joined(await reply)
        return found

    async def peek_here(self, queue: Queue, wanted: PeekRequest) -> PeekResult:
        """Returns messages of the partitions led by this broker."""
        found = PeekResult([], False)
        for partition in self._queue_partitions.of_topic(queue.topic_id):
            left = found.rest_of(wanted)
            if left is None:
                return found._replace(has_more=True)
            found = found.joined(await Peeker(partition, left, self._threads).peek())
        return found


def size_of(message: Delivered) -> int:
    return len(message.value) + sum(len(name) + len(value or b"") for name, value in message.headers)


class _Position(NamedTuple):
    """The offset and state of one message to show."""

    offset: int
    state: int
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is not used
    first_received_ms: int = 0


class Peeker:
    """Peeks at the messages of a queue on one partition led by this broker."""

    def __init__(self, partition: QueuePartition, wanted: PeekRequest, threads: Executor) -> None:
        self._partition = partition
        self._wanted = wanted
        self._threads = threads
        self._scanned = 0

    async def peek(self) -> PeekResult:
        wanted, limit = self._wanted, self._wanted.max_messages + 1
        positions = await self._find_known(limit)
        if len(positions) < limit:
            positions += await self._find_fresh(limit - len(positions))
        found: list[PeekedMessage] = []
        size = 0
        lookup = MessageLookup(self._partition.partition)
        for position in positions[: wanted.max_messages]:
            message = await self._read(lambda position=position: lookup.message(position.offset))  # type: ignore[misc]
            if message is None:  # removed by retention or compaction
                continue
            acquired = Acquired(position.offset, position.offset, position.count, position.first_received_ms, 0)
            shown = self._partition.delivered(message, "", acquired)
            size += size_of(shown)
            if found and size > wanted.max_bytes:
                return PeekResult(found, has_more=True)
            found.append(PeekedMessage(position.state, shown))
        return PeekResult(found, has_more=len(positions) >= limit or self._scanned >= SCAN_MAX)

    async def _read(self, read: Callable[[], T]) -> T:
        """Returns the result of `read`; each time it raises ColdRead, loads the data on a thread and retries."""
        while True:
            try:
                return read()
            except ColdRead as cold:
                await asyncio.get_running_loop().run_in_executor(self._threads, cold.warm)

    def _delivery(self) -> DeliveryState | None:
        return self._partition.machine.group(self._wanted.group)

    @property
    def _start(self) -> int:
        return self._partition.partition.log.start_offset

    # -- messages in the delivery state

    async def _find_known(self, limit: int) -> list[_Position]:
        """Returns messages below the share group's end offset: in flight, delayed, or available for redelivery."""
        found: list[_Position] = []
        offset = self._start
        while (delivery := self._delivery()) is not None:
            delivery.advance(self._partition.now_ms)
            ranges = list(islice(delivery.between(offset, delivery.end), SCAN_CHUNK))
            for delivery_range in ranges:
                found += islice(self._find_in_range(delivery, delivery_range, offset), limit - len(found))
            self._scanned += len(ranges)
            if len(ranges) < SCAN_CHUNK or len(found) >= limit or self._scanned >= SCAN_MAX:
                break
            offset = ranges[-1].last + 1
            await asyncio.sleep(0)
        return found

    def _find_in_range(
        self, delivery: DeliveryState, delivery_range: DeliveryRange, from_offset: int
    ) -> Iterator[_Position]:
        state = _state(delivery, delivery_range)
        if delivery_range.move is None and self._wanted.wants(state):
            for offset in range(max(delivery_range.first, from_offset), delivery_range.last + 1):
                yield _Position(offset, state, delivery_range.count, delivery_range.first_received_ms)

    # -- fresh messages

    async def _find_fresh(self, limit: int) -> list[_Position]:
        wanted, found = self._wanted, list[_Position]()
        delivery = self._delivery()
        window = Window(self._partition.partition)
        at = self._start if delivery is None else max(delivery.end, self._start)
        while self._scanned < SCAN_MAX and len(found) < limit:

            def read(at: int = at) -> FreshMessages:
                window.seek(at)
                window.fill(SCAN_CHUNK)
                return window.fresh(SCAN_CHUNK, wanted.delay_ms, with_groups=wanted.is_fifo)

            ahead = await self._read(read)
            for fresh in ahead.fresh:
                is_blocked = wanted.is_fifo and _is_blocked(self._delivery(), fresh.group)
                is_due = fresh.due_ms <= self._partition.now_ms
                state = DELAYED if not is_due else IN_FLIGHT if is_blocked else VISIBLE
                if wanted.wants(state):
                    found += [_Position(offset, state) for offset in range(fresh.offset, fresh.offset + fresh.run)]
            self._scanned += max(1, len(ahead.fresh))
            if ahead.end <= at:
                break
            at = ahead.end
            await asyncio.sleep(0)
        return found[:limit]


def _state(delivery: DeliveryState, delivery_range: DeliveryRange) -> int:
    if delivery.is_timed(delivery_range.first):
        return IN_FLIGHT if delivery_range.holder else DELAYED
    return IN_FLIGHT if delivery_range.group is not None and _is_blocked(delivery, delivery_range.group) else VISIBLE


def _is_blocked(delivery: DeliveryState | None, group: str) -> bool:
    """Whether messages of a FIFO message group must wait, because other messages of the group are in flight."""
    chain = None if delivery is None else delivery.chains.get(group)
    return chain is not None and chain.held > 0
