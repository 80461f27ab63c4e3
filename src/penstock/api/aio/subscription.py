"""AsyncSubscription and AsyncExactlyOnce: asyncio loops over messages."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from types import TracebackType
from typing import Final, Generic, Self

from penstock.api.aio.bridge import WorkerThread, completed
from penstock.api.core.commits import CommitPolicy
from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.exactly_once import TransactionalCommits
from penstock.api.core.message import Headers, Message, Outgoing
from penstock.api.core.message_buffer import Commits, MessageBuffer, not_joined
from penstock.api.core.settings import TIMEOUT_S, check_positive
from penstock.api.errors import Closed, add_note_to

TURN: Final = 64
"""Number of messages that a task may take before it yields to other tasks of the event loop."""


class AsyncLoop(Generic[Commits]):
    """Base class of AsyncSubscription and AsyncExactlyOnce, for one task. Its first use opens the Kafka consumer."""

    def __init__(self, owner: object, open_buffer: Callable[[], MessageBuffer[Commits]]) -> None:
        self._owner = owner  # a connection lasts as long as its loops
        self._open_buffer = open_buffer  # blocks: called on the worker thread
        self._worker = WorkerThread("penstock-loop")
        self._buffer: MessageBuffer[Commits] | None = None
        self._close_loop: Callable[[], None] = self._worker.close
        self._is_closing = False
        self._is_closed = False
        self._taken = 0

    async def _get_buffer(self) -> MessageBuffer[Commits]:
        await self._worker.wait_for_cancelled()
        if self._is_closing:
            raise Closed("the subscription is closed; subscribe again")
        if self._buffer is None:
            self._buffer = await self._worker.run(self._open_once)
        return self._buffer

    def _open_once(self) -> MessageBuffer[Commits]:
        if self._buffer is None:  # a cancelled task may have opened it
            self._buffer = self._open_buffer()
            self._close_loop = weakref.finalize(self, _finalize, self._buffer.close, self._worker)
        return self._buffer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        taken = await self._next(1)
        if not taken:
            raise StopAsyncIteration
        return taken[0]

    async def _next(self, most: int) -> list[Message]:
        """Waits for messages and returns up to `most`; an empty list if the loop has ended."""
        try:
            return [] if self._is_closing else await self._take(most)
        except Closed:
            if not self._is_closing:
                raise
            return []  # another task has closed it meanwhile

    async def _take(self, most: int) -> list[Message]:
        buffer = await self._get_buffer()
        self._taken += 1
        if self._taken % TURN == 0:
            await asyncio.sleep(0)
        if buffer.may_block:
            await self._worker.run(buffer.finish_delivered)
        else:
            buffer.finish_delivered()
        while not self._is_closing:
            if buffer.is_due():
                await self._worker.run(buffer.catch_up)
            taken = await self._worker.run(lambda: buffer.take(most)) if buffer.may_block else buffer.take(most)
            if taken:
                return taken
            if await self._worker.run(buffer.wait):
                break
        await self.close()
        return []

    async def ready(self, timeout_s: float = TIMEOUT_S) -> Self:
        """Waits until partitions are assigned, so that no message published later is missed. Returns this loop.

        messages = await mq.subscribe("orders", group="billing", from_="latest").ready()
        """
        buffer = await self._get_buffer()
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while not buffer.is_joined:
            if asyncio.get_running_loop().time() >= deadline_s:
                raise not_joined(timeout_s)
            await self._worker.run(buffer.poll_once)
        return self

    async def close(self) -> None:
        """Commits finished messages and leaves the consumer group. Messages that are not finished are redelivered."""
        self._is_closing = True
        if not self._is_closed:
            self._is_closed = True
            try:
                await completed(asyncio.ensure_future(self._run_close()))
            finally:
                self._worker.close(is_waiting=True)

    async def _run_close(self) -> None:
        try:
            await self._worker.wait_for_cancelled()
        finally:  # even if the call of a cancelled task failed
            await self._worker.run(lambda: self._close_loop())

    async def __aenter__(self) -> Self:
        await self._get_buffer()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with add_note_to(error):
            await self.close()


def _finalize(end: Callable[[], None], worker: WorkerThread) -> None:
    try:
        end()
    finally:
        worker.close()


class AsyncSubscription(AsyncLoop[CommitPolicy]):
    """An async iterator over messages. A message is finished when the next one is requested, or by message.done().

    async for message in mq.subscribe("orders", group="billing"):
        print(message.json())
    """

    async def batches(self, most: int = 100) -> AsyncIterator[list[Message]]:
        """Yields lists of 1 to `most` messages, as they arrive. Requesting the next list finishes the previous list.

        async for batch in mq.subscribe("orders", group="billing").batches(1000):
            await database.insert_many([message.json() for message in batch])
        """
        check_positive("most", most)
        while taken := await self._next(most):
            yield taken


class AsyncExactlyOnce(AsyncLoop[TransactionalCommits]):
    """An async iterator over messages; what the loop publishes is delivered exactly once. See mq.exactly_once.

    async with mq.exactly_once("orders", group="billing") as loop:
        async for message in loop:
            await loop.publish("invoices", invoice(message.json()), key=message.key)
    """

    @property
    def transactions(self) -> int:
        """The number of transactions that this loop has committed.

        async with mq.exactly_once("in", group="g", limit=10) as loop: ...
        print(loop.transactions)
        """
        return 0 if self._buffer is None else self._buffer.commits.committed

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
    ) -> None:
        """Publishes a message in the transaction of the current message. Waits only while the send buffer is full.

        await loop.publish("invoices", {"order": message.json()["id"]}, key=message.key)
        """
        message = Outgoing(value, key=key, headers=headers, tag=tag, partition=partition, timestamp=timestamp)
        await self._send(encode(topic, message))

    async def _send(self, message: Encoded) -> None:
        if self._is_closing or self._buffer is None:
            raise Closed("the loop has ended, or has not begun; publish within it")
        commits = self._buffer.commits
        try:
            commits.publish(message, is_waiting=False)
        except BufferError:
            await self._worker.run(lambda: commits.publish(message))
