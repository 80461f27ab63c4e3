"""The HTTP listener over real sockets: in order, within bounds, and without waiting for disconnected clients."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Callable

import pytest

from penstock.foundation.http import Answer, HttpRequest, HttpResponse
from penstock.network import http_connection, large_body, large_request
from penstock.network.http_connection import LARGE_BYTES, PIPELINED_MAX, HttpConnection
from penstock.network.http_endpoints import HttpEndpoints
from penstock.network.http_listener import HttpListener
from penstock.network.http_reader import BODY_BYTES_MAX, HEADER_BYTES_MAX

PATIENCE_S = 90


def echo(request: HttpRequest) -> HttpResponse:
    echo = b"%s %s?%s %s" % (request.method, request.path.encode(), request.query.encode(), request.body)
    return HttpResponse(body=echo)


class Client:
    """One connection, and the answers that come by it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split(" ")[1]), headers

    async def answer(self) -> tuple[int, bytes]:
        status, headers = await self.head()
        return status, await asyncio.wait_for(self.reader.readexactly(int(headers["content-length"])), PATIENCE_S)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), PATIENCE_S)


@contextlib.asynccontextmanager
async def serving(
    answer: Answer | HttpListener,
) -> AsyncIterator[Callable[[], "contextlib.AbstractAsyncContextManager[Client]"]]:
    listener = answer if isinstance(answer, HttpListener) else HttpListener(answer)
    server = await asyncio.get_running_loop().create_server(lambda: HttpConnection(listener), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    @contextlib.asynccontextmanager
    async def connected() -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield Client(reader, writer)
        writer.transport.abort()  # even with unsent data

    yield connected
    await listener.drain(0)
    server.close()
    await server.wait_closed()
    async with asyncio.timeout(PATIENCE_S):  # in any case all memory is released
        while listener.connections or listener.budget.held_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_request_is_answered_and_the_connection_is_kept() -> None:
    async with serving(echo) as connected, connected() as client:
        for number in range(3):
            client.send(b"POST /a?n=%d HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody" % number)
            assert await client.answer() == (200, b"POST /a?n=%d body" % number)


async def test_a_closed_connection_leaves_no_garbage() -> None:
    """Else thousands of closed connections are garbage collected at once, which takes 100 ms."""
    listener = HttpListener(echo)
    gc.collect()
    gc.disable()
    try:
        async with serving(listener) as connected:
            async with connected() as client:
                client.send(b"GET /a HTTP/1.1\r\n\r\n")
                await client.answer()
                (connection,) = map(weakref.ref, listener.connections)
            async with asyncio.timeout(PATIENCE_S):
                while listener.connections or connection() is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0)
    finally:
        gc.enable()


async def test_pipelined_requests_are_answered_in_their_order_even_if_the_first_has_to_wait() -> None:
    gate = asyncio.Event()

    async def wait(request: HttpRequest) -> HttpResponse:
        await gate.wait()
        return echo(request)

    def answer(request: HttpRequest) -> HttpResponse:
        return wait(request) if request.path == "/slow" else echo(request)

    async with serving(answer) as connected, connected() as client:
        client.send(b"GET /slow HTTP/1.1\r\n\r\n" + b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % n for n in range(50)))
        await client.writer.drain()
        async with connected() as other:  # everything that was sent before has been looked at
            other.send(b"GET /x HTTP/1.1\r\n\r\n")
            await other.answer()
        gate.set()
        assert await client.answer() == (200, b"GET /slow? ")
        for number in range(50):
            assert await client.answer() == (200, b"GET /%d? " % number)


async def test_pipelined_requests_are_answered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "SLICE_S", 0.0)
    answered = 0
    in_one_turn: list[int] = []

    def answer(request: HttpRequest) -> HttpResponse:
        nonlocal answered
        answered += 1
        return echo(request)

    async def watch() -> None:
        seen = answered
        while True:
            await asyncio.sleep(0)
            in_one_turn.append(answered - seen)
            seen = answered

    async with serving(answer) as connected, connected() as client:
        watching = asyncio.ensure_future(watch())
        client.send(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % n for n in range(3000)))
        for number in range(3000):
            assert await client.answer() == (200, b"GET /%d? " % number)
        watching.cancel()
    assert max(in_one_turn) <= 2, "one, and the first of what has just come"


