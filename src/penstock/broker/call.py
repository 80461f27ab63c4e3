"""A Kafka request that waits for its response: client, correlation id, and encoding of the response."""

from collections.abc import Callable
from typing import Any

from penstock.security.certificate_principal import ANONYMOUS
from penstock.security.login_sessions import LoginSession
from penstock.wire.codec import ELEMENTS_INLINE_MAX
from penstock.wire.codegen import TooManyElements
from penstock.wire.encoders import UNBOUNDED
from penstock.wire.frames import response_frame
from penstock.wire.schema import Buffer


class Call:
    """A client request that waits for its response. A connection sends responses in the order of its requests."""

    __slots__ = (
        "_encode_later",
        "_on_answer",
        "api_key",
        "client_id",
        "correlation_id",
        "frame_bytes",
        "hang_up",
        "is_answered",
        "is_disconnected",
        "listener",
        "login",
        "on_disconnect",
        "parts",
        "peer",
        "piece",
        "principal",
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
        listener: str = "",
        principal: str = ANONYMOUS,
        login: LoginSession | None = None,
    ) -> None:
        """`encode_later`: called in place of `on_answer` for a large response; encodes it in slices and sends it.
        `listener`: name of the listener that the request came in on. `login`: None if the listener has no SASL."""
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started_s = started_s
        self.frame_bytes = frame_bytes
        self.peer = peer
        self.listener = listener
        self.principal = principal
        self.login = login
        self._on_answer = on_answer
        self._encode_later = encode_later
        self.parts: list[Buffer] | None = None
        self.hang_up = False
        self.is_answered = False
        self.is_disconnected = False
        """Whether the client's connection is closed: long-running work for this request may stop."""
        self.piece = 0
        """Index of this part of a large request that is split into parts (large_requests.py); 0 if not split."""
        self.release: Callable[[], None] | None = None
        """Frees memory reserved for a large request; called when its response was sent or the connection closed."""
        self.on_disconnect: Callable[[], None] | None = None
        """Called if the connection closes before the response is sent; cancels the work done for this request."""

    @property
    def host(self) -> str:
        """The client's host, without the port."""
        return self.peer.rpartition(":")[0]

    def answer(self, response: Any, hang_up: bool = False) -> None:
        """Sends the response; call it once. Pass None if the protocol has no response (acks=0). `hang_up`: closes
        the connection afterwards."""
        self.hang_up = self.hang_up or hang_up
        self.is_answered = True
        self.on_disconnect = None
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
