"""Incremental parser of HTTP/1 requests, with a bound on everything that a client can send.

No I/O. Trailers of a chunked body are ignored (RFC 9110, 6.5.1): they could replace headers that were signed.
"""

from http import HTTPStatus
from typing import Final, Protocol

import httptools

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.http import HttpRequest
from penstock.network.wrong_port import explain_bytes

BODY_BYTES_MAX: Final = 4 << 20
LARGE_BYTES: Final = 64 << 10
"""Size, in bytes, above which a request body counts against the listener's memory budget."""
HEADER_BYTES_MAX: Final = 64 << 10
"""Maximum bytes of a request's headers, counting `HEADER_OVERHEAD_BYTES` extra per header. Also the maximum length
of a request's URL."""
HEADER_OVERHEAD_BYTES: Final = 32
"""Bytes counted per header besides its name and value, as in HTTP/2 (RFC 9113, 6.5.2): limits the header count."""
FEED_BYTES: Final = 16 << 10
"""Maximum bytes, besides body bytes, that one call of `RequestReader.feed` parses. Bounds the time of a call, because
these bytes hold at most about 900 requests or 2,700 chunks."""
HEAD_BYTES_MAX: Final = 2 * HEADER_BYTES_MAX + FEED_BYTES
"""Maximum bytes of the request line and headers as sent: bounds the memory of a header that does not end."""
FRAMING_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of a request besides its body: request line, headers, chunk sizes, chunk extensions, trailers."""

_NO_HEAD: Final = -1
_BODY_TOO_LARGE: Final = f"a body has at most {BODY_BYTES_MAX} bytes"


class BadRequest(PenstockError):
    """The bytes are not a valid request, or exceed a limit. The client gets the HTTP `status` and is disconnected."""

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class RequestHandler(Protocol):
    """Callbacks of RequestReader, called from within `RequestReader.feed`."""

    def head_read(self, body_bytes: int, expects_continue: bool) -> None:
        """Called after the headers, if the body is large or the request has an Expect header. `body_bytes`: length
        of the body; the maximum length if chunked."""

    def request_read(self, request: HttpRequest, keeps_alive: bool, is_old: bool) -> None:
        """Called when a request has arrived completely. `is_old`: it is HTTP/1.0 with a Connection header."""


class RequestReader:
    """Parses the bytes of one connection into requests."""

    def __init__(self, handler: RequestHandler, kafka: str) -> None:
        """`kafka`: address of the Kafka listener, told to Kafka clients that connect to the HTTP port by mistake."""
        self._handler = handler
        self._kafka = kafka
        self.host = ""
        self.is_secure = False
        self._parser = httptools.HttpRequestParser(self)
        self.is_reading = False
        """Whether a part of a request has arrived, but not all of it."""
        self._repeated: dict[bytes, list[bytes]] = {}
        """All values of each header that occurs more than once in the request."""
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._body: bytes | bytearray = b""
        self._body_bytes = _NO_HEAD
        """Length of the body from Content-Length; 0 for a chunked body; _NO_HEAD until the headers are complete."""
        self._fed_bytes = 0
        """Bytes parsed so far of the request that is being received."""

    def close(self) -> None:
        """Drops the references to the parser and to the handler, which refer to this object: else every closed
        connection would be a reference cycle, and thousands of them are garbage collected at once."""
        del self._parser, self._handler

    @property
    def feed_bytes_max(self) -> int:
        """Maximum bytes for the next `feed`: FEED_BYTES, or all missing body bytes if they are known to be more."""
        return max(FEED_BYTES, self._body_bytes - len(self._body))

    @property
    def body_bytes_received(self) -> int:
        """Number of body bytes received so far of the request that is not complete yet."""
        return len(self._body)

    def feed(self, data: bytes | memoryview) -> None:
        """Parses at most `feed_bytes_max` bytes. Raises BadRequest; after that, `feed` must not be called again."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, BadRequest):
                raise error.__context__ from None
            raise
        except httptools.HttpParserUpgrade:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "protocol upgrades are not supported") from None
        except httptools.HttpParserError as error:
            what = explain_bytes(data, self._kafka) or error.__context__ or error
            reason = f"this port speaks HTTP, and this is not an HTTP request: {what}"
            raise BadRequest(HTTPStatus.BAD_REQUEST, reason) from None
        if self.is_reading:
            self._fed_bytes += len(data)
            self._check_framing()

    def _check_framing(self) -> None:
        if self._body_bytes == _NO_HEAD:
            if self._fed_bytes > HEAD_BYTES_MAX:
                raise _headers_too_large()
        elif self._fed_bytes - len(self._body) > FRAMING_BYTES_MAX:
            reason = f"chunk sizes, chunk extensions and trailers have at most {FRAMING_BYTES_MAX} bytes"
            raise BadRequest(HTTPStatus.BAD_REQUEST, reason)

    # -- called by the parser

    def on_message_begin(self) -> None:
        self.is_reading = True

    def on_url(self, url: bytes) -> None:
        self._url += url  # in pieces only if it spans packets
        if len(self._url) > HEADER_BYTES_MAX:
            raise BadRequest(HTTPStatus.REQUEST_URI_TOO_LONG, f"a URL has at most {HEADER_BYTES_MAX} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._body_bytes != _NO_HEAD:
            return  # a trailer
        name, headers = name.lower(), self._headers
        if name in headers:
            self._repeated.setdefault(name, [headers[name]]).append(value)
        else:
            headers[name] = value
        self._header_bytes += len(name) + len(value) + HEADER_OVERHEAD_BYTES
        if self._header_bytes > HEADER_BYTES_MAX:
            raise _headers_too_large()

    def on_headers_complete(self) -> None:
        headers = self._headers
        if self._repeated:
            for name, values in self._repeated.items():
                headers[name] = b",".join(values)  # which means the same (RFC 9110, 5.3)
            self._repeated = {}
        length = headers.get(b"content-length", b"")
        size = int(length) if length.isdigit() else 0
        if size > BODY_BYTES_MAX:  # before it is sent
            raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _BODY_TOO_LARGE)
        self._body_bytes = size
        if b"transfer-encoding" in headers:
            size = BODY_BYTES_MAX  # its length is not known before its end
        if size > LARGE_BYTES or b"expect" in headers:
            self._handler.head_read(size, headers.get(b"expect", b"").lower() == b"100-continue")

    def on_body(self, body: bytes) -> None:
        if not self._body:
            self._body = body  # most arrive in one piece
            return
        if len(self._body) + len(body) > BODY_BYTES_MAX:
            raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _BODY_TOO_LARGE)
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += body

    def on_message_complete(self) -> None:
        url, query, headers, parser = self._url, b"", self._headers, self._parser
        if b"?" in url or b"#" in url or not url.startswith(b"/"):
            url, query = _split_url(url)
        request = HttpRequest(
            parser.get_method(),
            url.decode("latin-1"),
            query.decode("latin-1"),
            headers,
            bytes(self._body),
            self.host,
            self.is_secure,
        )
        is_old = b"connection" in headers and parser.get_http_version() == "1.0"
        self.is_reading = False
        self._begin()
        self._handler.request_read(request, parser.should_keep_alive(), is_old)


def _split_url(url: bytes) -> tuple[bytes, bytes]:
    """Returns the path and the query string of a request's URL."""
    if not url.startswith(b"/"):
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "the URL cannot be parsed") from None
        return parsed.path or b"/", parsed.query or b""
    path, _, query = url.partition(b"#")[0].partition(b"?")
    return path, query


def _headers_too_large() -> BadRequest:
    return BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers have at most {HEADER_BYTES_MAX} bytes")
