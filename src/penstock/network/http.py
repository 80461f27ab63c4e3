"""One HTTP connection: small, kept alive, bounded. What answers a request is given by node.py (http_listener.py).

A request that can be answered at once is answered within the call that brought it, without a task. One that waits (a
long poll) does not keep the connection from being read: a client that hangs up is noticed, and its request is
cancelled. `HttpResponse.on_lost` is called if the client cannot have received the response (receipts.py). Pipelined
requests are parsed and answered for at most `TURN_S` at a time, so that other connections get their turn.
"""

import asyncio
import logging
from collections import deque
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from penstock.foundation.descriptors import Leave
from penstock.foundation.http import HttpRequest, HttpResponse
from penstock.network.budget import Loan
from penstock.network.http_reader import BODY_BYTES_MAX, FEED_BYTES, LARGE_BYTES, BadRequest, RequestReader
from penstock.network.large_body import LargeBody
from penstock.network.large_request import RATE_MIN
from penstock.network.listen_socket import is_scarce_for
from penstock.network.receipts import Unreceived, has_hung_up
from penstock.network.response_head import CONTINUE, connection_line, head

if TYPE_CHECKING:
    from penstock.network.http_listener import HttpListener

logger = logging.getLogger(__name__)

TURN_S: Final = 0.005
"""How long one connection may parse and answer pipelined requests before others get their turn.

A request that has begun is answered, so that a turn takes as much longer as the last request of it does.
"""
PIPELINED_MAX: Final = 32
"""Requests that wait for the one before them; a client that sends more is not read from until these are answered.

Nor is one whose requests that wait have more bytes than one body may have.
"""
IDLE_S: Final = 75.0
"""A connection that says nothing for this long is closed; longer than load balancers wait by default.

So is one whose request takes as long to come.
"""
SURPLUS_MAX: Final = 100
"""Connections beyond the bound that are answered one request; any more are closed without a word."""
SURPLUS_IDLE_S: Final = 5.0
RECEIPT_S: Final = 0.02
RECEIPTS_MAX: Final = 100
"""Interval and number of checks whether a client that has hung up has received its last response."""

_FAILED: Final = HttpResponse(status=HTTPStatus.INTERNAL_SERVER_ERROR, body=b"the broker failed; see its log\n")
_NO_REQUEST: Final = HttpRequest(b"", "", "", {}, b"")


class _Asked(NamedTuple):
    """A request, and how its answer is to be sent."""

    request: HttpRequest
    keeps_alive: bool
    is_old: bool
    """HTTP/1.0, where staying connected is what must be said."""
    response: HttpResponse | None = None
    """If it is known already: what is wrong with a request that cannot be understood."""
    loan: Loan | None = None
    """What a large body holds of the budget."""

    def release(self) -> None:
        if self.loan is not None:
            self.loan.close()


