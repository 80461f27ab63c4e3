"""Compressed batches opened on threads, several at once, into memory that is used again.

Memory that is fresh costs as much as the decompression into it, and a broker that reads through views should not
take the more of it the more views are read: see `Arenas`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from penstock.foundation.errors import PenstockError
from penstock.records.batch import BatchHeader
from penstock.records.columns import Columns, columns_of, open_body
from penstock.records.compression import Codec, unzstd_into
from penstock.records.layout import HEADER_BYTES, Buffer

ARENAS: Final = 2
"""So many threads open batches at a time, for all readers together: the others have files to sync."""
ARENA_BYTES: Final = 4 << 20

DECODE_RECORDS_MIN: Final = 20_000
"""Compressed batches with more records are decoded on the thread, too."""

Opened = Buffer | Columns | PenstockError


class Found(NamedTuple):
    """A batch in what was read."""

    at: int
    header: BatchHeader
    must_open: bool

    @property
    def is_compressed(self) -> bool:
        return self.must_open and self.header.codec is not Codec.NONE

    def of(self, data: memoryview) -> memoryview:
        return data[self.at : self.at + self.header.size_bytes]


class Arena:
    """Memory for the bodies of some batches, one behind the other."""

    def __init__(self) -> None:
        self._room = memoryview(b"")
        self._used = 0

    def clear(self) -> None:
        self._used = 0

    def open(self, batch: memoryview, header: BatchHeader, body_max: int) -> Buffer | None:
        """The body of a batch; None if there is no room left. What cannot be put here has memory of its own.

        Raises MessageTooLarge if it has more than `body_max` bytes.
        """
        if self._used >= ARENA_BYTES:
            return None
        if header.codec is Codec.ZSTD:
            if not self._room:
                self._room = memoryview(bytearray(ARENA_BYTES))
            rest = self._room[self._used :]
            size = unzstd_into(batch[HEADER_BYTES:], rest)
            if size is not None:
                self._used += size
                return rest[:size]
            if self._used:
                return None
        body = open_body(batch, header, body_max)
        self._used += len(body)
        return body


class Decompression:
    """The first of some batches, as many as there is room for, by their places in the sequence."""

    def __init__(self, data: memoryview, found: Sequence[Found], body_max: int) -> None:
        self._data = data
        self._body_max = body_max
        self._left = iter(enumerate(found))
        self._is_full = False
        self._bodies: dict[int, Opened] = {}

    def work(self, arena: Arena) -> None:
        """On a thread; others may do the same with arenas of their own. At least one body is there in the end."""
        for place, each in self._left:
            body: Opened | None = b""
            if each.must_open:
                batch = each.of(self._data)
                try:
                    if each.is_compressed:
                        body = arena.open(batch, each.header, self._body_max)
                        if body is not None and each.header.count >= DECODE_RECORDS_MIN:
                            body = columns_of(each.header, body)
                    else:
                        body = open_body(batch, each.header)
                except PenstockError as error:
                    body = error
            if body is None:
                self._is_full = True
            else:
                self._bodies[place] = body
            if self._is_full:
                return

    def bodies(self) -> Iterator[Opened]:
        """In the order of the batches, up to the first that there was no room for."""
        for place in range(len(self._bodies)):
            if place not in self._bodies:
                return
            yield self._bodies[place]


class Arenas:
    """All there are, for the readers of all views. Whoever finds none free waits."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._free = [Arena() for _ in range(ARENAS)]
        self._count = asyncio.Semaphore(ARENAS)

    @asynccontextmanager
    async def opened(self, data: memoryview, found: Sequence[Found], body_max: int) -> AsyncIterator[Decompression]:
        """The first of some batches, at least one. Their bodies are there until the block ends."""
        opening = Decompression(data, found, body_max)
        compressed = sum(each.is_compressed for each in found)
        if not compressed:
            opening.work(Arena())
            yield opening
            return
        arenas = await self._take(compressed)
        loop = asyncio.get_running_loop()
        works = [loop.run_in_executor(self._threads, opening.work, arena) for arena in arenas]
        try:
            await asyncio.wait(works)
            for work in works:
                work.result()
            yield opening
        finally:
            for arena, work in zip(arenas, works, strict=True):
                if work.done():
                    self._give_back(arena)
                else:  # who wanted it is gone, but the thread still writes to it
                    work.add_done_callback(partial(self._give_back, arena))

    async def _take(self, wanted: int) -> list[Arena]:
        """One at least, and no more than are free and wanted."""
        await self._count.acquire()
        taken = [self._free.pop()]
        while len(taken) < wanted and not self._count.locked():
            await self._count.acquire()
            taken.append(self._free.pop())
        return taken

    def _give_back(self, arena: Arena, _: object = None) -> None:
        arena.clear()
        self._free.append(arena)
        self._count.release()
