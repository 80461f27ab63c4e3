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
    """Called if the client cannot have received the response: undoes what it stands for, such as deliveries."""

    def lose(self) -> None:
        """Calls `on_lost`, if there is one."""
        if self.on_lost is not None:
            self.on_lost()


def unavailable(reason: str, headers: bytes = b"") -> HttpResponse:
    """Not now. It is a page: SDKs of the Query protocol try again after one, and take other text for broken XML."""
    body = f"<html><body>{reason}</body></html>\n".encode()
    return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, body, "text/html; charset=utf-8", headers)


Answer = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
