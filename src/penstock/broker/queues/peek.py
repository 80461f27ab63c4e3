"""Messages of a queue shown without taking them: for people who look into a queue while they develop.

Nothing is written and no delivery is counted. What is shown is what there was in the moment in which it was read;
others may take it, or finish it, at the same time.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from penstock.broker.queues.message_reader import Ahead, Back, Window
from penstock.broker.queues.messages import Delivered
from penstock.broker.queues.outcome import Outcome
from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.partitions import QueuePartitions
from penstock.cluster.queues import Queue
from penstock.foundation.errors import PenstockError
from penstock.log.disk import ColdRead
from penstock.queues.commands import Acquired
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.records import DeliveryRange
from penstock.wire.messages.queue_peek import DELAYED, IN_FLIGHT, VISIBLE

LOOK: Final = 100
"""Messages, or delivery ranges, that are looked at without a break."""
LOOKED_AT_MAX: Final = 10_000
"""Of a partition, however few of them are to be shown."""

T = TypeVar("T")


class Peek(NamedTuple):
    """What a client wants to see of a queue."""

    group: str
    """The queue's name."""
    max_messages: int
    max_bytes: int
    """Of messages, their headers included; the first one is shown however large."""
    shows_in_flight: bool = False
    shows_delayed: bool = False
    delay_ms: int = 0
    """Of messages that do not say themselves how long they are delayed."""
    is_fifo: bool = False

    @classmethod
    def of(
        cls, queue: Queue, *, max_messages: int, max_bytes: int, shows_in_flight: bool, shows_delayed: bool
    ) -> "Peek":
        settings = queue.settings
        delay_ms = settings.delay_s * 1000
        return cls(queue.name, max_messages, max_bytes, shows_in_flight, shows_delayed, delay_ms, settings.is_fifo)

    def wants(self, state: int) -> bool:
        return state == VISIBLE or (self.shows_in_flight if state == IN_FLIGHT else self.shows_delayed)


class Peeked(NamedTuple):
    state: int
    """VISIBLE, IN_FLIGHT or DELAYED."""
    message: Delivered
    """As it would be delivered; nobody holds it, and its count is that of the deliveries so far."""


class Glimpse(NamedTuple):
    """Messages of a queue, or of some of its partitions."""

    messages: list[Peeked]
    has_more: bool

    def joined(self, other: "Glimpse") -> "Glimpse":
        return Glimpse(self.messages + other.messages, self.has_more or other.has_more)

    def left_of(self, wanted: Peek) -> Peek | None:
        """What is wanted beyond these; None if there is no room for more."""
        size = sum(size_of(each.message) for each in self.messages)
        left = wanted._replace(
            max_messages=wanted.max_messages - len(self.messages), max_bytes=wanted.max_bytes - size
        )
        return left if left.max_messages > 0 and left.max_bytes > 0 else None


TakeGlimpse = Callable[[Glimpse | PenstockError], None]
AskToPeek = Callable[[int, Queue, Peek, TakeGlimpse], None]
"""Asks a broker, by its id, for what it leads."""


