"""One Kafka client: frames in, answers out, in order, with bounded memory.

All connections share one receive buffer: a request that arrived whole is handled before the next read. Only what
is left of a request that did not is kept, in a buffer of its own.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.broker.call import Call
from penstock.broker.express import JOIN_BYTES_MAX, ExpressLane, learn
from penstock.broker.handlers.api_versions import served
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import MalformedRequest
from penstock.network import gate
from penstock.network.large import REST_BYTES_MAX, SMALL_FRAME_BYTES_MAX, LargeRequest
from penstock.wire.codec import decode
from penstock.wire.frames import HEADER_BYTES_MIN, LENGTH, RequestHeader, read_request_header, skip_tags
from penstock.wire.keys import ApiKey
from penstock.wire.schema import Buffer

if TYPE_CHECKING:
    from penstock.network.kafka import KafkaListener

logger = logging.getLogger(__name__)

SAMPLE_MASK: Final = 31
"""Of this many reads, less one, the express lane does not look at the clock."""
CALLS_MAX: Final = 128
"""Requests of one connection that may wait for their answers; then it is not read from."""
_START: Final = struct.Struct(">iii")  # length, API key and version, correlation id
_KIND: Final = struct.Struct(">ii")
WRITE_BYTES_HIGH: Final = 1 << 20
"""Bytes that wait to be written to one connection before it is no longer read from."""


class KafkaConnection(asyncio.BufferedProtocol):
    """One client."""

    __slots__ = (
        "_handling",
        "_hang_up",
        "_heard_before",
        "_heard_s",
        "_large",
        "_listener",
        "_out",
        "_out_bytes",
        "_rest",
        "_stash",
        "_state",
        "_took_s",
        "_transport",
        "calls",
        "heard",
        "lanes",
        "peer",
        "task",
    )

    def __init__(self, listener: "KafkaListener") -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._state = gate.GONE
        self.peer = ""
        self.calls: deque[Call] = deque()
        self.heard = self._heard_before = -1  # how often something came in, less one
        self._heard_s = perf_counter()
        self._took_s = 0.0
        self._large: LargeRequest | None = None
        self._rest = b""  # the beginning of a small request
        self._stash: memoryview | None = None  # requests that may not be handled yet
        self.task: asyncio.Task[None] | None = None  # a handler that waits; the next request waits for it
        self._handling = False
        self._hang_up = False
        self.lanes: dict[int, ExpressLane] = {}
        self._out: list[Buffer] = []
        self._out_bytes = 0

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own
        listener = self._listener
        self._transport = transport
        self.peer = "/{}:{}".format(*transport.get_extra_info("peername") or "??")  # as Java writes addresses
        if len(listener.connections) >= listener.connections_max:
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
        self._state |= gate.GONE
        if self._large is not None:
            self._listener.release(self._large)
            self._large = None
        self._stash = None
        for call in self.calls:
            if call.on_gone is not None:
                call.on_gone()
        self.calls.clear()

    @property
    def is_receiving(self) -> bool:
        return self._large is not None

    def silent_s(self, now_s: float) -> float:
        """For how long nothing came in, as far as those know who ask now and then."""
        if self.heard != self._heard_before:
            self._heard_before = self.heard
            self._heard_s = now_s
        return now_s - self._heard_s

    def close(self, kind: str, detail: str = "") -> None:
        """Close at once: what the peer sent or does cannot be answered. `kind` is one of a few, for counting."""
        if self._transport is not None:
            logger.info("connection_closed peer=%s kind=%s detail=%r", self.peer, kind, detail)
            self._listener.probe.refused(kind)
            self._state |= gate.STOPPED  # what else it sent is not handled any more
            self._transport.abort()

    def stop_reading(self) -> None:
        self._state |= gate.STOPPED
        self._pause()

    def finish(self) -> None:
        """Close once everything that was answered is written."""
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self._state |= gate.WRITE_PAUSED

    def resume_writing(self) -> None:
        self._state &= ~gate.WRITE_PAUSED
        self._go_on()

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
            if self._state != gate.HAS_REST or not heard & SAMPLE_MASK:
                self._on_bytes(count)
                return
            count += self._take_rest()
        data, lanes = self._listener.receive_buffer, self.lanes
        lane: ExpressLane | None = None
        out: list[Buffer] = []
        out_bytes = at = 0
        while True:
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
        self._state &= ~gate.HAS_REST
        return len(rest)

    def _fill_large(self, large: LargeRequest, count: int) -> None:
        """More of a large request has arrived."""
        frame = large.add(count)
        if frame is None:
            return
        self._large = None
        self._state &= ~gate.HAS_LARGE
        try:
            if self._state & gate.BLOCKED:
                self._stash = memoryview(bytearray(LENGTH.pack(len(frame))) + frame)
                self._pause()
            else:
                self._handling = True
                self._answer(frame, 0, len(frame))
                self._handling = False
                self._send()
        finally:
            self._listener.release(large)

    # -- requests in

    def _consume(self, data: memoryview, at: int, end: int) -> None:
        """Handle the whole requests between `at` and `end`, and keep what is left."""
        size_max = self._listener.frame_bytes_max
        self._handling = True
        while end - at >= _START.size and not self._state & gate.BLOCKED:
            (size,) = LENGTH.unpack_from(data, at)
            stop = at + 4 + size
            if not HEADER_BYTES_MIN <= size <= size_max or stop > end:
                break
            self._answer(data, at + 4, stop)
            at = stop
            if self._out_bytes > WRITE_BYTES_HIGH:
                self._send()
        self._handling = False
        self._send()
        if self._transport is not None and at < end:
            self._keep(data, at, end)

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
        if self._state & gate.BLOCKED:
            self._stash = memoryview(bytearray(rest))
            self._pause()
            return
        size = LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else HEADER_BYTES_MIN
        limit = self._listener.frame_bytes_max
        if not HEADER_BYTES_MIN <= size <= limit:
            self.close("frame_size", f"{size} bytes, at least {HEADER_BYTES_MIN} and at most {limit} are read")
        elif size <= REST_BYTES_MAX:
            self._rest = bytes(rest)
            self._state |= gate.HAS_REST
        elif self._listener.budget.borrow(size, self._on_room):
            self._large = self._listener.receive_large(size, data, at + 4, end)
            self._state |= gate.HAS_LARGE
        else:
            self._rest = bytes(rest)
            self._state |= gate.AWAITS_ROOM | gate.HAS_REST
            self._pause()

    def _on_room(self, size: int) -> None:
        """The budget lends the bytes that were asked for."""
        self._state &= ~(gate.AWAITS_ROOM | gate.HAS_REST)
        rest, self._rest = self._rest, b""
        if self._transport is None:
            self._listener.budget.give_back(size)
            return
        self._large = self._listener.receive_large(size, memoryview(rest), 4, len(rest))
        self._state |= gate.HAS_LARGE
        self._go_on()

    def _pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Something that was waited for has happened: handle what is stashed, then read on."""
        if self._transport is None or self._state & gate.BLOCKED:
            return
        if self._stash is not None:
            stash, self._stash = self._stash, None
            self._consume(stash, 0, len(stash))
        if self._transport is not None and self._stash is None and not self._transport.is_reading():
            self._transport.resume_reading()

    def _handle(self, frame: memoryview) -> None:
        """The general way: decode, find the handler, let it answer now or later."""
        started_s = perf_counter()
        try:
            header = read_request_header(frame)
            api_key, version, correlation_id, client_id, at = header
            route = self._listener.route(api_key, version)
            if route is None:
                self._refuse(header)
                return
            if len(frame) > SMALL_FRAME_BYTES_MAX and api_key != ApiKey.PRODUCE:
                self.close("frame_size", f"API {api_key} sent {len(frame)} bytes, at most {SMALL_FRAME_BYTES_MAX}")
                return
            if route.flexible:
                at = skip_tags(frame, at)
            request: Any = decode(route.request, version, frame, at)
        except MalformedRequest as error:
            self.close("malformed", str(error))
            return
        call = Call(api_key, version, correlation_id, client_id, started_s, len(frame), self.peer, self._on_answer)
        self._expect(call)
        result = route.handler(request, call, self._listener.broker)
        if isinstance(result, Coroutine):
            self._state |= gate.HAS_TASK
            self.task = asyncio.get_running_loop().create_task(self._wait(result, call))
        elif result is not None or call.parts is not None:
            if call.parts is None:
                call.answer(result)
            self._collect()
            # It may come again: let it take the express lane then.
            learn(self.lanes, frame, request, self._listener.broker)

    async def _wait(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        """Run a handler that waits. Whatever it raises ends the connection and is logged."""
        try:
            result = await work
        except BaseException:
            self.close("handler_failed")
            raise
        finally:
            self.task = None
            self._state &= ~gate.HAS_TASK
        if result is not None:
            call.answer(result)
        self._go_on()

    def _refuse(self, header: RequestHeader) -> None:
        if header.api_key != ApiKey.API_VERSIONS:
            self.close("unsupported", f"API {header.api_key} version {header.version} is not served")
            return
        # A client that is newer than this broker is told what there is, in the oldest words (KIP-511).
        call = Call(
            header.api_key, 0, header.correlation_id, header.client_id, perf_counter(), 0, self.peer, self._on_answer
        )
        self._expect(call)
        call.answer(served(ErrorCode.UNSUPPORTED_VERSION))

    # -- answers out

    def _expect(self, call: Call) -> None:
        self.calls.append(call)
        self._state |= gate.HAS_CALLS if len(self.calls) < CALLS_MAX else gate.HAS_CALLS | gate.HAS_MANY_CALLS

    def _on_answer(self, call: Call) -> None:
        if not self._handling:
            self._send()
            if self._stash is not None:
                self._go_on()

    def _collect(self) -> None:
        """Queue every answer whose turn it is."""
        calls = self.calls
        now_s = perf_counter()
        while calls and calls[0].parts is not None:
            call = calls.popleft()
            parts = call.parts
            assert parts is not None
            self._out += parts
            self._hang_up = self._hang_up or call.hang_up
            size = sum(map(len, parts))
            self._out_bytes += size
            self._listener.probe.requests(call.api_key, 1, now_s - call.started_s, call.frame_bytes, size)
        if len(calls) < CALLS_MAX:
            self._state &= ~gate.HAS_MANY_CALLS if calls else ~(gate.HAS_MANY_CALLS | gate.HAS_CALLS)

    def _send(self) -> None:
        """Write everything that is queued, in one go."""
        if self.calls:
            self._collect()
        if self._transport is None:
            return
        if self._out:
            out, self._out = self._out, []
            self._write(out, self._out_bytes)
            self._out_bytes = 0
        if self._hang_up:
            self._transport.close()

    def _write(self, out: list[Buffer], size: int) -> None:
        assert self._transport is not None
        if size > JOIN_BYTES_MAX:
            self._transport.writelines(out)
        else:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
