"""Keeps Produce requests of a transactional id in order while one waits for the transaction coordinator."""

from collections import deque
from collections.abc import Callable


class _Queue:
    """The waiting Produce requests of one transactional id."""

    __slots__ = ("is_free", "is_running", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.is_free = True
        self.is_running = False


class ProduceOrder:
    """Runs the Produce requests of each transactional id one at a time, in order of arrival."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    def is_busy(self, transactional_id: str) -> bool:
        return transactional_id in self._queues

    def enqueue(self, transactional_id: str, start: Callable[[], None]) -> None:
        """Calls `start` when all earlier requests of this id have finished; the request must call `finish` once."""
        queue = self._queues.setdefault(transactional_id, _Queue())
        queue.waiting.append(start)
        self._run_waiting(transactional_id, queue)

    def finish(self, transactional_id: str) -> None:
        queue = self._queues[transactional_id]
        queue.is_free = True
        self._run_waiting(transactional_id, queue)

    def _run_waiting(self, transactional_id: str, queue: _Queue) -> None:
        """Starts waiting requests in a loop, not recursively: many may finish as soon as they are started."""
        if queue.is_running:
            return
        queue.is_running = True
        try:
            while queue.is_free and queue.waiting:
                queue.is_free = False
                queue.waiting.popleft()()
        finally:
            queue.is_running = False
        if queue.is_free:
            del self._queues[transactional_id]
