"""Queue: blocking send, receive and work on one queue."""

from collections.abc import Iterable
from typing import overload

from penstock.api.core.durations import Duration
from penstock.api.core.job import Attributes, Job, OutgoingJob, QueueCounts, SentJob
from penstock.api.core.loop_thread import LoopThread
from penstock.api.core.queue_calls import QueueCalls
from penstock.api.core.queue_worker import BACKOFF, BACKOFF_MAX, VISIBILITY, QueueWorker, ReceivedJobActions, plan_of
from penstock.api.core.resources import Resources
from penstock.api.sync.work import Handler, Work


class Queue:
    """A queue: each message is delivered to one consumer, and redelivered until a consumer deletes it.

    mq.queue("jobs").send({"id": 1})
    for job in mq.queue("jobs").work(visibility="30s"):
        print(job.json())
    """

    def __init__(self, owner: object, resources: Resources, thread: LoopThread, calls: QueueCalls) -> None:
        self._owner = owner  # a connection lasts as long as its queues
        self._resources = resources
        self._thread = thread
        self._calls = calls

    @property
    def name(self) -> str:
        """The name of the queue.

        mq.queue("jobs").name  # "jobs"
        """
        return self._calls.name

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    # -- sending

    def send(
        self,
        body: object,
        *,
        delay: Duration | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
        attributes: Attributes | None = None,
    ) -> SentJob:
        """Sends a message, and waits until it is committed.

        mq.queue("jobs").send({"id": 1}, delay="5m", attributes={"tenant": "eu"})
        mq.queue("jobs.fifo").send({"id": 1}, group="customer-42", deduplication_id="order-1")

        str is sent as it is, bytes must be UTF-8, any other value is encoded as JSON. If the response is lost, the
        message is sent again and may be delivered twice, unless a FIFO queue recognises its deduplication_id.
        """
        message = OutgoingJob(
            body, delay=delay, group=group, deduplication_id=deduplication_id, attributes=attributes
        )
        return self._thread.run(self._calls.send(message))

    def send_many(self, messages: Iterable[object]) -> list[SentJob]:
        """Sends many messages, ten per request. A message is a body, or an OutgoingJob with delay, group, …

        mq.queue("jobs").send_many([{"id": 1}, penstock.OutgoingJob({"id": 2}, delay="1m")])

        Raises SendFailed if messages were rejected; the error has the reasons, and the ids of the sent messages.
        """
        return self._thread.run(self._calls.send_many(messages))

    # -- receiving

    def receive(self, *, max: int = 1, wait: Duration | None = None, visibility: Duration | None = None) -> list[Job]:
        """Returns up to `max` messages; waits up to `wait` for the first message.

        for job in mq.queue("jobs").receive(max=10, wait="20s", visibility="1m"):
            job.delete()

        No other consumer receives these messages for the `visibility` timeout; for longer work call job.extend(), or
        use work(). The defaults of `wait` and `visibility` are those of the queue: 0 and 30 seconds, unless changed.
        """
        actions = ReceivedJobActions(self._calls, visibility)
        found = self._thread.run(self._calls.receive(max, wait, visibility))
        return [Job(**fields, _actions=actions, _thread=self._thread) for fields in found]

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
    ) -> Work: ...

    @overload
    def work(
        self,
        handler: Handler,
        *,
        visibility: Duration = ...,
        concurrency: int = ...,
        backoff: Duration = ...,
        backoff_max: Duration = ...,
        limit: int | None = ...,
        idle_timeout_s: float | None = ...,
    ) -> int: ...

    def work(
        self,
        handler: Handler | None = None,
        *,
        visibility: Duration = VISIBILITY,
        concurrency: int = 1,
        backoff: Duration = BACKOFF,
        backoff_max: Duration = BACKOFF_MAX,
        limit: int | None = None,
        idle_timeout_s: float | None = None,
    ) -> Work | int:
        """Without `handler`, returns a loop over the messages; else calls `handler` with each, and returns how many
        messages it handled.

        for job in mq.queue("jobs").work(visibility="30s"):
            print(job.json())
        mq.queue("jobs").work(print, concurrency=8, idle_timeout_s=60)

        visibility: how soon other consumers get the messages of a process that dies; while the process lives, the
        timeout is renewed. A failed message is delivered again after `backoff`, then twice that, up to `backoff_max`.
        The loop ends after `limit` messages, or after `idle_timeout_s` without a message.
        """
        plan = plan_of(visibility, concurrency, backoff, backoff_max, limit, idle_timeout_s)
        work = Work(self._owner, self._thread, QueueWorker(self._calls, plan))
        self._resources.register(work)
        return work if handler is None else work.run(handler)

    # -- the queue itself

    def counts(self) -> QueueCounts:
        """Returns the number of available, in-flight and delayed messages.

        mq.queue("jobs").counts().available
        """
        return self._thread.run(self._calls.counts())

    def purge(self) -> None:
        """Deletes all messages.

        mq.queue("jobs").purge()
        """
        self._thread.run(self._calls.purge())
