"""A network that delays, loses, repeats and reorders messages, and can be cut between any two places."""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from tests.simulation.clock import FakeClock


@dataclass(slots=True, kw_only=True)
class Conditions:
    """How bad the network is."""

    delay_ms_max: int = 20
    loss: float = 0.0
    repeat: float = 0.0


class FakeNetwork:
    """Messages in flight, by the time at which they arrive."""

    def __init__(self, rng: Random, clock: FakeClock, conditions: Conditions | None = None) -> None:
        self._rng = rng
        self._clock = clock
        self.conditions = conditions or Conditions()
        self._numbers = count()
        self._in_flight: list[tuple[int, int, Hashable, Hashable, Any]] = []
        self._cut: set[tuple[Hashable, Hashable]] = set()

    def cut(self, source: Hashable, target: Hashable) -> None:
        """Nothing passes from source to target any more; cut both ways for a full partition."""
        self._cut.add((source, target))

    def heal(self) -> None:
        self._cut.clear()

    def send(self, source: Hashable, target: Hashable, message: Any) -> None:
        copies = 2 if self._rng.random() < self.conditions.repeat else 1
        for _ in range(copies):
            if self._rng.random() >= self.conditions.loss:
                at_ms = self._clock.now_ms() + self._rng.randint(0, self.conditions.delay_ms_max)
                heapq.heappush(self._in_flight, (at_ms, next(self._numbers), source, target, message))

    def next_at_ms(self) -> int | None:
        return self._in_flight[0][0] if self._in_flight else None

    def arrivals(self) -> list[tuple[Hashable, Hashable, Any]]:
        """What has arrived by now, in order. A link that is cut now loses what is on it."""
        found = []
        while self._in_flight and self._in_flight[0][0] <= self._clock.now_ms():
            _, _, source, target, message = heapq.heappop(self._in_flight)
            if (source, target) not in self._cut:
                found.append((source, target, message))
        return found
