"""Those who wait for a partition: until it has come so far, or until anything happens. Each is called once."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

Waiter = Callable[[], None]
_numbers: Final = count()
_NOBODY: Final[dict[int, Waiter]] = {}
"""Stands for a table that is not needed yet: a broker may have ten thousand partitions that nobody waits for."""


class Until:
    """Called when an offset is reached."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: Sequence[tuple[int, int, Waiter]] = ()
        """A heap."""

    def add(self, offset: int, waiter: Waiter) -> None:
        heap = self.waiting if isinstance(self.waiting, list) else []
        heappush(heap, (offset, next(_numbers), waiter))
        self.waiting = heap

    def reach(self, offset: int) -> None:
        while self.waiting and self.waiting[0][0] <= offset:
            assert isinstance(self.waiting, list)
            heappop(self.waiting)[2]()

    def wake(self) -> None:
        """Call all: what they wait for will not come here."""
        waiting, self.waiting = self.waiting, ()
        for _, _, waiter in waiting:
            waiter()


class News:
    """Called at the next news; whoever has enough of waiting takes its ticket back."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[int, Waiter] = _NOBODY

    def add(self, waiter: Waiter) -> int:
        if self.waiting is _NOBODY:
            self.waiting = {}
        ticket = next(_numbers)
        self.waiting[ticket] = waiter
        return ticket

    def remove(self, ticket: int) -> None:
        self.waiting.pop(ticket, None)

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, _NOBODY
        for waiter in waiting.values():
            waiter()
