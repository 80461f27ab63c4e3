"""Delayed fetches: Fetch requests that wait for min bytes, and large requests that read in time slices."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container
from typing import Final

from penstock.broker.call import Call
from penstock.broker.fetch.attempt import STEP_MASK, FetchAttempt
from penstock.broker.fetch.sessions import Key
from penstock.foundation.errors import PenstockError
from penstock.foundation.steps import Steps, run_steps
from penstock.wire.messages.fetch import FetchResponse

THROTTLE_RETRY_MS: Final = 10
"""Minimum delay, in milliseconds, before a throttled follower's fetch is retried."""


class DelayedFetch:
    """A Fetch request that waits until min bytes are available or its max wait time is over."""

    def __init__(self, attempt: FetchAttempt, call: Call) -> None:
        self._attempt = attempt
        self._call = call
        self._watches = GrowthWatches(attempt)
        wait_ms = attempt.request.max_wait_ms + 1  # timers have millisecond precision: one more, to never be early
        self._cancel_timer = attempt.broker.timer(wait_ms / 1000, self._on_timeout)
        self._cancel_retry = _noop
        call.on_disconnect = self._cancel
        self._wait()

    def _wait(self) -> None:
        broker, follower = self._attempt.broker, self._attempt.follower
        throttled = set() if follower is None else follower.throttled
        run_steps(self._watches.add_steps(self._on_growth, throttled))  # growth does not help a throttled partition
        if throttled:
            wait_ms = broker.throttle.wait_ms(broker.clock.steady_ms())
            self._cancel_retry = broker.timer(max(wait_ms, THROTTLE_RETRY_MS) / 1000, self._retry_throttled)

    def _on_growth(self) -> None:
        # Not at once: batches records that arrive in this loop iteration; thousands of fetches may wait for the same.
        self._watches.remove()
        self._cancel_retry()
        self._cancel_retry = self._attempt.broker.sliced_calls.add(self._read_again)

    def _retry_throttled(self) -> None:
        """Reads the partitions again: the replication throttle may allow more bytes now."""
        self._watches.remove()
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

    def _cancel(self) -> None:
        self._watches.remove()
        self._cancel_timer()
        self._cancel_retry()


def _noop() -> None:
    pass


class GrowthWatches:
    """Watches the partitions of a Fetch request: for a consumer until records are committed, for a follower until
    they are appended."""

    def __init__(self, attempt: FetchAttempt) -> None:
        self._attempt = attempt
        self._tickets: list[tuple[Callable[[int], None], int]] = []

    def add_steps(self, on_growth: Callable[[], None], unwatched: Container[Key] = ()) -> Steps[None]:
        """Starts watching: calls `on_growth` once for each partition that grows, except partitions in `unwatched`."""
        for number, (key, _) in enumerate(self._attempt.plan.wanted):
            if number & STEP_MASK == STEP_MASK:
                yield
            if key in unwatched:
                continue
            try:
                partition = self._attempt.find(key)
            except PenstockError:
                continue  # reading it returns this error
            if self._attempt.follower is None:
                self._tickets.append((partition.unwatch, partition.watch(on_growth)))
            else:
                self._tickets.append((partition.unwatch_tail, partition.watch_tail(on_growth)))

    def remove(self) -> None:
        for unwatch, ticket in self._tickets:
            unwatch(ticket)
        self._tickets = []


async def answer_large(attempt: FetchAttempt, call: Call) -> FetchResponse:
    """Answers a Fetch request for so many partitions that reading them takes several time slices."""
    until_s = attempt.broker.clock.monotonic_s() + attempt.request.max_wait_ms / 1000
    grown = asyncio.Event()
    call.on_disconnect = grown.set
    return await read_until_enough(attempt, until_s, grown, lambda: call.is_disconnected)


async def read_until_enough(
    attempt: FetchAttempt,
    until_s: float,
    grown: asyncio.Event,
    is_over: Callable[[], bool],
    scan: Callable[[], Awaitable[None]] | None = None,
) -> FetchResponse:
    """Reads in time slices, and again when a partition grows, until min bytes are read; then returns the response.

    Does not wait for growth after `until_s` (monotonic time), or if `is_over()` returns True. `grown` is set when a
    partition grows. `scan`, if given, is awaited before each read: it filters the topic's records if the request
    reads a view (filtered virtual topic).
    """
    slices, now_s = attempt.broker.slices, attempt.broker.clock.monotonic_s
    watches = GrowthWatches(attempt)
    while True:
        grown.clear()
        try:
            # Watch before reading, so that records appended after the read are not missed.
            await slices.run(watches.add_steps(grown.set))
            if scan is not None:
                await scan()
            await attempt.read_sliced()
            await attempt.read_warm()
            wait_s = until_s - now_s()
            if attempt.is_enough or wait_s <= 0 or is_over():
                return await slices.run(attempt.response_steps())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(grown.wait(), wait_s)
        finally:
            watches.remove()
