"""Asking other brokers: what a coordinator and the leaders of a transaction's partitions have to tell each other."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from penstock.client.address import Address
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.client.errors import ConnectionFailed
from penstock.cluster.image import ClusterImage
from penstock.foundation.errors import PenstockError

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
CONNECT_S: Final = 3.0

Answer = Callable[[Any], None]
"""Takes a response, or the PenstockError that stands in its place: then nobody knows whether it was done."""
AskPeer = Callable[[int, Any, Answer], None]
"""Asks a broker, by its id."""


class Peers:
    """One connection to each broker for each kind of request: one that waits must not hold up the others."""

    def __init__(self, node_id: int, image: Callable[[], ClusterImage]) -> None:
        self._settings: Final = ConnectionSettings(
            client_id=f"penstock-broker-{node_id}", connect_timeout_s=CONNECT_S, request_timeout_s=TIMEOUT_S
        )
        self._image = image
        self._lines: dict[tuple[int, type], _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, node: int, request: Any, answer: Answer) -> None:
        """The answer comes once, and not before this returns."""
        task = asyncio.get_running_loop().create_task(self._ask(node, request, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, node: int, request: Any, answer: Answer) -> None:
        try:
            connection = await self._line(node, type(request)).connection(self._address(node))
            response = await connection.request(request)
        except PenstockError as error:
            logger.info("peer_not_reached node=%d reason=%r", node, str(error))
            answer(error)
        else:
            answer(response)

    def _line(self, node: int, kind: type) -> "_Line":
        return self._lines.setdefault((node, kind), _Line(self._settings))

    def _address(self, node: int) -> Address:
        broker = self._image().brokers.get(node)
        if broker is None:
            raise ConnectionFailed(f"broker {node} is not there now")
        return Address(broker.host, broker.port)

    def apply(self, image: ClusterImage) -> None:
        """Hang up on brokers that are gone."""
        for key in [key for key in self._lines if key[0] not in image.brokers]:
            self._lines.pop(key).close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in self._lines.values():
            line.close()
        self._lines.clear()


class _Line:
    """A connection that is made when it is needed, and made again when it is lost."""

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
