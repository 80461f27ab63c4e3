"""One Kafka client: frames in, answers out, in order, with bounded memory.

All connections share one receive buffer: a request that arrived whole is handled before the next read. Only what
is left of a request that did not is kept, in a buffer of its own.
"""

import asyncio
import logging
import struct
from collections.abc import Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.call import Call
from penstock.broker.fastpath.produce_and_fetch import ExpressLane, learn
from penstock.broker.handlers.api_versions import served
from penstock.broker.large_requests import handle_large
from penstock.foundation.codes import ErrorCode
from penstock.foundation.descriptors import Leave
from penstock.foundation.errors import MalformedRequest
from penstock.network import flags
from penstock.network.large_request import RECEIVE_BYTES, REST_BYTES_MAX, SMALL_FRAME_BYTES_MAX, LargeRequest
from penstock.network.listen_socket import is_scarce_for
from penstock.network.responses import ResponseSender
from penstock.network.wrong_port import answer_http
from penstock.wire.codec import decode
from penstock.wire.codegen import TooManyElements
from penstock.wire.frames import (
    HEADER_BYTES_MIN,
    LENGTH,
    RequestHeader,
    read_request_header,
    skip_tags,
)
from penstock.wire.keys import ApiKey
from penstock.wire.schema import Buffer

if TYPE_CHECKING:
    from penstock.network.kafka import KafkaListener

logger = logging.getLogger(__name__)

SAMPLE_MASK: Final = 31
"""Of this many reads, less one, the express lane does not look at the clock."""
TURN_S: Final = 0.005
"""How long the requests that one read brought may hold the event loop; then other connections have their turn."""
EXPRESS_REQUESTS_MAX: Final = 256
"""Requests of one read that the express lane answers before it looks at the clock."""
_START: Final = struct.Struct(">iii")  # length, API key and version, correlation id
_EXPRESS_TURN: Final = range(EXPRESS_REQUESTS_MAX)
_KIND: Final = struct.Struct(">ii")
WRITE_BYTES_HIGH: Final = 1 << 20
"""Bytes that wait to be written to one connection before it is no longer read from."""


