"""An event loop on its own thread, on which other threads run coroutines."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import uvloop

from penstock.api.errors import Closed

T = TypeVar("T")

ABANDON_S: Final = 5.0


class LoopThread:
    """A running event loop on its own thread. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._loop = uvloop.new_event_loop()
        self._is_closed = False
        # Daemon: a process can end without closing its connections.
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and returns its result. Cancels the coroutine if the caller is interrupted."""
        running = self._submit(work)
        try:
            return running.result()
        finally:
            running.cancel()

    def call(self, action: Callable[[], None]) -> None:
        """Schedules a non-blocking function on the event loop, and returns at once. Ignored after `close`."""
        if not self._is_closed:
            self._loop.call_soon_threadsafe(action)

    def abandon(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine; cancels it after ABANDON_S seconds. On the event loop's thread, does not wait for it."""
        if self._is_closed:
            work.close()
            return
        running = self._submit(work)
        if threading.current_thread() is not self._thread:
            try:
                running.result(ABANDON_S)
            except TimeoutError:
                running.cancel()

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        if self._is_closed:
            work.close()
            raise Closed("the connection is closed; connect again")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancels all tasks of the event loop, and ends its thread."""
        if self._is_closed:
            return
        self._is_closed = True
        running = asyncio.run_coroutine_threadsafe(_cancel_tasks(), self._loop)
        if threading.current_thread() is not self._thread:
            running.result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _cancel_tasks() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_default_executor()
