"""Exponential backoff with jitter between retries."""

from random import Random


class Backoff:
    """Wait times that double up to a maximum, each shortened at random by up to half to spread clients out.

    >>> 0.05 <= Backoff(Random(7), first_s=0.1, max_s=1.0).next_s() <= 0.1
    True
    """

    def __init__(self, rng: Random, *, first_s: float, max_s: float) -> None:
        self._rng = rng
        self._next_s = first_s
        self._max_s = max_s

    def next_s(self) -> float:
        wait_s = self._next_s * (0.5 + 0.5 * self._rng.random())
        self._next_s = min(self._next_s * 2, self._max_s)
        return wait_s
