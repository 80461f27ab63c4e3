"""One request on its way through the broker: who asked, and where the answer goes."""

from collections.abc import Callable
from typing import Any

from penstock.wire.codec import ELEMENTS_INLINE_MAX
from penstock.wire.codegen import TooManyElements
from penstock.wire.encoders import UNBOUNDED
from penstock.wire.frames import response_frame
from penstock.wire.schema import Buffer


class Call:
    """A request that wants an answer. Answers leave a connection in the order of its requests."""

    __slots__ = (
        "_encode_later",
        "_on_answer",
        "api_key",
        "client_id",
        "correlation_id",
        "frame_bytes",
        "hang_up",
        "is_answered",
        "is_gone",
        "on_gone",
        "parts",
        "peer",
        "piece",
        "release",
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
        encode_later: "Callable[[Call, Any], None] | None" = None,
    ) -> None:
        """`encode_later`: has a response with many elements encoded in time slices; then sets `parts`."""
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started_s = started_s
        self.frame_bytes = frame_bytes
        self.peer = peer
        self._on_answer = on_answer
        self._encode_later = encode_later
        self.parts: list[Buffer] | None = None
        self.hang_up = False
        self.is_answered = False
        self.is_gone = False
        """Whether the connection is gone: long work for this call may stop."""
        self.piece = 0
        """Which piece of a request that is handled in pieces (large_requests.py); 0 is the first, or the whole."""
        self.release: Callable[[], None] | None = None
        """Called when the answer was given, or will never be: the request's memory need not be accounted for."""
        self.on_gone: Callable[[], None] | None = None
        """Called if the connection goes before the answer: whatever waits for this call stops waiting."""

    @property
    def host(self) -> str:
        """Where the request came from, without the port."""
        return self.peer.rpartition(":")[0]

    def answer(self, response: Any, hang_up: bool = False) -> None:
        """Give the response, once; None where the protocol wants none (acks=0). `hang_up`: then close."""
        self.hang_up = self.hang_up or hang_up
        self.is_answered = True
        self.on_gone = None
        limit = ELEMENTS_INLINE_MAX if self._encode_later is not None else UNBOUNDED
        try:
            self.parts = (
                [] if response is None else response_frame(response, self.version, self.correlation_id, limit)
            )
        except TooManyElements:
            assert self._encode_later is not None
            self._encode_later(self, response)
        else:
            self._on_answer(self)
