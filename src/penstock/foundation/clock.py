"""Time is passed in. Pure code takes `now_ms`; shells take a Clock."""

import time
from collections.abc import Callable
from typing import Protocol

Timer = Callable[[float, Callable[[], None]], Callable[[], None]]
"""`timer(seconds, action)` calls the action later and returns what cancels it."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: what timestamps and retention are measured in."""

    def steady_ms(self) -> int:
        """Milliseconds since the epoch that never jump, whoever sets the clock: what state machines live by."""

    def monotonic_s(self) -> float:
        """Seconds that never run backwards: what waiting is measured in."""


def behind_ms(clock: Clock) -> int:
    """The time by whichever clock is behind: what is old by both has had its time."""
    return min(clock.now_ms(), clock.steady_ms())


class SystemClock:
    def __init__(self) -> None:
        self._steady_from_ns = time.time_ns() - time.monotonic_ns()

    def steady_ms(self) -> int:
        return (self._steady_from_ns + time.monotonic_ns()) // 1_000_000

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
