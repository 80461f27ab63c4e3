"""Delayed fetches: requests that wait for more bytes, for cold pages, or for their turn on the event loop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.call import Call
from penstock.foundation.errors import PenstockError
from penstock.foundation.steps import Steps
from penstock.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from penstock.broker.handlers.fetch import Attempt

WARM_ATTEMPTS: Final = 3
LOOK_MS: Final = 10
"""How soon at the earliest it is looked again whether a throttled follower may have more."""
STEP_MASK: Final = 63


async def read_cold(attempt: "Attempt") -> FetchResponse:
    """Some of it lies on the device only: have it read into the page cache on a thread, then look again."""
    loop = asyncio.get_running_loop()
    for _ in range(WARM_ATTEMPTS):
        for cold in attempt.cold:
            await loop.run_in_executor(attempt.broker.threads, cold.warm)
        attempt.read()
        if not attempt.cold:
            break
    else:
        attempt.read(blocking=True)  # memory is so short that pages go at once: then wait here
    return attempt.response()


class DelayedFetch:
    """A request that waits for more bytes, or for its time to be up."""

    def __init__(self, attempt: "Attempt", call: Call) -> None:
        self._attempt = attempt
        self._call = call
        self._tickets: list[tuple[Callable[[int], None], int]] = []
        wait_ms = attempt.request.max_wait_ms + 1  # timers count in whole ones, and are never too early so
        self._stop_timer = attempt.broker.timer(wait_ms / 1000, self._time_is_up)
        self._stop_look = _nothing
        call.on_gone = self._forget
        self._wait()

    def _wait(self) -> None:
        attempt = self._attempt
        for key, _ in attempt.plan.wanted:
            if key in attempt.held_back:
                continue  # that it grows is no news
            partition = attempt.find(key)
            watch, unwatch = partition.watch, partition.unwatch
            if attempt.follower is not None:
                watch, unwatch = partition.watch_tail, partition.unwatch_tail
            self._tickets.append((unwatch, watch(self._on_growth)))
        if attempt.held_back:
            wait_ms = attempt.broker.throttle.wait_ms(attempt.broker.clock.steady_ms())
            self._stop_look = attempt.broker.timer(max(wait_ms, LOOK_MS) / 1000, self._look_again)

    def _on_growth(self) -> None:
        # Not at once: what else arrives in this turn of the loop comes along, and thousands may wait for the same.
        self._stop_waiting()
        self._stop_look()
        self._stop_look = self._attempt.broker.sliced_calls.add(self._look)

    def _look_again(self) -> None:
        """There may be room for what was held back."""
        self._stop_waiting()
        self._look()

    def _look(self) -> None:
        self._attempt.read()
        if self._attempt.is_enough or self._attempt.cold:
            self._answer()
        else:
            self._wait()

    def _time_is_up(self) -> None:
        self._attempt.read()
        self._answer()

    def _answer(self) -> None:
        self._forget()
        self._call.answer(self._attempt.response())

    def _stop_waiting(self) -> None:
        for unwatch, ticket in self._tickets:
            unwatch(ticket)
        self._tickets = []

    def _forget(self) -> None:
        self._stop_waiting()
        self._stop_timer()
        self._stop_look()


def _nothing() -> None:
    """There is no look to stop."""


# -- requests for very many partitions


async def answer_large(attempt: "Attempt", call: Call) -> FetchResponse:
    """Answers a request for so many partitions that looking at each takes several time slices."""
    broker, now_s = attempt.broker, attempt.broker.clock.monotonic_s
    until_s = now_s() + attempt.request.max_wait_ms / 1000
    while True:
        grown = asyncio.Event()
        watches = _Watches()
        try:
            # Watched before they are read: what is appended to a partition after it was read is not missed.
            await broker.slices.run(watches.add_steps(attempt, grown))
            await _read_large(attempt)
            wait_s = until_s - now_s()
            if attempt.is_enough or wait_s <= 0 or call.is_gone:
                return await broker.slices.run(attempt.response_steps())
            call.on_gone = grown.set
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(grown.wait(), wait_s)
        finally:
            watches.remove()


async def _read_large(attempt: "Attempt") -> None:
    slices, loop = attempt.broker.slices, asyncio.get_running_loop()
    await slices.run(attempt.read_steps())
    for _ in range(WARM_ATTEMPTS):
        if not attempt.cold:
            return
        for cold in attempt.cold:
            await loop.run_in_executor(attempt.broker.threads, cold.warm)
        await slices.run(attempt.read_steps())
    if attempt.cold:
        await slices.run(attempt.read_steps(blocking=True))


class _Watches:
    """Watches all partitions of a request for growth."""

    def __init__(self) -> None:
        self._tickets: list[tuple[Callable[[int], None], int]] = []

    def add_steps(self, attempt: "Attempt", grown: asyncio.Event) -> Steps[None]:
        for number, (key, _) in enumerate(attempt.plan.wanted):
            if number & STEP_MASK == STEP_MASK:
                yield
            try:
                partition = attempt.find(key)
            except PenstockError:
                continue  # reading it says why
            watch, unwatch = partition.watch, partition.unwatch
            if attempt.follower is not None:
                watch, unwatch = partition.watch_tail, partition.unwatch_tail
            self._tickets.append((unwatch, watch(grown.set)))

    def remove(self) -> None:
        for unwatch, ticket in self._tickets:
            unwatch(ticket)
        self._tickets = []
