"""Scans a partition for a Fetch of a view (filtered virtual topic), CHUNK_BYTES at a time, each record once."""

import asyncio
from concurrent.futures import Executor
from typing import Final

from penstock.broker.fetch.partition_readers import read_visible
from penstock.broker.views.decompression import Arenas, Body, FoundBatch
from penstock.broker.views.service import ViewCounts
from penstock.foundation.errors import CorruptMessage, PenstockError
from penstock.foundation.time_slices import TimeSlices
from penstock.log.disk import ColdRead
from penstock.records.batch import BatchHeader, batches, check_batch
from penstock.records.columns import Columns, columns_of
from penstock.records.selection import Selection
from penstock.replication.partition import Partition
from penstock.views.predicate import Predicate

CHUNK_BYTES: Final = 2 << 20
"""Maximum number of bytes read from the log at a time."""
WARM_ATTEMPTS: Final = 3


class Scan:
    """A Fetch's scan of one partition of a view (filtered virtual topic): its position, and the matches so far.

    Compressed batches are decompressed on threads; records are matched on the event loop in time slices.
    """

    def __init__(
        self,
        *,
        topic_id: bytes,
        predicate: Predicate,
        from_offset: int,
        is_stable: bool,
        slices: TimeSlices,
        arenas: Arenas,
        threads: Executor,
        counts: ViewCounts,
    ) -> None:
        self.topic_id = topic_id
        """Id of the topic that the view filters."""
        self.scanned_bytes = 0
        self.is_at_end = False
        """Whether the last read reached the end of the log."""
        self._predicate = predicate
        self._selection = Selection(from_offset)
        self._from_offset = from_offset
        self._is_stable = is_stable
        self._slices = slices
        self._arenas = arenas
        self._threads = threads
        self._counts = counts

    @property
    def kept_bytes(self) -> int:
        return self._selection.size_bytes

    @property
    def records(self) -> bytes:
        """The matching records, then a control batch that moves consumers past later offsets without a match."""
        return self._selection.answer().records

    async def scan_next(self, partition: Partition, limit_bytes: int) -> None:
        """Scans the next CHUNK_BYTES of the log; stops early when `limit_bytes` have matched.

        Raises read errors, and CorruptMessage for a damaged batch, even if records before it have matched.
        """
        data = await self._read(partition)
        self.is_at_end = not data
        if not data:
            return
        number = partition.name.partition
        found = [FoundBatch(at, header, self._must_open(header, number)) for at, header in batches(data)]
        if self._is_stable and found:
            end = found[-1].header.next_offset
            self._selection.expect_aborted(partition.log.aborted_between(self._selection.next_offset, end))
        body_max = partition.log.settings.decompressed_bytes_max
        done = 0
        while done < len(found) and self.kept_bytes < limit_bytes:
            # Arena first, then the time slice: a task that waits for an arena must not block those that have one.
            async with self._arenas.decompressed(data, found[done:], body_max) as decompressed, self._slices:
                for body in decompressed.bodies():
                    if self.kept_bytes >= limit_bytes:
                        break
                    each = found[done]
                    done += 1
                    await self._match(each.of(data), each, body, number)

    def _must_open(self, header: BatchHeader, number: int) -> bool:
        return not header.is_control and self._predicate.may_match(number, header.max_timestamp)

    async def _read(self, partition: Partition) -> memoryview:
        """Returns the batches at the current position, copied because the log may be truncated during the scan."""
        loop = asyncio.get_running_loop()
        for _ in range(WARM_ATTEMPTS):
            try:
                return self._read_now(partition, blocking=False)
            except ColdRead as cold:
                await loop.run_in_executor(self._threads, cold.warm)
        return self._read_now(partition, blocking=True)

    def _read_now(self, partition: Partition, *, blocking: bool) -> memoryview:
        # A view must not show records that are hidden from consumers of the topic.
        seen = read_visible(
            partition,
            self._selection.next_offset,
            CHUNK_BYTES,
            blocking=blocking,
            force=True,
            stable=self._is_stable,
        )
        return memoryview(bytes(seen.records))

    async def _match(self, batch: memoryview, found: FoundBatch, body: Body, number: int) -> None:
        header = found.header
        self.scanned_bytes += header.size_bytes
        self._counts.scanned_bytes += header.size_bytes
        selection, counts = self._selection, self._counts
        if not selection.is_visible(header):
            return
        counts.scanned += header.count
        if not found.must_open:
            selection.skip(header)
            return
        columns = self._columns(batch, header, body)
        if columns is None:
            counts.unknown += header.count
            selection.skip(header)
            return
        matching = self._predicate.matching(columns, number, self._first_row(columns))
        for _ in matching:
            if self._slices.is_over:
                await self._slices.next()
        counts.unknown += matching.unknown
        before = selection.count
        if 1 in matching.mask:
            selection.choose(batch, header, columns, matching.mask)
        else:
            selection.skip(header)
        counts.matched += selection.count - before
        if self._slices.is_over:
            await self._slices.next()

    def _columns(self, batch: memoryview, header: BatchHeader, body: Body) -> Columns | None:
        """Returns the records as columns; None if they cannot be decoded (Produce may accept such a batch). Raises
        CorruptMessage if the CRC is wrong, because the re-encoded batch would have a valid CRC."""
        check_batch(batch, 0, header)
        if isinstance(body, PenstockError):
            return None
        if isinstance(body, Columns):
            return body
        try:
            return columns_of(header, body)
        except CorruptMessage:
            return None

    def _first_row(self, columns: Columns) -> int:
        """Returns the first row at or after the requested offset, which may be in the middle of a batch."""
        if not columns.count or columns.offsets[0] >= self._from_offset:
            return 0
        return sum(offset < self._from_offset for offset in columns.offsets)