class HttpConnection(asyncio.Protocol):
    """One client: its requests are answered one after another."""

    def __init__(self, listener: "HttpListener") -> None:
        self._listener = listener
        self._answer = listener.answer
        self._is_surplus = False
        """It is answered one request, and closed."""
        self._idle_s = IDLE_S
        self._body: LargeBody | None = None
        """On its way in, if it is large."""
        self._reader = RequestReader(self, listener.kafka)
        self._unparsed: bytes | memoryview = b""
        """Received, and left for the next turn."""
        self._turn_ends_s = 0.0
        self._is_turn_over = False
        self._next_turn: asyncio.Handle | None = None
        self._transport: asyncio.Transport | None = None
        self._ready: deque[_Asked] = deque()
        self._ready_bytes = 0
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._asked: _Asked | None = None
        """What is being answered."""
        self._idle: asyncio.TimerHandle | None = None
        self._heard_s = 0.0
        self._begun_s = 0.0
        """When the request that is on its way began to come; 0: none is."""
        self._is_choked = False
        """The client takes what it was sent more slowly than it asks for it."""
        self._is_paused = False
        self._is_ending = False
        """Nothing more is read: what was sent last says why."""
        self._owes_continue = False
        self._unreceived: Unreceived | None = None
        """Responses with `on_lost` that may not have arrived; None until there is one."""
        self._has_hung_up = False

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own
        is_scarce = is_scarce_for(self._transport, Leave.HTTP_CONNECTIONS)
        if is_scarce or self._listener.surplus > 0:
            self._refuse(self._transport, is_scarce)
        self._listener.connections.add(self)
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._idle = self._loop.call_later(self._idle_s, self._look)

    def _refuse(self, transport: asyncio.Transport, is_scarce: bool) -> None:
        """There are too many: what it asks is answered by telling it so, unless even those are too many."""
        self._is_surplus, self._idle_s = True, SURPLUS_IDLE_S
        self._answer = self._listener.answer_surplus
        self._listener.refused("too_many_http")
        if is_scarce or self._listener.surplus > SURPLUS_MAX:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.left(self)
        if self._unreceived is not None and self._has_hung_up:
            self._unreceived.lose()
        self._transport = None
        self._drop_ready()
        self._drop_body()
        self._unparsed = b""
        for timer in (self._idle, self._next_turn):
            if timer is not None:
                timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()

    def eof_received(self) -> bool:
        """Cancels the request that waits: a client that closes its side has hung up.

        Returns True, which keeps the transport open, while it is not known whether the last response was received: a
        client that closed its connection before the response arrived answers it with a reset.
        """
        self._has_hung_up = True
        if self._waiting is not None:
            self._waiting.cancel()
        if self._unreceived is None or self._unreceived.is_settled:
            return False
        self._drop_ready()
        self._await_receipt(RECEIPTS_MAX)
        return True

    def _await_receipt(self, times: int) -> None:
        unreceived = self._unreceived
        if self._transport is None or unreceived is None:
            return
        if not times or unreceived.is_settled:
            self.close()
        else:
            self._loop.call_later(RECEIPT_S, self._await_receipt, times - 1)

    def _look(self) -> None:
        """Close a connection that has said nothing for long. One timer: it is set again, not with every request."""
        left_s = (self._begun_s or self._heard_s) + self._idle_s - self._loop.time()
        if left_s <= 0 and self._is_choked and self._transport is not None:
            self._has_hung_up = True  # it does not read the rest of its response
            self._transport.abort()
        elif left_s <= 0 and self._asked is None and not self._awaits_room:
            self.close()
        else:
            self._idle = self._loop.call_later(max(left_s, 1.0), self._look)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def stop(self) -> None:
        """Close it, unless there is something to be answered first."""
        if self._asked is None and not self._ready and not self._begun_s and not self._unparsed:
            self.close()

    def pause_writing(self) -> None:
        self._is_choked = True
        self._read_or_rest()

    def resume_writing(self) -> None:
        self._is_choked = False
        self._take_turn()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        self._heard_s = self._loop.time()
        if len(data) <= FEED_BYTES and not self._unparsed:  # what comes is mostly one request
            self._turn_ends_s = self._heard_s + TURN_S
            self._is_turn_over = False
            self._parse(data)
            return
        self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
        self._take_turn()

    # -- turns: what is left to do is done later if there is much of it

    def _take_turn(self) -> None:
        """Answer and parse what is there, for as long as a turn may take."""
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        self._turn_ends_s, self._is_turn_over = monotonic() + TURN_S, False
        self._work()
        while self._unparsed and not self._ready and not self._awaits_room:
            if self._is_turn_over:
                self._yield()
                break
            count = self._reader.feed_bytes_max
            data, self._unparsed = self._unparsed[:count], self._unparsed[count:]
            self._parse(data)
            self._is_turn_over = monotonic() >= self._turn_ends_s
        self._ask_for_body()
        self._read_or_rest()

    def _yield(self) -> None:
        """Lets others have their turn; the rest follows then."""
        if self._next_turn is None and self._transport is not None:
            self._next_turn = self._loop.call_soon(self._take_turn)

    def _parse(self, data: bytes | memoryview) -> None:
        try:
            self._reader.feed(data)
        except BadRequest as error:
            self._fail(error.status, error.reason)
        if self._reader.is_reading and not self._begun_s:
            self._begun_s = self._heard_s
        if self._body is not None:
            self._body.receive(self._reader.body_bytes_received)
            if self._body.awaits_room:
                self._read_or_rest()

    def _read_or_rest(self) -> None:
        """Read on, unless the client is too far ahead of its answers."""
        if self._transport is None or self._transport.is_closing():
            return
        is_ahead = len(self._ready) >= PIPELINED_MAX or self._ready_bytes >= BODY_BYTES_MAX or bool(self._unparsed)
        rests = self._is_choked or is_ahead or self._awaits_room
        if rests != self._is_paused:
            self._is_paused = rests
            if rests:
                self._transport.pause_reading()
            else:
                self._excuse()
                self._transport.resume_reading()

    def _fail(self, status: HTTPStatus, reason: str) -> None:
        """Say what is wrong with what has come, after all that was asked before; then hang up."""
        if not self._is_ending:
            self._is_ending, self._unparsed = True, b""
            self._drop_body()
            refusal = HttpResponse(status=status, body=reason.encode() + b"\n")
            self._take(_Asked(_NO_REQUEST, keeps_alive=False, is_old=False, response=refusal))

    # -- the parser's side

    def head_read(self, body_bytes: int, expects_continue: bool) -> None:
        if self._is_ending:
            return
        if body_bytes > LARGE_BYTES:
            self._body = LargeBody(self._listener.budget, self._on_room, self._on_slow)
            self._read_or_rest()
        if expects_continue:
            self._owes_continue = True
            self._ask_for_body()

    @property
    def _awaits_room(self) -> bool:
        return self._body is not None and self._body.awaits_room

    def _on_room(self) -> None:
        """There is room for more of this connection's body."""
        self._begun_s = self._heard_s = self._loop.time()
        self._ask_for_body()
        if self._unparsed:
            self._yield()  # not now: it is another connection's turn
        else:
            self._read_or_rest()

    def _on_slow(self) -> None:
        """The body arrives too slowly, unless it is this side that keeps it waiting."""
        if self._owes_continue or self._is_paused:
            return
        self._listener.refused("slow_http")
        self._fail(HTTPStatus.REQUEST_TIMEOUT, f"a body arrives at {RATE_MIN} bytes per second at least")

    def _excuse(self) -> None:
        if self._body is not None:
            self._body.excuse()

    def _drop_body(self) -> None:
        if self._body is not None:
            self._body.drop()
            self._body = None

    def _ask_for_body(self) -> None:
        """Tell a client to go on, when everything that it asked before is answered and there is room for more."""
        is_busy = self._asked is not None or self._ready or self._awaits_room
        if self._owes_continue and not is_busy and self._transport is not None:
            self._owes_continue = False
            self._excuse()
            self._transport.write(CONTINUE)
            if self._unreceived is not None:
                self._unreceived.add(len(CONTINUE), None)

    def request_read(self, request: HttpRequest, keeps_alive: bool, is_old: bool) -> None:
        if self._is_ending:
            return
        body, self._body = self._body, None
        loan = None if body is None else body.complete(len(request.body))
        self._owes_continue, self._begun_s = False, 0.0
        self._take(_Asked(request, keeps_alive, is_old, None, loan))

    # -- answering

    def _take(self, asked: _Asked) -> None:
        self._ready.append(asked)
        self._ready_bytes += len(asked.request.body)
        self._work()
        if self._ready:
            self._read_or_rest()

    def _work(self) -> None:
        """Answer what can be answered now, in the order in which it was asked."""
        while self._ready and self._asked is None and not self._is_choked:
            if self._is_turn_over:
                self._yield()
                break
            asked = self._ready.popleft()
            self._ready_bytes -= len(asked.request.body)
            try:
                found = asked.response or self._answer(asked.request)
            except Exception:
                logger.exception("http_failed path=%r", asked.request.path)
                found = _FAILED
            if isinstance(found, HttpResponse):
                self._write(asked, found)
                asked.release()
                self._is_turn_over = monotonic() >= self._turn_ends_s
                continue
            self._asked = asked
            self._waiting = asyncio.ensure_future(found)
            self._waiting.add_done_callback(self._answered)

    def _answered(self, waiting: "asyncio.Future[HttpResponse]") -> None:
        asked, self._asked, self._waiting = self._asked, None, None
        if asked is not None:
            asked.release()
        if waiting.cancelled():  # the client has hung up, or the broker stops
            self.close()
            return
        error = waiting.exception()
        response = _FAILED if error is not None else waiting.result()
        if asked is None or self._transport is None:
            response.lose()
            return
        if error is not None:
            logger.error("http_failed path=%r", asked.request.path, exc_info=error)
        self._heard_s = self._loop.time()
        self._write(asked, response)
        self._take_turn()

    def _write(self, asked: _Asked, response: HttpResponse) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._has_hung_up:
            response.lose()
            return
        if response.on_lost is not None:
            if has_hung_up(transport):
                response.lose()
                self.close()
                return
            self._unreceived = self._unreceived or Unreceived(transport)
        is_head = asked.request.method == b"HEAD"
        if is_head and response.on_lost is not None:
            response.lose()
            response = response._replace(on_lost=None)
        keeps_alive = asked.keeps_alive and not self._listener.is_stopping and not self._is_surplus
        start = head(response, connection_line(keeps_alive=keeps_alive, is_old=asked.is_old))
        body = b"" if is_head else response.body
        if len(body) < 1 << 16:
            transport.write(start + body)
        else:
            transport.writelines((start, body))
        if self._unreceived is not None:
            self._unreceived.add(len(start) + len(body), response.on_lost)
        if not keeps_alive:
            self._is_ending, self._unparsed = True, b""
            self._drop_body()
            self._drop_ready()
            transport.close()

    def _drop_ready(self) -> None:
        """Nobody will read the answers."""
        for asked in self._ready:
            asked.release()
        self._ready.clear()
        self._ready_bytes = 0
