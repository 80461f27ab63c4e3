"""Turns: what was sent first is written first, where the first has to wait for an answer."""

from collections import deque
from collections.abc import Callable


class _Line:
    """Those who want the same turn."""

    __slots__ = ("is_free", "is_moving", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.is_free = True
        self.is_moving = False


class Turns:
    """One at a time for each transactional id, in the order in which they came."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def is_taken(self, transactional_id: str) -> bool:
        return transactional_id in self._lines

    def take(self, transactional_id: str, start: Callable[[], None]) -> None:
        """Call `start` when nobody is before it; whoever was started calls `give` once."""
        line = self._lines.setdefault(transactional_id, _Line())
        line.waiting.append(start)
        self._move(transactional_id, line)

    def give(self, transactional_id: str) -> None:
        line = self._lines[transactional_id]
        line.is_free = True
        self._move(transactional_id, line)

    def _move(self, transactional_id: str, line: _Line) -> None:
        """A loop and no recursion: many may be done as soon as they are started."""
        if line.is_moving:
            return
        line.is_moving = True
        try:
            while line.is_free and line.waiting:
                line.is_free = False
                line.waiting.popleft()()
        finally:
            line.is_moving = False
        if line.is_free:
            del self._lines[transactional_id]