class QueuePeeks:
    """Looks into queues, on all brokers that lead partitions of them."""

    def __init__(
        self,
        queue_partitions: QueuePartitions,
        others: Callable[[Queue], list[int]],
        ask: AskToPeek,
        threads: Executor,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`others`: the other brokers that lead partitions of a queue."""
        self._queue_partitions = queue_partitions
        self._others = others
        self._ask = ask
        self._threads = threads
        self._spawn = spawn

    async def peek(self, queue: Queue, wanted: Peek) -> Glimpse:
        """Messages of all partitions. Raises QueueUnavailable if a leader cannot be asked."""
        found = await self._peek_here(queue, wanted)
        for node in self._others(queue):
            left = found.left_of(wanted)
            if left is None:
                return found._replace(has_more=True)
            outcome: Outcome[Glimpse] = Outcome()
            self._ask(node, queue, left, outcome)
            asked = outcome.result()
            found = found.joined(asked if isinstance(asked, Glimpse) else await asked)
        return found

    def peek_here(self, queue: Queue, wanted: Peek, then: TakeGlimpse) -> None:
        """Messages of the partitions that are led here."""

        async def work() -> None:
            try:
                then(await self._peek_here(queue, wanted))
            except PenstockError as error:
                then(error)

        self._spawn(work())

    async def _peek_here(self, queue: Queue, wanted: Peek) -> Glimpse:
        found = Glimpse([], False)
        for partition in self._queue_partitions.of_topic(queue.topic_id):
            left = found.left_of(wanted)
            if left is None:
                return found._replace(has_more=True)
            found = found.joined(await Peeker(partition, left, self._threads).peek())
        return found


def size_of(message: Delivered) -> int:
    return len(message.value) + sum(len(name) + len(value or b"") for name, value in message.headers)


class _Found(NamedTuple):
    """One message that is to be shown."""

    offset: int
    state: int
    count: int = 0  # type: ignore[assignment]  # hides tuple.count, which is not used
    first_received_ms: int = 0


class Peeker:
    """Looks at the messages of a queue on one partition that is led here."""

    def __init__(self, partition: QueuePartition, wanted: Peek, threads: Executor) -> None:
        self._partition = partition
        self._wanted = wanted
        self._threads = threads
        self._looked_at = 0

    async def peek(self) -> Glimpse:
        wanted, limit = self._wanted, self._wanted.max_messages + 1
        places = await self._delivered_before(limit)
        if len(places) < limit:
            places += await self._fresh(limit - len(places))
        found: list[Peeked] = []
        size = 0
        back = Back(self._partition.partition)
        for place in places[: wanted.max_messages]:
            message = await self._read(lambda place=place: back.message(place.offset))  # type: ignore[misc]
            if message is None:  # retention or compaction took it
                continue
            acquired = Acquired(place.offset, place.offset, place.count, place.first_received_ms, 0)
            shown = self._partition.delivered(message, "", acquired)
            size += size_of(shown)
            if found and size > wanted.max_bytes:
                return Glimpse(found, has_more=True)
            found.append(Peeked(place.state, shown))
        return Glimpse(found, has_more=len(places) >= limit or self._looked_at >= LOOKED_AT_MAX)

    async def _read(self, read: Callable[[], T]) -> T:
        """What is read, though the disk has to be waited for."""
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

    # -- what receivers have looked at before

    async def _delivered_before(self, limit: int) -> list[_Found]:
        """Messages below the end of the queue's group, which are in flight, delayed, or available again."""
        found: list[_Found] = []
        offset = self._start
        while (delivery := self._delivery()) is not None:
            delivery.advance(self._partition.now_ms)
            ranges = list(islice(delivery.between(offset, delivery.end), LOOK))
            for delivery_range in ranges:
                found += islice(self._of(delivery, delivery_range, offset), limit - len(found))
            self._looked_at += len(ranges)
            if len(ranges) < LOOK or len(found) >= limit or self._looked_at >= LOOKED_AT_MAX:
                break
            offset = ranges[-1].last + 1
            await asyncio.sleep(0)
        return found

    def _of(self, delivery: DeliveryState, delivery_range: DeliveryRange, from_offset: int) -> Iterator[_Found]:
        state = _state(delivery, delivery_range)
        if delivery_range.move is None and self._wanted.wants(state):
            for offset in range(max(delivery_range.first, from_offset), delivery_range.last + 1):
                yield _Found(offset, state, delivery_range.count, delivery_range.first_received_ms)

    # -- what nobody has looked at yet

    async def _fresh(self, limit: int) -> list[_Found]:
        wanted, found = self._wanted, list[_Found]()
        delivery = self._delivery()
        window = Window(self._partition.partition)
        at = self._start if delivery is None else max(delivery.end, self._start)
        while self._looked_at < LOOKED_AT_MAX and len(found) < limit:

            def look(at: int = at) -> Ahead:
                window.seek(at)
                window.fill(LOOK)
                return window.fresh(LOOK, wanted.delay_ms, with_groups=wanted.is_fifo)

            ahead = await self._read(look)
            for fresh in ahead.fresh:
                is_closed = wanted.is_fifo and _is_closed(self._delivery(), fresh.group)
                is_due = fresh.due_ms <= self._partition.now_ms
                state = DELAYED if not is_due else IN_FLIGHT if is_closed else VISIBLE
                if wanted.wants(state):
                    found += [_Found(offset, state) for offset in range(fresh.offset, fresh.offset + fresh.run)]
            self._looked_at += max(1, len(ahead.fresh))
            if ahead.end <= at:
                break
            at = ahead.end
            await asyncio.sleep(0)
        return found[:limit]


def _state(delivery: DeliveryState, delivery_range: DeliveryRange) -> int:
    if delivery.is_timed(delivery_range.first):
        return IN_FLIGHT if delivery_range.holder else DELAYED
    return IN_FLIGHT if delivery_range.group is not None and _is_closed(delivery, delivery_range.group) else VISIBLE


def _is_closed(delivery: DeliveryState | None, group: str) -> bool:
    """Whether a message group waits for those of its messages that are in flight."""
    chain = None if delivery is None else delivery.chains.get(group)
    return chain is not None and chain.held > 0
