"""connect_async() and AsyncConnection: the asyncio Python API.

async with penstock.connect_async("localhost:9092") as mq:
    await mq.publish("orders", {"id": 1}, key="42", tag="eu")
    async for message in mq.subscribe("orders", group="billing"):
        print(message.json())
"""

import asyncio
import inspect
import os
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from penstock.api.aio.bridge import AsyncSender, completed
from penstock.api.aio.queue import AsyncQueue
from penstock.api.aio.subscription import TURN, AsyncExactlyOnce, AsyncLoop, AsyncSubscription
from penstock.api.aio.transaction import AsyncTransaction
from penstock.api.aio.work import AsyncWork
from penstock.api.core.background_producer import DeliveryReport
from penstock.api.core.cluster_lookup import From
from penstock.api.core.durations import Duration
from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.message import Headers, Message, Outgoing, Published
from penstock.api.core.plans import ExactlyOncePlan, SubscribePlan
from penstock.api.core.queue_admin import create_queue, list_queues, new_queue, open_sqs
from penstock.api.core.queue_calls import QueueCalls
from penstock.api.core.queue_worker import QueueWorker
from penstock.api.core.reader import Reader
from penstock.api.core.resources import Resources, settings_of
from penstock.api.core.settings import (
    IN_FLIGHT_MAX,
    REFRESH_S,
    TIMEOUT_S,
    TRANSACTION_TIMEOUT_S,
    Delivery,
    DeliveryName,
    Settings,
    check_positive,
)
from penstock.api.core.transformation import Transformation
from penstock.api.core.views import create_view, drop_view
from penstock.api.errors import ApiError, Closed, add_note_to, with_message_number
from penstock.api.sync.transaction import Transaction
from penstock.client.sqs import SqsClient

T = TypeVar("T")

THREADS_MAX: Final = 32
"""Maximum number of threads of a connection for blocking calls: begin and end of transactions, cluster lookups."""


def connect_async(
    servers: str | None = None,
    *,
    delivery: DeliveryName | None = None,
    timeout_s: float = TIMEOUT_S,
    client_id: str = "penstock",
    refresh_s: float = REFRESH_S,
    options: Mapping[str, Any] | None = None,
    security: Mapping[str, str] | str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
) -> "AsyncConnection":
    """Returns a connection for asyncio. `async with` raises NotConnected if no broker answers within `timeout_s`.

    async with penstock.connect_async("localhost:9092") as mq:
        await mq.publish("orders", {"id": 1})

    The arguments are those of penstock.connect().
    """
    return AsyncConnection(
        settings_of(
            servers, delivery, timeout_s, client_id, refresh_s, options, security, endpoint, access_key, secret_key
        )
    )