async def test_pipelined_requests_wait_for_the_response_to_a_long_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "SLICE_S", 0.0)
    gate, pending = asyncio.Event(), list[str]()

    async def wait(request: HttpRequest) -> HttpResponse:
        await gate.wait()
        return echo(request)

    def answer(request: HttpRequest) -> HttpResponse:
        pending.append(request.path)
        return wait(request) if request.path.endswith("0") else echo(request)

    body = bytes(1000)
    async with serving(answer) as connected, connected() as client:
        for number in range(400):
            client.send(b"POST /%d HTTP/1.1\r\nContent-Length: 1000\r\n\r\n%s" % (number, body))
        async with connected() as other:
            other.send(b"GET /x HTTP/1.1\r\n\r\n")
            await other.answer()
        gate.set()
        for number in range(400):
            assert await client.answer() == (200, b"POST /%d? %s" % (number, body))
    assert [path for path in pending if path != "/x"] == [f"/{number}" for number in range(400)]


async def test_bytes_received_with_the_head_of_a_waiting_body_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "SLICE_S", 0.0)
    size = 3 * LARGE_BYTES
    listener = HttpListener(lambda request: HttpResponse(body=b"%d" % len(request.body)), budget_bytes=size)
    post = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size
    async with serving(listener) as connected, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected()) for _ in range(5)]
        for client in clients:
            client.send((post + bytes(size)) * 3)
        for _ in range(3):
            for client in clients:
                assert await client.answer() == (200, b"%d" % size)


async def test_bytes_after_connection_close_are_not_answered() -> None:
    pending = list[str]()

    def answer(request: HttpRequest) -> HttpResponse:
        pending.append(request.path)
        return echo(request)

    async with serving(answer) as connected, connected() as client:
        client.send(b"GET /1 HTTP/1.1\r\nConnection: close\r\n\r\n" + b"GET /2 HTTP/1.1\r\n\r\n" * 5000)
        assert (await client.head())[0] == 200
        with contextlib.suppress(ConnectionError):
            await client.rest()
    assert pending == ["/1"]


async def test_a_client_that_runs_ahead_of_its_answers_is_not_read_from() -> None:
    seen = 0

    async def never() -> HttpResponse:
        await asyncio.Event().wait()
        return HttpResponse()

    def answer(request: HttpRequest) -> HttpResponse:
        nonlocal seen
        seen += 1
        return never()

    async def flood(client: Client) -> None:
        for _ in range(20 * PIPELINED_MAX):
            client.send(b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + bytes(100_000))
            await client.writer.drain()

    async with serving(answer) as connected, connected() as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flood(client), 0.5)
        assert seen == 1


async def test_a_body_in_chunks_is_put_together() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await client.writer.drain()
        client.send(b"4\r\ndefg\r\n0\r\n\r\n")
        assert await client.answer() == (200, b"POST /? abcdefg")


async def test_expect_100_continue_is_answered() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await client.head() == (100, {})
        client.send(b"hi")
        assert await client.answer() == (200, b"POST /? hi")


async def test_expect_100_continue_is_answered_after_earlier_responses() -> None:
    gate = asyncio.Event()

    async def wait(request: HttpRequest) -> HttpResponse:
        await gate.wait()
        return echo(request)

    async with serving(wait) as connected, connected() as client:
        client.send(b"GET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        gate.set()
        assert await client.answer() == (200, b"GET /1? ")
        assert await client.head() == (100, {})
        client.send(b"hi")
        assert await client.answer() == (200, b"POST /2? hi")


async def test_a_body_that_is_too_large_is_refused_before_it_is_sent() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"POST / HTTP/1.1\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n" % (BODY_BYTES_MAX + 1))
        status, body = await client.answer()
        assert (status, body) == (413, b"a body has at most %d bytes\n" % BODY_BYTES_MAX)
        assert await client.rest() == b"", "and the connection is closed"


