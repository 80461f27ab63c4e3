"""Detects whether a client received an HTTP response, from TCP acknowledgements and resets.

The kernel knows of a disconnect before the event loop handles it. Bytes in transit when a client closed its
connection are never acknowledged: the client's FIN acknowledges all bytes received before it, and a reset follows. A
reset without a FIN proves nothing: clients and load balancers may reset a connection after reading everything,
without acknowledging all bytes. Bytes that have reached the client's machine count as received.
"""

import asyncio
import fcntl
import select
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable
from typing import Final

_CLOSED: Final = getattr(select, "POLLRDHUP", 0)
_RESET: Final = select.POLLHUP | select.POLLERR
_INT: Final = struct.Struct("i")
_CAN_COUNT: Final = sys.platform == "linux"
"""Whether the kernel reports how many sent bytes the client has not acknowledged."""


def has_disconnected(transport: asyncio.BaseTransport) -> bool:
    """Returns whether the client has closed or reset the connection, even if the event loop has not noticed yet."""
    return bool(_poll(transport) & (_CLOSED | _RESET))


def _poll(transport: asyncio.BaseTransport) -> int:
    fd = _descriptor(transport)
    if fd < 0:
        return 0
    poll = select.poll()
    poll.register(fd, _CLOSED)
    return next((events for _, events in poll.poll(0)), 0)


def _descriptor(transport: asyncio.BaseTransport) -> int:
    connection = transport.get_extra_info("socket")
    fd: int = -1 if connection is None else connection.fileno()
    return fd


class UnconfirmedResponses:
    """Responses written to one connection that the client may not have received, with their `on_lost` callbacks."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._written = 0
        """Bytes written to the connection since the first call of `add`."""
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """Unconfirmed responses, oldest first: the value of `_written` after the response, and its `on_lost`."""

    def add(self, count: int, on_lost: Callable[[], None] | None) -> None:
        """Adds a written response of `count` bytes; `lose` calls its `on_lost` unless the client has received it."""
        self._written += count
        if on_lost is not None:
            if self._waiting:
                self._drop_confirmed()
            self._waiting.append((self._written, on_lost))

    def _drop_confirmed(self) -> None:
        """Drops the responses that the client has received."""
        arrived = self._written - self._unacknowledged()
        while self._waiting and self._waiting[0][0] <= arrived:
            self._waiting.popleft()

    def _unacknowledged(self) -> int:
        """Returns how many written bytes the client has not acknowledged; 0 if the kernel does not report it."""
        fd = _descriptor(self._transport)
        if not _CAN_COUNT or fd < 0:
            return 0
        sent: int = _INT.unpack(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(_INT.size)))[0]
        return sent + self._transport.get_write_buffer_size()

    @property
    def is_resolved(self) -> bool:
        """Whether the client has received all responses, or reset the connection and will receive no more."""
        self._drop_confirmed()
        return not self._waiting or bool(_poll(self._transport) & _RESET)

    def lose(self) -> None:
        """Calls `on_lost` of each response that the client has not received. The transport must still be open."""
        self._drop_confirmed()
        waiting, self._waiting = self._waiting, deque()
        for _, on_lost in waiting:
            on_lost()
