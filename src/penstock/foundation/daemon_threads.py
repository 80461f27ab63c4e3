"""Threads for calls that may block for long, such as those of a KDC: a process that ends does not wait for them."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class DaemonThreads:
    """Threads that are created when they are needed, up to a number; more work waits for them."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        """Calls a function on one of the threads; returns the future of its result."""
        future: Future[Result] = Future()
        self._work.put((future, work))
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._count < self._threads_max:
                self._count += 1
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            future, work = self._work.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001  # it is of the caller, which gets it from the future
                    future.set_exception(error)
            del future, work
            self._idle.release()
