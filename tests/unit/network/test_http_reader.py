"""The parser of HTTP requests, without a socket."""

import random
import tracemalloc

import pytest

from penstock.foundation.http import HttpRequest
from penstock.network.http_reader import (
    BODY_BYTES_MAX,
    FEED_BYTES,
    FRAMING_BYTES_MAX,
    HEAD_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADER_OVERHEAD_BYTES,
    BadRequest,
    RequestReader,
)
from tests.scaling import GROWTH_MAX, growth


class Handler:
    """Records all calls."""

    def __init__(self) -> None:
        self.heads: list[tuple[int, bool]] = []
        self.requests: list[HttpRequest] = []
        self.reader = RequestReader(self, "127.0.0.1:9092")

    def head_read(self, body_bytes: int, expects_continue: bool) -> None:
        self.heads.append((body_bytes, expects_continue))

    def request_read(self, request: HttpRequest, keeps_alive: bool, is_old: bool) -> None:
        self.requests.append(request)

    def feed(self, data: bytes, size: int | None = None) -> "Handler":
        """Feeds all of it, in pieces of a size or as large as they may be."""
        left = memoryview(data)
        while left:
            count = size or self.reader.feed_bytes_max
            self.reader.feed(left[:count])
            left = left[count:]
        return self


def refusal_of(data: bytes, size: int | None = None) -> BadRequest:
    with pytest.raises(BadRequest) as raised:
        Handler().feed(data, size)
    return raised.value


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: signed\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"


@pytest.mark.parametrize("size", [None, 1, 7])
def test_trailers_never_become_headers(size: int | None) -> None:
    trailers = b"Authorization: other\r\nX-Amz-Target: AmazonSQS.DeleteQueue\r\nX-Amz-Date: 1\r\nHost: y\r\n"
    handler = Handler().feed(CHUNKED + b"0\r\n" + trailers + b"\r\nGET /next HTTP/1.1\r\nHost: z\r\n\r\n", size)
    first, second = handler.requests
    assert first.headers == {b"host": b"x", b"authorization": b"signed", b"transfer-encoding": b"chunked"}
    assert first.body == b"abc"
    assert (second.path, second.headers) == ("/next", {b"host": b"z"})


def test_headers_that_come_twice_are_joined_by_commas() -> None:
    (request,) = Handler().feed(b"GET / HTTP/1.1\r\nA: 1\r\nb: 2\r\na: 3\r\nA:\r\n\r\n").requests
    assert request.headers == {b"a": b"1,3,", b"b": b"2"}
    (request,) = Handler().feed(b"GET / HTTP/1.1\r\nA: 1\r\n\r\n").requests
    assert request.headers == {b"a": b"1"}


def test_repeated_headers_take_linear_time() -> None:
    def work(count: int) -> object:
        data = b"GET / HTTP/1.1\r\n" + b"a: 1234567\r\n" * count + b"\r\n"
        return lambda: Handler().feed(data)

    assert growth(work, 180) < GROWTH_MAX


def test_headers_are_bounded_in_size_and_in_number() -> None:
    size = HEADER_OVERHEAD_BYTES + 2
    count = HEADER_BYTES_MAX // size
    assert len(Handler().feed(b"GET / HTTP/1.1\r\n" + b"a: 1\r\n" * count + b"\r\n").requests) == 1
    assert refusal_of(b"GET / HTTP/1.1\r\n" + b"a: 1\r\n" * (count + 1) + b"\r\n").status == 431
    long = b"a" * (HEADER_BYTES_MAX - HEADER_OVERHEAD_BYTES - 1)
    assert len(Handler().feed(b"GET / HTTP/1.1\r\na: " + long + b"\r\n\r\n").requests) == 1
    assert refusal_of(b"GET / HTTP/1.1\r\na: " + long + b"a\r\n\r\n").status == 431


