"""Messages of queues: OutgoingJob (to send), SentJob, Job and AsyncJob (received), QueueCounts."""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any, Protocol, Self

from penstock.api.core.durations import Duration
from penstock.api.core.loop_thread import LoopThread
from penstock.api.errors import InvalidValue, QueueFailed

AttributeValue = str | bytes | int | float | Decimal
"""Value of a message attribute, of SQS type String, Binary or Number."""
Attributes = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class OutgoingJob:
    """A message to send, for send_many: a body with optional delay, message group and attributes.

    >>> OutgoingJob({"id": 1}, group="customer-42").group
    'customer-42'
    """

    body: object
    """The message body: str is sent as it is, bytes must be UTF-8; any other value is encoded as JSON."""
    _: KW_ONLY
    delay: Duration | None = None
    """Delay before delivery, up to 15 minutes. Not for FIFO queues, where only the queue has a delay."""
    group: str | None = None
    """Message group, in a FIFO queue: the messages of a group are delivered in order."""
    deduplication_id: str | None = None
    """Deduplication id, in a FIFO queue: a message whose id was sent in the last five minutes is dropped."""
    attributes: Attributes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentJob:
    """A message that was sent to a queue.

    >>> SentJob(queue="jobs", message_id="f81d4fae-7dec-11d0-a765-00a0c91e6bf6").queue
    'jobs'
    """

    queue: str
    message_id: str
    sequence: str = ""
    """Sequence number, in a FIFO queue: it increases within a message group. Empty in other queues."""


class SendFailed(QueueFailed):
    """Error of send_many: some messages failed. `failed`: reason by message index; `sent`: SentJob or None by index.

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
    """The number of messages in a queue, by state; exact while no request is in progress.

    >>> QueueCounts(available=3, in_flight=1, delayed=0).total
    4
    """

    available: int
    in_flight: int
    """Number of messages that were received, and are neither deleted nor visible again."""
    delayed: int

    @property
    def total(self) -> int:
        """The number of available, in-flight and delayed messages.

        mq.queue("jobs").counts().total
        """
        return self.available + self.in_flight + self.delayed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Received:
    """A message received from a queue: base class of Job and AsyncJob."""

    queue: str
    message_id: str
    receipt: str = field(repr=False)
    """The receipt handle of this delivery."""
    value: bytes
    """The message body in bytes, as stored in the log."""
    attributes: Mapping[str, AttributeValue]
    receive_count: int
    """How often the message was received, including this delivery."""
    sent_ms: int
    first_received_ms: int
    group: str | None = None
    deduplication_id: str | None = None
    sequence: str | None = None
    source: str | None = None
    """The queue from which a message was moved to this dead-letter queue; None for other messages."""

    @property
    def body(self) -> str:
        """The body as text. Raises InvalidValue if the body is not UTF-8.

        mq.queue("jobs").send("hello")  # job.body == "hello"
        """
        try:
            return self.value.decode()
        except UnicodeDecodeError as error:
            raise InvalidValue(f"{self._what} is not UTF-8 ({error}); job.value has its bytes") from error

    def json(self) -> Any:
        """Returns the body decoded as JSON. Raises InvalidValue if the body is not JSON.

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
    """Interface to delete, release or extend a received message by its receipt handle; used by Job and AsyncJob."""

    async def delete(self, receipt: str) -> None: ...

    async def release(self, receipt: str, delay: Duration) -> None: ...

    async def extend(self, receipt: str, visibility: Duration | None) -> None: ...

    async def fail(self, receipt: str, error: BaseException) -> None:
        """Releases the message after a failure, with a backoff delay."""

    def has(self, receipt: str) -> bool:
        """Returns whether the message with this receipt handle is neither deleted nor released."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job(Received):
    """A message received from a queue. Unless deleted, it becomes visible again after its visibility timeout.

    for job in mq.queue("jobs").receive(max=10, wait="20s"):
        print(job.body, job.receive_count)
        job.delete()
    """

    _actions: JobActions = field(repr=False)
    _thread: LoopThread = field(repr=False)

    def delete(self) -> None:
        """Deletes the message (a work() loop does so automatically). Raises JobLost if another consumer received it.

        job = mq.queue("jobs").receive()[0]
        job.delete()
        """
        self._thread.run(self._actions.delete(self.receipt))

    def release(self, delay: Duration = 0) -> None:
        """Makes the message visible to other consumers, now or after `delay`.

        job = mq.queue("jobs").receive()[0]
        job.release("30s")
        """
        self._thread.run(self._actions.release(self.receipt, delay))

    def extend(self, visibility: Duration | None = None) -> None:
        """Sets the visibility timeout, counted from now. Default: the timeout that the message was received with.

        job = mq.queue("jobs").receive(visibility="30s")[0]
        job.extend("5m")
        """
        self._thread.run(self._actions.extend(self.receipt, visibility))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Deletes the message at the end of the block; releases the message if the block raised an exception."""
        if self._actions.has(self.receipt):
            if error is None:
                self._thread.run(self._actions.delete(self.receipt))
            else:
                self._thread.run(self._actions.fail(self.receipt, error))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AsyncJob(Received):
    """A message received from a queue, for asyncio: see Job.

    for job in await mq.queue("jobs").receive(max=10, wait="20s"):
        print(job.body, job.receive_count)
        await job.delete()
    """

    _actions: JobActions = field(repr=False)

    async def delete(self) -> None:
        """Deletes the message. See Job.delete.

        async for job in mq.queue("jobs").work():
            await job.delete()
        """
        await self._actions.delete(self.receipt)

    async def release(self, delay: Duration = 0) -> None:
        """Makes the message visible to other consumers, now or after `delay`.

        async for job in mq.queue("jobs").work():
            await job.release("30s")
        """
        await self._actions.release(self.receipt, delay)

    async def extend(self, visibility: Duration | None = None) -> None:
        """Sets the visibility timeout, counted from now. Default: the timeout that the message was received with.

        async for job in mq.queue("jobs").work():
            await job.extend("5m")
        """
        await self._actions.extend(self.receipt, visibility)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Deletes the message at the end of the block; releases the message if the block raised an exception."""
        if self._actions.has(self.receipt):
            if error is None:
                await self._actions.delete(self.receipt)
            else:
                await self._actions.fail(self.receipt, error)
