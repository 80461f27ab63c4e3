"""Delayed fetches: Fetch requests that wait for min bytes, for cold reads, or (if large) for time slices."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.call import Call
from penstock.foundation.errors import PenstockError
from penstock.foundation.steps import Steps
from penstock.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from penstock.broker.handlers.fetch import FetchAttempt

WARM_ATTEMPTS: Final = 3
THROTTLE_RETRY_MS: Final = 10
"""Minimum delay, in milliseconds, before a throttled follower's fetch is retried."""
STEP_MASK: Final = 63


async def read_cold(attempt: "FetchAttempt") -> FetchResponse:
    """Loads cold segments into the page cache on a thread, repeats the fetch's reads, and returns the response."""
    loop = asyncio.get_running_loop()
    for _ in range(WARM_ATTEMPTS):
        for cold in attempt.cold:
            await loop.run_in_executor(attempt.broker.threads, cold.warm)
        attempt.read()
        if not attempt.cold:
            break
    else:
        attempt.read(blocking=True)  # pages are evicted at once for lack of memory: block here
    return attempt.response()


class DelayedFetch:
    """A Fetch request that waits until min bytes are available or its max wait time is over."""

    def __init__(self, attempt: "FetchAttempt", call: Call) -> None:
        self._attempt = attempt
        self._call = call
        self._tickets: list[tuple[Callable[[int], None], int]] = []
        wait_ms = attempt.request.max_wait_ms + 1  # timers have millisecond precision: one more, to never be early
        self._cancel_timer = attempt.broker.timer(wait_ms / 1000, self._on_timeout)
        self._cancel_retry = _noop
        call.on_disconnect = self._cancel
        self._wait()

    def _wait(self) -> None:
        attempt = self._attempt
        for key, _ in attempt.plan.wanted:
            if key in attempt.throttled:
                continue  # growth does not help a throttled partition
            partition = attempt.find(key)
            watch, unwatch = partition.watch, partition.unwatch
            if attempt.follower is not None:
                watch, unwatch = partition.watch_tail, partition.unwatch_tail
            self._tickets.append((unwatch, watch(self._on_growth)))
        if attempt.throttled:
            wait_ms = attempt.broker.throttle.wait_ms(attempt.broker.clock.steady_ms())
            self._cancel_retry = attempt.broker.timer(max(wait_ms, THROTTLE_RETRY_MS) / 1000, self._retry_throttled)

    def _on_growth(self) -> None:
        # Not at once: batches records that arrive in this loop iteration; thousands of fetches may wait for the same.
        self._unwatch()
        self._cancel_retry()
        self._cancel_retry = self._attempt.broker.sliced_calls.add(self._read_again)

    def _retry_throttled(self) -> None:
        """Reads the partitions again: the replication throttle may allow more bytes now."""
        self._unwatch()
        self._read_again()

    def _read_again(self) -> None:
        self._attempt.read()
        if self._attempt.is_enough or self._attempt.cold:
            self._answer()
        else:
            self._wait()

    def _on_timeout(self) -> None:
        self._attempt.read()
        self._answer()

    def _answer(self) -> None:
        self._cancel()
        self._call.answer(self._attempt.response())

    def _unwatch(self) -> None:
        for unwatch, ticket in self._tickets:
            unwatch(ticket)
        self._tickets = []

    def _cancel(self) -> None:
        self._unwatch()
        self._cancel_timer()
        self._cancel_retry()


def _noop() -> None:
    pass


# -- fetches of very many partitions


async def answer_large(attempt: "FetchAttempt", call: Call) -> FetchResponse:
    """Handles a Fetch request for so many partitions that reading them takes several time slices."""
    broker, now_s = attempt.broker, attempt.broker.clock.monotonic_s
    until_s = now_s() + attempt.request.max_wait_ms / 1000
    while True:
        grown = asyncio.Event()
        watches = _GrowthWatches()
        try:
            # Watch before reading, so that records appended after the read are not missed.
            await broker.slices.run(watches.add_steps(attempt, grown))
            await _read_large(attempt)
            wait_s = until_s - now_s()
            if attempt.is_enough or wait_s <= 0 or call.is_disconnected:
                return await broker.slices.run(attempt.response_steps())
            call.on_disconnect = grown.set
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(grown.wait(), wait_s)
        finally:
            watches.remove()


async def _read_large(attempt: "FetchAttempt") -> None:
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


class _GrowthWatches:
    """Watches all partitions of a Fetch request for appended records."""

    def __init__(self) -> None:
        self._tickets: list[tuple[Callable[[int], None], int]] = []

    def add_steps(self, attempt: "FetchAttempt", grown: asyncio.Event) -> Steps[None]:
        for number, (key, _) in enumerate(attempt.plan.wanted):
            if number & STEP_MASK == STEP_MASK:
                yield
            try:
                partition = attempt.find(key)
            except PenstockError:
                continue  # reading it returns this error
            watch, unwatch = partition.watch, partition.unwatch
            if attempt.follower is not None:
                watch, unwatch = partition.watch_tail, partition.unwatch_tail
            self._tickets.append((unwatch, watch(grown.set)))

    def remove(self) -> None:
        for unwatch, ticket in self._tickets:
            unwatch(ticket)
        self._tickets = []
