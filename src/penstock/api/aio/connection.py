"""The way in for asyncio: connect_async(). Everything is as in connection.py, with `await` in front.

async with penstock.connect_async("localhost:9092") as mq:
    await mq.publish("orders", {"id": 1}, key="42", tag="eu")
    async for message in mq.subscribe("orders", group="billing"):
        print(message.json())
"""

import asyncio
import inspect
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from penstock.api.aio.bridge import Answers, completed
from penstock.api.aio.queue import AsyncQueue
from penstock.api.aio.subscription import TURN, AsyncExactlyOnce, AsyncLoop, AsyncSubscription
from penstock.api.aio.transaction import AsyncTransaction
from penstock.api.aio.work import AsyncWork
from penstock.api.core.cluster_lookup import From
from penstock.api.core.durations import Duration
from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.message import Headers, Message, Outgoing, Published
from penstock.api.core.outlet import Ticket
from penstock.api.core.plans import ExactlyOncePlan, SubscribePlan
from penstock.api.core.queue_admin import create_queue, list_queues, new_queue, open_sqs
from penstock.api.core.queue_calls import QueueCalls
from penstock.api.core.queue_worker import Working
from penstock.api.core.reader import Reader
from penstock.api.core.resources import Resources
from penstock.api.core.settings import (
    REFRESH_S,
    TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    Delivery,
    DeliveryName,
    Settings,
    check_positive,
)
from penstock.api.core.transformation import Work
from penstock.api.core.views import create_view, drop_view
from penstock.api.errors import ApiError, Closed, aside
from penstock.api.sync.connection import IN_FLIGHT_MAX, seek, settings_of, which
from penstock.api.sync.transaction import transaction_of
from penstock.client.sqs import SqsClient

T = TypeVar("T")

THREADS_MAX: Final = 32
"""For what takes its time: transactions that begin and end, looking things up."""


def connect_async(
    servers: str | None = None,
    *,
    delivery: DeliveryName | None = None,
    timeout_s: float = TIMEOUT_S,
    client_id: str = "penstock",
    refresh_s: float = REFRESH_S,
    options: Mapping[str, Any] | None = None,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
) -> "AsyncConnection":
    """Connect to a cluster, for asyncio. `async with` raises NotConnected if no broker answers within `timeout_s`.

    async with penstock.connect_async("localhost:9092") as mq:
        await mq.publish("orders", {"id": 1})

    The arguments are those of penstock.connect().
    """
    return AsyncConnection(
        settings_of(servers, delivery, timeout_s, client_id, refresh_s, options, endpoint, access_key, secret_key)
    )


