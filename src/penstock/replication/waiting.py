"""Those who wait for a partition: until it has come so far, or until anything happens. Each is called once."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Waiter = Callable[[], None]


class Until:
    """Called when an offset is reached."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, Waiter]] = []
        self._numbers = count()

    def add(self, offset: int, waiter: Waiter) -> None:
        heappush(self.waiting, (offset, next(self._numbers), waiter))

    def reach(self, offset: int) -> None:
        while self.waiting and self.waiting[0][0] <= offset:
            heappop(self.waiting)[2]()

    def wake(self) -> None:
        """Call all: what they wait for will not come here."""
        waiting, self.waiting = self.waiting, []
        for _, _, waiter in waiting:
            waiter()


class News:
    """Called at the next news; whoever has enough of waiting takes its ticket back."""

    def __init__(self) -> None:
        self.waiting: dict[int, Waiter] = {}
        self._numbers = count()

    def add(self, waiter: Waiter) -> int:
        ticket = next(self._numbers)
        self.waiting[ticket] = waiter
        return ticket

    def remove(self, ticket: int) -> None:
        self.waiting.pop(ticket, None)

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for waiter in waiting.values():
            waiter()
