"""What goes into queues and comes out of them: OutgoingJob, SentJob, Job and AsyncJob."""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.api.core.durations import Duration
from penstock.api.errors import InvalidValue, QueueFailed

AttributeValue = str | bytes | int | float | Decimal
"""A String, a Binary or a Number, as SQS calls them."""
Attributes = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class OutgoingJob:
    """A message to be, for send_many: a body, and what else is to be said about it.

    >>> OutgoingJob({"id": 1}, group="customer-42").group
    'customer-42'
    """

    body: object
    """str goes as it is, bytes must be UTF-8; anything else is written as JSON."""
    _: KW_ONLY
    delay: Duration | None = None
    """How long nobody gets it; up to 15 minutes. Not in FIFO queues, which have one delay for all."""
    group: str | None = None
    """The message group, in a FIFO queue: its messages stay in order."""
    deduplication_id: str | None = None
    """In a FIFO queue: what has the same id within five minutes is not sent again."""
    attributes: Attributes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentJob:
    """A message that is in a queue.

    >>> SentJob(queue="jobs", message_id="f81d4fae-7dec-11d0-a765-00a0c91e6bf6").queue
    'jobs'
    """

    queue: str
    message_id: str
    sequence: str = ""
    """Of a FIFO queue: grows within a message group."""


class SendFailed(QueueFailed):
    """Some messages of many were refused. `failed` says why, by their place; `sent` has the others, None for those.

    except penstock.SendFailed as error:
        for number, reason in error.failed.items(): ...
    """

    def __init__(
        self, message: str, *, failed: Mapping[int, str], sent: tuple[SentJob | None, ...], reason: str = ""
    ) -> None:
        super().__init__(message, reason=reason)
        self.failed = failed
        self.sent = sent


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """How many messages a queue has: exact when nothing is going on.

    >>> QueueCounts(available=3, in_flight=1, delayed=0).total
    4
    """

    available: int
    in_flight: int
    """In somebody's hands."""
    delayed: int

    @property
    def total(self) -> int:
        """All that are not finished.

        mq.queue("jobs").counts().total
        """
        return self.available + self.in_flight + self.delayed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Received:
    """A message of a queue that was received: what Job and AsyncJob share."""

    queue: str
    message_id: str
    receipt: str = field(repr=False)
    """By which the queue knows who has it."""
    value: bytes
    """The body as it is in the log."""
    attributes: Mapping[str, AttributeValue]
    receive_count: int
    """How often it was received, this time included."""
    sent_ms: int
    first_received_ms: int
    group: str | None = None
    deduplication_id: str | None = None
    sequence: str | None = None
    source: str | None = None
    """The queue that it is a dead letter of."""

    @property
    def body(self) -> str:
        """The body, as text.

        mq.queue("jobs").send("hello")  # job.body == "hello"
        """
        try:
            return self.value.decode()
        except UnicodeDecodeError as error:
            raise InvalidValue(f"{self._what} is not UTF-8 ({error}); job.value has its bytes") from error

    def json(self) -> Any:
        """The body, read as JSON.

        for job in mq.queue("jobs").work():
            print(job.json()["id"])
        """
        try:
            return json.loads(self.value)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"{self._what} is not JSON ({error}); job.value has its bytes") from error

    @property
    def _what(self) -> str:
        return f"message {self.message_id} of queue {self.queue!r}"


class JobActions(Protocol):
    """Who has a message, and can say what becomes of it."""

    def delete(self, job: Received) -> None: ...

    def release(self, job: Received, delay: Duration) -> None: ...

    def extend(self, job: Received, visibility: Duration | None) -> None: ...

    def fail(self, job: Received, error: BaseException) -> None:
        """Give it back after a failure, later each time."""

    def has(self, job: Received) -> bool:
        """Whether nothing was said about it yet."""


class AsyncJobActions(Protocol):
    """The same, for tasks."""

    async def delete(self, job: Received) -> None: ...

    async def release(self, job: Received, delay: Duration) -> None: ...

    async def extend(self, job: Received, visibility: Duration | None) -> None: ...

    async def fail(self, job: Received, error: BaseException) -> None: ...

    def has(self, job: Received) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job(Received):
    """A message in hand. It is somebody else's when its visibility timeout is over, unless it is deleted before.

    for job in mq.queue("jobs").receive(max=10, wait="20s"):
        print(job.body, job.receive_count)
        job.delete()
    """

    _actions: JobActions = field(repr=False)

    def delete(self) -> None:
        """It is done. JobLost if somebody else has it by now. A loop of work() says so by itself.

        job = mq.queue("jobs").receive()[0]
        job.delete()
        """
        self._actions.delete(self)

    def release(self, delay: Duration = 0) -> None:
        """Give it back: others may have it now, or after a while.

        job = mq.queue("jobs").receive()[0]
        job.release("30s")
        """
        self._actions.release(self, delay)

    def extend(self, visibility: Duration | None = None) -> None:
        """Keep it for so long from now on; as long as it was received for, if nothing is said.

        job = mq.queue("jobs").receive(visibility="30s")[0]
        job.extend("5m")
        """
        self._actions.extend(self, visibility)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """At the end of the block it is done; after an exception it is given back."""
        if self._actions.has(self):
            if error is None:
                self._actions.delete(self)
            else:
                self._actions.fail(self, error)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AsyncJob(Received):
    """A message in hand, for tasks: see Job.

    for job in await mq.queue("jobs").receive(max=10, wait="20s"):
        print(job.body, job.receive_count)
        await job.delete()
    """

    _actions: AsyncJobActions = field(repr=False)

    async def delete(self) -> None:
        """It is done. See Job.delete.

        async for job in mq.queue("jobs").work():
            await job.delete()
        """
        await self._actions.delete(self)

    async def release(self, delay: Duration = 0) -> None:
        """Give it back: others may have it now, or after a while.

        async for job in mq.queue("jobs").work():
            await job.release("30s")
        """
        await self._actions.release(self, delay)

    async def extend(self, visibility: Duration | None = None) -> None:
        """Keep it for so long from now on; as long as it was received for, if nothing is said.

        async for job in mq.queue("jobs").work():
            await job.extend("5m")
        """
        await self._actions.extend(self, visibility)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """At the end of the block it is done; after an exception it is given back."""
        if self._actions.has(self):
            if error is None:
                await self._actions.delete(self)
            else:
                await self._actions.fail(self, error)
