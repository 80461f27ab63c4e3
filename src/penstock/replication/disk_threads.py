"""Thread pool for work that waits for the disk: fsync, opening and removing logs, compaction.

Cold reads (of bytes that are not in the page cache) and decompression have other threads: a disk whose fsync takes
seconds would delay them, and with them consumers that need no fsync.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from penstock.foundation.errors import StorageError
from penstock.log.io_queue import Outcome, Work

logger = logging.getLogger(__name__)

T = TypeVar("T")

COUNT: Final = 8
"""Number of disk threads. At most two jobs open logs, one removes logs and one compacts a log at the same time, so
that the other threads stay free for fsyncs."""


class DiskThreads:
    """Runs the jobs of the logs' I/O queues (IoQueue) on threads. Owned by the event loop's thread."""

    def __init__(self, count: int = COUNT) -> None:
        self._pool: Final = ThreadPoolExecutor(count, thread_name_prefix="penstock-disk")
        self.trash: Final = ThreadPoolExecutor(1, thread_name_prefix="penstock-trash")
        """Thread that frees the disk space of removed files in the background, since that may take long."""
        self._running = 0
        self._idle: list[asyncio.Future[None]] = []

    def run(self, work: Work, done: Callable[[Outcome], None]) -> None:
        """Runs the work on a thread, then calls `done` on the event loop."""
        loop = asyncio.get_running_loop()
        self._running += 1
        future = self._pool.submit(Outcome.of, work)
        future.add_done_callback(lambda ended: loop.call_soon_threadsafe(self._on_done, ended, done))

    def _on_done(self, ended: "Future[Outcome]", done: Callable[[Outcome], None]) -> None:
        mistake = ended.exception()
        if mistake is not None:  # the caller gets a StorageError instead of waiting forever
            logger.error("disk_work_failed", exc_info=mistake)
        try:
            done(ended.result() if mistake is None else Outcome(error=StorageError(f"disk work failed: {mistake!r}")))
        finally:
            self._on_ended()

    def _on_ended(self, ended: object = None) -> None:
        self._running -= 1
        if not self._running:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    async def call(self, work: Callable[[], T]) -> T:
        """Runs the work on a thread; returns its result or raises its error. Cancelling does not stop the work."""
        self._running += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        future.add_done_callback(self._on_ended)
        return await asyncio.shield(future)

    async def idle(self) -> None:
        """Waits until no work is running, including work that finished jobs have started."""
        while self._running:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def shutdown(self) -> None:
        """Waits until all work has ended. Removed files that are still in the trash folder are deleted at the next
        start."""
        self._pool.shutdown()
        self.trash.shutdown(cancel_futures=True)
