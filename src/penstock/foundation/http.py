"""An HTTP request and its response, as values that travel between rooms."""

from collections.abc import Awaitable, Callable, Mapping
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


Answer = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]
