"""Work: blocking loop over the messages of a queue, and handler threads."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self

from penstock.api.core.job import Job
from penstock.api.core.loop_thread import LoopThread
from penstock.api.core.queue_worker import QueueWorker
from penstock.api.errors import add_note_to

Handler = Callable[[Job], object]


class Work:
    """A loop over the messages of a queue. A background thread renews the visibility timeout of messages.

    for job in mq.queue("jobs").work(visibility="30s"):
        print(job.json())

    Requesting the next message deletes the previous message. A loop that ends by an exception or `break` releases the
    current message for redelivery; call job.delete() before a `break` to finish it. With concurrency above 1, that
    many messages may be in flight, and each must be finished by job.delete() or a `with job:` block.
    """

    def __init__(self, owner: object, thread: LoopThread, queue_worker: QueueWorker) -> None:
        self._owner = owner  # a connection lasts as long as its loops
        self._thread = thread
        self._worker = queue_worker
        self._current: Job | None = None
        self._busy = threading.RLock()
        self._workers: set[int] = set()
        # A loop that is not closed releases its messages when it is garbage-collected, or when the process ends.
        self._finalizer = weakref.finalize(self, _abandon, thread, queue_worker)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Job:
        job, self._current = self._current, None
        if job is not None and self._worker.has(job.receipt):
            self._thread.run(self._worker.done(job.receipt))
        return self._next()

    def _next(self) -> Job:
        job = self._take()
        if job is None:
            self.close()
            raise StopIteration
        if self._worker.plan.is_sequential:
            self._current = job
        return job

    def throw(self, error: BaseException) -> Job:
        """Releases the current message after a failure, with a backoff, and returns the next message.

        jobs = mq.queue("jobs").work()
        next(jobs)
        jobs.throw(ValueError("not today"))
        """
        job, self._current = self._current, None
        if job is not None and self._worker.has(job.receipt):
            self._thread.run(self._worker.fail(job.receipt, error))
        return self._next()

    def _take(self) -> Job | None:
        fields = self._thread.run(self._worker.take())
        return None if fields is None else Job(**fields, _actions=self._worker, _thread=self._thread)

    def run(self, handler: Handler) -> int:
        """Calls a function with each message, on `concurrency` threads. Returns how many messages were handled.

        mq.queue("jobs").work(concurrency=8, idle_timeout_s=60).run(print)

        If the function raises, the message is delivered again after a backoff; other messages are still handled. Ends
        by `limit`, `idle_timeout_s`, close() of the loop or connection, or Ctrl-C, once all threads have finished
        their message.
        """
        count = self._worker.plan.concurrency
        with self._busy, self:
            if count == 1:
                return self._work_off(handler)
            with ThreadPoolExecutor(count, thread_name_prefix="penstock-work") as pool:
                workers = [pool.submit(self._work_off, handler) for _ in range(count)]
                try:
                    wait(workers, return_when=FIRST_EXCEPTION)
                finally:
                    self.stop()
            return sum(worker.result() for worker in workers)

    def _work_off(self, handler: Handler) -> int:
        self._workers.add(threading.get_ident())
        done = 0
        while (job := self._take()) is not None:
            done += self._handle(handler, job)
        return done

    def _handle(self, handler: Handler, job: Job) -> bool:
        """Calls the handler with a message. Returns whether the message was handled and deleted."""
        try:
            handler(job)
        except Exception as error:  # noqa: BLE001  # the message is delivered again, and the others are still handled
            if self._worker.has(job.receipt):
                self._thread.run(self._worker.fail(job.receipt, error))
            return False
        return self._thread.run(self._worker.done(job.receipt)) if self._worker.has(job.receipt) else True

    # -- closing

    def stop(self) -> None:
        """Stops taking messages; messages in flight are still processed. Callable by any thread or signal handler.

        jobs = mq.queue("jobs").work()
        signal.signal(signal.SIGTERM, lambda number, frame: jobs.stop())
        """
        self._thread.call(self._worker.stop)

    def close(self) -> None:
        """Ends the loop and releases unfinished messages. Waits for the messages that run() is handling."""
        self.stop()
        if threading.get_ident() not in self._workers:  # a worker cannot wait for itself
            self._close(is_failure=False)

    def _close(self, *, is_failure: bool) -> None:
        with self._busy:
            self._workers.clear()
            self._current = None
            if self._finalizer.detach() is not None:
                self._thread.run(self._worker.close(is_failure=is_failure))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with add_note_to(error):
            self._close(is_failure=isinstance(error, Exception))


def _abandon(thread: LoopThread, queue_worker: QueueWorker) -> None:
    thread.abandon(queue_worker.close(is_failure=True))
