"""One HTTP/1.1 connection: keep-alive, pipelining, long polls, time slices, back-pressure.

A request that can be answered immediately is answered within the call that received it, without a task. While a
request waits (long poll), the connection is still read, so that a disconnect is noticed and cancels the request.
`HttpResponse.on_lost` is called if the client cannot have received the response (receipts.py). Pipelined requests are
parsed and answered for at most `SLICE_S` at a time, so that other connections can run.
"""

import asyncio
import logging
from collections import deque
from http import HTTPStatus
from time import monotonic
from typing import Final, NamedTuple, cast

from penstock.foundation.descriptors import Reserve
from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.network.budget import Reservation
from penstock.network.http_listener import HttpListener
from penstock.network.http_reader import BODY_BYTES_MAX, FEED_BYTES, LARGE_BYTES, BadRequest, RequestReader
from penstock.network.large_body import LargeBody
from penstock.network.large_request import RATE_MIN
from penstock.network.listen_socket import is_scarce_for
from penstock.network.receipts import UnconfirmedResponses, has_disconnected
from penstock.network.response_head import CONTINUE, connection_line, head

logger = logging.getLogger(__name__)

SLICE_S: Final = 0.005
"""Seconds for which one connection may parse and answer pipelined requests before other connections run. A request
is never interrupted, so a time slice may last longer by one request."""
PIPELINED_MAX: Final = 32
"""Number of requests waiting behind an unanswered request at which reading from the connection pauses. Reading
also pauses when the bodies of the waiting requests reach BODY_BYTES_MAX together."""
IDLE_S: Final = 75.0
"""Seconds after which a connection is closed if it is idle, or if a request has begun but not arrived completely.
Longer than the default idle timeout of load balancers."""
SURPLUS_MAX: Final = 100
"""Maximum number of connections above the connection limit that get a response; any more are aborted at once."""
SURPLUS_IDLE_S: Final = 5.0
RECEIPT_S: Final = 0.02
RECEIPTS_MAX: Final = 100
"""Maximum number of checks, RECEIPT_S apart, whether a client that disconnected has received its last response."""

_FAILED: Final = HttpResponse(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"the broker failed; see its log\n")
_NO_REQUEST: Final = HttpRequest(b"", "", "", {}, b"")


class _PendingRequest(NamedTuple):
    """A request that is not answered yet, and how its response is sent."""

    request: HttpRequest
    keeps_alive: bool
    is_old: bool
    """Whether the request is HTTP/1.0, where a response that keeps the connection open must announce that."""
    response: HttpResponse | None = None
    """The error response to a malformed request; None if a handler answers the request."""
    reservation: Reservation | None = None
    """Memory reserved in the memory budget for a large body; None for a small body."""

    def release(self) -> None:
        if self.reservation is not None:
            self.reservation.close()


