"""Small asyncio HTTP client with a connection pool; one request at a time per connection."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from penstock.client.errors import ConnectionFailed, ConnectionLost, RequestTimedOut, os_reason

RESPONSE_BYTES_MAX: Final = 128 << 20
"""Maximum bytes of a response body: enough for ten messages of 1 MiB, even if every character is escaped."""
IDLE_MAX: Final = 32
"""Maximum number of idle connections kept for each endpoint."""
IDLE_S: Final = 60.0
"""Seconds after which an idle connection is closed and not reused: brokers close idle connections after 75 s."""
CONNECT_S: Final = 5.0


class Endpoint(NamedTuple):
    """Host, port and scheme of an HTTP server.

    >>> str(Endpoint.parse("127.0.0.1:9324"))
    'http://127.0.0.1:9324'
    >>> Endpoint.parse("https://queues.example.org").port
    443
    """

    host: str
    port: int
    is_tls: bool = False

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Parses `HOST:PORT` or a URL without a path. Raises ValueError with the reason."""
        try:
            split = urlsplit(text if "://" in text else f"http://{text}")
            host, port = split.hostname, split.port
        except ValueError:
            host, port = None, None
        is_tls = host is not None and split.scheme == "https"
        if not host or split.scheme not in ("http", "https") or split.path.strip("/") or split.query:
            raise ValueError(f"{text!r} is not an SQS endpoint; give HOST:PORT or http://HOST:PORT")
        return cls(host, port or (443 if is_tls else 80), is_tls)

    @property
    def authority(self) -> str:
        """The value of the Host header; omits the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}"


class HttpReply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Response headers; names are in lower case."""
    body: bytes


class _HttpConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self.used_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[HttpReply] | None = None
        self._failure = "the server closed the connection before it answered"
        self._reset_parser()

    def _reset_parser(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def request(self, data: bytes) -> HttpReply:
        """Returns the response. If cancelled, closes the connection, so that the server cancels the request, too."""
        if self._transport is None:
            raise ConnectionLost("the connection was closed")
        self._reset_parser()
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        try:
            return await self._response
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own class

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"the response is not HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._response is not None and not self._response.done():
            self._response.set_exception(ConnectionLost(self._failure))

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self.close()

    # -- callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > RESPONSE_BYTES_MAX:
            self._fail(f"the response has more than {RESPONSE_BYTES_MAX} bytes")

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()
        if self._response is not None and not self._response.done():
            self._response.set_result(HttpReply(self._parser.get_status_code(), self._headers, bytes(self._body)))


class HttpClient:
    """A pool of connections to any number of endpoints, for the tasks of one event loop."""

    def __init__(self, *, connect_timeout_s: float = CONNECT_S) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._idle: dict[Endpoint, list[_HttpConnection]] = {}
        self._busy: set[_HttpConnection] = set()

    async def post(self, to: Endpoint, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> HttpReply:
        """Posts to `/`. Raises ConnectionFailed if the POST was not sent, ConnectionLost if it may be processed."""
        return await self.request(to, "POST", "/", headers, body, timeout_s=timeout_s)

    async def get(self, to: Endpoint, path: str, *, timeout_s: float) -> HttpReply:
        return await self.request(to, "GET", path, {"host": to.authority}, timeout_s=timeout_s)

    async def request(
        self, to: Endpoint, method: str, path: str, headers: Mapping[str, str], body: bytes = b"", *, timeout_s: float
    ) -> HttpReply:
        """Sends a request. `path`: percent-encoded, with the query. Raises ConnectionFailed if the request was not
        sent, ConnectionLost if it may be processed."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        length = "" if method == "GET" else f"content-length: {len(body)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\n{lines}{length}\r\n"
        return await self._exchange(to, head.encode("latin-1") + body, timeout_s)

    async def _exchange(self, to: Endpoint, data: bytes, timeout_s: float) -> HttpReply:
        connection = await self._connect(to)
        self._busy.add(connection)
        try:
            async with asyncio.timeout(timeout_s):
                response = await connection.request(data)
        except TimeoutError:
            raise RequestTimedOut(f"{to} did not answer within {timeout_s:g} s") from None
        except ConnectionLost as error:
            raise ConnectionLost(f"{to}: {error}") from error
        finally:
            self._busy.discard(connection)
        self._return_to_pool(to, connection)
        return response

    def _return_to_pool(self, to: Endpoint, connection: _HttpConnection) -> None:
        idle = self._idle.setdefault(to, [])
        if connection.is_open and len(idle) < IDLE_MAX:
            connection.used_s = asyncio.get_running_loop().time()
            idle.append(connection)
        else:
            connection.close()

    async def _connect(self, to: Endpoint) -> _HttpConnection:
        idle = self._idle.get(to, [])
        loop = asyncio.get_running_loop()
        while idle:
            connection = idle.pop()
            if connection.is_open and loop.time() < connection.used_s + IDLE_S:
                return connection
            connection.close()
        connection = _HttpConnection()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                context = ssl.create_default_context() if to.is_tls else None
                await loop.create_connection(lambda: connection, to.host, to.port, ssl=context)
        except TimeoutError:
            raise ConnectionFailed(f"cannot reach {to}: no answer within {self._connect_timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionFailed(f"cannot reach {to}: {os_reason(error)}") from error
        return connection

    def close(self) -> None:
        """Closes all connections, even those with a pending request."""
        for connection in (*self._busy, *(each for idle in self._idle.values() for each in idle)):
            connection.close()
        self._idle.clear()