async def test_chunks_that_are_too_large_together_are_refused() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + bytes(0x100000) + b"\r\n"
        with contextlib.suppress(ConnectionError):
            for _ in range(5):
                client.send(chunk)
                await client.writer.drain()
        assert (await client.head())[0] == 413


async def test_a_body_of_the_largest_size_is_taken() -> None:
    async with (
        serving(lambda request: HttpResponse(body=b"%d" % len(request.body))) as connected,
        connected() as client,
    ):
        client.send(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % BODY_BYTES_MAX + bytes(BODY_BYTES_MAX))
        assert await client.answer() == (200, b"%d" % BODY_BYTES_MAX)


async def test_headers_that_are_too_large_are_refused() -> None:
    async with serving(echo) as connected, connected() as client:
        line = b"X-Long: " + b"a" * 1000 + b"\r\n"
        client.send(b"GET / HTTP/1.1\r\n" + line * (HEADER_BYTES_MAX // 1000 + 1) + b"\r\n")
        assert (await client.head())[0] == 431


async def test_invalid_http_gets_bad_request() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"\x00\x00\x00\x10not http at all\r\n\r\n")
        assert (await client.head())[0] == 400
        assert (await client.rest()).startswith(b"this port speaks HTTP")


async def test_valid_requests_before_invalid_bytes_are_answered_first() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"GET /1 HTTP/1.1\r\n\r\nnonsense\r\n\r\n")
        assert await client.answer() == (200, b"GET /1? ")
        assert (await client.head())[0] == 400


async def test_head_is_answered_without_the_body() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"HEAD /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
        status, headers = await client.head()
        assert (status, headers["content-length"]) == (200, str(len(b"HEAD /a? ")))
        assert await client.answer() == (200, b"GET /b? ")


async def test_connection_close_is_honoured_and_what_follows_is_not_answered() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"GET /1 HTTP/1.1\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\n\r\n")
        status, headers = await client.head()
        assert (status, headers["connection"]) == (200, "close")
        assert await client.rest() == b"GET /1? "


async def test_an_http_1_0_client_gets_connection_keep_alive() -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        status, headers = await client.head()
        assert (status, headers["connection"]) == (200, "keep-alive")
        assert await client.reader.readexactly(8) == b"GET /1? "
        client.send(b"GET /2 HTTP/1.0\r\n\r\n")
        status, headers = await client.head()
        assert (status, headers["connection"]) == (200, "close")
        assert await client.rest() == b"GET /2? "


async def test_headers_are_found_by_their_small_names_and_joined_if_they_come_twice() -> None:
    def answer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(body=request.headers[b"x-a"], headers=b"x-more: 1\r\n", content_type="text/html")

    async with serving(answer) as connected, connected() as client:
        client.send(b"GET / HTTP/1.1\r\nX-A: one\r\nx-a: two\r\n\r\n")
        status, headers = await client.head()
        assert (status, headers["x-more"], headers["content-type"]) == (200, "1", "text/html")
        assert headers["date"].endswith(" GMT")
        assert await client.reader.readexactly(7) == b"one,two"


@pytest.mark.parametrize(
    ("url", "path", "query"),
    [
        (b"/a/b?c=d&e", "/a/b", "c=d&e"),
        (b"http://other.example:81/a?b", "/a", "b"),
        (b"/a?b#c", "/a", "b"),
        (b"/", "/", ""),
        (b"/a%20b?x=%2F", "/a%20b", "x=%2F"),
    ],
)
async def test_a_url_is_a_path_and_a_query(url: bytes, path: str, query: str) -> None:
    async with serving(echo) as connected, connected() as client:
        client.send(b"GET %s HTTP/1.1\r\n\r\n" % url)
        assert await client.answer() == (200, f"GET {path}?{query} ".encode())


async def test_a_disconnected_client_is_not_waited_for() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def poll() -> HttpResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return HttpResponse()

    async with serving(lambda request: poll()) as connected:
        async with connected() as client:
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(begun.wait(), PATIENCE_S)
            assert not cancelled.is_set()
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)