class AsyncConnection(Reader[AsyncSubscription, AsyncExactlyOnce, Coroutine[Any, Any, int]]):
    """A cluster to publish to and to read from, for the tasks of one event loop. Close it, or use `async with`.

    async with penstock.connect_async("localhost:9092") as mq:
        await mq.publish("orders", {"id": 1})
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._resources = Resources(settings)
        self._pool = ThreadPoolExecutor(max_workers=THREADS_MAX, thread_name_prefix="penstock")
        self._answers: Answers | None = None
        self._loops: weakref.WeakSet[AsyncLoop | AsyncWork] = weakref.WeakSet()
        self._sqs: SqsClient | None = None
        self._workings: list[Working] = []
        """What loops over queues have in hand, even those that were left and forgotten."""
        # What was published and forgotten still goes out, at the latest when the process ends.
        self._finalizer = weakref.finalize(self, _end, self._resources, self._pool)

    async def check(self) -> None:
        """NotConnected, with the reason, unless a broker answers.

        await mq.check()
        """
        self._resources.check_open()
        await self._run(self._resources.lookup.check)

    async def _run(self, action: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, action)

    # -- publishing

    async def publish(
        self,
        topic: str,
        value: object,
        *,
        key: str | bytes | None = None,
        headers: Headers | None = None,
        tag: str | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | int | None = None,
        delivery: DeliveryName | None = None,
    ) -> Published:
        """Publish a message, and wait until it is acknowledged as `delivery` asks for. See Connection.publish.

        place = await mq.publish("orders", {"id": 1}, key="42", tag="eu")
        """
        outlet = self._resources.outlet(delivery, many=False)
        message = Outgoing(
            value,
            key=key,
            headers=headers,
            tag=tag,
            partition=partition,
            timestamp=timestamp,
            delay=delay,
            deliver_at=deliver_at,
        )
        return await self._bridge.result(await self._bridge.send(outlet, encode(topic, message)))

    @property
    def _bridge(self) -> Answers:
        if self._answers is None:
            self._answers = Answers(self._pool)
        return self._answers

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[object] | AsyncIterable[object],
        *,
        max_in_flight: int = IN_FLIGHT_MAX,
        delivery: DeliveryName | None = None,
    ) -> list[Published]:
        """Publish many messages, and wait for all: values, or Outgoing where more is to be said.

        await mq.publish_many("orders", [{"id": 1}, penstock.Outgoing({"id": 2}, key="42")])
        """
        stream = self.publish_stream(topic, messages, max_in_flight=max_in_flight, delivery=delivery)
        return [place async for place in stream]

    async def publish_stream(
        self,
        topic: str,
        messages: Iterable[object] | AsyncIterable[object],
        *,
        max_in_flight: int = IN_FLIGHT_MAX,
        delivery: DeliveryName | None = None,
    ) -> AsyncIterator[Published]:
        """Publish messages for as long as the answers are asked for, in order; bounded memory, however many they are.

        async for place in mq.publish_stream("lines", lines()):
            ...
        """
        check_positive("max_in_flight", max_in_flight)
        outlet = self._resources.outlet(delivery, many=True)
        waiting: deque[asyncio.Future[Ticket]] = deque()
        number = 0
        async for message in _each(messages):
            outgoing = message if isinstance(message, Outgoing) else Outgoing(message)
            waiting.append(await self._bridge.send(outlet, encode(topic, outgoing)))
            while waiting and (waiting[0].done() or len(waiting) >= max_in_flight):
                yield await self._settle(waiting.popleft(), number)
                number += 1
        while waiting:
            yield await self._settle(waiting.popleft(), number)
            number += 1

    async def _settle(self, answer: "asyncio.Future[Ticket]", number: int) -> Published:
        try:
            return await self._bridge.result(answer)
        except ApiError as error:
            raise which(error, number) from error

    def transaction(
        self, transactional_id: str, *, transaction_timeout_s: float = TRANSACTION_TIMEOUT_S
    ) -> AsyncTransaction:
        """Messages that count all together or not at all. The id is yours alone: a second user fences the first.

        async with mq.transaction("billing-1") as tx:
            await tx.publish("invoices", {"id": 1})
        """
        transaction = transaction_of(self._resources.writers, transactional_id, transaction_timeout_s)
        return AsyncTransaction(transaction, self._pool)

    # -- reading: see core/reader.py

    def _subscribe(self, plan: SubscribePlan) -> AsyncSubscription:
        self._resources.check_open()
        loop = AsyncSubscription(self, partial(plan.open, self._resources))
        self._loops.add(loop)
        return loop

    def _exactly_once(self, plan: ExactlyOncePlan) -> AsyncExactlyOnce:
        self._resources.check_open()
        loop = AsyncExactlyOnce(self, partial(plan.open, self._resources))
        self._loops.add(loop)
        return loop

    async def _pass_on(self, messages: AsyncSubscription, work: Work, batch: int, delivery: Delivery) -> int:
        count = 0
        async with messages:
            outlet = self._resources.outlet(delivery, many=True)
            async for read in messages.batches(batch):
                made = [each for message in read for each in await _results(work, message)]
                try:
                    for answer in [await self._bridge.send(outlet, each) for each in made]:
                        await self._bridge.result(answer)
                except Closed:  # by another task: what was read is not committed, and comes again
                    break
                count += len(read)
        return count

    async def _pass_through(self, loop: AsyncExactlyOnce, work: Work) -> int:
        count = 0
        async with loop:
            async for message in loop:
                made = await _results(work, message)
                try:
                    for each in made:
                        await loop._send(each)
                except Closed:  # by another task: the message is not committed, and comes again
                    break
                count += message.attempt == 1
        return count

    async def seek(self, group: str, topic: str, to: From) -> dict[int, int]:
        """Set where a group goes on; it must have no members now. The offset in each partition.

        await mq.seek("billing", "orders", to="earliest")
        """
        self._resources.check_open()
        return await self._run(lambda: seek(self._resources.lookup, group, topic, to))

    # -- views

    async def create_view(self, name: str, *, of: str, where: str, idle: Duration | None = None) -> None:
        """Make a view of a topic: a topic to be read only, with those of its messages that match.

        await mq.create_view("orders-eu", of="orders", where="tag IN ('eu', 'uk') AND priority > 3")
        """
        self._resources.check_open()
        await self._run(lambda: create_view(self._resources.lookup, name, of, where, idle))

    async def drop_view(self, name: str) -> None:
        """Drop a view; its topic stays.

        await mq.drop_view("orders-eu")
        """
        self._resources.check_open()
        await self._run(lambda: drop_view(self._resources.lookup, name))

    # -- queues

    def queue(self, name: str) -> AsyncQueue:
        """A queue, by its name. Whether it is there is known when it is used.

        await mq.queue("jobs").send({"id": 1})
        """
        return AsyncQueue(self, QueueCalls(self._queues(), name), self._watch)

    def _watch(self, work: AsyncWork, working: Working) -> None:
        self._loops.add(work)
        self._workings = [*(each for each in self._workings if not each.is_closed), working]

    def _queues(self) -> SqsClient:
        self._resources.check_open()
        if self._sqs is None:
            self._sqs = open_sqs(self._settings, self._resources.lookup, self._resources.clock, self._pool)
        return self._sqs

    async def queues(self, prefix: str = "") -> list[str]:
        """The names of all queues, or of those that begin so.

        await mq.queues("job")
        """
        return await list_queues(self._queues(), prefix)

    async def create_queue(
        self,
        name: str,
        *,
        fifo: bool = False,
        delay: Duration | None = None,
        visibility: Duration | None = None,
        wait: Duration | None = None,
        retention: Duration | None = None,
        dead_letter: str | AsyncQueue | None = None,
        max_receives: int | None = None,
        from_topic: str | None = None,
        partitions: int | None = None,
        content_based_deduplication: bool = False,
        tags: Mapping[str, str] | None = None,
    ) -> AsyncQueue:
        """Make a queue, or be content with the one that is there if it is as asked for. See Connection.create_queue.

        await mq.create_queue("jobs", visibility="1m", dead_letter="jobs-dead", max_receives=3)
        """
        wanted = new_queue(
            name,
            fifo=fifo,
            delay=delay,
            visibility=visibility,
            wait=wait,
            retention=retention,
            dead_letter=dead_letter,
            max_receives=max_receives,
            from_topic=from_topic,
            partitions=partitions,
            content_based_deduplication=content_based_deduplication,
        )
        await create_queue(self._queues(), name, wanted, tags)
        return self.queue(name)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue, with all that is in it. The topic of one that was made by from_topic stays.

        await mq.delete_queue("jobs")
        """
        await QueueCalls(self._queues(), name).delete_queue()

    # -- the end

    async def close(self) -> None:
        """End all loops, wait for what is on its way, and let go. Afterwards no thread is left.

        await mq.close()
        """
        async with AsyncExitStack() as stack:  # whatever fails, the others are closed
            stack.push_async_callback(self._let_go)
            if self._sqs is not None:
                stack.callback(self._sqs.close)
            for working in self._workings:
                stack.push_async_callback(working.close, is_failure=True)
            for loop in list(self._loops):
                stack.push_async_callback(loop.close)

    async def _let_go(self) -> None:
        if self._finalizer.alive:
            try:
                await completed(asyncio.ensure_future(self._run(self._resources.close)))
            finally:
                self._finalizer()

    async def __aenter__(self) -> Self:
        try:
            await self.check()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with aside(error):
            await self.close()


def _end(resources: Resources, pool: ThreadPoolExecutor) -> None:
    resources.close()
    pool.shutdown()


async def _each(messages: Iterable[object] | AsyncIterable[object]) -> AsyncIterator[object]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for number, message in enumerate(messages, 1):
            yield message
            if number % TURN == 0:
                await asyncio.sleep(0)


async def _results(work: Work, message: Message) -> list[Encoded]:
    given = work.transform(message)
    return work.results(await given if inspect.isawaitable(given) else given, message)
