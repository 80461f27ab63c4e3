"""Kafka requests that are larger than PARTIAL_BYTES_MAX: buffers, buffer pool, and minimum receive rate."""

import mmap
from typing import Final

from penstock.network.budget import Reservation

PARTIAL_BYTES_MAX: Final = 32 << 10
"""Request size, in bytes, up to which an incomplete request is copied in front of the next read. An incomplete
request above this size becomes a LargeRequest."""
SMALL_FRAME_BYTES_MAX: Final = 2 << 20
"""Maximum request size, in bytes, of all APIs but Produce: decoding their many fields would block the event loop."""
RECEIVE_BYTES: Final = 1 << 20
RATE_MIN: Final = 4 << 10
"""Minimum receive rate of a large request, in bytes per second over RATE_S seconds; slower connections are closed."""
RATE_S: Final = 30.0
BUFFERS_MAX: Final = 16
"""Maximum number of pooled buffers besides the shared buffer. If all are in use, a request gets memory of its own."""


class BufferPool:
    """A pool of receive buffers of RECEIVE_BYTES: reusing memory avoids the page faults of fresh memory."""

    def __init__(self) -> None:
        self._spares: list[memoryview] = []
        self._made = 0
        self._unused = 0
        """Number of spare buffers that were not used since the last `shrink`."""

    def take(self) -> memoryview | None:
        """Returns a spare or new buffer of RECEIVE_BYTES; None if BUFFERS_MAX buffers are in use."""
        if self._spares:
            self._unused = min(self._unused, len(self._spares) - 1)
            return self._spares.pop()
        return self.make() if self._made <= BUFFERS_MAX else None

    def make(self) -> memoryview:
        self._made += 1
        # Its own mapping, not from the heap, which may not return memory that is freed in its middle.
        return memoryview(mmap.mmap(-1, RECEIVE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def put_back(self, buffer: memoryview) -> None:
        self._spares.append(buffer)

    def shrink(self) -> None:
        """Frees the spare buffers that were not used since the last `shrink`. Called periodically."""
        del self._spares[: self._unused]
        self._made -= self._unused
        self._unused = len(self._spares)


class ReceiveRate:
    """Measures whether a large request arrives at RATE_MIN or faster."""

    __slots__ = ("_checked_bytes", "_checked_s")

    def __init__(self) -> None:
        self._checked_s = 0.0
        self._checked_bytes = 0

    def restart(self) -> None:
        """Restarts the measurement, because the broker has paused reading in between."""
        self._checked_s = 0.0

    def is_slow(self, now_s: float, received_bytes: int) -> bool:
        """Returns whether the rate over the last RATE_S seconds was below RATE_MIN. Call it periodically."""
        if not self._checked_s:
            self._checked_s, self._checked_bytes = now_s, received_bytes
        elapsed_s = now_s - self._checked_s
        if elapsed_s < RATE_S:
            return False
        arrived = received_bytes - self._checked_bytes
        self._checked_s, self._checked_bytes = now_s, received_bytes
        return arrived < RATE_MIN * elapsed_s


class LargeRequest:
    """A Kafka request that arrives in several reads. Its memory is mapped: bytes not received yet cost nothing."""

    __slots__ = ("_buffer", "_rate", "_received", "borrowed", "reservation", "size")

    def __init__(self, size: int, buffer: memoryview, received: int, reservation: Reservation) -> None:
        self.size = size
        self._buffer = buffer
        self._received = received
        self._rate = ReceiveRate()
        self.reservation = reservation
        self.borrowed: memoryview | None = None
        """The pooled buffer that holds the request, to be returned to the pool; None if the memory is not pooled."""

    @classmethod
    def allocate(cls, size: int, start: memoryview, reservation: Reservation) -> "LargeRequest":
        """Creates a request of `size` bytes in memory of its own; `start`: the bytes already received."""
        # Not a bytearray, which is filled with zeros first, and copied when it grows.
        buffer = memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        buffer[: len(start)] = start
        return cls(size, buffer, len(start), reservation)

    @classmethod
    def within(
        cls, buffer: memoryview, at: int, size: int, received: int, reservation: Reservation
    ) -> "LargeRequest":
        """Creates a request in `buffer[at : at + size]`, which already contains its first `received` bytes."""
        self = cls(size, buffer[at : at + size], received, reservation)
        self.borrowed = buffer
        return self

    def next_buffer(self) -> memoryview:
        """Returns the memory into which the next bytes of the request are received."""
        return self._buffer[self._received : self._received + RECEIVE_BYTES]

    def add(self, count: int) -> bool:
        """Records that `count` more bytes were received; returns whether the memory budget has room for more."""
        self._received += count
        return self.reservation.charge(count)

    @property
    def frame(self) -> memoryview | None:
        """The complete request; None until all of it is received."""
        return self._buffer if self._received == self.size else None

    def restart_clock(self) -> None:
        """Restarts the rate measurement, because the broker has paused reading in between."""
        self._rate.restart()

    def is_slow(self, now_s: float) -> bool:
        """Returns whether the request arrives at less than RATE_MIN. Call it periodically."""
        return self._rate.is_slow(now_s, self._received)
