"""An HTTP request and its response, as values that travel between rooms."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple


class HttpRequest(NamedTuple):
    """What a client has asked for. Bytes as they came; names of headers in lower case."""

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
    """Further header lines as they are sent, each with the end of its line."""
    on_lost: Callable[[], None] | None = None
    """Takes back what the response gives away, such as messages of a queue. Called if the client will not have it."""

    def lose(self) -> None:
        """The client will not have it."""
        if self.on_lost is not None:
            self.on_lost()


def unavailable(reason: str, headers: bytes = b"") -> HttpResponse:
    """Not now. It is a page: SDKs of the Query protocol try again after one, and take other text for broken XML."""
    body = f"<html><body>{reason}</body></html>\n".encode()
    return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, body, "text/html; charset=utf-8", headers)


Answer = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
