"""Counts delayed messages delivered and cancelled by this broker, and how late they were delivered."""

from typing import Final

BOUNDS_MS: Final = (10, 25, 50, 100, 250, 500, 1000, 5000, 60_000)


class DelayStats:
    """Counters of delayed messages since the process started."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.count = 0
        self.late_ms = 0
        self.buckets = [0] * (len(BOUNDS_MS) + 1)
        """Number of messages by lateness: one count per upper bound in BOUNDS_MS, then one for all later messages."""

    def delivered(self, late_ms: int) -> None:
        self.count += 1
        self.late_ms += max(0, late_ms)
        for at, bound_ms in enumerate(BOUNDS_MS):
            if late_ms <= bound_ms:
                self.buckets[at] += 1
                return
        self.buckets[-1] += 1
