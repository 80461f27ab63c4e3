"""One queue, for threads: mq.queue("jobs")."""

from collections.abc import Iterable
from typing import overload

from penstock.api.core.durations import Duration
from penstock.api.core.job import Attributes, Job, OutgoingJob, QueueCounts, Received, SentJob
from penstock.api.core.loop_thread import LoopThread
from penstock.api.core.queue_calls import QueueCalls, visibility_s
from penstock.api.core.queue_worker import BACKOFF, BACKOFF_MAX, VISIBILITY, Working, plan_of
from penstock.api.core.resources import Resources
from penstock.api.sync.work import Handler, Work


class Queue:
    """A queue: messages go to one of the workers each, and stay until one of them is done with it.

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
        """What it is called.

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
        """Send a message, and wait until it is committed.

        mq.queue("jobs").send({"id": 1}, delay="5m", attributes={"tenant": "eu"})
        mq.queue("jobs.fifo").send({"id": 1}, group="customer-42", deduplication_id="order-1")

        str goes as it is, bytes must be UTF-8, anything else is written as JSON. If the answer is lost on its way,
        the message is sent again: it may come twice, unless a FIFO queue knows it by its deduplication_id.
        """
        message = OutgoingJob(
            body, delay=delay, group=group, deduplication_id=deduplication_id, attributes=attributes
        )
        return self._thread.run(self._calls.send(message))

    def send_many(self, messages: Iterable[object]) -> list[SentJob]:
        """Send many messages, ten in a request: bodies, or OutgoingJob where more is to be said.

        mq.queue("jobs").send_many([{"id": 1}, penstock.OutgoingJob({"id": 2}, delay="1m")])

        SendFailed if some were refused; it says which, and where the others are.
        """
        return self._thread.run(self._calls.send_many(messages))

    # -- receiving

    def receive(self, *, max: int = 1, wait: Duration | None = None, visibility: Duration | None = None) -> list[Job]:
        """Up to `max` messages; waits for the first of them, if there is none, up to `wait`.

        for job in mq.queue("jobs").receive(max=10, wait="20s", visibility="1m"):
            job.delete()

        For so long as `visibility` says nobody else gets them; who needs longer must extend() them, or use work().
        Without `wait` and `visibility` it is what the queue is set to: 0 and 30 seconds, unless somebody has changed
        it.
        """
        actions = Bare(self._thread, self._calls, visibility)
        return [
            Job(**fields, _actions=actions) for fields in self._thread.run(self._calls.receive(max, wait, visibility))
        ]

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
        """Work off the queue: a loop over its messages, or a function that is given each of them.

        for job in mq.queue("jobs").work(visibility="30s"):
            print(job.json())

        mq.queue("jobs").work(print, concurrency=8, idle_timeout_s=60)

        visibility: how soon others get what we had if this process dies; while it lives, messages are kept for as
        long as they take. What fails is given back, and comes again after `backoff`, twice that, and so on. The loop
        ends after `limit` messages, or when none has come for `idle_timeout_s`.
        """
        plan = plan_of(visibility, concurrency, backoff, backoff_max, limit, idle_timeout_s)
        work = Work(self._owner, self._thread, Working(self._calls, plan))
        self._resources.watch(work)
        return work if handler is None else work.run(handler)

    # -- the queue itself

    def counts(self) -> QueueCounts:
        """How many messages there are: available, in flight, delayed.

        mq.queue("jobs").counts().available
        """
        return self._thread.run(self._calls.counts())

    def purge(self) -> None:
        """Drop all messages, for good.

        mq.queue("jobs").purge()
        """
        self._thread.run(self._calls.purge())


class Bare:
    """Who has messages that were received one by one: nothing is known of them but what they say themselves."""

    def __init__(self, thread: LoopThread, calls: QueueCalls, visibility: Duration | None) -> None:
        self._thread = thread
        self._calls = calls
        self._visibility = visibility
        self._settled: set[str] = set()

    def delete(self, job: Received) -> None:
        self._thread.run(self._calls.delete(job.receipt))
        self._settled.add(job.receipt)

    def release(self, job: Received, delay: Duration) -> None:
        self._thread.run(self._calls.change(job.receipt, visibility_s(delay)))
        self._settled.add(job.receipt)

    def extend(self, job: Received, visibility: Duration | None) -> None:
        wanted = visibility if visibility is not None else self._visibility
        self._thread.run(self._calls.change(job.receipt, visibility_s(VISIBILITY if wanted is None else wanted)))

    def fail(self, job: Received, error: BaseException) -> None:
        self.release(job, 0)

    def has(self, job: Received) -> bool:
        return job.receipt not in self._settled
