"""A bound on bytes that are held for requests still on their way in."""

from collections import deque
from collections.abc import Callable


class Budget:
    """Bytes to lend. Who cannot have its share waits in line and is called when it can."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.lent_bytes = 0
        self._waiting: deque[tuple[int, Callable[[int], None]]] = deque()

    @property
    def is_contended(self) -> bool:
        return bool(self._waiting)

    def borrow(self, count: int, when_ready: Callable[[int], None]) -> bool:
        """True if the bytes may be used now; else `when_ready` is called with their number once they may."""
        if not self._waiting and (self.lent_bytes == 0 or self.lent_bytes + count <= self._limit_bytes):
            self.lent_bytes += count
            return True
        self._waiting.append((count, when_ready))
        return False

    def give_back(self, count: int) -> None:
        self.lent_bytes -= count
        while self._waiting:
            wanted, when_ready = self._waiting[0]
            if self.lent_bytes and self.lent_bytes + wanted > self._limit_bytes:
                return
            self._waiting.popleft()
            self.lent_bytes += wanted
            when_ready(wanted)
