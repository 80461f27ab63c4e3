"""AsyncQueue: asyncio send, receive and work on one queue."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, overload

from penstock.api.aio.work import AsyncHandler, AsyncWork
from penstock.api.core.durations import Duration
from penstock.api.core.job import AsyncJob, Attributes, OutgoingJob, QueueCounts, SentJob
from penstock.api.core.queue_calls import QueueCalls
from penstock.api.core.queue_worker import BACKOFF, BACKOFF_MAX, VISIBILITY, QueueWorker, ReceivedJobActions, plan_of


class AsyncQueue:
    """A queue: each message is delivered to one consumer, and redelivered until a consumer deletes it. See Queue.

    await mq.queue("jobs").send({"id": 1})
    async for job in mq.queue("jobs").work(visibility="30s"):
        print(job.json())
    """

    def __init__(self, owner: object, calls: QueueCalls, register: Callable[[AsyncWork, QueueWorker], None]) -> None:
        """`register` is called with each work() loop and its QueueWorker, so that the connection can close both."""
        self._owner = owner  # a connection lasts as long as its queues
        self._calls = calls
        self._register = register

    @property
    def name(self) -> str:
        """The name of the queue.

        mq.queue("jobs").name  # "jobs"
        """
        return self._calls.name

    def __repr__(self) -> str:
        return f"AsyncQueue({self.name!r})"

    async def send(
        self,
        body: object,
        *,
        delay: Duration | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
        attributes: Attributes | None = None,
    ) -> SentJob:
        """Sends a message, and waits until it is committed. See Queue.send.

        await mq.queue("jobs").send({"id": 1}, delay="5m", attributes={"tenant": "eu"})
        """
        message = OutgoingJob(
            body, delay=delay, group=group, deduplication_id=deduplication_id, attributes=attributes
        )
        return await self._calls.send(message)

    async def send_many(self, messages: Iterable[object]) -> list[SentJob]:
        """Sends many messages, ten per request. A message is a body or an OutgoingJob. See Queue.send_many.

        await mq.queue("jobs").send_many([{"id": 1}, penstock.OutgoingJob({"id": 2}, delay="1m")])
        """
        return await self._calls.send_many(messages)

    async def receive(
        self, *, max: int = 1, wait: Duration | None = None, visibility: Duration | None = None
    ) -> list[AsyncJob]:
        """Returns up to `max` messages; waits up to `wait` for the first message. See Queue.receive.

        for job in await mq.queue("jobs").receive(max=10, wait="20s", visibility="1m"):
            await job.delete()
        """
        actions = ReceivedJobActions(self._calls, visibility)
        return [AsyncJob(**fields, _actions=actions) for fields in await self._calls.receive(max, wait, visibility)]

    @overload
    def work(
        self,
        handler: None = None,
        *,
        visibility: Duration = ...,
        concurrency: int = ...,
        backoff: Duration = ...,
        backoff_max: Duration = ...,
        limit: int | None = ...,
        idle_timeout_s: float | None = ...,
    ) -> AsyncWork: ...

    @overload
    def work(
        self,
        handler: AsyncHandler,
        *,
        visibility: Duration = ...,
        concurrency: int = ...,
        backoff: Duration = ...,
        backoff_max: Duration = ...,
        limit: int | None = ...,
        idle_timeout_s: float | None = ...,
    ) -> Coroutine[Any, Any, int]: ...

    def work(
        self,
        handler: AsyncHandler | None = None,
        *,
        visibility: Duration = VISIBILITY,
        concurrency: int = 1,
        backoff: Duration = BACKOFF,
        backoff_max: Duration = BACKOFF_MAX,
        limit: int | None = None,
        idle_timeout_s: float | None = None,
    ) -> AsyncWork | Coroutine[Any, Any, int]:
        """Without `handler`, returns a loop over the messages; else a coroutine that calls `handler` with each one.

        async for job in mq.queue("jobs").work(visibility="30s"):
            print(job.json())
        await mq.queue("jobs").work(print, concurrency=8, idle_timeout_s=60)

        See Queue.work. If your code blocks the event loop for longer than `visibility`, messages are redelivered.
        """
        plan = plan_of(visibility, concurrency, backoff, backoff_max, limit, idle_timeout_s)
        queue_worker = QueueWorker(self._calls, plan)
        work = AsyncWork(self._owner, queue_worker)
        self._register(work, queue_worker)
        return work if handler is None else work.run(handler)

    async def counts(self) -> QueueCounts:
        """Returns the number of available, in-flight and delayed messages.

        counts = await mq.queue("jobs").counts()
        """
        return await self._calls.counts()

    async def purge(self) -> None:
        """Deletes all messages.

        await mq.queue("jobs").purge()
        """
        await self._calls.purge()
