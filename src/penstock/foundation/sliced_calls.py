"""Runs many callbacks that became due at once in time slices, so that they do not block the event loop."""

from collections import OrderedDict
from collections.abc import Callable
from itertools import count

from penstock.foundation.clock import Timer
from penstock.foundation.time_slices import SLICE_S


class SlicedCalls:
    """Runs callbacks in FIFO order; each iteration of the event loop runs as many as fit into one time slice."""

    def __init__(self, now_s: Callable[[], float], timer: Timer) -> None:
        self._now_s = now_s
        self._timer = timer
        self._waiting: OrderedDict[int, Callable[[], None]] = OrderedDict()
        self._numbers = count()
        self._is_due = False

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Schedules a callback for one of the next event loop iterations; returns a function that cancels it."""
        number = next(self._numbers)
        self._waiting[number] = callback
        self._schedule()

        def cancel() -> None:
            self._waiting.pop(number, None)

        return cancel

    def _schedule(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._timer(0, self._run)

    def _run(self) -> None:
        self._is_due = False
        until_s = self._now_s() + SLICE_S
        try:
            while self._waiting:
                _, callback = self._waiting.popitem(last=False)
                callback()
                if self._now_s() >= until_s:
                    break
        finally:
            self._schedule()
