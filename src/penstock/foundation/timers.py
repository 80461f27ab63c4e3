"""Times at which something is due, by a key. Pure."""

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """One time for each key. Memory is bounded by the keys: stale entries are swept when they outnumber them."""

    def __init__(self) -> None:
        self._due: dict[K, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._numbers = count()

    def set(self, key: K, at_ms: int) -> None:
        """Due at this time, and no longer at the one that was set before."""
        entry = (at_ms, next(self._numbers))
        self._due[key] = entry
        heappush(self._heap, (*entry, key))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = sorted((at, number, key) for key, (at, number) in self._due.items())

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    @property
    def next_ms(self) -> int | None:
        """When the first of all is due."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][:2]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now_ms: int) -> K | None:
        """The first key that is due by now, which is then set no more."""
        at_ms = self.next_ms
        if at_ms is None or at_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._due[key]
        return key
