"""The HTTP listener: shared state of connections; limits the number of connections, and drains them on shutdown."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from penstock.foundation.http import Answer, HttpRequest, HttpResponse, unavailable
from penstock.network.budget import ReceiveBudget

BUDGET_BYTES: Final = 256 << 20
"""Memory limit, in bytes, for large bodies of unanswered requests; above it, only the oldest request is read."""
CONNECTIONS_MAX: Final = 10_000

AnswerSurplus = Callable[[HttpRequest, HttpResponse], HttpResponse | Awaitable[HttpResponse]]


class ListenedConnection(Protocol):
    """The interface of a connection that its listener uses; implemented in http_connection.py."""

    def stop(self) -> None: ...

    def close(self) -> None: ...


class HttpListener:
    """The shared state of all HTTP connections: request handler, memory budget, connection limit."""

    def __init__(
        self,
        answer: Answer,
        budget_bytes: int = BUDGET_BYTES,
        *,
        connections_max: int = CONNECTIONS_MAX,
        answer_surplus: AnswerSurplus = lambda request, refusal: refusal,
    ) -> None:
        """`answer_surplus` answers connections beyond the limit; the default returns the refusal passed to it."""
        self.answer: Final = answer
        self._answer_surplus = answer_surplus
        self.budget: Final = ReceiveBudget(budget_bytes)
        self.connections_max = connections_max
        self.connections: Final[set[ListenedConnection]] = set()
        self.refused: Callable[[str], None] = lambda kind: None
        self.kafka = ""
        """The Kafka address that is told to a Kafka client which connects to this port by mistake."""
        self.is_stopping = False
        self._emptied = asyncio.Event()

    @property
    def surplus(self) -> int:
        """Number of connections beyond the limit after one more connects; 0 or less if within the limit."""
        return len(self.connections) + 1 - self.connections_max

    def answer_surplus(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """Answers a connection beyond the limit with 503: SDKs then retry, load balancers try another broker."""
        count = self.connections_max
        reason = f"this broker has its maximum of {count} HTTP connections (http.max.connections); try again"
        return self._answer_surplus(request, unavailable(reason, b"retry-after: 1\r\n"))

    def remove(self, connection: ListenedConnection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    async def drain(self, seconds: float) -> None:
        """Closes all connections: after their current response, or after `seconds` at the latest."""
        self.is_stopping = True
        for connection in list(self.connections):
            connection.stop()
        if self.connections:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), seconds)
        for connection in list(self.connections):
            connection.close()
