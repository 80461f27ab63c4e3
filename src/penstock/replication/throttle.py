"""Replication throttle (KIP-73): a token bucket that limits how fast lagging replicas catch up.

There is one for the bytes this broker sends, one for those it fetches. Only replicas listed by the topic are
throttled, and only until they are in sync: new records are never delayed. Pure.
"""

from collections.abc import Callable
from typing import Final

from penstock.foundation.settings import LONG_MAX

UNLIMITED: Final = LONG_MAX
BURST_MS: Final = 1000
"""Size of the bucket: longer than followers wait for new records, so that no tokens are lost meanwhile."""
_WAIT_MAX_MS: Final = 60_000


class Throttle:
    """A token bucket of bytes.

    More may be taken than available, since batches are sent whole; then nothing is sent until that is made up for. So
    the average stays below the rate, and a burst below the bucket size plus one batch.
    """

    def __init__(self, rate: Callable[[], int] = lambda: UNLIMITED) -> None:
        """`rate`: returns bytes per second; called each time."""
        self._rate = rate
        self._known_rate = UNLIMITED
        self._level = 0
        """In thousandths of bytes."""
        self._at_ms = 0
        self.taken = 0
        """Bytes taken since the start."""

    def available(self, now_ms: int) -> int:
        """Returns the bytes that may be sent now; 0 or less: none."""
        if self._rate() >= UNLIMITED:
            return UNLIMITED
        self._refill(now_ms)
        return self._level // 1000

    def take(self, count: int, now_ms: int) -> None:
        """Takes bytes that are sent, or were sent."""
        self.taken += count
        if self._rate() < UNLIMITED:
            self._refill(now_ms)
            self._level -= 1000 * count

    def wait_ms(self, now_ms: int) -> int:
        """Returns the time until bytes are available; limited, since the rate may change."""
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
