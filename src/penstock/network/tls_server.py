"""A listen socket for TLS: accepts connections, runs their handshakes with a deadline, and logs those that fail.

The event loop's own TLS servers neither report failed handshakes nor exchange certificates while they run.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from penstock.foundation.descriptors import Reserve, is_scarce
from penstock.foundation.tls_context import TlsContext
from penstock.network.listen_socket import BACKLOG

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 10.0
SHUTDOWN_S: Final = 5.0
"""Seconds that a client has to confirm the end of a connection."""
HANDSHAKES_MAX: Final = 500
"""Maximum number of handshakes at the same time. One more closes the oldest, so that clients that never finish their
handshakes do not keep others out."""
ACCEPTS_AT_ONCE: Final = 16
"""Maximum number of connections accepted in one iteration of the event loop: each starts a handshake, which costs a
tenth of a millisecond and more."""
NO_DESCRIPTORS_S: Final = 1.0
"""Seconds without accepting connections after the process has run out of file descriptors."""
LOG_EVERY_S: Final = 60.0
PEERS_MAX: Final = 1024
_NO_DESCRIPTORS: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class TlsServer:
    """Accepts TLS connections on bound sockets, which it owns."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        factory: Callable[[], asyncio.BaseProtocol],
        tls: TlsContext,
        *,
        name: str,
        refused: Callable[[str], None],
        reserve: Reserve,
        handshake_s: float = HANDSHAKE_S,
        handshakes_max: int = HANDSHAKES_MAX,
    ) -> None:
        """`name`: of the listener, for logs. `refused` is called with the reason for each closed connection."""
        self.sockets: Final = tuple(sockets)
        self._factory = factory
        self._tls = tls
        self._name = name
        self._refused = refused
        self._reserve = reserve
        self._handshake_s = handshake_s
        self._handshakes_max = handshakes_max
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], tuple[socket.socket, str]] = {}  # oldest first
        self._logged_s: dict[str, float] = {}
        """By host: when its last failed handshake was logged."""
        self._pause: asyncio.TimerHandle | None = None

    async def start_serving(self) -> None:
        for sock in self.sockets:
            sock.setblocking(False)
            sock.listen(BACKLOG)
        self._read_on()

    def _read_on(self) -> None:
        self._pause = None
        for sock in self.sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def close(self) -> None:
        """Stops accepting connections and aborts handshakes; connections stay open."""
        if self._pause is not None:
            self._pause.cancel()
        for sock in self.sockets:
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock.fileno())
                sock.close()
        for task in list(self._handshakes):
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                self._rest(error)
                return
            if is_scarce(sock.fileno(), self._reserve):
                self._refused("too_many")
                sock.close()
                continue
            sock.setblocking(False)
            if len(self._handshakes) >= self._handshakes_max:
                next(iter(self._handshakes)).cancel()
            host = str(peer[0])
            task = self._loop.create_task(self._shake_hands(sock, host))
            self._handshakes[task] = sock, host
            task.add_done_callback(self._end_handshake)

    def _rest(self, error: OSError) -> None:
        """Accepts no connections for a while: the process has no descriptors left."""
        logger.error("accept_failed listener=%s reason=%r", self._name, error.strerror)
        for sock in self.sockets:
            self._loop.remove_reader(sock.fileno())
        self._pause = self._loop.call_later(NO_DESCRIPTORS_S, self._read_on)

    async def _shake_hands(self, sock: socket.socket, host: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._factory,
                sock,
                ssl=self._tls.current,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:  # of which ssl.SSLError is a kind
            self._failed(host, handshake_reason(error))

    def _end_handshake(self, task: asyncio.Task[None]) -> None:
        sock, host = self._handshakes.pop(task)
        if task.cancelled():
            sock.close()
            self._failed(host, "there are too many handshakes at the same time, or the broker stops")

    def _failed(self, host: str, reason: str) -> None:
        """Counts a failed handshake, and logs it unless one of this host was logged in the last minute."""
        self._refused("tls_handshake")
        now_s = self._loop.time()
        if now_s < self._logged_s.get(host, -LOG_EVERY_S) + LOG_EVERY_S:
            return
        self._logged_s.pop(host, None)
        if len(self._logged_s) >= PEERS_MAX:
            del self._logged_s[next(iter(self._logged_s))]
        self._logged_s[host] = now_s
        logger.warning("tls_handshake_failed listener=%s host=%s reason=%r", self._name, host, reason)


def handshake_reason(error: OSError) -> str:
    """Returns why a handshake failed, in words.

    >>> handshake_reason(ConnectionResetError())
    'the client closed the connection'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
        return "the client closed the connection"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "unknown").replace("_", " ").lower()
        if reason in ("http request", "wrong version number", "https proxy request"):
            return f"the client does not speak TLS ({reason})"
        if reason == "peer did not return a certificate":
            return "the client has no certificate, which ssl.client.auth=required demands"
        return f"TLS: {reason}"
    return "the handshake took too long" if isinstance(error, ConnectionAbortedError) else str(error)
