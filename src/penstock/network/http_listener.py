"""The HTTP listener: state shared by all HTTP connections, connection limit, and draining on shutdown."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from penstock.foundation.http import Answer, HttpRequest, HttpResponse, unavailable
from penstock.network.budget import ReceiveBudget

BUDGET_BYTES: Final = 256 << 20
"""Maximum bytes of large bodies in memory; above it, only the body of the oldest request is received further."""
CONNECTIONS_MAX: Final = 10_000

AnswerSurplus = Callable[[HttpRequest, HttpResponse], HttpResponse | Awaitable[HttpResponse]]


class ListenedConnection(Protocol):
    """The methods of an HTTP connection that the listener calls; http_connection.py implements them."""

    def stop(self) -> None: ...

    def close(self) -> None: ...


class HttpListener:
    """State shared by all HTTP connections of a broker: request handler, memory budget, connection limit."""

    def __init__(
        self,
        answer: Answer,
        budget_bytes: int = BUDGET_BYTES,
        *,
        connections_max: int = CONNECTIONS_MAX,
        answer_surplus: AnswerSurplus = lambda request, refusal: refusal,
    ) -> None:
        """`budget_bytes`: maximum bytes of large request bodies in memory, of all connections. `answer_surplus`
        answers requests on connections above the limit; its second argument is its default response, a 503."""
        self.answer: Final = answer
        self._answer_surplus = answer_surplus
        self.budget: Final = ReceiveBudget(budget_bytes)
        self.connections_max = connections_max
        self.connections: Final[set[ListenedConnection]] = set()
        self.refused: Callable[[str], None] = lambda kind: None
        self.kafka = ""
        """Address of the Kafka listener, told to Kafka clients that connect to the HTTP port by mistake."""
        self.is_stopping = False
        self._emptied = asyncio.Event()

    @property
    def surplus(self) -> int:
        """How many connections would be above the limit if one more were opened; 0 or negative if none."""
        return len(self.connections) + 1 - self.connections_max

    def answer_surplus(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answers a request on a connection above the limit, with 503 by default: SDKs and load balancers retry."""
        count = self.connections_max
        reason = f"this broker has its maximum of {count} HTTP connections (http.max.connections); try again"
        return self._answer_surplus(request, unavailable(reason, b"retry-after: 1\r\n"))

    def remove(self, connection: ListenedConnection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    async def drain(self, seconds: float) -> None:
        """Closes each connection after its current response; closes all remaining connections after `seconds`."""
        self.is_stopping = True
        for connection in list(self.connections):
            connection.stop()
        if self.connections:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), seconds)
        for connection in list(self.connections):
            connection.close()
