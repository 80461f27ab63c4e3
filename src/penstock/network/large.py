"""A request that is too large for the shared receive buffer, while it arrives."""

from typing import Final

FIRST_BYTES: Final = 4 << 20


class LargeRequest:
    """A buffer that grows with what arrives: a length that was announced costs nothing by itself."""

    __slots__ = ("_buffer", "_have", "size")

    def __init__(self, size: int, start: bytes) -> None:
        self.size = size
        self._have = len(start)
        self._buffer = memoryview(bytearray(min(size, max(FIRST_BYTES, self._have))))
        self._buffer[: self._have] = start

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
