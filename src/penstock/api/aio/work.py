"""AsyncWork: asyncio loop over the messages of a queue, and handler tasks."""

import asyncio
import contextlib
import inspect
import weakref
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from penstock.api.core.job import AsyncJob
from penstock.api.core.queue_worker import QueueWorker
from penstock.api.errors import add_note_to

AsyncHandler = Callable[[AsyncJob], Awaitable[object] | object]


class AsyncWork:
    """A loop over the messages of a queue. A background task renews the visibility timeout of messages. See Work.

    async for job in mq.queue("jobs").work(visibility="30s"):
        print(job.json())
    """

    def __init__(self, owner: object, queue_worker: QueueWorker) -> None:
        self._owner = owner  # a connection lasts as long as its loops
        self._worker = queue_worker
        self._workers: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._current: AsyncJob | None = None
        self._finalizer: Any = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncJob:
        await self._delete_current()
        job = await self._take()
        if job is None:
            await self.close()
            raise StopAsyncIteration
        if self._worker.plan.is_sequential:
            self._current = job
        return job

    async def _take(self) -> AsyncJob | None:
        if self._finalizer is None:
            # A loop that is not closed releases its messages when it is garbage-collected.
            self._finalizer = weakref.finalize(self, _abandon, asyncio.get_running_loop(), self._worker)
            self._finalizer.atexit = False  # the event loop is closed by then
        fields = await self._worker.take()
        return None if fields is None else AsyncJob(**fields, _actions=self._worker)

    async def _delete_current(self) -> None:
        job, self._current = self._current, None
        if job is not None and self._worker.has(job.receipt):
            await self._worker.done(job.receipt)

    async def run(self, handler: AsyncHandler) -> int:
        """Calls a function with each message, in `concurrency` tasks; returns how many it handled. See Work.run.

        await mq.queue("jobs").work(concurrency=8, idle_timeout_s=60).run(print)
        """
        done = 0

        async def work() -> None:
            nonlocal done
            while (job := await self._take()) is not None:
                was_handled = await self._handle(handler, job)
                done += was_handled  # not in one statement: other tasks count during the await

        async with self:
            self._workers = {asyncio.ensure_future(work()) for _ in range(self._worker.plan.concurrency)}
            try:
                await asyncio.wait(self._workers, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                self._worker.stop()
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
        """Calls the handler with a message. Returns whether the message was handled and deleted."""
        try:
            given = handler(job)
            if inspect.isawaitable(given):
                await given
        except Exception as error:  # noqa: BLE001  # the message is delivered again, and the others are still handled
            if self._worker.has(job.receipt):
                await self._worker.fail(job.receipt, error)
            return False
        return await self._worker.done(job.receipt) if self._worker.has(job.receipt) else True

    # -- closing

    def stop(self) -> None:
        """Stops taking messages; messages in flight are still processed.

        jobs = mq.queue("jobs").work()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, jobs.stop)
        """
        self._worker.stop()

    async def close(self) -> None:
        """Ends the loop and releases unfinished messages. Waits for the messages that run() is handling."""
        self._worker.stop()
        if asyncio.current_task() in self._workers:
            return  # a worker cannot wait for itself
        if self._workers:
            await self._ended.wait()
        await self._close(is_failure=False)

    async def _close(self, *, is_failure: bool) -> None:
        self._current = None
        if self._finalizer is not None:
            self._finalizer.detach()
        await self._worker.close(is_failure=is_failure)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with add_note_to(error):
            await self._close(is_failure=isinstance(error, Exception))


def _abandon(loop: asyncio.AbstractEventLoop, queue_worker: QueueWorker) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop is closed: the visibility timeout releases the messages
        loop.call_soon_threadsafe(lambda: queue_worker.begin_closing(is_failure=True))
