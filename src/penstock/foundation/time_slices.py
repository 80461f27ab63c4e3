"""Time slices on the event loop: long work runs a few milliseconds at a time, and other callbacks run in between."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

from penstock.foundation.steps import Steps

SLICE_S: Final = 0.002

T = TypeVar("T")


class TimeSlices:
    """A lock for long work on the event loop; the task that holds it must check `is_over` regularly and call `next`.

    The event loop runs at least one whole iteration between two time slices, so that every other callback waits for
    one slice at most, however many tasks do long work.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None
        self._now_s = now_s
        self._until_s = 0.0
        self.taken = 0
        """Number of time slices started so far."""

    async def __aenter__(self) -> "TimeSlices":
        await self.resume()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def is_over(self) -> bool:
        """Whether the task that holds the lock has used up its time slice."""
        return self._now_s() >= self._until_s

    async def next(self) -> None:
        """Lets other callbacks and other long work run, then waits for the next time slice."""
        self.release()
        try:
            await asyncio.sleep(0)
        finally:
            await self.resume()

    def release(self) -> None:
        """Ends this task's time slice; does nothing if the task has none, because it was cancelled while it waited.

        The lock is released in the event loop's next iteration, so that no two time slices run in the same iteration.
        """
        if self._holder is asyncio.current_task():
            self._holder = None
            asyncio.get_running_loop().call_soon(self._lock.release)

    async def resume(self) -> None:
        """Waits until no other task has a time slice, then starts a time slice for this task."""
        await self._lock.acquire()
        self._holder = asyncio.current_task()
        self.taken += 1
        self._until_s = self._now_s() + SLICE_S

    async def run(self, steps: Steps[T]) -> T:
        """Runs interruptible work to its end, in time slices, and returns its result."""
        async with self:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if self.is_over:
                    await self.next()