class KafkaConnection(ResponseSender):
    """One client: the receiving half."""

    __slots__ = (
        "_heard_before",
        "_heard_s",
        "_large",
        "_rest",
        "_stash",
        "_took_s",
        "heard",
        "lanes",
        "task",
    )

    def __init__(self, listener: "KafkaListener") -> None:
        super().__init__(listener)
        self.heard = self._heard_before = -1  # how often something came in, less one
        self._heard_s = perf_counter()
        self._took_s = 0.0
        self._large: LargeRequest | None = None
        self._rest = b""  # the beginning of a small request
        self._stash: memoryview | None = None  # requests that may not be handled yet
        self.task: asyncio.Task[None] | None = None  # a handler that waits; the next request waits for it
        self.lanes: dict[int, ExpressLane] = {}

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own
        listener = self._listener
        self._transport = transport
        self.peer = "/{}:{}".format(*transport.get_extra_info("peername") or "??")  # as Java writes addresses
        is_full = len(listener.connections) >= listener.connections_max
        if is_full or is_scarce_for(transport, Leave.KAFKA_CONNECTIONS):
            listener.probe.refused("too_many")
            transport.abort()
            return
        self._state = 0
        listener.connections.add(self)
        listener.probe.connected()
        transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)

    def connection_lost(self, error: Exception | None) -> None:
        if self not in self._listener.connections:
            return
        self.report()
        self._listener.gone(self)
        self._transport = None
        self._state |= flags.GONE
        if self._large is not None:
            self._listener.release(self._large)
            self._large.loan.close()
            self._large = None
        self._stash = None
        for call in self.calls:
            call.is_gone = True
            if call.release is not None:
                call.release()
            if call.on_gone is not None:
                call.on_gone()
        self.calls.clear()

    def is_slow(self, now_s: float) -> bool:
        """Whether a large request arrives too slowly."""
        large = self._large
        if large is None or large.frame is not None or self._state & flags.AWAITS_ROOM:
            return False
        return large.is_slow(now_s)

    def silent_s(self, now_s: float) -> float:
        """For how long nothing came in, as far as those know who ask now and then."""
        if self.heard != self._heard_before:
            self._heard_before = self.heard
            self._heard_s = now_s
        return now_s - self._heard_s

    def stop_reading(self) -> None:
        self._state |= flags.STOPPED
        self._pause()

    def get_buffer(self, sizehint: int) -> memoryview:
        shared = self._listener.receive_buffer
        if not self._state:
            return shared
        if self._large is not None:
            return self._large.room()
        shared[: len(self._rest)] = self._rest
        return shared[len(self._rest) :]

    def buffer_updated(self, count: int) -> None:
        """Answer by the express lane what can be; this is the path of most requests, and short on purpose."""
        self.heard = heard = self.heard + 1
        if self._state or not heard & SAMPLE_MASK:
            if self._state != flags.HAS_REST or not heard & SAMPLE_MASK:
                self._on_bytes(count)
                return
            count += self._take_rest()
        data, lanes = self._listener.receive_buffer, self.lanes
        lane: ExpressLane | None = None
        out: list[Buffer] = []
        out_bytes = at = 0
        for _ in _EXPRESS_TURN:
            size, kind, correlation_id = _START.unpack_from(data, at)
            stop = at + 4 + size
            found = lanes.get(kind)
            if found is None or stop > count or size < HEADER_BYTES_MIN or (lane is not None and lane is not found):
                break
            answered = found.handle(data, at + 4, stop, correlation_id, out)
            if not answered:
                break
            lane = found
            lane.count += 1
            out_bytes += answered
            at = stop
            if at > count - _START.size or out_bytes > WRITE_BYTES_HIGH:
                break
        if lane is not None:
            lane.bytes_in += at
            lane.bytes_out += out_bytes
            self._write(out, out_bytes)
        if at < count:
            self._consume(data, at, count)

    def _on_bytes(self, count: int) -> None:
        """The same for who is in the middle of something, and now and then for a look at the clock."""
        if self._large is not None:
            self._fill_large(self._large, count)
            return
        started_s = perf_counter()
        count += self._take_rest()
        self._consume(self._listener.receive_buffer, 0, count)
        self._took_s = perf_counter() - started_s
        self.report()

    def _take_rest(self) -> int:
        """What was kept stands before what was read now; how much it is."""
        rest, self._rest = self._rest, b""
        self._state &= ~flags.HAS_REST
        return len(rest)

    def _fill_large(self, large: LargeRequest, count: int) -> None:
        """More of a large request has arrived."""
        large.add(count)
        may_go_on = large.loan.charge(count)
        if large.frame is not None:
            if self._state & flags.BLOCKED:
                self._pause()
            else:
                self._handle_large(large, large.frame)
        elif not may_go_on:
            self._await_room()

    def _handle_large(self, large: LargeRequest, frame: memoryview) -> None:
        """A large request has arrived as a whole. It counts against the budget until it is answered."""
        self._large = None
        self._state &= ~flags.HAS_LARGE
        before = self.calls[-1] if self.calls else None
        self._handling = True
        try:
            self._answer(frame, 0, len(frame))
        finally:
            self._handling = False
            self._listener.release(large)
            call = self.calls[-1] if self.calls else None
            if call is None or call is before:
                large.loan.close()
            else:
                call.release = large.loan.close
        self._send()

    # -- requests in

    def _consume(self, data: memoryview, at: int, end: int) -> None:
        """Handle the whole requests between `at` and `end`, and keep what is left."""
        at = self._handle_whole(data, at, end)
        while not self._state & flags.BLOCKED and self._is_whole(data, at, end):  # answers made room for more calls
            at = self._handle_whole(data, at, end)
        if self._transport is not None and at < end:
            self._keep(data, at, end)

    def _is_whole(self, data: memoryview, at: int, end: int) -> bool:
        """Whether a whole request of a legal size is at `at`."""
        if end - at < _START.size:
            return False
        size: int = LENGTH.unpack_from(data, at)[0]
        return HEADER_BYTES_MIN <= size <= min(self._listener.frame_bytes_max, end - at - 4)

    def _handle_whole(self, data: memoryview, at: int, end: int) -> int:
        """Handles requests until one is not whole or may not be handled; returns where that one is."""
        until_s = perf_counter() + TURN_S
        self._handling = True
        while not self._state & flags.BLOCKED and self._is_whole(data, at, end):
            stop = at + 4 + LENGTH.unpack_from(data, at)[0]
            self._answer(data, at + 4, stop)
            at = stop
            if self._out_bytes > WRITE_BYTES_HIGH:
                self._send()
            if perf_counter() > until_s:
                self._yield()
        self._handling = False
        self._send()
        return at

    def _yield(self) -> None:
        """Other connections have their turn before the rest of what this one has sent is handled."""
        self._state |= flags.YIELDED
        asyncio.get_running_loop().call_soon(self._end_yield)

    def _end_yield(self) -> None:
        self._state &= ~flags.YIELDED
        self._go_on()

    def _answer(self, data: memoryview, at: int, stop: int) -> None:
        """Answer the request between `at` and `stop`, by the express lane if it may take it."""
        if not self.calls:  # else its answer would overtake theirs
            kind, correlation_id = _KIND.unpack_from(data, at)
            lane = self.lanes.get(kind)
            if lane is not None and (answered := lane.handle(data, at, stop, correlation_id, self._out)):
                lane.count += 1
                lane.bytes_in += stop - at
                lane.bytes_out += answered
                self._out_bytes += answered
                return
        self._handle(data[at:stop])

    def report(self) -> None:
        """Count what the lanes have answered, as if all had taken as long as the last that was timed."""
        for lane in self.lanes.values():
            if lane.count:
                self._listener.probe.requests(lane.api_key, *lane.take_counts(self._took_s))

    def _keep(self, data: memoryview, at: int, end: int) -> None:
        """What is between `at` and `end` cannot be handled yet."""
        rest = data[at:end]
        if self._state & flags.BLOCKED:
            self._stash = memoryview(bytearray(rest)) if data is self._listener.receive_buffer else rest
            self._pause()
            return
        size = LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else HEADER_BYTES_MIN
        limit = self._listener.frame_bytes_max
        if not HEADER_BYTES_MIN <= size <= limit:
            answer = answer_http(rest, self._listener.http)
            detail = f"{size} bytes, at least {HEADER_BYTES_MIN} and at most {limit} are read"
            self.close("frame_size" if answer is None else "http", detail, answer)
        elif size <= REST_BYTES_MAX:
            self._rest = bytes(rest)
            self._state |= flags.HAS_REST
        else:
            self._large = large = self._listener.receive_large(size, data, at + 4, end, self._resume)
            self._state |= flags.HAS_LARGE
            if not large.loan.charge(len(rest) - 4):
                self._await_room()

    def _await_room(self) -> None:
        """Stop reading until the budget has room for more of a large request."""
        self._state |= flags.AWAITS_ROOM
        self._pause()

    def _resume(self) -> None:
        """Not at once: whoever made room is in the middle of its own request."""
        asyncio.get_running_loop().call_soon(self._on_room)

    def _on_room(self) -> None:
        self._state &= ~flags.AWAITS_ROOM
        if self._large is not None:
            self._large.restart_clock()
        self._go_on()

    def _pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Something that was waited for has happened: handle what is stashed, then read on."""
        if self._transport is None or self._state & flags.BLOCKED:
            return
        large = self._large
        if large is not None and large.frame is not None:
            self._handle_large(large, large.frame)
        if self._stash is not None and not self._state & flags.BLOCKED:
            stash, self._stash = self._stash, None
            self._consume(stash, 0, len(stash))
        # Also when no request may be handled now: what arrives meanwhile is stashed then.
        must_wait = self._stash is not None or self._state & flags.AWAITS_ROOM
        if self._transport is not None and not must_wait and not self._transport.is_reading():
            self._transport.resume_reading()

    def _handle(self, frame: memoryview) -> None:
        """The general way: decode, find the handler, let it answer now or later."""
        started_s = perf_counter()
        try:
            header = read_request_header(frame)
            api_key, version, *_, at = header
            route = self._listener.route(api_key, version)
            if route is None:
                self._refuse(header)
                return
            if len(frame) > SMALL_FRAME_BYTES_MAX and api_key != ApiKey.PRODUCE:
                self.close("frame_size", f"API {api_key} sent {len(frame)} bytes, at most {SMALL_FRAME_BYTES_MAX}")
                return
            if route.flexible:
                at = skip_tags(frame, at)
            request: Any = decode(route.api.request, version, frame, at, route.inline_max)
        except MalformedRequest as error:
            self.close("malformed", str(error))
            return
        except TooManyElements:
            # Decoded over several iterations of the loop: by then another connection has read into a shared buffer.
            kept = bytes(frame) if len(frame) <= RECEIVE_BYTES else frame
            call = self._expect(header, started_s, len(frame))
            assert route is not None
            self._run(handle_large(route.api, kept, at, call, self._listener.broker), call)
            return
        call = self._expect(header, started_s, len(frame))
        result = route.api.handler(request, call, self._listener.broker)
        if isinstance(result, Coroutine):
            self._run(result, call)
        elif result is not None or call.is_answered:
            if not call.is_answered:
                call.answer(result)
            self._collect()
            # It may come again: let it take the express lane then.
            learn(self.lanes, frame, request, self._listener.broker)

    def _run(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        """Run a handler that waits; the next request of this connection is handled when it is done."""
        self._state |= flags.HAS_TASK
        self.task = asyncio.get_running_loop().create_task(self._wait(work, call))

    async def _wait(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        """Whatever the handler raises ends the connection; if the client is not to blame, it is logged, too."""
        result = None
        try:
            result = await work
        except MalformedRequest as error:
            self.close("malformed", str(error))
        except BaseException:
            self.close("handler_failed")
            raise
        finally:
            self.task = None
            self._state &= ~flags.HAS_TASK
        if result is not None:
            call.answer(result)
        self._go_on()

    def _refuse(self, header: RequestHeader) -> None:
        if header.api_key != ApiKey.API_VERSIONS:
            self.close("unsupported", f"API {header.api_key} version {header.version} is not served")
            return
        # A client that is newer than this broker is told what there is, in the oldest words (KIP-511).
        self._expect(header._replace(version=0), perf_counter(), 0).answer(served(ErrorCode.UNSUPPORTED_VERSION))

    def _on_answer(self, call: Call) -> None:
        if not self._handling:
            self._send()
            if self._stash is not None or self._large is not None:
                self._go_on()
