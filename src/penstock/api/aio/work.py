"""Working off a queue, for tasks: see work.py for what it does."""

import asyncio
import contextlib
import inspect
import weakref
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from penstock.api.core.durations import Duration
from penstock.api.core.job import AsyncJob, Received
from penstock.api.core.queue_calls import visibility_s
from penstock.api.core.queue_worker import Working
from penstock.api.errors import aside

AsyncHandler = Callable[[AsyncJob], Awaitable[object] | object]


class AsyncWork:
    """Messages of a queue, kept for as long as they are in hand. See Work.

    async for job in mq.queue("jobs").work(visibility="30s"):
        print(job.json())
    """

    def __init__(self, owner: object, working: Working) -> None:
        self._owner = owner  # a connection lasts as long as its loops
        self._working = working
        # Not the loop itself: a message that somebody keeps must not keep the loop from being left.
        self._actions = _WorkActions(working)
        self._workers: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._in_hand: AsyncJob | None = None
        self._finalizer: Any = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncJob:
        await self._finish_in_hand()
        job = await self._take()
        if job is None:
            await self.close()
            raise StopAsyncIteration
        if self._working.plan.is_in_order:
            self._in_hand = job
        return job

    async def _take(self) -> AsyncJob | None:
        if self._finalizer is None:
            # A loop that is left and forgotten gives back what it had.
            self._finalizer = weakref.finalize(self, _abandon, asyncio.get_running_loop(), self._working)
            self._finalizer.atexit = False  # the event loop is gone by then
        fields = await self._working.take()
        return None if fields is None else AsyncJob(**fields, _actions=self._actions)

    async def _finish_in_hand(self) -> None:
        job, self._in_hand = self._in_hand, None
        if job is not None and self._actions.has(job):
            await self._working.done(job.receipt)

    async def run(self, handler: AsyncHandler) -> int:
        """Have a function handle each message, so many at a time as `concurrency` says; how many it has handled.

        await mq.queue("jobs").work(concurrency=8, idle_timeout_s=60).run(print)
        """
        done = 0

        async def work() -> None:
            nonlocal done
            while (job := await self._take()) is not None:
                was_handled = await self._handle(handler, job)
                done += was_handled  # not in one: others count meanwhile

        async with self:
            self._workers = {asyncio.ensure_future(work()) for _ in range(self._working.plan.concurrency)}
            try:
                await asyncio.wait(self._workers, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                self._working.stop()
                for task in self._workers:
                    task.cancel()
                results = await asyncio.gather(*self._workers, return_exceptions=True)
                self._workers = set()
                self._ended.set()
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                    raise result
        return done

    async def _handle(self, handler: AsyncHandler, job: AsyncJob) -> bool:
        """Whether it was handled, and was ours until the end."""
        try:
            given = handler(job)
            if inspect.isawaitable(given):
                await given
        except Exception as error:  # noqa: BLE001  # whatever it is, the message comes again, and others are worked on
            if self._actions.has(job):
                await self._actions.fail(job, error)
            return False
        return await self._working.done(job.receipt) if self._actions.has(job) else True

    # -- the end

    def stop(self) -> None:
        """Take no more messages; those in hand are worked on to their end.

        jobs = mq.queue("jobs").work()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, jobs.stop)
        """
        self._working.stop()

    async def close(self) -> None:
        """End. What is in hand and not finished is given back; what run() has begun is worked on to its end."""
        self._working.stop()
        if asyncio.current_task() in self._workers:
            return  # one of its own cannot wait for itself
        if self._workers:
            await self._ended.wait()
        await self._close(is_failure=False)

    async def _close(self, *, is_failure: bool) -> None:
        self._in_hand = None
        if self._finalizer is not None:
            self._finalizer.detach()
        await self._working.close(is_failure=is_failure)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with aside(error):
            await self._close(is_failure=isinstance(error, Exception))


class _WorkActions:
    """Who has the messages of a loop."""

    def __init__(self, working: Working) -> None:
        self._working = working

    async def delete(self, job: Received) -> None:
        await self._working.finish(job.receipt)

    async def release(self, job: Received, delay: Duration) -> None:
        await self._working.give_back(job.receipt, visibility_s(delay))

    async def extend(self, job: Received, visibility: Duration | None) -> None:
        plan = self._working.plan
        await self._working.extend(job.receipt, plan.visibility_s if visibility is None else visibility_s(visibility))

    async def fail(self, job: Received, error: BaseException) -> None:
        await self._working.fail(job.receipt, error)

    def has(self, job: Received) -> bool:
        return self._working.has(job.receipt)


def _abandon(loop: asyncio.AbstractEventLoop, working: Working) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the visibility timeout does it
        loop.call_soon_threadsafe(lambda: working.begin_closing(is_failure=True))
