"""Bridge between threads and asyncio: delivery reports as futures, and worker threads for blocking calls.

confluent_kafka.aio is not used: its producer supports no headers, and so no tags; its consumer waits for a full
batch, or uses a thread pool for every message. Here each subscription has one thread, which fetches many messages at
a time, and delivery reports reach the event loop many at a time.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from penstock.api.core.background_producer import BackgroundProducer, DeliveryReport
from penstock.api.core.encoding import Encoded
from penstock.api.core.message import Published
from penstock.api.errors import Closed

T = TypeVar("T")


class AsyncSender:
    """Sends messages for asyncio tasks, and completes the futures of their delivery reports on the event loop."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._completed: deque[tuple[asyncio.Future[DeliveryReport], DeliveryReport]] = deque()
        self._is_woken = False

    async def send(self, producer: BackgroundProducer, message: Encoded) -> "asyncio.Future[DeliveryReport]":
        """Sends a message. Returns a future of its delivery report."""
        future: asyncio.Future[DeliveryReport] = self._loop.create_future()

        def on_complete(report: DeliveryReport) -> None:
            self._completed.append((future, report))
            self._wake_loop()

        try:
            producer.send(message, on_complete)
        except BufferError:
            await self._loop.run_in_executor(self._pool, producer.send_waiting, message, on_complete)
        return future

    async def result(self, future: "asyncio.Future[DeliveryReport]") -> Published:
        report = await future
        if report.published is not None:
            return report.published
        # Explaining the error may block: it may open test connections.
        return await self._loop.run_in_executor(self._pool, report.result)

    def _wake_loop(self) -> None:
        """Schedules `_complete_futures` on the event loop, unless already scheduled. Called by producer threads."""
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._complete_futures)

    def _complete_futures(self) -> None:
        self._is_woken = False  # first: reports that are completed from now on wake the loop again
        while self._completed:
            future, report = self._completed.popleft()
            if not future.done():
                future.set_result(report)


async def completed(future: "asyncio.Future[T]") -> T:
    """Awaits `future` and returns its result. If cancelled, waits for `future` to end, then raises CancelledError."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # marks it as retrieved
        raise


def on_thread(pool: ThreadPoolExecutor, action: Callable[[], T]) -> "asyncio.Future[T]":
    """Runs `action` on `pool` (on the default executor if `pool` is closed). Returns a future of its result."""
    loop = asyncio.get_running_loop()
    try:
        return loop.run_in_executor(pool, action)
    except RuntimeError:
        return loop.run_in_executor(None, action)


class WorkerThread:
    """One thread that runs blocking functions for asyncio tasks, one after the other.

    If a task is cancelled, its function continues. The next call of `run` or `wait_for_cancelled` waits until that
    function ends. If the function failed, that call raises its error, and `run` does not start another function.
    """

    def __init__(self, name: str) -> None:
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._lock = asyncio.Lock()
        self._current: asyncio.Future[Any] | None = None

    async def wait_for_cancelled(self) -> None:
        """Waits for the function that a cancelled task left running. Raises the error of that function."""
        async with self._lock:
            await self._wait_for_current()

    async def run(self, action: Callable[[], T]) -> T:
        async with self._lock:
            await self._wait_for_current()
            try:
                action_future = asyncio.get_running_loop().run_in_executor(self.pool, action)
            except RuntimeError:
                raise Closed("the subscription is closed; subscribe again") from None
            self._current = action_future
            await self._wait_for_current()
        return action_future.result()

    async def _wait_for_current(self) -> None:
        action_future = self._current
        if action_future is not None:
            try:
                await asyncio.shield(action_future)
            finally:
                if action_future.done():
                    self._current = None

    def close(self, *, is_waiting: bool = False) -> None:
        self.pool.shutdown(wait=is_waiting)
