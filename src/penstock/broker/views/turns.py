"""Turns of filtering: one reader of a view at a time, for a moment each; between them the loop does other things."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

TURN_S: Final = 0.002


class ScanTurns:
    """Whoever filters holds it, and asks now and then whether the turn is over.

    The loop goes round at least once between two turns, whosever they are: however many views are read, what else
    this broker does waits for one turn at most.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None
        self._now_s = now_s
        self._until_s = 0.0
        self.taken = 0
        """How many turns there were."""

    async def __aenter__(self) -> "ScanTurns":
        await self.come_back()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _begin(self) -> None:
        self.taken += 1
        self._until_s = self._now_s() + TURN_S

    @property
    def is_over(self) -> bool:
        return self._now_s() >= self._until_s

    async def next(self) -> None:
        """Let the loop go round, and others have their turns, before one's own goes on."""
        self.leave()
        try:
            await asyncio.sleep(0)
        finally:
            await self.come_back()

    def leave(self) -> None:
        """There is nothing to be done here for a while. One that was cancelled while it waited has no turn to end.

        Who comes until the loop has gone round does not find it free: several would have their turns in one round.
        """
        if self._holder is asyncio.current_task():
            self._holder = None
            asyncio.get_running_loop().call_soon(self._lock.release)

    async def come_back(self) -> None:
        await self._lock.acquire()
        self._holder = asyncio.current_task()
        self._begin()
