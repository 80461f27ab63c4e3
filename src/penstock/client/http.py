"""A small HTTP client: connections that are kept, one request at a time on each."""

import asyncio
import os
import socket
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from penstock.client.errors import ConnectionFailed, ConnectionLost, RequestTimedOut

ANSWER_BYTES_MAX: Final = 128 << 20
"""More than ten messages of a mebibyte take, however they are escaped."""
IDLE_MAX: Final = 32
"""Connections to one address that wait for the next request."""
IDLE_S: Final = 60.0
"""A connection that was not used for so long is not trusted: brokers close them after 75 s."""
CONNECT_S: Final = 5.0


class Endpoint(NamedTuple):
    """Where requests go to.

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
        """`HOST:PORT`, or a URL without a path. ValueError says what is wrong."""
        try:
            split = urlsplit(text if "://" in text else f"http://{text}")
            host, port = split.hostname, split.port
        except ValueError:
            host, port = None, None
        is_tls = host is not None and split.scheme == "https"
        if not host or split.scheme not in ("http", "https") or split.path.strip("/") or split.query:
            raise ValueError(f"{text!r} is not where queues are served; give HOST:PORT or http://HOST:PORT")
        return cls(host, port or (443 if is_tls else 80), is_tls)

    @property
    def authority(self) -> str:
        """As the Host header has it: without a port that everybody expects."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}"


class HttpAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class _Channel(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.used_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._failure = "it hung up"
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, data: bytes) -> HttpAnswer:
        """Send a request. Whoever stops waiting hangs up: the other side need not go on either."""
        if self._transport is None:
            raise ConnectionLost("the connection was closed")
        self._begin()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"that is not HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionLost(f"{self._failure} before it answered"))

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self.close()

    # -- the parser's side

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > ANSWER_BYTES_MAX:
            self._fail(f"its answer has more than {ANSWER_BYTES_MAX} bytes; it went away")

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(HttpAnswer(self._parser.get_status_code(), self._headers, bytes(self._body)))


class HttpClient:
    """Connections to any number of addresses, for the tasks of one event loop."""

    def __init__(self, *, connect_timeout_s: float = CONNECT_S) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._idle: dict[Endpoint, list[_Channel]] = {}
        self._busy: set[_Channel] = set()

    async def post(self, to: Endpoint, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> HttpAnswer:
        """Send a body to the root of an address. ConnectionFailed: it was not sent; ConnectionLost: nobody knows."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST / HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n"
        return await self._ask(to, head.encode("latin-1") + body, timeout_s)

    async def get(self, to: Endpoint, path: str, *, timeout_s: float) -> HttpAnswer:
        head = f"GET {path} HTTP/1.1\r\nhost: {to.authority}\r\n\r\n"
        return await self._ask(to, head.encode("latin-1"), timeout_s)

    async def _ask(self, to: Endpoint, data: bytes, timeout_s: float) -> HttpAnswer:
        channel = await self._channel(to)
        self._busy.add(channel)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await channel.ask(data)
        except TimeoutError:
            raise RequestTimedOut(f"{to} did not answer within {timeout_s:g} s") from None
        except ConnectionLost as error:
            raise ConnectionLost(f"{to}: {error}") from error
        finally:
            self._busy.discard(channel)
        self._keep(to, channel)
        return answer

    def _keep(self, to: Endpoint, channel: _Channel) -> None:
        idle = self._idle.setdefault(to, [])
        if channel.is_open and len(idle) < IDLE_MAX:
            channel.used_s = asyncio.get_running_loop().time()
            idle.append(channel)
        else:
            channel.close()

    async def _channel(self, to: Endpoint) -> _Channel:
        idle = self._idle.get(to, [])
        loop = asyncio.get_running_loop()
        while idle:
            channel = idle.pop()
            if channel.is_open and loop.time() < channel.used_s + IDLE_S:
                return channel
            channel.close()
        channel = _Channel()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                context = ssl.create_default_context() if to.is_tls else None
                await loop.create_connection(lambda: channel, to.host, to.port, ssl=context)
        except TimeoutError:
            raise ConnectionFailed(f"cannot reach {to}: no answer within {self._connect_timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionFailed(f"cannot reach {to}: {_reason(error)}") from error
        return channel

    def close(self) -> None:
        """Hang up everywhere, also where an answer is waited for."""
        for channel in (*self._busy, *(each for idle in self._idle.values() for each in idle)):
            channel.close()
        self._idle.clear()


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror | ssl.SSLError) or not error.errno:
        return (error.strerror or str(error)).lower()
    return os.strerror(error.errno).lower()
