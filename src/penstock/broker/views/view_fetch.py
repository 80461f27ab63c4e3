"""Answers a Fetch that reads views (filtered virtual topics), maybe along with topics, within time and scan limits.

When few records match, the scan ends after the Fetch's wait time or SCAN_BYTES_MAX, and the response moves the reader
past the scanned records; the next Fetch continues from there. While the Fetch waits for new records, it keeps the
matches so far and scans nothing twice.
"""

import asyncio
import logging
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.fetch.attempt import FetchAttempt
from penstock.broker.fetch.delayed_fetch import read_until_enough
from penstock.broker.fetch.sessions import FetchPlan, Key
from penstock.broker.views.scan import Scan
from penstock.cluster.views import View
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.replication.partition import Partition
from penstock.replication.visibility_filter import VisibleRecords
from penstock.wire.messages.fetch import FetchPartition, FetchResponse

logger = logging.getLogger(__name__)

SCAN_BYTES_MAX: Final = 256 << 20
"""Maximum number of bytes of the topic's log scanned for one Fetch."""
GATHER_S: Final = 0.05
"""Time, in seconds from the start of a Fetch, after which it scans no further if it has enough matches to respond."""
SCAN_S_MIN: Final = 0.02
"""Minimum scan time of a Fetch, in seconds; used if the Fetch has a shorter wait time."""


def has_views(plan: FetchPlan, broker: Broker) -> bool:
    return any(broker.view(name, topic_id) is not None for (name, topic_id, _), _ in plan.wanted)


def answer_views(attempt: FetchAttempt, call: Call) -> None:
    """Answers a Fetch that reads views (filtered virtual topics), once it has enough records or its time is over."""
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


class ViewReader:
    """Returns the records of a view that a scan has found so far in the topic's log; implements `PartitionReader`."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self.topic_id = scan.topic_id
        self.error: PenstockError | None = None
        """The error that ended the scan; None if the scan has not failed."""

    @property
    def kept_bytes(self) -> int:
        return self.scan.kept_bytes

    def read(
        self, partition: Partition, offset: int, max_bytes: int, *, blocking: bool, force: bool, stable: bool
    ) -> VisibleRecords:
        """Returns the records of the scan so far; if no batch was scanned, raises the scan's error, if any. Only
        `partition` is used: the other parameters have no effect, because the scan has read the log."""
        records, mark, visibility = self.scan.records, partition.high_watermark, partition.visibility
        if self.error is not None and not records:
            raise self.error
        if visibility is not None:
            mark = visibility.visible_to(mark)
        # The scan has already dropped aborted records.
        return VisibleRecords(records, mark, min(mark, partition.last_stable_offset), is_changed=True)


class _ViewFetch:
    """One Fetch request that reads views (filtered virtual topics)."""

    def __init__(self, attempt: FetchAttempt) -> None:
        self._attempt = attempt
        self._broker = attempt.broker
        self._views: list[View] = []
        self._readers: dict[Key, ViewReader] = {}
        self._kept_bytes = 0
        self._scanned_bytes = 0
        self._gather_until_s = self._until_s = 0.0

    async def run(self) -> FetchResponse:
        attempt = self._attempt
        await self._begin()
        await attempt.read_sliced()
        if attempt.failed:  # this broker cannot serve a requested partition
            return attempt.response()
        try:
            return await read_until_enough(attempt, self._until_s, asyncio.Event(), self._is_over, self._scan)
        finally:
            self._note_read()

    async def _begin(self) -> None:
        """Looks up the requested views, compiles their filter expressions, and prepares a scan for each partition."""
        service = self._broker.views
        for key, wanted in self._attempt.plan.wanted:
            found = self._broker.view(key[0], key[1])
            if found is None or found.view is None:
                continue
            view = found.view
            service.note_read(view)
            self._views.append(view)
            scan = Scan(
                topic_id=view.topic_id,
                predicate=await service.predicate(view),
                from_offset=wanted.fetch_offset,
                is_stable=self._attempt.is_stable,
                slices=service.slices,
                arenas=service.arenas,
                threads=self._broker.threads,
                counts=service.counts_of(view.name),
            )
            self._readers[key] = self._attempt.readers[key] = ViewReader(scan)
        started_s = self._broker.clock.monotonic_s()
        self._gather_until_s = started_s + GATHER_S
        self._until_s = started_s + max(self._attempt.request.max_wait_ms / 1000, SCAN_S_MIN)

    def _note_read(self) -> None:
        for view in self._views:
            self._broker.views.note_read(view)

    def _is_over(self) -> bool:
        """Whether to answer without waiting for new records: a scan failed, or stopped before the end of the log."""
        return any(reader.error is not None or not reader.scan.is_at_end for reader in self._readers.values())

    def _bytes_left(self, scan: Scan, wanted: FetchPartition) -> int:
        """Returns how many more bytes of matches a partition may add; at least 1 until the Fetch has a match."""
        bytes_left: int = min(
            wanted.partition_max_bytes - scan.kept_bytes, self._attempt.limit_bytes - self._kept_bytes
        )
        return bytes_left if self._kept_bytes else max(bytes_left, 1)

    async def _scan(self) -> None:
        """Scans all partitions in turn, at least once, until there are enough matches, no more records or no time."""
        attempt, now_s = self._attempt, self._broker.clock.monotonic_s
        self._note_read()
        active = [(key, wanted) for key, wanted in attempt.plan.wanted if key in self._readers]
        while active:
            unfinished = []
            for key, wanted in active:
                reader = self._readers[key]
                scan = reader.scan
                bytes_left = self._bytes_left(scan, wanted)
                if reader.error is not None or bytes_left <= 0:
                    continue
                kept_bytes, scanned_bytes = scan.kept_bytes, scan.scanned_bytes
                try:
                    await scan.scan_next(attempt.find(key), kept_bytes + bytes_left)
                except PenstockError as error:
                    reader.error = error
                self._kept_bytes += scan.kept_bytes - kept_bytes
                self._scanned_bytes += scan.scanned_bytes - scanned_bytes
                if not scan.is_at_end and reader.error is None:
                    unfinished.append((key, wanted))
            active = unfinished
            is_enough = self._kept_bytes >= max(1, attempt.request.min_bytes)
            is_late = now_s() >= (self._gather_until_s if is_enough else self._until_s)
            if is_late or self._scanned_bytes >= SCAN_BYTES_MAX:
                return
