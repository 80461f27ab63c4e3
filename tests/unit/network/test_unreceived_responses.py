"""Responses that must not be lost, on both event loops: unreceived ones are returned."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.network import http_connection
from penstock.network.http_connection import HttpConnection
from penstock.network.http_listener import HttpListener

PATIENCE_S = 90
REQUEST = b"GET / HTTP/1.1\r\n\r\n"
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


class ResponseHarness:
    """Answers each request with one item, on demand; records which items were returned."""

    def __init__(self) -> None:
        self.listener = HttpListener(self._answer)
        self.asked: list[asyncio.Future[HttpResponse]] = []
        self.lost: list[int] = []
        self.port = 0
        self.at_once = False

    def _answer(self, request: HttpRequest) -> "HttpResponse | asyncio.Future[HttpResponse]":
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.gift() if self.at_once else self.asked[-1]

    def gift(self, size: int = 1000) -> HttpResponse:
        number = len(self.asked)
        return HttpResponse(body=bytes(size), on_lost=lambda: self.lost.append(number))

    async def connect(self, request: bytes = REQUEST) -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", self.port))
        await loop.sock_sendall(client, request)
        return client

    async def until(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not look():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def until_empty(self) -> None:
        """All connections are gone, and with them is known what was received."""
        await self.until(lambda: not self.listener.connections)


@asynccontextmanager
async def opened() -> AsyncIterator[ResponseHarness]:
    harness = ResponseHarness()
    server = await asyncio.get_running_loop().create_server(lambda: HttpConnection(harness.listener), "127.0.0.1", 0)
    harness.port = server.sockets[0].getsockname()[1]
    try:
        yield harness
    finally:
        await harness.listener.drain(0)
        server.close()
        await server.wait_closed()


async def received(client: socket.socket, size: int = 1000) -> None:
    loop, count = asyncio.get_running_loop(), 0
    async with asyncio.timeout(PATIENCE_S):
        while count < size:  # and the head
            data = await loop.sock_recv(client, 1 << 20)
            assert data
            count += len(data)


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("hang_up", [socket.socket.close, reset])
def test_a_disconnect_before_the_response_is_written_returns_its_item(
    run: Run, hang_up: Callable[[socket.socket], None]
) -> None:
    async def main() -> None:
        async with opened() as harness:
            client = await harness.connect()
            await harness.until(lambda: len(harness.asked) == 1)
            hang_up(client)
            harness.asked[0].set_result(harness.gift())  # before the loop can know that the client is gone
            await harness.until_empty()
            assert harness.lost == [1]

    run(main())


def test_a_disconnect_before_an_immediate_response_returns_its_item(run: Run) -> None:
    async def main() -> None:
        async with opened() as harness:
            harness.at_once = True
            with await harness.connect(REQUEST[:-2]) as client:
                await harness.until(lambda: bool(harness.listener.connections))
                client.send(REQUEST[-2:])
            await harness.until_empty()
            assert harness.lost == [1]

    run(main())


def test_a_response_written_to_a_disconnected_client_returns_its_item(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a network, where it takes a while until the broker's kernel hears of it."""
    monkeypatch.setattr(http_connection, "has_disconnected", lambda transport: False)

    async def main() -> None:
        async with opened() as harness:
            client = await harness.connect()
            await harness.until(lambda: len(harness.asked) == 1)
            client.close()
            harness.asked[0].set_result(harness.gift())
            await harness.until_empty()
            assert harness.lost == [1]

    run(main())


@pytest.mark.parametrize("hang_up", [socket.socket.close, reset], ids=["close", "reset"])
def test_a_received_response_is_not_returned_at_any_kind_of_disconnect(
    run: Run, hang_up: Callable[[socket.socket], None]
) -> None:
    async def main() -> None:
        async with opened() as harness:
            harness.at_once = True
            for requests in (
                1,
                2,
                5,
                20,
            ):  # a kernel acknowledges later what comes by a connection that is used again
                client = await harness.connect()
                await received(client)
                for _ in range(requests - 1):
                    await asyncio.get_running_loop().sock_sendall(client, REQUEST)
                    await received(client)
                hang_up(client)
                await harness.until_empty()
                assert harness.lost == []

    run(main())


def test_a_half_closed_connection_keeps_its_response(run: Run) -> None:
    async def main() -> None:
        async with opened() as harness:
            harness.at_once = True
            client = await harness.connect()
            await harness.until(lambda: len(harness.asked) == 1)
            client.shutdown(socket.SHUT_WR)
            await received(client)
            await harness.until_empty()
            assert harness.lost == []
            client.close()

    run(main())


def test_of_several_answers_those_come_back_that_were_not_received(run: Run) -> None:
    async def main() -> None:
        async with opened() as harness:
            client = await harness.connect(2 * REQUEST)
            await harness.until(lambda: len(harness.asked) == 1)
            harness.asked[0].set_result(harness.gift())
            await received(client)
            await harness.until(lambda: len(harness.asked) == 2)
            client.close()
            harness.asked[1].set_result(harness.gift())
            await harness.until_empty()
            assert harness.lost == [2]

    run(main())


def test_an_answer_that_a_client_does_not_take_comes_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "IDLE_S", 0.01)

    async def main() -> None:
        async with opened() as harness:
            client = await harness.connect()
            await harness.until(lambda: len(harness.asked) == 1)
            harness.asked[0].set_result(harness.gift(64 << 20))
            await harness.until_empty()
            assert harness.lost == [1]
            client.close()

    run(main())


def test_a_response_with_connection_close_counts_as_received(run: Run) -> None:
    async def main() -> None:
        async with opened() as harness:
            harness.at_once = True
            client = await harness.connect(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            await harness.until_empty()
            await received(client)
            assert harness.lost == []
            client.close()

    run(main())


def test_a_request_for_the_head_alone_takes_nothing(run: Run) -> None:
    async def main() -> None:
        async with opened() as harness:
            harness.at_once = True
            client = await harness.connect(b"HEAD / HTTP/1.1\r\n\r\n")
            await received(client, 1)
            assert harness.lost == [1]
            client.close()

    run(main())
