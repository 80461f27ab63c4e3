"""Replication throttle (KIP-73): a token bucket that limits how fast lagging replicas catch up.

One throttle limits the bytes that this broker sends, another the bytes that it fetches. Only replicas listed by the
topic are throttled, and only until they are in sync: new records are never delayed. Pure.
"""

from collections.abc import Callable
from typing import Final

from penstock.foundation.settings import LONG_MAX

UNLIMITED: Final = LONG_MAX
BURST_MS: Final = 1000
"""Size of the token bucket, as milliseconds at the full rate. It is longer than a follower's Fetch waits for new
records (by default 500 ms): tokens that do not fit into the bucket meanwhile would be lost."""
_WAIT_MAX_MS: Final = 60_000


class Throttle:
    """A token bucket of bytes.

    Since batches are sent whole, more bytes may be taken than are available; then none are available until the debt
    is refilled. So the average stays below the rate, and a burst below the bucket size plus one batch.
    """

    def __init__(self, rate: Callable[[], int] = lambda: UNLIMITED) -> None:
        """`rate`: returns the current limit in bytes per second."""
        self._rate = rate
        self._known_rate = UNLIMITED
        self._level = 0
        """Tokens in the bucket, in thousandths of a byte."""
        self._at_ms = 0
        self.taken = 0
        """Total of the bytes passed to `take` since this object was created, also while there was no limit."""

    def available(self, now_ms: int) -> int:
        """Returns the number of bytes that may be sent, or fetched, now; 0 or less means none."""
        if self._rate() >= UNLIMITED:
            return UNLIMITED
        self._refill(now_ms)
        return self._level // 1000

    def take(self, count: int, now_ms: int) -> None:
        """Removes `count` bytes, sent or received, from the token bucket. Its level may become negative."""
        self.taken += count
        if self._rate() < UNLIMITED:
            self._refill(now_ms)
            self._level -= 1000 * count

    def wait_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until bytes are available, at most a minute, since the rate may change."""
        available, rate = self.available(now_ms), self._rate()
        if available > 0:
            return 0
        if rate <= 0:
            return _WAIT_MAX_MS
        return min(_WAIT_MAX_MS, max(1, (1000 - self._level + rate - 1) // rate))

    def _refill(self, now_ms: int) -> None:
        rate = self._rate()
        if rate != self._known_rate:  # tokens or debt of another rate do not count
            self._known_rate = rate
            self._level, self._at_ms = 0, now_ms
        passed_ms, self._at_ms = max(0, now_ms - self._at_ms), max(now_ms, self._at_ms)
        self._level = min(self._level + rate * passed_ms, max(rate * BURST_MS, 1000))
