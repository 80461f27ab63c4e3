"""HTTP request and response values, passed between the HTTP server and its handlers."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple


class HttpRequest(NamedTuple):
    """A client's request. Bytes as received; header names in lower case."""

    method: bytes
    path: str
    query: str
    headers: Mapping[bytes, bytes]
    body: bytes


class HttpResponse(NamedTuple):
    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: bytes = b""
    """Further header lines as they are sent, each with its line end."""
    on_lost: Callable[[], None] | None = None
    """Called if the client cannot have received the response: undoes its effects, such as deliveries."""

    def lose(self) -> None:
        """Calls `on_lost`, if set."""
        if self.on_lost is not None:
            self.on_lost()


def unavailable(reason: str, headers: bytes = b"") -> HttpResponse:
    """Returns a 503 as an HTML page: SQS SDKs (Query protocol) retry then, but take other text for broken XML."""
    body = f"<html><body>{reason}</body></html>\n".encode()
    return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, body, "text/html; charset=utf-8", headers)


Answer = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
