"""Large HTTP bodies while they arrive: their share of the listener's budget, and their minimum rate."""

import asyncio
from collections.abc import Callable

from penstock.network.budget import Loan, ReceiveBudget
from penstock.network.large_request import RATE_S, ReceiveRate


class LargeBody:
    """A body that is on its way in. `awaits_room` says that its connection must not be read from for now."""

    def __init__(self, budget: ReceiveBudget, on_room: Callable[[], None], on_slow: Callable[[], None]) -> None:
        """`on_room` is called when there is room again; `on_slow` when it arrives too slowly."""
        self._on_room = on_room
        self._on_slow = on_slow
        self._loop = asyncio.get_running_loop()
        self._rate = ReceiveRate()
        self._loan = budget.open(self._resume)
        self.awaits_room = False
        self._timer = self._loop.call_later(RATE_S, self._check_rate)
        self._rate.is_slow(self._loop.time(), 0)
        self.receive(0)

    def receive(self, body_bytes: int) -> None:
        """So much of the body has arrived in all."""
        if not self._loan.charge(body_bytes - self._loan.held_bytes):
            self.awaits_room = True

    def complete(self, body_bytes: int) -> Loan:
        """The whole body has arrived. Returns the loan, to be closed when the request is answered."""
        self._timer.cancel()
        self._loan.charge(body_bytes - self._loan.held_bytes)
        return self._loan

    def drop(self) -> None:
        """The rest will not be read."""
        self._timer.cancel()
        self._loan.close()

    def _resume(self) -> None:
        if self.awaits_room:
            self.awaits_room = False
            self.excuse()
            self._on_room()

    def excuse(self) -> None:
        """The broker did not read for a while: the sender is not to blame."""
        self._rate.restart()

    def _check_rate(self) -> None:
        self._timer = self._loop.call_later(RATE_S, self._check_rate)
        if not self.awaits_room and self._rate.is_slow(self._loop.time(), self._loan.held_bytes):
            self._on_slow()
