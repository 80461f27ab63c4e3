"""Decompresses batches for views (filtered virtual topics) on several threads, into memory that is reused.

To allocate memory costs as much as to decompress into it, and a broker's memory should not grow with the number of
views that are read: so all readers share a fixed number of buffers, `Arenas`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from penstock.foundation.errors import PenstockError
from penstock.records.batch import BatchHeader
from penstock.records.columns import Columns, columns_of, decompress_body
from penstock.records.compression import Codec, decompress_zstd_into
from penstock.records.layout import HEADER_BYTES, Buffer

ARENAS: Final = 2
"""Number of arenas (reusable buffers), and of threads that decompress at once; file syncs use other threads."""
ARENA_BYTES: Final = 4 << 20

DECODE_RECORDS_MIN: Final = 20_000
"""Minimum number of records of a compressed batch for decoding it on a thread rather than on the event loop."""

Body = Buffer | Columns | PenstockError


class FoundBatch(NamedTuple):
    """A batch, at position `at` of the bytes read from the log."""

    at: int
    header: BatchHeader
    must_open: bool

    @property
    def is_compressed(self) -> bool:
        return self.must_open and self.header.codec is not Codec.NONE

    def of(self, data: memoryview) -> memoryview:
        return data[self.at : self.at + self.header.size_bytes]


class Arena:
    """A reusable buffer for the decompressed bodies of several batches, one after another."""

    def __init__(self) -> None:
        self._memory = memoryview(b"")
        self._used = 0

    def clear(self) -> None:
        self._used = 0

    def open(self, batch: memoryview, header: BatchHeader, body_max: int) -> Buffer | None:
        """Returns the decompressed body of a batch; None if the arena has no room. A body too large for an empty
        arena, or with a codec other than zstd, gets its own memory.

        Raises MessageTooLarge if the body has more than `body_max` bytes.
        """
        if self._used >= ARENA_BYTES:
            return None
        if header.codec is Codec.ZSTD:
            if not self._memory:
                self._memory = memoryview(bytearray(ARENA_BYTES))
            rest = self._memory[self._used : self._used + body_max]
            size = decompress_zstd_into(batch[HEADER_BYTES:], rest)
            if size is not None:
                self._used += size
                return rest[:size]
            if self._used:
                return None
        body = decompress_body(batch, header, body_max)
        self._used += len(body)
        return body


class Decompression:
    """Decompresses batches, in order, into arenas (reusable buffers); stops when the arenas are full."""

    def __init__(self, data: memoryview, found: Sequence[FoundBatch], body_max: int) -> None:
        self._data = data
        self._body_max = body_max
        self._left = iter(enumerate(found))
        self._is_full = False
        self._bodies: dict[int, Body] = {}

    def work(self, arena: Arena) -> None:
        """Decompresses at least one batch. Runs on a thread, or on several threads with one arena each."""
        for position, each in self._left:
            body: Body | None = b""
            if each.must_open:
                batch = each.of(self._data)
                try:
                    if each.is_compressed:
                        body = arena.open(batch, each.header, self._body_max)
                        if body is not None and each.header.count >= DECODE_RECORDS_MIN:
                            body = columns_of(each.header, body)
                    else:
                        body = decompress_body(batch, each.header)
                except PenstockError as error:
                    body = error
            if body is None:
                self._is_full = True
            else:
                self._bodies[position] = body
            if self._is_full:
                return

    def bodies(self) -> Iterator[Body]:
        """Yields the decompressed bodies in batch order; stops at the first batch that did not fit into an arena."""
        for position in range(len(self._bodies)):
            if position not in self._bodies:
                return
            yield self._bodies[position]


class Arenas:
    """A pool of arenas (reusable buffers), shared by all Fetches of views; a Fetch waits while no arena is free."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._free = [Arena() for _ in range(ARENAS)]
        self._count = asyncio.Semaphore(ARENAS)

    @asynccontextmanager
    async def decompressed(
        self, data: memoryview, found: Sequence[FoundBatch], body_max: int
    ) -> AsyncIterator[Decompression]:
        """Decompresses the first batches of `found`: as many as fit into the free arenas, at least one. Bodies are
        valid until the `async with` block ends. `body_max`: maximum size of a body, in bytes."""
        decompression = Decompression(data, found, body_max)
        compressed = sum(each.is_compressed for each in found)
        if not compressed:
            decompression.work(Arena())
            yield decompression
            return
        arenas = await self._take(compressed)
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(self._threads, decompression.work, arena) for arena in arenas]
        try:
            await asyncio.wait(jobs)
            for work in jobs:
                work.result()
            yield decompression
        finally:
            for arena, work in zip(arenas, jobs, strict=True):
                if work.done():
                    self._release(arena)
                else:  # the reader was cancelled, but the thread still writes to it
                    work.add_done_callback(partial(self._release, arena))

    async def _take(self, wanted: int) -> list[Arena]:
        """Returns at least one arena, and at most `wanted` free arenas. Waits while none is free."""
        await self._count.acquire()
        taken = [self._free.pop()]
        while len(taken) < wanted and not self._count.locked():
            await self._count.acquire()
            taken.append(self._free.pop())
        return taken

    def _release(self, arena: Arena, _: object = None) -> None:
        arena.clear()
        self._free.append(arena)
        self._count.release()
