"""How fast replicas that lag may catch up (KIP-73): a token bucket for what this broker sends, one for what it gets.

Only replicas that the topic names are throttled, and only until they are in sync: what is produced now is never held
back. Pure.
"""

from collections.abc import Callable
from typing import Final

from penstock.foundation.settings import LONG_MAX

UNLIMITED: Final = LONG_MAX
BURST_MS: Final = 1000
"""Tokens of so long are saved up: more than followers wait for news, so that none are lost meanwhile."""
_WAIT_MAX_MS: Final = 60_000


class Throttle:
    """A token bucket of bytes.

    More may be taken than there is, for a batch goes whole or not at all; then nothing goes until that is made up
    for. So in the long run no more goes than the rate, and at once no more than a burst and a batch.
    """

    def __init__(self, rate: Callable[[], int] = lambda: UNLIMITED) -> None:
        """`rate`: bytes a second, read anew every time."""
        self._rate = rate
        self._known_rate = UNLIMITED
        self._level = 0
        """Thousandths of bytes."""
        self._at_ms = 0
        self.taken = 0
        """Bytes since the start."""

    def room(self, now_ms: int) -> int:
        """Bytes that may go now; none if that is not more than 0."""
        if self._rate() >= UNLIMITED:
            return UNLIMITED
        self._refill(now_ms)
        return self._level // 1000

    def take(self, count: int, now_ms: int) -> None:
        """So many bytes go, or have gone."""
        self.taken += count
        if self._rate() < UNLIMITED:
            self._refill(now_ms)
            self._level -= 1000 * count

    def wait_ms(self, now_ms: int) -> int:
        """How long to wait until there is room. Not for ever: the rate may be changed."""
        room, rate = self.room(now_ms), self._rate()
        if room > 0:
            return 0
        if rate <= 0:
            return _WAIT_MAX_MS
        return min(_WAIT_MAX_MS, max(1, (1000 - self._level + rate - 1) // rate))

    def _refill(self, now_ms: int) -> None:
        rate = self._rate()
        if rate != self._known_rate:  # what was saved up, or is owed, by another rate says nothing about this one
            self._known_rate = rate
            self._level, self._at_ms = 0, now_ms
        passed_ms, self._at_ms = max(0, now_ms - self._at_ms), max(now_ms, self._at_ms)
        self._level = min(self._level + rate * passed_ms, max(rate * BURST_MS, 1000))
