"""One request on its way through the broker: who asked, and where the answer goes."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.wire.frames import response_frame, response_slices
from penstock.wire.schema import Buffer


class Call:
    """A request that wants an answer. Answers leave a connection in the order of its requests."""

    __slots__ = (
        "_on_answer",
        "api_key",
        "client_id",
        "correlation_id",
        "frame_bytes",
        "hang_up",
        "on_gone",
        "parts",
        "peer",
        "started_s",
        "version",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        started_s: float,
        frame_bytes: int,
        peer: str,
        on_answer: "Callable[[Call], None]",
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started_s = started_s
        self.frame_bytes = frame_bytes
        self.peer = peer
        self._on_answer = on_answer
        self.parts: list[Buffer] | None = None
        self.hang_up = False
        self.on_gone: Callable[[], None] | None = None
        """Called if the connection goes before the answer: whatever waits for this call stops waiting."""

    @property
    def host(self) -> str:
        """Where the request came from, without the port."""
        return self.peer.rpartition(":")[0]

    def answer(self, response: Any, hang_up: bool = False) -> None:
        """Give the response, once; None where the protocol wants none (acks=0). `hang_up`: then close."""
        self.hang_up = hang_up
        self.parts = [] if response is None else response_frame(response, self.version, self.correlation_id)
        self.on_gone = None
        self._on_answer(self)

    async def answer_in_slices(self, response: Any) -> None:
        """As `answer`, for a response that may be too large to be encoded in one go."""
        slices = response_slices(response, self.version, self.correlation_id)
        while self.parts is None:
            try:
                next(slices)
                await asyncio.sleep(0)
            except StopIteration as done:
                self.parts = done.value
        self.on_gone = None
        self._on_answer(self)
