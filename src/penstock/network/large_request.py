"""Memory for requests that are too large for the shared receive buffer, while they arrive; buffers used again."""

import mmap
from typing import Final

from penstock.network.budget import Loan

REST_BYTES_MAX: Final = 32 << 10
"""Of a request up to this size, what was read is kept and put before the next read; a larger one gets a buffer."""
SMALL_FRAME_BYTES_MAX: Final = 2 << 20
"""For every API but Produce, whose bytes are mostly records: decoding costs by the field, on the event loop."""
RECEIVE_BYTES: Final = 1 << 20
RATE_MIN: Final = 4 << 10
"""Bytes per second at which a large request must arrive, over RATE_S: else its connection is closed."""
RATE_S: Final = 30.0
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


class ReceiveRate:
    """Whether a large request arrives at RATE_MIN at least."""

    __slots__ = ("_checked_bytes", "_checked_s")

    def __init__(self) -> None:
        self._checked_s = 0.0
        self._checked_bytes = 0

    def restart(self) -> None:
        """The broker did not read for a while: the sender is not to blame."""
        self._checked_s = 0.0

    def is_slow(self, now_s: float, received_bytes: int) -> bool:
        """Whether less than RATE_MIN arrived for RATE_S; to be asked now and then."""
        if not self._checked_s:
            self._checked_s, self._checked_bytes = now_s, received_bytes
        elapsed_s = now_s - self._checked_s
        if elapsed_s < RATE_S:
            return False
        arrived = received_bytes - self._checked_bytes
        self._checked_s, self._checked_bytes = now_s, received_bytes
        return arrived < RATE_MIN * elapsed_s


class LargeRequest:
    """A request that arrives in pieces. Its memory is mapped, not filled: an announced length costs nothing."""

    __slots__ = ("_buffer", "_have", "_rate", "borrowed", "loan", "size")

    def __init__(self, size: int, buffer: memoryview, have: int, loan: Loan) -> None:
        self.size = size
        self._buffer = buffer
        self._have = have
        self._rate = ReceiveRate()
        self.loan = loan
        self.borrowed: memoryview | None = None
        """A receive buffer to be given back when the request is done."""

    @classmethod
    def alone(cls, size: int, start: memoryview, loan: Loan) -> "LargeRequest":
        """In memory of its own."""
        # Not a bytearray, which is filled with zeros first, and copied when it grows.
        buffer = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        buffer[: len(start)] = start
        return cls(size, buffer, len(start), loan)

    @classmethod
    def within(cls, buffer: memoryview, at: int, size: int, have: int, loan: Loan) -> "LargeRequest":
        """In place: all of the request fits where its beginning was read."""
        self = cls(size, buffer[at : at + size], have, loan)
        self.borrowed = buffer
        return self

    def room(self) -> memoryview:
        """Where the next bytes go."""
        return self._buffer[self._have : self._have + RECEIVE_BYTES]

    def add(self, count: int) -> None:
        """`count` bytes were put there."""
        self._have += count

    @property
    def frame(self) -> memoryview | None:
        """The whole request, once it has arrived."""
        return self._buffer if self._have == self.size else None

    def restart_clock(self) -> None:
        """The broker did not read for a while: the sender is not to blame."""
        self._rate.restart()

    def is_slow(self, now_s: float) -> bool:
        """Whether it arrives too slowly; to be asked now and then."""
        return self._rate.is_slow(now_s, self._have)