class AsyncConnection(Reader[AsyncSubscription, AsyncExactlyOnce, Coroutine[Any, Any, int]]):
    """A connection to a cluster, for the tasks of one event loop. Close it, or use `async with`.

    async with penstock.connect_async("localhost:9092") as mq:
        await mq.publish("orders", {"id": 1})
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._resources = Resources(settings)
        self._pool = ThreadPoolExecutor(max_workers=THREADS_MAX, thread_name_prefix="penstock")
        self._sender: AsyncSender | None = None
        self._loops: weakref.WeakSet[AsyncLoop[Any] | AsyncWork] = weakref.WeakSet()
        self._sqs: SqsClient | None = None
        self._queue_workers: list[QueueWorker] = []
        """QueueWorkers of all work() loops, including loops that were garbage-collected without being closed."""
        # Messages in flight are still sent if the connection is not closed, at the latest when the process ends.
        self._finalizer = weakref.finalize(self, _finalize, self._resources, self._pool)

    async def check(self) -> None:
        """Raises NotConnected, with the reason, unless a broker answers.

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
        """Publishes a message, and waits until it is acknowledged according to `delivery`. See Connection.publish.

        place = await mq.publish("orders", {"id": 1}, key="42", tag="eu")
        """
        producer = self._resources.producer(delivery, many=False)
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
        return await self._async_sender.result(await self._async_sender.send(producer, encode(topic, message)))

    @property
    def _async_sender(self) -> AsyncSender:
        if self._sender is None:
            self._sender = AsyncSender(self._pool)
        return self._sender

    async def publish_many(
        self,
        topic: str,
        messages: Iterable[object] | AsyncIterable[object],
        *,
        max_in_flight: int = IN_FLIGHT_MAX,
        delivery: DeliveryName | None = None,
    ) -> list[Published]:
        """Publishes messages and waits until all are acknowledged. Each message is a plain value or an Outgoing.
        delivery: the guarantee, as in Connection.publish; None: that of the connection, by default exactly-once.

        await mq.publish_many("orders", [{"id": 1}, penstock.Outgoing({"id": 2}, key="42")])
        """
        stream = self.publish_stream(topic, messages, max_in_flight=max_in_flight, delivery=delivery)
        return [tp async for tp in stream]

    async def publish_stream(
        self,
        topic: str,
        messages: Iterable[object] | AsyncIterable[object],
        *,
        max_in_flight: int = IN_FLIGHT_MAX,
        delivery: DeliveryName | None = None,
    ) -> AsyncIterator[Published]:
        """Publishes messages as you iterate, at most `max_in_flight` unacknowledged; yields a Published for each.

        async for place in mq.publish_stream("lines", lines()):
            ...
        """
        check_positive("max_in_flight", max_in_flight)
        producer = self._resources.producer(delivery, many=True)
        waiting: deque[asyncio.Future[DeliveryReport]] = deque()
        number = 0
        async for message in _iterate(messages):
            waiting.append(await self._async_sender.send(producer, encode(topic, message)))
            while waiting and (waiting[0].done() or len(waiting) >= max_in_flight):
                yield await self._wait_for_delivery(waiting.popleft(), number)
                number += 1
        while waiting:
            yield await self._wait_for_delivery(waiting.popleft(), number)
            number += 1

    async def _wait_for_delivery(self, future: "asyncio.Future[DeliveryReport]", number: int) -> Published:
        try:
            return await self._async_sender.result(future)
        except ApiError as error:
            raise with_message_number(error, number) from error

    def transaction(
        self, transactional_id: str, *, transaction_timeout_s: float = TRANSACTION_TIMEOUT_S
    ) -> AsyncTransaction:
        """Returns a transaction: its messages are delivered all together or not at all. See Connection.transaction.

        async with mq.transaction("billing-1") as tx:
            await tx.publish("invoices", {"id": 1})
        """
        pool = self._resources.transactional_producers
        return AsyncTransaction(Transaction(pool, transactional_id, transaction_timeout_s), self._pool)

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

    async def _process(
        self, messages: AsyncSubscription, step: Transformation, batch: int, delivery: Delivery
    ) -> int:
        count = 0
        async with messages:
            producer = self._resources.producer(delivery, many=True)
            async for read in messages.batches(batch):
                results = [each for message in read for each in await _results(step, message)]
                try:
                    for future in [await self._async_sender.send(producer, each) for each in results]:
                        await self._async_sender.result(future)
                except Closed:  # by another task: the batch is not committed, and is delivered again
                    break
                count += len(read)
        return count

    async def _process_exactly_once(self, loop: AsyncExactlyOnce, step: Transformation) -> int:
        count = 0
        async with loop:
            async for message in loop:
                results = await _results(step, message)
                try:
                    for each in results:
                        await loop._send(each)
                except Closed:  # by another task: the message is not committed, and is delivered again
                    break
                count += message.attempt == 1
        return count

    async def seek(self, group: str, topic: str, to: From) -> dict[int, int]:
        """Sets a consumer group's committed offsets in a topic; returns them by partition. See Connection.seek.

        await mq.seek("billing", "orders", to="earliest")
        """
        self._resources.check_open()
        return await self._run(lambda: self._resources.lookup.seek(group, topic, to))

    # -- views

    async def create_view(self, name: str, *, of: str, where: str, idle: Duration | None = None) -> None:
        """Creates a view, a read-only topic of messages in topic `of` that match `where`. See Connection.create_view.

        await mq.create_view("orders-eu", of="orders", where="tag IN ('eu', 'uk') AND priority > 3")
        """
        self._resources.check_open()
        await self._run(lambda: create_view(self._resources.lookup, name, of, where, idle))

    async def drop_view(self, name: str) -> None:
        """Drops a view (filtered read-only topic). The topic that the view reads from stays.

        await mq.drop_view("orders-eu")
        """
        self._resources.check_open()
        await self._run(lambda: drop_view(self._resources.lookup, name))

    # -- queues

    def queue(self, name: str) -> AsyncQueue:
        """Returns the queue of this name. The first request to the queue checks whether it exists.

        await mq.queue("jobs").send({"id": 1})
        """
        return AsyncQueue(self, QueueCalls(self._queues(), name), self._register)

    def _register(self, work: AsyncWork, queue_worker: QueueWorker) -> None:
        self._loops.add(work)
        self._queue_workers = [*(each for each in self._queue_workers if not each.is_closed), queue_worker]

    def _queues(self) -> SqsClient:
        self._resources.check_open()
        if self._sqs is None:
            self._sqs = open_sqs(self._settings, self._resources.lookup, self._resources.clock, self._pool)
        return self._sqs

    async def queues(self, prefix: str = "") -> list[str]:
        """Returns the names of all queues that begin with `prefix`.

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
        """Creates a queue. Succeeds if a queue with the same attributes exists already. See Connection.create_queue.

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
        """Deletes a queue and its messages. The topic of a queue created with from_topic stays.

        await mq.delete_queue("jobs")
        """
        await QueueCalls(self._queues(), name).delete_queue()

    # -- closing

    async def close(self) -> None:
        """Closes all subscriptions and queue loops, waits for messages in flight, and ends the connection's threads.

        await mq.close()
        """
        async with AsyncExitStack() as stack:  # closes all, even if one fails
            stack.push_async_callback(self._close_resources)
            if self._sqs is not None:
                stack.callback(self._sqs.close)
            for queue_worker in self._queue_workers:
                stack.push_async_callback(queue_worker.close, is_failure=True)
            for loop in list(self._loops):
                stack.push_async_callback(loop.close)

    async def _close_resources(self) -> None:
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
        with add_note_to(error):
            await self.close()


def _finalize(resources: Resources, pool: ThreadPoolExecutor) -> None:
    resources.close()
    pool.shutdown()


async def _iterate(messages: Iterable[object] | AsyncIterable[object]) -> AsyncIterator[object]:
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for number, message in enumerate(messages, 1):
            yield message
            if number % TURN == 0:
                await asyncio.sleep(0)


async def _results(step: Transformation, message: Message) -> list[Encoded]:
    result = step.transform(message)
    return step.results(await result if inspect.isawaitable(result) else result, message)
