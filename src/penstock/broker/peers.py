"""Requests to other brokers, over one connection per broker and request type."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from penstock.client.address import Address
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.client.errors import ConnectionFailed
from penstock.client.security import PLAINTEXT, SecuritySettings
from penstock.cluster.image import ClusterImage
from penstock.foundation.errors import PenstockError

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
CONNECT_S: Final = 3.0

Answer = Callable[[Any], None]
"""Callback that receives the response, or a PenstockError: then it is unknown whether the request was handled."""
AskPeer = Callable[[int, Any, Answer], None]
"""A function that sends a request to a broker, given its id, and passes the response to a callback."""


class Peers:
    """Connections to other brokers, one per broker and request type: a slow request does not block other types."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], ClusterImage],
        *,
        listener: str = "",
        security: SecuritySettings = PLAINTEXT,
    ) -> None:
        """`listener`: name of the inter-broker listener."""
        self._settings: Final = ConnectionSettings(
            client_id=f"penstock-broker-{node_id}",
            connect_timeout_s=CONNECT_S,
            request_timeout_s=TIMEOUT_S,
            security=security,
        )
        self._listener = listener
        self._image = image
        self._connections: dict[tuple[int, type], _PeerConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unreachable: set[int] = set()
        """Ids of brokers whose last request failed; used to log only the first of several failures."""

    def ask(self, node: int, request: Any, answer: Answer) -> None:
        """Sends a request to broker `node`; calls `answer` exactly once, after this method has returned."""
        task = asyncio.get_running_loop().create_task(self._ask(node, request, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, node: int, request: Any, answer: Answer) -> None:
        try:
            connection = await self._connection_to(node, type(request)).connection(self._address(node))
            response = await connection.request(request)
        except PenstockError as error:
            if node not in self._unreachable:
                self._unreachable.add(node)
                logger.warning("peer_not_reached node=%d reason=%r", node, str(error))
            answer(error)
        else:
            if node in self._unreachable:
                self._unreachable.discard(node)
                logger.info("peer_reached node=%d", node)
            answer(response)

    def _connection_to(self, node: int, kind: type) -> "_PeerConnection":
        return self._connections.setdefault((node, kind), _PeerConnection(self._settings))

    def _address(self, node: int) -> Address:
        broker = self._image().brokers.get(node)
        if broker is None:
            raise ConnectionFailed(f"broker {node} is not registered")
        at = broker.endpoint(self._listener)
        if at is None:
            raise ConnectionFailed(
                f"broker {node} does not advertise listener {self._listener}, on which this broker connects to "
                "others; add it there, or set inter.broker.listener.name here"
            )
        return Address(at.host, at.port)

    def apply(self, image: ClusterImage) -> None:
        """Closes connections to brokers that are no longer registered."""
        for key in [key for key in self._connections if key[0] not in image.brokers]:
            self._connections.pop(key).close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self._connections.values():
            peer.close()
        self._connections.clear()


class _PeerConnection:
    """A connection to a broker, opened on first use and reopened after it is lost."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def connection(self, address: Address) -> Connection:
        async with self._lock:
            known = self._connection
            if known is None or not known.is_open or known.address != address:
                self.close()
                known = self._connection = await open_connection(address, self._settings)
            return known

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