@pytest.mark.parametrize("waits", [True, False])
async def test_an_answer_that_fails_is_an_error_of_the_servers(waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def fail_later() -> HttpResponse:
        raise ZeroDivisionError("later")

    def fail(request: HttpRequest) -> HttpResponse:
        if waits:
            return fail_later()
        raise ZeroDivisionError("at once")

    async with serving(fail) as connected, connected() as client:
        client.send(b"GET /it HTTP/1.1\r\n\r\n")
        assert (await client.answer())[0] == 500
    assert "http_failed path='/it'" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "IDLE_S", 0.05)
    async with serving(echo) as connected, connected() as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        await client.answer()
        assert await client.rest() == b""


async def test_a_client_that_waits_for_a_response_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "IDLE_S", 0.05)

    async def slowly() -> HttpResponse:
        await asyncio.sleep(1.2)  # past the second look
        return HttpResponse(body=b"here")

    async with serving(lambda request: slowly()) as connected, connected() as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.answer() == (200, b"here")


async def test_a_client_that_does_not_read_is_not_answered_on_and_on() -> None:
    answered = 0

    def answer(request: HttpRequest) -> HttpResponse:
        nonlocal answered
        answered += 1
        return HttpResponse(body=bytes(1 << 20))

    async with serving(answer) as connected, connected() as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n" * 200)
        await client.writer.drain()
        async with connected() as other:
            other.send(b"GET /x HTTP/1.1\r\n\r\n")
            await other.answer()
        assert answered < 50, "what the sockets hold, and no more"
        for _ in range(200):
            assert (await client.answer())[0] == 200
        assert answered == 201


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_large_bodies_wait_for_each_other() -> None:
    size = 2 * LARGE_BYTES
    listener = HttpListener(lambda request: HttpResponse(body=b"%d" % len(request.body)), budget_bytes=size)
    budget = listener.budget
    async with serving(listener) as connected, connected() as first, connected() as second, connected() as third:
        head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size
        for client in (first, second):
            client.send(head)
            assert await client.head() == (100, {}), "what was announced costs nothing"
            client.send(bytes(size - 1))
        await _until(lambda: budget.is_contended and budget.held_bytes > size)
        third.send(head)
        pending = asyncio.ensure_future(third.head())
        async with connected() as small:  # which need not wait
            small.send(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi")
            assert await small.answer() == (200, b"2")
        assert not pending.done()
        for client in (first, second):
            client.send(b"x")
            assert await client.answer() == (200, b"%d" % size)
        assert await pending == (100, {})
        third.send(bytes(size))
        assert await third.answer() == (200, b"%d" % size)


async def test_a_disconnected_client_needs_no_memory() -> None:
    size = 2 * LARGE_BYTES
    listener = HttpListener(lambda request: HttpResponse(body=b"%d" % len(request.body)), budget_bytes=1)
    head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size
    async with serving(listener) as connected:
        async with connected() as holder:
            holder.send(head)
            assert await holder.head() == (100, {})
            holder.send(b"xyz")
            await _until(lambda: listener.budget.held_bytes == 3)
            async with connected() as waiting:
                waiting.send(head)
                await waiting.writer.drain()
                await _until(lambda: listener.budget.is_contended)
        async with connected() as last:
            last.send(head)
            assert await last.head() == (100, {})
            last.send(bytes(size))
            assert await last.answer() == (200, b"%d" % size)


async def test_a_large_body_below_the_minimum_rate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_request, "RATE_S", 0.05)
    monkeypatch.setattr(large_body, "RATE_S", 0.05)
    reasons: list[str] = []
    listener = HttpListener(echo)
    listener.refused = reasons.append
    async with serving(listener) as connected, connected() as client:
        client.send(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\nx" % (2 * LARGE_BYTES))
        status, body = await client.answer()
        assert (status, await client.rest()) == (408, b"")
        assert b"4096 bytes per second" in body
    assert reasons == ["slow_http"]


async def test_a_body_that_was_not_asked_for_yet_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_request, "RATE_S", 0.01)
    monkeypatch.setattr(large_body, "RATE_S", 0.01)
    size, gate = 2 * LARGE_BYTES, asyncio.Event()
    looks = 0

    class CountedRate(large_request.ReceiveRate):
        def is_slow(self, now_s: float, received_bytes: int) -> bool:
            nonlocal looks
            looks += 1
            return super().is_slow(now_s, received_bytes)

    monkeypatch.setattr(large_body, "ReceiveRate", CountedRate)

    async def answer(request: HttpRequest) -> HttpResponse:
        await gate.wait()
        return HttpResponse(body=b"%d" % len(request.body))

    async with serving(answer) as connected, connected() as client:
        client.send(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        client.send(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)
        await _until(lambda: looks > 5)
        monkeypatch.setattr(large_request, "RATE_S", 30.0)
        gate.set()
        assert await client.answer() == (200, b"1")
        assert await client.head() == (100, {})
        client.send(bytes(size))
        assert await client.answer() == (200, b"%d" % size)


async def test_a_request_that_takes_for_ever_to_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "IDLE_S", 0.05)

    async def drip(client: Client) -> None:
        while True:
            client.send(b"X-More: 1\r\n")
            await asyncio.sleep(0.01)

    async with serving(echo) as connected, connected() as client:
        client.send(b"GET / HTTP/1.1\r\n")
        dripping = asyncio.ensure_future(drip(client))
        with contextlib.suppress(ConnectionError):
            assert await client.rest() == b""
        dripping.cancel()


