"""Answers a Fetch that reads views, and maybe also topics, within its time and scan limits.

When few records match, the scan ends after the Fetch's wait time or SCAN_BYTES_MAX, and the response moves the reader
past the scanned records; the next Fetch continues from there. While the Fetch waits for new records, it keeps the
matches so far and scans nothing twice.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.call import Call
from penstock.broker.fetch_sessions import FetchPlan, Key
from penstock.broker.views.scan import Scan
from penstock.cluster.views import View
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.wire.messages.fetch import FetchPartition, FetchResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.handlers.fetch import FetchAttempt

logger = logging.getLogger(__name__)

SCAN_BYTES_MAX: Final = 256 << 20
"""Maximum number of bytes of the topic's log scanned for one Fetch."""
GATHER_S: Final = 0.05
"""How long, in seconds, to look for more matches when there are enough to answer."""
SCAN_S_MIN: Final = 0.02
"""Scan time, in seconds, of a Fetch with no wait time."""


def has_views(plan: FetchPlan, broker: "Broker") -> bool:
    return any(broker.view(name, topic_id) is not None for (name, topic_id, _), _ in plan.wanted)


def answer_views(attempt: "FetchAttempt", call: Call) -> None:
    """Answers a Fetch that reads views, once it has enough records or its wait time is over."""
    task = asyncio.get_running_loop().create_task(_ViewFetch(attempt).run())
    attempt.broker.views.tasks.add(task)
    call.on_disconnect = lambda: _cancel(task)

    def done(finished: asyncio.Task[FetchResponse]) -> None:
        attempt.broker.views.tasks.discard(finished)
        if finished.cancelled():
            return
        error = finished.exception()
        if error is not None:
            logger.error("view_fetch_failed", exc_info=error)
            failure = FetchResponse(throttle_time_ms=0, error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=())
        call.answer(finished.result() if error is None else failure)

    task.add_done_callback(done)


def _cancel(task: asyncio.Task[FetchResponse]) -> None:
    task.cancel()


class _ViewFetch:
    """One Fetch request that reads views."""

    def __init__(self, attempt: "FetchAttempt") -> None:
        self._attempt = attempt
        self._broker = attempt.broker
        self._views: list[View] = []
        self._scans: dict[Key, Scan] = {}
        self._kept_bytes = 0
        self._scanned_bytes = 0
        self._failed: set[Key] = set()
        """Partitions whose scan failed and is not continued."""

    async def run(self) -> FetchResponse:
        attempt, now_s = self._attempt, self._broker.clock.monotonic_s
        await self._begin()
        started_s = now_s()
        until_s = started_s + max(attempt.request.max_wait_ms / 1000, SCAN_S_MIN)
        await self._read_all()
        if attempt.failed:  # this broker cannot serve a requested partition
            return attempt.response()
        while True:
            grown = asyncio.Event()
            stop_watching = self._watch(grown)
            try:
                await self._scan(started_s + GATHER_S, until_s)
                await self._read()
                if attempt.is_enough or self._is_over or now_s() >= until_s:
                    return attempt.response()
                try:
                    await asyncio.wait_for(grown.wait(), until_s - now_s())
                except TimeoutError:
                    return attempt.response()
            finally:
                stop_watching()
                for view in self._views:
                    self._broker.views.note_read(view)

    async def _begin(self) -> None:
        """Looks up the views and compiles their expressions."""
        service = self._broker.views
        for key, wanted in self._attempt.plan.wanted:
            found = self._broker.view(key[0], key[1])
            if found is None or found.view is None:
                continue
            view = found.view
            service.note_read(view)
            self._views.append(view)
            self._scans[key] = Scan(
                topic_id=view.topic_id,
                predicate=await service.predicate(view),
                from_offset=wanted.fetch_offset,
                is_stable=self._attempt.is_stable,
                slices=service.slices,
                arenas=service.arenas,
                threads=self._broker.threads,
                counts=service.counts_of(view.name),
            )
        self._attempt.scans = self._scans

    @property
    def _is_over(self) -> bool:
        """Whether waiting is pointless: a scan failed, or existing records are left for the next Fetch to scan."""
        return bool(self._failed) or not all(scan.is_at_end for scan in self._scans.values())

    def _bytes_left(self, scan: Scan, wanted: FetchPartition) -> int:
        """Returns how many more bytes may match in a partition. The first match is returned at any size."""
        bytes_left: int = min(
            wanted.partition_max_bytes - scan.kept_bytes, self._attempt.limit_bytes - self._kept_bytes
        )
        return bytes_left if self._kept_bytes else max(bytes_left, 1)

    async def _scan(self, gather_until_s: float, until_s: float) -> None:
        """Scans all partitions in turn, at least once, until there are enough matches, no more records or no time."""
        attempt, now_s = self._attempt, self._broker.clock.monotonic_s
        active = [(key, wanted) for key, wanted in attempt.plan.wanted if key in self._scans]
        while active:
            unfinished = []
            for key, wanted in active:
                scan = self._scans[key]
                bytes_left = self._bytes_left(scan, wanted)
                if key in self._failed or bytes_left <= 0:
                    continue
                kept_bytes, scanned_bytes = scan.kept_bytes, scan.scanned_bytes
                try:
                    await scan.scan_next(attempt.find(key), kept_bytes + bytes_left)
                except PenstockError as error:
                    self._fail(key, error)
                self._kept_bytes += scan.kept_bytes - kept_bytes
                self._scanned_bytes += scan.scanned_bytes - scanned_bytes
                if not scan.is_at_end and key not in self._failed:
                    unfinished.append((key, wanted))
            active = unfinished
            is_enough = self._kept_bytes >= max(1, attempt.request.min_bytes)
            is_late = now_s() >= (gather_until_s if is_enough else until_s)
            if is_late or self._scanned_bytes >= SCAN_BYTES_MAX:
                return

    def _fail(self, key: Key, error: PenstockError) -> None:
        """Ends the scan of a partition: its response has the matches before the error, or the error if none."""
        self._failed.add(key)
        if not self._scans[key].records:
            self._attempt.failures[key] = error

    async def _read(self) -> None:
        """Builds the response, including records of topics that are not views."""
        attempt, loop = self._attempt, asyncio.get_running_loop()
        await self._read_all()
        for _ in range(3):
            if not attempt.cold:
                return
            for cold in attempt.cold:
                await loop.run_in_executor(self._broker.threads, cold.warm)
            await self._read_all()
        if attempt.cold:
            await self._read_all(blocking=True)

    async def _read_all(self, blocking: bool = False) -> None:
        if self._attempt.is_large:
            await self._broker.slices.run(self._attempt.read_steps(blocking))
        else:
            self._attempt.read(blocking)

    def _watch(self, grown: asyncio.Event) -> Callable[[], None]:
        """Sets `grown` when a log grows from now on, also during the scan. Returns a function that stops watching."""
        tickets = []
        for key, _ in self._attempt.plan.wanted:
            try:
                partition = self._attempt.find(key)
            except PenstockError:
                continue  # reading returns the error
            tickets.append((partition.unwatch, partition.watch(grown.set)))

        def stop() -> None:
            for unwatch, ticket in tickets:
                unwatch(ticket)

        return stop
