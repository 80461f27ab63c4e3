"""A Kafka connection with TLS: encrypts large responses in slices, so that other connections can run meanwhile."""

import asyncio
from collections import deque
from typing import Final

from penstock.network import connection_flags as flags
from penstock.network.kafka_connection import KafkaConnection
from penstock.network.kafka_listener import KafkaListener
from penstock.security.certificate_principal import PrincipalOf
from penstock.security.login_sessions import LoginSession
from penstock.wire.schema import Buffer

SLICE_BYTES: Final = 1 << 20
"""Bytes that are encrypted in one iteration of the event loop: about half a millisecond."""


class TlsConnection(KafkaConnection):
    """One client connection of a Kafka listener with TLS. The transport encrypts all it is given at once."""

    __slots__ = ("_ends", "_is_full", "_unsent")

    def __init__(
        self, listener: KafkaListener, name: str, principal_of: PrincipalOf, login: LoginSession | None = None
    ) -> None:
        super().__init__(listener, name, principal_of, login)
        self._unsent: deque[memoryview] = deque()
        self._is_full = False
        """Whether the write buffer of the transport is full."""
        self._ends = False
        """Whether the connection is closed once all is written."""

    def _write(self, out: list[Buffer], size: int) -> None:
        if not self._unsent and size <= SLICE_BYTES:
            super()._write(out, size)
            return
        is_first = not self._unsent
        self._unsent.extend(memoryview(part).cast("B") for part in out)
        if is_first:
            self._state |= flags.WRITE_PAUSED  # no further requests until all is written
            if not self._is_full:
                self._write_slice()

    def _write_slice(self) -> None:
        """Writes SLICE_BYTES, then more in the next iteration of the event loop unless the write buffer is full."""
        if self._transport is None or not self._unsent:
            return
        room, taken = SLICE_BYTES, []
        while self._unsent and room:
            part = self._unsent.popleft()
            if len(part) > room:
                self._unsent.appendleft(part[room:])
                part = part[:room]
            room -= len(part)
            taken.append(part)
        self._transport.writelines(taken)
        if self._unsent:
            if not self._is_full:
                asyncio.get_running_loop().call_soon(self._write_slice)
        elif self._ends:
            self._transport.close()
        elif not self._is_full:
            asyncio.get_running_loop().call_soon(self._end_slices)

    def _end_slices(self) -> None:
        """Handles requests again, unless the write buffer has become full meanwhile."""
        if not self._is_full and not self._unsent:
            super().resume_writing()

    def pause_writing(self) -> None:
        self._is_full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._unsent:
            self._write_slice()
        else:
            super().resume_writing()

    def finish(self) -> None:
        if self._unsent:
            self._ends = True
        else:
            super().finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._unsent.clear()
        super().connection_lost(error)
