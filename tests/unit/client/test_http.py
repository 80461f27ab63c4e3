"""The HTTP client, against servers with scripted responses."""

import asyncio
from contextlib import suppress

import pytest

from penstock.client.errors import ConnectionFailed, ConnectionLost, RequestTimedOut
from penstock.client.http import Endpoint, HttpClient

from .http_servers import read_request, serving

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


def test_a_connection_is_used_again() -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        while True:
            head, body = await read_request(reader)
            assert head.startswith(b"POST / HTTP/1.1\r\nhost: here\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nX-Echo: %s\r\ncontent-length: %d\r\n\r\n%s" % (body, len(body), body))

    async def work() -> None:
        async with serving(serve) as to:
            client = HttpClient()
            for body in (b"one", b"two", b"three"):
                answer = await client.post(to, {"host": "here"}, body, timeout_s=60)
                assert (answer.status, answer.body, answer.headers["x-echo"]) == (200, body, body.decode())
            client.close()

    asyncio.run(work())
    assert len(connections) == 1


def test_an_answer_may_come_in_pieces_of_unknown_number() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for piece in (
            b"HTTP/1.1 200 OK\r\ntransfer-enc",
            b"oding: chunked\r\n\r\n2\r\n",
            b"hi\r\n1\r\n!\r\n0\r\n\r\n",
        ):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async def work() -> bytes:
        async with serving(serve) as to:
            client = HttpClient()
            answer = await client.get(to, "/metrics", timeout_s=60)
            client.close()
            return answer.body

    assert asyncio.run(work()) == b"hi!"


def test_a_server_that_closes_after_a_response_is_reconnected() -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await read_request(reader)
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))

    async def work() -> None:
        async with serving(serve) as to:
            client = HttpClient()
            for _ in range(2):
                assert (await client.post(to, {}, b"x", timeout_s=60)).body == b"hi"
            client.close()

    asyncio.run(work())
    assert len(connections) == 2


def test_a_cancelled_request_closes_its_connection() -> None:
    async def work() -> None:
        asked, hung_up = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            asked.set()
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            hung_up.set()

        async with serving(serve) as to:
            client = HttpClient()
            waiting = asyncio.ensure_future(client.post(to, {}, b"x", timeout_s=60))
            await asked.wait()
            waiting.cancel()
            await hung_up.wait()
            assert waiting.cancelled()

    asyncio.run(work())


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi", b"SSH-2.0-OpenSSH\r\n"])
def test_an_incomplete_response_means_that_the_outcome_is_unknown(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(said)
        await writer.drain()

    async def work() -> None:
        async with serving(serve) as to:
            with pytest.raises(ConnectionLost, match=r"before it answered|is not HTTP"):
                await HttpClient().post(to, {}, b"x", timeout_s=60)

    asyncio.run(work())


def test_a_silent_server_differs_from_a_refused_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def work() -> None:
        async with serving(serve) as to:
            with pytest.raises(RequestTimedOut, match=r"did not answer within 0\.05 s"):
                await HttpClient().post(to, {}, b"x", timeout_s=0.05)
        with pytest.raises(ConnectionFailed, match="connection refused") as refused:
            await HttpClient().post(to, {}, b"x", timeout_s=60)
        assert not isinstance(refused.value, ConnectionLost)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("127.0.0.1:9324", "http://127.0.0.1:9324"),
        ("http://queues:80", "http://queues"),
        ("https://queues.example.org/", "https://queues.example.org"),
        ("[::1]:9324", "http://[::1]:9324"),
    ],
)
def test_an_endpoint_is_an_address_or_a_url(text: str, shown: str) -> None:
    assert str(Endpoint.parse(text)) == shown


@pytest.mark.parametrize("text", ["", "ftp://x", "http://", "http://x/path", "x:port", "http://x?y"])
def test_an_invalid_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Endpoint.parse(text)
