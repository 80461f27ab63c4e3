"""Timers by key: a heap of due times with cheap postponement. Pure."""

from collections.abc import Hashable
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """One due time per key. Memory is bounded: stale heap entries are removed when they outnumber the keys.

    A postponed key keeps its earlier heap entry until that is due: most keys are postponed again before then.
    """

    def __init__(self) -> None:
        self._due: dict[K, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._numbers = count()

    def set(self, key: K, at_ms: int) -> None:
        """Sets the due time of a key; replaces an earlier due time."""
        before = self._due.get(key)
        self._due[key] = entry = (at_ms, next(self._numbers))
        if before is not None and before[0] <= at_ms:
            return  # the heap has an entry no later than this; see `next_ms`
        heappush(self._heap, (*entry, key))
        if len(self._heap) > 2 * len(self._due) + 64:
            self._heap = sorted((at, number, key) for key, (at, number) in self._due.items())

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    @property
    def next_ms_lower_bound(self) -> int | None:
        """A lower bound of `next_ms`, in constant time: a caller may wake up too early, and must then check again."""
        heap = self._heap
        while heap and heap[0][2] not in self._due:
            heappop(heap)
        return heap[0][0] if heap else None

    @property
    def next_ms(self) -> int | None:
        """When the first key is due; None if there are no keys."""
        heap = self._heap
        while heap:
            at_ms, number, key = heap[0]
            due = self._due.get(key)
            if due is None:
                heappop(heap)
            elif due != (at_ms, number):
                heapreplace(heap, (*due, key))
            else:
                break
        return heap[0][0] if heap else None

    def take(self, now_ms: int) -> K | None:
        """Removes and returns the first key that is due at `now_ms`; None if no key is due."""
        at_ms = self.next_ms
        if at_ms is None or at_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._due[key]
        return key
