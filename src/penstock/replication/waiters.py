"""Callbacks that wait for a partition: until an offset is reached, or until the next change (Kafka's purgatories)."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

Waiter = Callable[[], None]
_numbers: Final = count()
_NO_WAITERS: Final[dict[int, Waiter]] = {}
"""Empty table shared by all partitions without waiters, of which a broker may have ten thousand."""


class OffsetWaiters:
    """Callbacks that are called once, when an offset is reached."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: Sequence[tuple[int, int, Waiter]] = ()
        """Heap of waiting callbacks, ordered by offset."""

    def add(self, offset: int, waiter: Waiter) -> None:
        heap = self.waiting if isinstance(self.waiting, list) else []
        heappush(heap, (offset, next(_numbers), waiter))
        self.waiting = heap

    def reach(self, offset: int) -> None:
        while self.waiting and self.waiting[0][0] <= offset:
            assert isinstance(self.waiting, list)
            heappop(self.waiting)[2]()

    def wake(self) -> None:
        """Calls all waiters, because this broker will not reach their offsets."""
        waiting, self.waiting = self.waiting, ()
        for _, _, waiter in waiting:
            waiter()


class ChangeWaiters:
    """Callbacks that are called once, at the next change of a log: an append, or a higher high watermark. `add`
    returns a ticket, with which `remove` cancels a callback."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[int, Waiter] = _NO_WAITERS

    def add(self, waiter: Waiter) -> int:
        if self.waiting is _NO_WAITERS:
            self.waiting = {}
        ticket = next(_numbers)
        self.waiting[ticket] = waiter
        return ticket

    def remove(self, ticket: int) -> None:
        self.waiting.pop(ticket, None)

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, _NO_WAITERS
        for waiter in waiting.values():
            waiter()