@pytest.mark.parametrize("size", [None, 100])
@pytest.mark.parametrize(
    ("start", "status"),
    [
        (b"GET / HTTP/1.1\r\nx: ", 431),
        (b"GET / HTTP/1.1\r\n", 431),
        (b"GET /", 414),
        (CHUNKED + b"0\r\nx: ", 400),
        (CHUNKED + b"0\r\n", 400),
        (CHUNKED + b"1;", 400),
    ],
)
def test_endless_requests_are_refused_before_they_are_buffered(start: bytes, status: int, size: int | None) -> None:
    handler, piece = Handler().feed(start), b"a" * (size or FEED_BYTES)
    sent = 0

    def send_on() -> None:
        nonlocal sent
        while sent < 4 * FRAMING_BYTES_MAX:
            handler.feed(piece)
            sent += len(piece)

    tracemalloc.start()
    try:
        with pytest.raises(BadRequest) as raised:
            send_on()
        assert tracemalloc.get_traced_memory()[1] < 4 * FRAMING_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert raised.value.status == status
    assert sent <= FRAMING_BYTES_MAX


def test_a_head_of_the_largest_size_is_taken_even_in_many_pieces() -> None:
    headers = b"".join(b"n%03d: %s\r\n" % (n, b"v" * 900) for n in range(60))
    data = b"GET /" + b"u" * (HEADER_BYTES_MAX - 1) + b" HTTP/1.1\r\n" + headers + b"\r\n"
    assert len(data) < HEAD_BYTES_MAX
    for size in (None, 1000, 100_000):
        assert len(Handler().feed(data, size).requests) == 1


def test_tiny_chunks_are_bounded() -> None:
    count = FRAMING_BYTES_MAX // 5 - 20_000
    (request,) = Handler().feed(CHUNKED + b"1\r\nx\r\n" * count + b"0\r\n\r\n").requests
    assert len(request.body) == count + 3
    refusal = refusal_of(CHUNKED + b"1\r\nx\r\n" * (FRAMING_BYTES_MAX // 5 + 20_000) + b"0\r\n\r\n")
    assert (refusal.status, "chunk" in refusal.reason) == (400, True)


def test_a_body_in_chunks_is_bounded_like_any_other() -> None:
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    count = BODY_BYTES_MAX // 0x10000
    start = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    (request,) = Handler().feed(start + chunk * count + b"0\r\n\r\n").requests
    assert len(request.body) == BODY_BYTES_MAX
    assert refusal_of(start + chunk * count + b"1\r\nx\r\n0\r\n\r\n").status == 413
    assert refusal_of(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1)).status == 413


def test_a_body_of_known_length_is_fed_at_once() -> None:
    handler = Handler()
    handler.feed(b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + bytes(1000))
    assert handler.reader.feed_bytes_max == 999_000
    assert handler.heads == [(1_000_000, False)]
    handler.feed(bytes(999_000))
    assert handler.reader.feed_bytes_max == FEED_BYTES
    assert len(handler.requests) == 1


@pytest.mark.parametrize("seed", range(20))
def test_requests_are_the_same_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    data, wanted = b"", []
    for number in range(30):
        body = rng.randbytes(rng.choice([0, 1, 100, 20_000, 70_000]))
        path = f"/{number}" + "x" * rng.choice([0, 10, 5000])
        head = f"POST {path}?q={number} HTTP/1.1\r\nHost: x\r\nN: {number}\r\nn: again\r\n"
        if rng.random() < 0.5:
            cut = rng.randrange(len(body) + 1)
            parts = [part for part in (body[:cut], body[cut:]) if part]
            chunks = b"".join(b"%x;e=1\r\n%s\r\n" % (len(part), part) for part in parts)
            data += f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\nHost: y\r\n\r\n"
        else:
            data += f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        wanted.append((path, f"q={number}", b"%d,again" % number, b"x", body))
    handler, left = Handler(), memoryview(data)
    while left:
        count = min(handler.reader.feed_bytes_max, rng.choice([1, 3, 1000, 30_000, 1_000_000]))
        handler.feed(bytes(left[:count]))
        left = left[count:]
    found = [
        (each.path, each.query, each.headers[b"n"], each.headers[b"host"], each.body) for each in handler.requests
    ]
    assert found == wanted
