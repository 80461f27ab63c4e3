"""HTTP request and response values, passed between the HTTP server and its handlers."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple


class HttpRequest(NamedTuple):
    """A client's HTTP request: bytes as received, header names in lower case."""

    method: bytes
    path: str
    query: str
    headers: Mapping[bytes, bytes]
    body: bytes
    host: str = ""
    """The address of the peer, which may be a load balancer."""
    is_secure: bool = False
    """Whether it came over TLS."""


class HttpResponse(NamedTuple):
    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: bytes = b""
    """Additional header lines exactly as sent, each with its CRLF."""
    on_lost: Callable[[], None] | None = None
    """Called if the client cannot have received the response; undoes the request's effect, such as a delivery."""

    def lose(self) -> None:
        """Calls `on_lost`, if set. Must be called if the client cannot have received the response."""
        if self.on_lost is not None:
            self.on_lost()


def unavailable(reason: str, headers: bytes = b"") -> HttpResponse:
    """Returns a 503 that SQS SDKs (Query protocol) retry: its body is HTML; they parse other bodies as XML."""
    body = f"<html><body>{reason}</body></html>\n".encode()
    return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, body, "text/html; charset=utf-8", headers)


Answer = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
