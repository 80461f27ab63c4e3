"""The HTTP listener: small, kept alive, bounded. What answers a request is given by node.py."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, cast

import httptools

logger = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 4 << 20
HEADER_BYTES_MAX: Final = 64 << 10
IDLE_S: Final = 75.0
"""A connection that says nothing for this long is closed; longer than load balancers wait by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    status: int = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


class HttpConnection(asyncio.Protocol):
    """One client: its requests are answered one after another."""

    def __init__(self, answer: Answer, connections: "set[HttpConnection]") -> None:
        self._answer = answer
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._ready: list[tuple[HttpRequest, bool]] = []
        self._worker: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._body = bytearray()

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own
        self._transport = transport
        self._connections.add(self)
        self._rest()

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        if self._idle is not None:
            self._idle.cancel()
        if self._worker is not None:
            self._worker.cancel()

    def _rest(self) -> None:
        """Start the clock of an idle connection anew."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.close)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._rest()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(HTTPStatus.BAD_REQUEST, "this server has nothing to upgrade to")
        except httptools.HttpParserError as error:
            self._fail(HTTPStatus.BAD_REQUEST, f"not an HTTP request: {error}")

    def _fail(self, status: HTTPStatus, reason: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._write(HttpResponse(status=status, body=reason.encode() + b"\n"), keep_alive=False)

    # -- the parser's side

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEADER_BYTES_MAX:
            self._fail(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers have at most {HEADER_BYTES_MAX} bytes")
            return
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        if len(self._body) + len(body) > BODY_BYTES_MAX:
            self._fail(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {BODY_BYTES_MAX} bytes")
            return
        self._body += body

    def on_message_complete(self) -> None:
        try:
            url = httptools.parse_url(self._url)
        except httptools.HttpParserInvalidURLError:
            self._fail(HTTPStatus.BAD_REQUEST, "the URL cannot be parsed")
            return
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=(url.path or b"/").decode("latin-1"),
            query=(url.query or b"").decode("latin-1"),
            headers=self._headers,
            body=bytes(self._body),
        )
        self._ready.append((request, self._parser.should_keep_alive()))
        self._begin()
        if self._transport is not None:
            self._transport.pause_reading()  # until this one is answered
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._ready:
            request, keep_alive = self._ready.pop(0)
            found = self._answer(request)
            response = found if isinstance(found, HttpResponse) else await found
            self._write(response, keep_alive)
        self._worker = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _write(self, response: HttpResponse, keep_alive: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        lines = [
            f"HTTP/1.1 {int(response.status)} {HTTPStatus(response.status).phrase}",
            f"content-type: {response.content_type}",
            f"content-length: {len(response.body)}",
            *(f"{name}: {value}" for name, value in response.headers.items()),
            *([] if keep_alive else ["connection: close"]),
            "\r\n",
        ]
        self._transport.write("\r\n".join(lines).encode("latin-1") + response.body)
        if not keep_alive:
            self._transport.close()
