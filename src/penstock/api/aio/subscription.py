"""Loops over messages, for tasks: see subscription.py for what they do."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from penstock.api.aio.bridge import Worker, completed
from penstock.api.core.encoding import Encoded, encode
from penstock.api.core.exactly_once import CommitsWithin
from penstock.api.core.feed import Feed, not_joined
from penstock.api.core.message import Headers, Message, Outgoing
from penstock.api.core.plans import Pipe
from penstock.api.core.settings import TIMEOUT_S, check_positive
from penstock.api.errors import Closed, aside

TURN: Final = 64
"""Messages that one task may take before others get their turn."""


class AsyncLoop:
    """What both kinds of loops share. One task iterates. Opened when it is first used."""

    def __init__(self, owner: object) -> None:
        self._owner = owner  # a connection lasts as long as its loops
        self._worker = Worker("penstock-loop")
        self._feed: Feed | None = None
        self._end: Callable[[], None] = self._worker.close
        self._is_closing = False
        self._is_closed = False
        self._taken = 0

    def _open(self) -> tuple[Feed, Callable[[], None]]:
        """On the worker's thread: what to read from, and what ends it."""
        raise NotImplementedError

    async def _opened(self) -> Feed:
        await self._worker.settle()
        if self._is_closing:
            raise Closed("the subscription is closed; subscribe again")
        if self._feed is None:
            self._feed = await self._worker.run(self._begin)
        return self._feed

    def _begin(self) -> Feed:
        if self._feed is None:  # a task that was cancelled may have been here
            self._feed, end = self._open()
            self._end = weakref.finalize(self, _finish, end, self._worker)
        return self._feed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        taken = await self._next(1)
        if not taken:
            raise StopAsyncIteration
        return taken[0]

    async def _next(self, most: int) -> list[Message]:
        """The next messages; none if the loop is over."""
        try:
            return [] if self._is_closing else await self._take(most)
        except Closed:
            if not self._is_closing:
                raise
            return []  # another task has closed it meanwhile

    async def _take(self, most: int) -> list[Message]:
        feed = await self._opened()
        self._taken += 1
        if self._taken % TURN == 0:
            await asyncio.sleep(0)
        if feed.is_slow:
            await self._worker.run(feed.finish_in_hand)
        else:
            feed.finish_in_hand()
        while not self._is_closing:
            if feed.is_due():
                await self._worker.run(feed.catch_up)
            taken = await self._worker.run(lambda: feed.take(most)) if feed.is_slow else feed.take(most)
            if taken:
                return taken
            if await self._worker.run(feed.wait):
                break
        await self.close()
        return []

    async def ready(self, timeout_s: float = TIMEOUT_S) -> Self:
        """Wait until it is known which partitions are ours: from then on, nothing that is published is missed.

        messages = await mq.subscribe("orders", group="billing", from_="latest").ready()
        """
        feed = await self._opened()
        give_up_s = asyncio.get_running_loop().time() + timeout_s
        while not feed.is_joined:
            if asyncio.get_running_loop().time() >= give_up_s:
                raise not_joined(timeout_s)
            await self._worker.run(feed.work)
        return self

    async def close(self) -> None:
        """Commit what is finished, and leave the group. A message that is in hand and not done() comes again."""
        self._is_closing = True
        if not self._is_closed:
            self._is_closed = True
            try:
                await completed(asyncio.ensure_future(self._finish()))
            finally:
                self._worker.close(is_waiting=True)

    async def _finish(self) -> None:
        try:
            await self._worker.settle()
        finally:  # whatever came of what a cancelled task has asked for
            await self._worker.run(lambda: self._end())

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with aside(error):
            await self.close()


def _finish(end: Callable[[], None], worker: Worker) -> None:
    try:
        end()
    finally:
        worker.close()


class AsyncSubscription(AsyncLoop):
    """Messages, one after the other. A message is finished when the next one is asked for, or by message.done().

    async for message in mq.subscribe("orders", group="billing"):
        print(message.json())
    """

    def __init__(self, owner: object, open_feed: Callable[[], Feed]) -> None:
        super().__init__(owner)
        self._open_feed = open_feed

    def _open(self) -> tuple[Feed, Callable[[], None]]:
        feed = self._open_feed()
        return feed, feed.close

    async def batches(self, most: int = 100) -> AsyncIterator[list[Message]]:
        """Messages, as many at a time as are there: at least one, at most so many. They are finished together.

        async for batch in mq.subscribe("orders", group="billing").batches(1000):
            await database.insert_many([message.json() for message in batch])
        """
        check_positive("most", most)
        while taken := await self._next(most):
            yield taken


class AsyncExactlyOnce(AsyncLoop):
    """Messages whose results are published exactly once: see mq.exactly_once.

    async with mq.exactly_once("orders", group="billing") as loop:
        async for message in loop:
            await loop.publish("invoices", invoice(message.json()), key=message.key)
    """

    def __init__(self, owner: object, open_pipe: Callable[[], Pipe]) -> None:
        super().__init__(owner)
        self._open_pipe = open_pipe
        self._commits: CommitsWithin | None = None

    def _open(self) -> tuple[Feed, Callable[[], None]]:
        pipe = self._open_pipe()
        self._commits = pipe.commits
        return pipe.feed, pipe.close

    @property
    def transactions(self) -> int:
        """How many have committed.

        async with mq.exactly_once("in", group="g", limit=10) as loop: ...
        print(loop.transactions)
        """
        return 0 if self._commits is None else self._commits.committed

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
        """Publish a message that counts when the one in hand is committed. Waits only for room.

        await loop.publish("invoices", {"order": message.json()["id"]}, key=message.key)
        """
        message = Outgoing(value, key=key, headers=headers, tag=tag, partition=partition, timestamp=timestamp)
        await self._send(encode(topic, message))

    async def _send(self, message: Encoded) -> None:
        commits = self._commits
        if self._is_closing or commits is None:
            raise Closed("the loop has ended, or has not begun; publish within it")
        try:
            commits.publish(message, is_waiting=False)
        except BufferError:
            await self._worker.run(lambda: commits.publish(message))
