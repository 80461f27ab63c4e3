"""Between threads and an event loop.

confluent_kafka.aio was looked at. Its producer takes no headers, and so no tags; its consumer waits for a full batch,
or asks a pool of threads for every message. So it is threads, but few: one for each subscription, which brings many
messages at a time; and what producers' threads have to tell comes to the loop many at a time.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.api.core.encoding import Encoded
from penstock.api.core.message import Published
from penstock.api.core.outlet import Outlet, Ticket
from penstock.api.errors import Closed

T = TypeVar("T")


class Answers:
    """Sends messages for tasks, and brings what became of them to the event loop."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._settled: deque[tuple[asyncio.Future[Ticket], Ticket]] = deque()
        self._is_called = False

    async def send(self, outlet: Outlet, message: Encoded) -> "asyncio.Future[Ticket]":
        """Send a message; what is returned has its ticket when that is settled."""
        answer: asyncio.Future[Ticket] = self._loop.create_future()

        def then(ticket: Ticket) -> None:
            self._settled.append((answer, ticket))
            self._call()

        try:
            outlet.send(message, then)
        except BufferError:
            await self._loop.run_in_executor(self._pool, outlet.send_waiting, message, then)
        return answer

    async def result(self, answer: "asyncio.Future[Ticket]") -> Published:
        ticket = await answer
        if ticket.published is not None:
            return ticket.published
        # Finding out why may mean to knock at the brokers' doors.
        return await self._loop.run_in_executor(self._pool, ticket.result)

    def _call(self) -> None:
        """Have the loop look, unless it is about to. Called by producers' threads."""
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._is_called = False  # first: what is settled from now on calls again
        while self._settled:
            answer, ticket = self._settled.popleft()
            if not answer.done():
                answer.set_result(ticket)


async def completed(doing: "asyncio.Future[T]") -> T:
    """What came of something that must not be left half done: a task that is cancelled meanwhile waits for it too."""
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        if not doing.cancelled():
            doing.exception()  # nobody else will ask
        raise


def on_thread(pool: ThreadPoolExecutor, action: Callable[[], T]) -> "asyncio.Future[T]":
    """Do something on a thread of a connection, or elsewhere if that was closed: what is begun can still be ended."""
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(pool, action)
    except RuntimeError:
        return loop.run_in_executor(None, action)


class Worker:
    """One thread that does one thing after the other for tasks.

    What a cancelled task has asked for is still done, and the next to ask waits for it, and hears how it went.
    """

    def __init__(self, name: str) -> None:
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._turn = asyncio.Lock()
        self._doing: asyncio.Future[Any] | None = None

    async def settle(self) -> None:
        """Wait for what is being done for a task that was cancelled."""
        async with self._turn:
            await self._settle()

    async def run(self, action: Callable[[], T]) -> T:
        async with self._turn:
            await self._settle()
            try:
                doing = asyncio.get_running_loop().run_in_executor(self.pool, action)
            except RuntimeError:
                raise Closed("the subscription is closed; subscribe again") from None
            self._doing = doing
            await self._settle()
        return doing.result()

    async def _settle(self) -> None:
        doing = self._doing
        if doing is not None:
            try:
                await asyncio.shield(doing)
            finally:
                if doing.done():
                    self._doing = None

    def close(self, *, is_waiting: bool = False) -> None:
        self.pool.shutdown(wait=is_waiting)
