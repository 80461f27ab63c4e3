"""A large HTTP body that is being received: its share of the memory budget, and its minimum receive rate."""

import asyncio
from collections.abc import Callable

from penstock.network.budget import ReceiveBudget, Reservation
from penstock.network.large_request import RATE_S, ReceiveRate


class LargeBody:
    """A large request body that is being received. While `awaits_memory` is set, its connection must not be read."""

    def __init__(self, budget: ReceiveBudget, on_memory: Callable[[], None], on_slow: Callable[[], None]) -> None:
        """`on_memory` is called when the budget has room again, `on_slow` when the body arrives too slowly."""
        self._on_memory = on_memory
        self._on_slow = on_slow
        self._loop = asyncio.get_running_loop()
        self._rate = ReceiveRate()
        self._reservation = budget.open(self._resume)
        self.awaits_memory = False
        self._timer = self._loop.call_later(RATE_S, self._check_rate)
        self._rate.is_slow(self._loop.time(), 0)
        self.receive(0)

    def receive(self, body_bytes: int) -> None:
        """Charges the budget for newly received bytes; `body_bytes`: total received so far, not the increase."""
        if not self._reservation.charge(body_bytes - self._reservation.held_bytes):
            self.awaits_memory = True

    def complete(self, body_bytes: int) -> Reservation:
        """Ends receiving. Returns the memory reservation, which the caller must close after answering the request."""
        self._timer.cancel()
        self._reservation.charge(body_bytes - self._reservation.held_bytes)
        return self._reservation

    def drop(self) -> None:
        """Returns the reserved bytes to the budget, because the rest of the body will not be read."""
        self._timer.cancel()
        self._reservation.close()

    def _resume(self) -> None:
        if self.awaits_memory:
            self.awaits_memory = False
            self.restart_rate()
            self._on_memory()

    def restart_rate(self) -> None:
        """Restarts the rate measurement after the broker paused reading."""
        self._rate.restart()

    def _check_rate(self) -> None:
        self._timer = self._loop.call_later(RATE_S, self._check_rate)
        if not self.awaits_memory and self._rate.is_slow(self._loop.time(), self._reservation.held_bytes):
            self._on_slow()
