"""What requests may take: those too large for the shared receive buffer, while they arrive; buffers used again."""

import mmap
from typing import Final

REST_BYTES_MAX: Final = 32 << 10
"""Of a request up to this size, what was read is kept and put before the next read; a larger one gets a buffer."""
SMALL_FRAME_BYTES_MAX: Final = 2 << 20
"""For every API but Produce, whose bytes are mostly records: decoding costs by the field, on the event loop."""
FIRST_BYTES: Final = 4 << 20
RECEIVE_BYTES: Final = 1 << 20
BUFFERS_MAX: Final = 16
"""Beside the shared one; then requests get memory of their own."""


class Buffers:
    """Receive buffers. A few are kept: fresh memory costs more than what is read into it."""

    def __init__(self) -> None:
        self._spares: list[memoryview] = []
        self._made = 0
        self._unneeded = 0
        """How many of the spares nobody has taken since `shrink` last looked."""

    def take(self) -> memoryview | None:
        """A buffer of RECEIVE_BYTES, unless too many are out."""
        if self._spares:
            self._unneeded = min(self._unneeded, len(self._spares) - 1)
            return self._spares.pop()
        return self.make() if self._made <= BUFFERS_MAX else None

    def make(self) -> memoryview:
        self._made += 1
        # Of its own, not of the heap, which would keep what is freed in its middle.
        return memoryview(mmap.mmap(-1, RECEIVE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def give(self, buffer: memoryview) -> None:
        self._spares.append(buffer)

    def shrink(self) -> None:
        """Let go of what nobody has needed since the last time."""
        del self._spares[: self._unneeded]
        self._made -= self._unneeded
        self._unneeded = len(self._spares)


class LargeRequest:
    """A buffer that grows with what arrives: a length that was announced costs nothing by itself."""

    __slots__ = ("_buffer", "_have", "borrowed", "size")

    def __init__(self, size: int, start: memoryview) -> None:
        self.size = size
        self._have = len(start)
        self._buffer = memoryview(bytearray(min(size, max(FIRST_BYTES, self._have))))
        self._buffer[: self._have] = start
        self.borrowed: memoryview | None = None
        """To be given back when the request is done."""

    @classmethod
    def within(cls, buffer: memoryview, at: int, size: int, have: int) -> "LargeRequest":
        """In place: all of the request fits where its beginning was read."""
        self = cls.__new__(cls)
        self.size = size
        self._have = have
        self._buffer = buffer[at : at + size]
        self.borrowed = buffer
        return self

    def room(self) -> memoryview:
        """Where the next bytes go."""
        return self._buffer[self._have :]

    def add(self, count: int) -> memoryview | None:
        """`count` bytes were put there; the whole request, once it is."""
        self._have += count
        if self._have == self.size:
            return self._buffer
        if self._have == len(self._buffer):
            grown = memoryview(bytearray(min(self.size, 2 * self._have)))
            grown[: self._have] = self._buffer
            self._buffer = grown
        return None
