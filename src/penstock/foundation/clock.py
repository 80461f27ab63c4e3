"""Clocks: pure code takes `now_ms`, I/O code takes a Clock, so that tests control the time."""

import time
from collections.abc import Callable
from typing import Protocol

Timer = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Function type: `timer(seconds, action)` schedules the action and returns a function that cancels it."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, for timestamps and retention."""

    def steady_ms(self) -> int:
        """Milliseconds since the epoch that do not jump when the wall clock is set; for state machines."""

    def monotonic_s(self) -> float:
        """Monotonic seconds, for timeouts."""


def conservative_now_ms(clock: Clock) -> int:
    """Returns the earlier time of wall clock and steady clock, so that data expires only when both clocks agree."""
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
