"""Working off a queue, for threads: loops over its messages, and handlers that are given them."""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self

from penstock.api.core.durations import Duration
from penstock.api.core.job import Job, Received
from penstock.api.core.loop_thread import LoopThread
from penstock.api.core.queue_calls import visibility_s
from penstock.api.core.queue_worker import Working
from penstock.api.errors import aside

Handler = Callable[[Job], object]


class Work:
    """Messages of a queue, kept for as long as they are in hand: a thread renews their visibility timeout.

    for job in mq.queue("jobs").work(visibility="30s"):
        print(job.json())

    Asking for the next message says that the last one is done: it is deleted. A loop that ends otherwise, by an
    exception or a break, gives the message back, so that it comes again after a while; job.delete() before a break
    finishes it. With concurrency above 1 so many may be in hand, and each must be finished: by job.delete(), or at
    the end of a `with job:` block.
    """

    def __init__(self, owner: object, thread: LoopThread, working: Working) -> None:
        self._owner = owner  # a connection lasts as long as its loops
        self._thread = thread
        self._working = working
        # Not the loop itself: a message that somebody keeps must not keep the loop from being left.
        self._actions = _WorkActions(thread, working)
        self._in_hand: Job | None = None
        self._busy = threading.RLock()
        self._workers: set[int] = set()
        # A loop that is left and forgotten gives back what it had, at the latest when the process ends.
        self._finalizer = weakref.finalize(self, _abandon, thread, working)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Job:
        job, self._in_hand = self._in_hand, None
        if job is not None and self._actions.has(job):
            self._thread.run(self._working.done(job.receipt))
        return self._next()

    def _next(self) -> Job:
        job = self._take()
        if job is None:
            self.close()
            raise StopIteration
        if self._working.plan.is_in_order:
            self._in_hand = job
        return job

    def throw(self, error: BaseException) -> Job:
        """The message in hand has failed: it is given back, later each time. The next message.

        jobs = mq.queue("jobs").work()
        next(jobs)
        jobs.throw(ValueError("not today"))
        """
        job, self._in_hand = self._in_hand, None
        if job is not None and self._actions.has(job):
            self._actions.fail(job, error)
        return self._next()

    def _take(self) -> Job | None:
        fields = self._thread.run(self._working.take())
        return None if fields is None else Job(**fields, _actions=self._actions)

    def run(self, handler: Handler) -> int:
        """Have a function handle each message, on as many threads as `concurrency` says; how many it has handled.

        mq.queue("jobs").work(concurrency=8, idle_timeout_s=60).run(print)

        An exception gives the message back, to come again after a while, and the next one is handled. It ends when
        the loop is closed (mq.close() does), by `limit` or `idle_timeout_s`, or by Ctrl-C: what other threads are
        handling then, is handled to its end.
        """
        count = self._working.plan.concurrency
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
        """Whether it was handled, and was ours until the end."""
        try:
            handler(job)
        except Exception as error:  # noqa: BLE001  # whatever it is, the message comes again, and others are worked on
            if self._actions.has(job):
                self._actions.fail(job, error)
            return False
        return self._thread.run(self._working.done(job.receipt)) if self._actions.has(job) else True

    # -- the end

    def stop(self) -> None:
        """Take no more messages; those in hand are worked on to their end. Any thread or signal handler may say so.

        jobs = mq.queue("jobs").work()
        signal.signal(signal.SIGTERM, lambda number, frame: jobs.stop())
        """
        self._thread.call(self._working.stop)

    def close(self) -> None:
        """End. What is in hand and not finished is given back; what run() has begun is worked on to its end."""
        self.stop()
        if threading.get_ident() not in self._workers:  # one of its own cannot wait for itself
            self._close(is_failure=False)

    def _close(self, *, is_failure: bool) -> None:
        with self._busy:
            self._workers.clear()
            self._in_hand = None
            if self._finalizer.detach() is not None:
                self._thread.run(self._working.close(is_failure=is_failure))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with aside(error):
            self._close(is_failure=isinstance(error, Exception))


class _WorkActions:
    """Who has the messages of a loop."""

    def __init__(self, thread: LoopThread, working: Working) -> None:
        self._thread = thread
        self._working = working

    def delete(self, job: Received) -> None:
        self._thread.run(self._working.finish(job.receipt))

    def release(self, job: Received, delay: Duration) -> None:
        self._thread.run(self._working.give_back(job.receipt, visibility_s(delay)))

    def extend(self, job: Received, visibility: Duration | None) -> None:
        plan = self._working.plan
        timeout_s = plan.visibility_s if visibility is None else visibility_s(visibility)
        self._thread.run(self._working.extend(job.receipt, timeout_s))

    def fail(self, job: Received, error: BaseException) -> None:
        self._thread.run(self._working.fail(job.receipt, error))

    def has(self, job: Received) -> bool:
        return self._working.has(job.receipt)


def _abandon(thread: LoopThread, working: Working) -> None:
    thread.abandon(working.close(is_failure=True))