async def test_a_connection_beyond_the_limit_gets_an_error_and_is_closed() -> None:
    reasons: list[str] = []
    listener = HttpListener(echo, connections_max=2)
    listener.refused = reasons.append
    async with serving(listener) as connected, connected() as one, connected() as two:
        for client in (one, two):
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            await client.answer()
        async with connected() as third:
            third.send(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody" * 2)
            status, headers = await third.head()
            assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
            assert b"maximum of 2 HTTP connections" in await third.rest()
        assert reasons == ["too_many_http"]
        one.writer.transport.abort()
        while len(listener.connections) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        async with connected() as fourth:
            fourth.send(b"GET /4 HTTP/1.1\r\n\r\n")
            assert await fourth.answer() == (200, b"GET /4? ")


async def test_connections_far_beyond_the_limit_are_closed_without_a_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "SURPLUS_MAX", 1)
    async with contextlib.AsyncExitStack() as stack:
        connected = await stack.enter_async_context(serving(HttpListener(echo, connections_max=1)))
        one, two, three = [await stack.enter_async_context(connected()) for _ in range(3)]
        with contextlib.suppress(ConnectionError):
            assert await three.rest() == b""
        for client, expected in ((one, 200), (two, 503)):
            client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert (await client.answer())[0] == expected


async def test_health_and_metrics_are_served_beyond_the_limit() -> None:
    site = HttpEndpoints(is_ready=lambda: True, metrics=lambda: iter([b"numbers"]))
    listener = HttpListener(site.answer, connections_max=1, answer_surplus=site.answer_surplus)
    async with serving(listener) as connected, connected() as first:
        first.send(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert await first.answer() == (200, b"ok\n")
        for path, expected in (("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/?Action=ListQueues", 503)):
            async with connected() as other:
                other.send(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                status, headers = await other.head()
                assert (status, headers["connection"]) == (expected, "close")
            while len(listener.connections) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_a_listener_that_stops_answers_what_is_under_way_and_lets_the_others_go() -> None:
    gate = asyncio.Event()

    async def wait(request: HttpRequest) -> HttpResponse:
        await gate.wait()
        return echo(request)

    listener = HttpListener(wait)
    async with serving(listener) as connected, connected() as idle, connected() as busy:
        busy.send(b"GET /1 HTTP/1.1\r\n\r\n")
        while len(listener.connections) < 2 or not any(each._current for each in listener.connections):  # noqa: ASYNC110
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(listener.drain(PATIENCE_S))
        assert await idle.rest() == b""
        assert not stopping.done()
        gate.set()
        status, headers = await busy.head()
        assert (status, headers["connection"]) == (200, "close")
        assert await busy.rest() == b"GET /1? "
        await stopping


async def test_slow_connections_are_closed_when_a_listener_stops() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def never() -> HttpResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return HttpResponse()

    listener = HttpListener(lambda request: never())
    async with serving(listener) as connected, connected() as client:
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        await listener.drain(0.01)
        assert await client.rest() == b""
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)
