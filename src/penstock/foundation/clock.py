"""Time is passed in. Pure code takes `now_ms`; shells take a Clock."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: what timestamps and retention are measured in."""

    def monotonic_s(self) -> float:
        """Seconds that never run backwards: what waiting is measured in."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
