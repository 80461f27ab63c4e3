"""The HTTP listener: makes connections, bounds their number, and ends them when the broker stops."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.foundation.http import Answer, HttpRequest, HttpResponse, unavailable
from penstock.network.budget import ReceiveBudget
from penstock.network.http import HttpConnection

BUDGET_BYTES: Final = 256 << 20
"""Of what has arrived of large bodies whose requests are not answered yet; beyond it most are not read from."""
CONNECTIONS_MAX: Final = 10_000

AnswerSurplus = Callable[[HttpRequest, HttpResponse], HttpResponse | Awaitable[HttpResponse]]


class HttpListener:
    """Makes connections, and has what they share: who answers, and a bound on what is held for them."""

    def __init__(
        self,
        answer: Answer,
        budget_bytes: int = BUDGET_BYTES,
        *,
        connections_max: int = CONNECTIONS_MAX,
        answer_surplus: AnswerSurplus = lambda request, refusal: refusal,
    ) -> None:
        """`answer_surplus`: what those are answered that are beyond the bound; if it is nothing else, the refusal."""
        self.answer: Final = answer
        self._answer_surplus = answer_surplus
        self.budget: Final = ReceiveBudget(budget_bytes)
        self.connections_max = connections_max
        self.connections: Final[set[HttpConnection]] = set()
        self.refused: Callable[[str], None] = lambda kind: None
        self.kafka = ""
        """Where Kafka clients are told to go."""
        self.is_stopping = False
        self._emptied = asyncio.Event()

    def __call__(self) -> "HttpConnection":
        return HttpConnection(self)

    @property
    def surplus(self) -> int:
        """How many connections there are beyond the bound, with one that comes now."""
        return len(self.connections) + 1 - self.connections_max

    def answer_surplus(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """SDKs try again on a 503, and load balancers ask another broker."""
        count = self.connections_max
        reason = f"this broker has {count} HTTP connections and takes no more (http.max.connections); try again"
        return self._answer_surplus(request, unavailable(reason, b"retry-after: 1\r\n"))

    def left(self, connection: "HttpConnection") -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._emptied.set()

    async def drain(self, seconds: float) -> None:
        """Have everyone leave: with the answer to what is under way, or without one that takes longer than this."""
        self.is_stopping = True
        for connection in list(self.connections):
            connection.stop()
        if self.connections:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), seconds)
        for connection in list(self.connections):
            connection.close()
