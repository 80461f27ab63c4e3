"""Keeps Produce requests of a transactional id in order while a request waits for the transaction coordinator."""

from collections import deque
from collections.abc import Callable


class ProduceOrder:
    """Runs the Produce requests of each transactional id one at a time, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        """Waiting requests of each transactional id that has a request in progress."""
        self._ready: deque[Callable[[], None]] = deque()
        self._is_starting = False

    def is_busy(self, transactional_id: str) -> bool:
        return transactional_id in self._waiting

    def enqueue(self, transactional_id: str, start: Callable[[], None]) -> None:
        """Calls `start` when all earlier requests of this id have finished; the request must then call `finish`."""
        if transactional_id in self._waiting:
            self._waiting[transactional_id].append(start)
        else:
            self._waiting[transactional_id] = deque()
            self._start(start)

    def finish(self, transactional_id: str) -> None:
        waiting = self._waiting[transactional_id]
        if waiting:
            self._start(waiting.popleft())
        else:
            del self._waiting[transactional_id]

    def _start(self, start: Callable[[], None]) -> None:
        """Calls `start`, which starts a request. A nested call waits until the outer call returns: no recursion."""
        self._ready.append(start)
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while self._ready:
                self._ready.popleft()()
        finally:
            self._is_starting = False
