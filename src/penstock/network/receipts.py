"""Whether a client has received what was written to its connection, as far as TCP can tell.

A client that has hung up is known to the kernel before the event loop gets to it. What was on its way when a client
closed its connection is never acknowledged: its FIN acknowledges all that it had received, and a reset follows. A
reset without a FIN says nothing: clients and load balancers reset connections that they have read everything from,
and do not acknowledge all of it. What has reached the client's machine counts as received.
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
"""Whether the kernel tells how many bytes are not acknowledged."""


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Whether the client has closed its side, or reset the connection: also what the loop has yet to hear of."""
    return bool(_look(transport) & (_CLOSED | _RESET))


def _look(transport: asyncio.BaseTransport) -> int:
    number = _descriptor(transport)
    if number < 0:
        return 0
    look = select.poll()
    look.register(number, _CLOSED)
    return next((events for _, events in look.poll(0)), 0)


def _descriptor(transport: asyncio.BaseTransport) -> int:
    connection = transport.get_extra_info("socket")
    number: int = -1 if connection is None else connection.fileno()
    return number


class Unreceived:
    """Responses of one connection that were written and may not have arrived, and what to call if they have not."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._written = 0
        """Bytes since the first of them."""
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        """By what was written when each ended."""

    def add(self, count: int, on_lost: Callable[[], None] | None) -> None:
        """Counts bytes that were written; `on_lost` is called by `lose` if not all of them have arrived by then."""
        self._written += count
        if on_lost is not None:
            if self._waiting:
                self._confirm()
            self._waiting.append((self._written, on_lost))

    def _confirm(self) -> None:
        """Forget what has arrived."""
        arrived = self._written - self._unacknowledged()
        while self._waiting and self._waiting[0][0] <= arrived:
            self._waiting.popleft()

    def _unacknowledged(self) -> int:
        """How many bytes of what was written the client has not acknowledged."""
        number = _descriptor(self._transport)
        if not _CAN_COUNT or number < 0:
            return 0
        sent: int = _INT.unpack(fcntl.ioctl(number, termios.TIOCOUTQ, bytes(_INT.size)))[0]
        return sent + self._transport.get_write_buffer_size()

    @property
    def is_settled(self) -> bool:
        """Whether it is known of all that they have arrived, or that they will not."""
        self._confirm()
        return not self._waiting or bool(_look(self._transport) & _RESET)

    def lose(self) -> None:
        """The client has closed its side, or was cut off: what has not arrived never will.

        Call it while the transport is open.
        """
        self._confirm()
        waiting, self._waiting = self._waiting, deque()
        for _, on_lost in waiting:
            on_lost()