class HttpConnection(asyncio.Protocol):
    """One client connection; answers requests in the order of their arrival."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._answer = listener.answer
        self._is_surplus = False
        """Whether the connection is above the connection limit: it gets one response and is then closed."""
        self._idle_s = IDLE_S
        self._body: LargeBody | None = None
        """The large request body that is being received; None if there is none."""
        self._reader = RequestReader(self, listener.kafka)
        self._unparsed: bytes | memoryview = b""
        """Received bytes that the next time slice parses."""
        self._slice_ends_s = 0.0
        self._is_slice_over = False
        self._next_slice: asyncio.Handle | None = None
        self._transport: asyncio.Transport | None = None
        self._queued: deque[_PendingRequest] = deque()
        self._queued_bytes = 0
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._current: _PendingRequest | None = None
        """The request whose response is awaited; None if there is none."""
        self._idle: asyncio.TimerHandle | None = None
        self._last_active_s = 0.0
        self._request_began_s = 0.0
        """Event-loop time at which the request began that is being received; 0 if no request is being received."""
        self._is_write_paused = False
        """Whether writing is paused: the client reads responses more slowly than they are written."""
        self._is_paused = False
        self._is_ending = False
        """Whether the connection closes after the pending responses; bytes received from now on are ignored."""
        self._owes_continue = False
        self._unconfirmed: UnconfirmedResponses | None = None
        """Written responses that the client may not have received; None if no response had an `on_lost` callback."""
        self._has_disconnected = False

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is another class
        peer = transport.get_extra_info("peername")
        self._reader.host = str(peer[0]) if peer else ""
        self._reader.is_secure = transport.get_extra_info("sslcontext") is not None
        is_scarce = is_scarce_for(self._transport, Reserve.HTTP_CONNECTIONS)
        if is_scarce or self._listener.surplus > 0:
            self._refuse(self._transport, is_scarce)
        self._listener.connections.add(self)
        self._loop = asyncio.get_running_loop()
        self._last_active_s = self._loop.time()
        self._idle = self._loop.call_later(self._idle_s, self._check_idle)

    def _refuse(self, transport: asyncio.Transport, is_scarce: bool) -> None:
        """Refuses a connection above the limit: its request gets a 503. Aborts the connection at once if more than
        SURPLUS_MAX such connections are open, or if `is_scarce` (few file descriptors are left)."""
        self._is_surplus, self._idle_s = True, SURPLUS_IDLE_S
        self._answer = self._listener.answer_surplus
        self._listener.refused("too_many_http")
        if is_scarce or self._listener.surplus > SURPLUS_MAX:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.remove(self)
        if self._unconfirmed is not None and self._has_disconnected:
            self._unconfirmed.lose()
        self._transport = None
        self._drop_queued()
        self._drop_body()
        self._unparsed = b""
        for timer in (self._idle, self._next_slice):
            if timer is not None:
                timer.cancel()
        self._idle = self._next_slice = None
        self._reader.close()
        if self._waiting is not None:
            self._waiting.cancel()

    def eof_received(self) -> bool:
        """Cancels the request in progress: a client that closes its sending side counts as disconnected.

        Returns True, which keeps the transport open, until it is known whether the client received the last response.
        If the client had closed its socket before the response arrived, its kernel answers with a reset.
        """
        self._has_disconnected = True
        if self._waiting is not None:
            self._waiting.cancel()
        if self._unconfirmed is None or self._unconfirmed.is_resolved or self._has_tls:
            return False
        self._drop_queued()
        self._await_receipt(RECEIPTS_MAX)
        return True

    @property
    def _has_tls(self) -> bool:
        """Whether the connection has TLS, which cannot stay open after the client has closed its sending side."""
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is not None

    def _await_receipt(self, times: int) -> None:
        unconfirmed = self._unconfirmed
        if self._transport is None or unconfirmed is None:
            return
        if not times or unconfirmed.is_resolved:
            self.close()
        else:
            self._loop.call_later(RECEIPT_S, self._await_receipt, times - 1)

    def _check_idle(self) -> None:
        """Closes the connection if it has been idle for too long; otherwise schedules the next check."""
        left_s = (self._request_began_s or self._last_active_s) + self._idle_s - self._loop.time()
        if left_s <= 0 and self._is_write_paused and self._transport is not None:
            self._has_disconnected = True  # it does not read the rest of its response
            self._transport.abort()
        elif left_s <= 0 and self._current is None and not self._awaits_memory:
            self.close()
        else:
            self._idle = self._loop.call_later(max(left_s, 1.0), self._check_idle)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def stop(self) -> None:
        """Closes the connection if no request is being received or awaits its response; otherwise does nothing."""
        if self._current is None and not self._queued and not self._request_began_s and not self._unparsed:
            self.close()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._run_slice()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        self._last_active_s = self._loop.time()
        if len(data) <= FEED_BYTES and not self._unparsed:  # mostly one whole request
            self._slice_ends_s = self._last_active_s + SLICE_S
            self._is_slice_over = False
            self._parse(data)
            return
        self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
        self._run_slice()

    # -- time slices

    def _run_slice(self) -> None:
        """Answers queued requests, then parses received bytes, for at most one time slice."""
        if self._next_slice is not None:
            self._next_slice.cancel()
            self._next_slice = None
        self._slice_ends_s, self._is_slice_over = monotonic() + SLICE_S, False
        self._answer_queued()
        while self._unparsed and not self._queued and not self._awaits_memory:
            if self._is_slice_over:
                self._yield()
                break
            count = self._reader.feed_bytes_max
            data, self._unparsed = self._unparsed[:count], self._unparsed[count:]
            self._parse(data)
            self._is_slice_over = monotonic() >= self._slice_ends_s
        self._send_continue()
        self._update_reading()

    def _yield(self) -> None:
        """Schedules the next time slice, so that other connections run first."""
        if self._next_slice is None and self._transport is not None:
            self._next_slice = self._loop.call_soon(self._run_slice)

    def _parse(self, data: bytes | memoryview) -> None:
        try:
            self._reader.feed(data)
        except BadRequest as error:
            self._fail(error.status, error.reason)
        if self._reader.is_reading and not self._request_began_s:
            self._request_began_s = self._last_active_s
        if self._body is not None:
            self._body.receive(self._reader.body_bytes_received)
            if self._body.awaits_memory:
                self._update_reading()

    def _update_reading(self) -> None:
        """Pauses reading while requests queue up, the client reads responses too slowly, or memory is short;
        otherwise resumes reading."""
        if self._transport is None or self._transport.is_closing():
            return
        is_ahead = len(self._queued) >= PIPELINED_MAX or self._queued_bytes >= BODY_BYTES_MAX or bool(self._unparsed)
        must_pause = self._is_write_paused or is_ahead or self._awaits_memory
        if must_pause != self._is_paused:
            self._is_paused = must_pause
            if must_pause:
                self._transport.pause_reading()
            else:
                self._restart_rate()
                self._transport.resume_reading()

    def _fail(self, status: HTTPStatus, reason: str) -> None:
        """Sends an error response after the responses to all earlier requests, then closes the connection."""
        if not self._is_ending:
            self._is_ending, self._unparsed = True, b""
            self._drop_body()
            refusal = HttpResponse(status=status, body=reason.encode() + b"\n")
            self._enqueue(_PendingRequest(_NO_REQUEST, keeps_alive=False, is_old=False, response=refusal))

    # -- called by the parser

    def head_read(self, body_bytes: int, expects_continue: bool) -> None:
        if self._is_ending:
            return
        if body_bytes > LARGE_BYTES:
            self._body = LargeBody(self._listener.budget, self._on_memory, self._on_slow)
            self._update_reading()
        if expects_continue:
            self._owes_continue = True
            self._send_continue()

    @property
    def _awaits_memory(self) -> bool:
        return self._body is not None and self._body.awaits_memory

    def _on_memory(self) -> None:
        """Continues to receive a large body. Called when the memory budget has room again."""
        self._request_began_s = self._last_active_s = self._loop.time()
        self._send_continue()
        if self._unparsed:
            self._yield()  # not now: another connection is in its time slice
        else:
            self._update_reading()

    def _on_slow(self) -> None:
        """Refuses a body that arrives too slowly (408), unless it is slow because this broker has paused reading."""
        if self._owes_continue or self._is_paused:
            return
        self._listener.refused("slow_http")
        self._fail(HTTPStatus.REQUEST_TIMEOUT, f"a body must arrive at {RATE_MIN} bytes per second at least")

    def _restart_rate(self) -> None:
        if self._body is not None:
            self._body.restart_rate()

    def _drop_body(self) -> None:
        if self._body is not None:
            self._body.drop()
            self._body = None

    def _send_continue(self) -> None:
        """Sends 100 Continue if the client expects it, all earlier requests are answered and memory is free."""
        is_busy = self._current is not None or self._queued or self._awaits_memory
        if self._owes_continue and not is_busy and self._transport is not None:
            self._owes_continue = False
            self._restart_rate()
            self._transport.write(CONTINUE)
            if self._unconfirmed is not None:
                self._unconfirmed.add(len(CONTINUE), None)

    def request_read(self, request: HttpRequest, keeps_alive: bool, is_old: bool) -> None:
        if self._is_ending:
            return
        body, self._body = self._body, None
        reservation = None if body is None else body.complete(len(request.body))
        self._owes_continue, self._request_began_s = False, 0.0
        self._enqueue(_PendingRequest(request, keeps_alive, is_old, None, reservation))

    # -- answering

    def _enqueue(self, pending: _PendingRequest) -> None:
        self._queued.append(pending)
        self._queued_bytes += len(pending.request.body)
        self._answer_queued()
        if self._queued:
            self._update_reading()

    def _answer_queued(self) -> None:
        """Answers queued requests in order until a response must be awaited or the time slice ends."""
        while self._queued and self._current is None and not self._is_write_paused:
            if self._is_slice_over:
                self._yield()
                break
            pending = self._queued.popleft()
            self._queued_bytes -= len(pending.request.body)
            try:
                found = pending.response or self._answer(pending.request)
            except Exception:
                logger.exception("http_failed path=%r", pending.request.path)
                found = _FAILED
            if isinstance(found, HttpResponse):
                self._write(pending, found)
                pending.release()
                self._is_slice_over = monotonic() >= self._slice_ends_s
                continue
            self._current = pending
            self._waiting = asyncio.ensure_future(found)
            self._waiting.add_done_callback(self._answered)

    def _answered(self, waiting: "asyncio.Future[HttpResponse]") -> None:
        pending, self._current, self._waiting = self._current, None, None
        if pending is not None:
            pending.release()
        if waiting.cancelled():  # the client has disconnected, or the broker stops
            self.close()
            return
        error = waiting.exception()
        response = _FAILED if error is not None else waiting.result()
        if pending is None or self._transport is None:
            response.lose()
            return
        if error is not None:
            logger.error("http_failed path=%r", pending.request.path, exc_info=error)
        self._last_active_s = self._loop.time()
        self._write(pending, response)
        self._run_slice()

    def _write(self, pending: _PendingRequest, response: HttpResponse) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._has_disconnected:
            response.lose()
            return
        if response.on_lost is not None:
            if has_disconnected(transport):
                response.lose()
                self.close()
                return
            self._unconfirmed = self._unconfirmed or UnconfirmedResponses(transport)
        is_head = pending.request.method == b"HEAD"
        if is_head and response.on_lost is not None:
            response.lose()
            response = response._replace(on_lost=None)
        keeps_alive = pending.keeps_alive and not self._listener.is_stopping and not self._is_surplus
        start = head(response, connection_line(keeps_alive=keeps_alive, is_old=pending.is_old))
        body = b"" if is_head else response.body
        if len(body) < 1 << 16:
            transport.write(start + body)
        else:
            transport.writelines((start, body))
        if self._unconfirmed is not None:
            self._unconfirmed.add(len(start) + len(body), response.on_lost)
        if not keeps_alive:
            self._is_ending, self._unparsed = True, b""
            self._drop_body()
            self._drop_queued()
            transport.close()

    def _drop_queued(self) -> None:
        """Drops the queued requests, because their responses can no longer be sent."""
        for pending in self._queued:
            pending.release()
        self._queued.clear()
        self._queued_bytes = 0
