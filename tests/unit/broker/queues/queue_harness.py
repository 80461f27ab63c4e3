"""The queues of one broker: real logs, a real store, a clock that is moved by the test."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

from penstock.broker.peers import Answer
from penstock.broker.queues.messages import Delivered, MessageAck, NewMessage, Sent
from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.service import QueueService
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.client.errors import ConnectionFailed
from penstock.cluster.queues import Queue, QueueSettings
from penstock.foundation.errors import PenstockError
from penstock.foundation.time_slices import TimeSlices
from penstock.queues.commands import AckType
from penstock.replication.partition import Partition
from penstock.wire.schema import Buffer
from tests.unit.replication.broker_state import DEFAULTS, NODE, World, world_at


def unreachable(node: int, request: Any, answer: Answer) -> None:
    asyncio.get_running_loop().call_soon(answer, ConnectionFailed(f"broker {node} is not there"))


async def unchanged(partition: Partition, records: Buffer) -> Buffer:
    """Accepts every batch, as on a topic that validates nothing."""
    return records


class QueueHarness:
    """Queues on one broker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = world.clock
        self._numbers = count()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._stopped: set[int] = set()
        self.service: QueueService = self.make_service()

    def make_service(self) -> QueueService:
        world = self.world
        service = QueueService(
            node_id=NODE,
            metadata=world.metadata,
            partitions=world.partitions,
            producer_ids=ProducerIds(world.metadata),
            defaults=lambda: DEFAULTS,
            clock=world.clock,
            timer=self._timer,
            threads=world.threads,
            slices=TimeSlices(monotonic),
            ask=unreachable,
            validate=unchanged,
        )
        world.metadata.listeners.append(service.apply)
        service.apply(world.metadata.image)
        return service

    def _timer(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        if not seconds:
            return asyncio.get_running_loop().call_soon(action).cancel
        number = next(self._numbers)
        due_ms = self.clock.steady_ms() + round(seconds * 1000)
        heapq.heappush(self._timers, (due_ms, number, action))
        return lambda: self._stopped.add(number)

    async def advance(self, ms: int) -> None:
        """Moves the clock, and runs the timers that are due."""
        self.clock.advance(ms)
        await self.run_timers()

    async def run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.clock.steady_ms():
            _, number, action = heapq.heappop(self._timers)
            if number not in self._stopped:
                action()
        await turn()

    # -- what clients do

    async def create(self, name: str = "jobs", topic: str | None = None, **settings: Any) -> Queue:
        queue = await self.service.create(name, QueueSettings(**settings), {}, "me", topic)
        await self.ready()
        return queue

    async def ready(self) -> None:
        while self.service.queue_partitions.runtimes.is_loading:
            await self.service.queue_partitions.runtimes.wait_loaded()
            await turn()

    async def send(self, queue: Queue, *values: bytes, **options: Any) -> list[Sent]:
        found = await self.service.send(queue, [NewMessage(value, **options) for value in values])
        return [sent for sent in found if isinstance(sent, Sent)]

    async def receive(
        self, queue: Queue, max_messages: int = 1, visibility_s: int = 30, attempt_id: str = ""
    ) -> list[Delivered]:
        return await self.service.receive(
            queue,
            max_messages=max_messages,
            visibility_ms=visibility_s * 1000,
            wait_ms=0,
            attempt_id=attempt_id,
        )

    def wait(self, queue: Queue, wait_ms: int = 20_000, max_messages: int = 1) -> "asyncio.Future[list[Delivered]]":
        """A long poll in a task of its own."""

        async def receive() -> list[Delivered]:
            return await self.service.receive(queue, max_messages=max_messages, visibility_ms=30_000, wait_ms=wait_ms)

        return asyncio.ensure_future(receive())

    async def acknowledge(
        self, queue: Queue, messages: Sequence[Delivered], ack_type: AckType = AckType.DONE, delay_ms: int = 0
    ) -> list[PenstockError | None]:
        items = [MessageAck(each.partition, each.offset, each.holder, ack_type, delay_ms) for each in messages]
        return await self.service.acknowledge(queue, items)

    async def counts(self, queue: Queue) -> tuple[int, int, int]:
        found = await self.service.counts(queue)
        return found.available, found.in_flight, found.delayed

    def partition(self, queue: Queue, number: int = 0) -> QueuePartition:
        found = self.service.queue_partitions.find(queue.topic_id, number)
        assert found is not None
        return found


def values(messages: Sequence[Delivered]) -> list[bytes]:
    return [message.value for message in messages]


async def turn() -> None:
    """Runs the callbacks that are ready."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def harness_at(folder: Path) -> AsyncIterator[QueueHarness]:
    async with world_at(folder) as world:
        harness = QueueHarness(world)
        await harness.ready()
        try:
            yield harness
        finally:
            await harness.service.close()
