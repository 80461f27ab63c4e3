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
from penstock.broker.express import ExpressLane, open_lane
from penstock.broker.handlers.api_versions import served
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import MalformedRequest
from penstock.network.large import LargeRequest
from penstock.wire.codec import decode
from penstock.wire.frames import LENGTH, RequestHeader, read_request_header, skip_tags
from penstock.wire.keys import ApiKey
from penstock.wire.schema import Buffer

if TYPE_CHECKING:
    from penstock.network.kafka import KafkaListener

logger = logging.getLogger(__name__)

REST_BYTES_MAX: Final = 256 << 10
"""Of a request up to this size, what was read is kept and put before the next read; a larger one gets a buffer."""
CALLS_MAX: Final = 128
"""Requests of one connection that may wait for their answers; then it is not read from."""
_START: Final = struct.Struct(">ihhi")  # length, API key, version, correlation id
SMALL_FRAME_BYTES_MAX: Final = 2 << 20
"""For every API but Produce, whose bytes are mostly records: decoding costs by the field, on the event loop."""
HEADER_BYTES_MIN: Final = 10
WRITE_BYTES_HIGH: Final = 1 << 20
"""Bytes that wait to be written to one connection before it is no longer read from."""
JOIN_BYTES_MAX: Final = 8 << 10
"""Answers up to this size are joined into one write; larger ones are handed over in pieces."""


class KafkaConnection(asyncio.BufferedProtocol):
    """One client."""

    __slots__ = (
        "_handling",
        "_hang_up",
        "_lanes",
        "_large",
        "_listener",
        "_out",
        "_out_bytes",
        "_peer",
        "_rest",
        "_stash",
        "_stopped",
        "_transport",
        "_waits_for_room",
        "_write_paused",
        "calls",
        "heard_s",
        "task",
    )

    def __init__(self, listener: "KafkaListener") -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self.calls: deque[Call] = deque()
        self.heard_s = perf_counter()
        self._large: LargeRequest | None = None
        self._waits_for_room = False
        self._rest = b""  # the beginning of a small request
        self._stash: memoryview | None = None  # requests that may not be handled yet
        self.task: asyncio.Task[None] | None = None  # a handler that waits; the next request waits for it
        self._handling = False
        self._write_paused = False
        self._stopped = False
        self._hang_up = False
        self._lanes: dict[int, ExpressLane] = {}
        self._out: list[Buffer] = []
        self._out_bytes = 0  # of answers that went the general way

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own
        listener = self._listener
        self._transport = transport
        self._peer = str(transport.get_extra_info("peername"))
        if len(listener.connections) >= listener.connections_max:
            listener.probe.refused("too_many")
            transport.abort()
            return
        listener.connections.add(self)
        listener.probe.connected()
        transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)

    def connection_lost(self, error: Exception | None) -> None:
        if self not in self._listener.connections:
            return
        self._listener.gone(self)
        self._transport = None
        self._drop_large()
        self._stash = None
        for call in self.calls:
            if call.on_gone is not None:
                call.on_gone()
        self.calls.clear()

    @property
    def is_receiving(self) -> bool:
        return self._large is not None

    def close(self, kind: str, detail: str = "") -> None:
        """Close at once: what the peer sent or does cannot be answered. `kind` is one of a few, for counting."""
        if self._transport is not None:
            logger.info("connection_closed peer=%s kind=%s detail=%r", self._peer, kind, detail)
            self._listener.probe.refused(kind)
            self._stopped = True  # what else it sent is not handled any more
            self._transport.abort()

    def stop_reading(self) -> None:
        self._stopped = True
        self._pause()

    def finish(self) -> None:
        """Close once everything that was answered is written."""
        if self._transport is not None:
            self._transport.close()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large.room()
        shared = self._listener.receive_buffer
        if self._rest:
            shared[: len(self._rest)] = self._rest
            return shared[len(self._rest) :]
        return shared

    def buffer_updated(self, count: int) -> None:
        self.heard_s = perf_counter()
        if self._large is not None:
            self._fill_large(self._large, count)
            return
        if self._rest:
            count += len(self._rest)
            self._rest = b""
        data = self._listener.receive_buffer
        at = self._take_express(data, count)
        if at < count:
            self._consume(data[at:count])

    def _fill_large(self, large: LargeRequest, count: int) -> None:
        """More of a large request has arrived."""
        frame = large.add(count)
        if frame is None:
            return
        self._drop_large()
        if self._is_blocked:
            self._stash = memoryview(bytearray(LENGTH.pack(len(frame))) + frame)
            self._pause()
        else:
            self._handling = True
            self._handle(frame)
            self._handling = False
            self._send()

    # -- requests in

    @property
    def _is_blocked(self) -> bool:
        if self._transport is None or self._stopped or self._write_paused:
            return True
        return self.task is not None or self._waits_for_room or len(self.calls) >= CALLS_MAX

    def _take_express(self, data: memoryview, end: int) -> int:
        """Answer the first requests in `data` by the express lane; where the first one begins that cannot take it.

        This is the path of most requests, often one at a time: it is short on purpose.
        """
        if self.calls or self._is_blocked:
            return 0
        lanes = self._lanes
        lane = None
        out: list[Buffer] = []
        at = 0
        while end - at >= _START.size:
            size, api_key, version, correlation_id = _START.unpack_from(data, at)
            stop = at + 4 + size
            found = lanes.get(api_key << 16 | version)
            if found is None or stop > end or size < HEADER_BYTES_MIN:
                break
            answer = found.handle(data[at + 4 : stop], correlation_id)
            if answer is None:
                break
            lane = found
            out += answer
            at = stop
            if lane.bytes_out > WRITE_BYTES_HIGH:
                break
        if lane is not None:
            self._report(lane)
            self._write(out)
        return at

    def _consume(self, data: memoryview) -> None:
        """Handle the whole requests in `data`, and keep what is left of it."""
        listener = self._listener
        calls, lanes = self.calls, self._lanes
        at, end = 0, len(data)
        self._handling = True
        blocked = self._is_blocked
        while end - at >= _START.size and not blocked:
            size, api_key, version, correlation_id = _START.unpack_from(data, at)
            if not HEADER_BYTES_MIN <= size <= listener.frame_bytes_max:
                break
            stop = at + 4 + size
            if stop > end:
                break
            frame = data[at + 4 : stop]
            at = stop
            lane = lanes.get(api_key << 16 | version)
            answer = None
            if lane is not None and not calls:  # else its answer would overtake theirs
                answer = lane.handle(frame, correlation_id)
            if lane is not None and answer is not None:
                self._out += answer
                self._out_bytes += lane.bytes_out
                self._report(lane)
            else:
                self._handle(frame)
            if self._out_bytes > WRITE_BYTES_HIGH:
                self._send()
            blocked = self._is_blocked
        self._handling = False
        self._send()
        if self._transport is not None and at < end:
            self._keep(data[at:])

    def _report(self, lane: ExpressLane) -> None:
        """Count what a lane has answered."""
        seconds = perf_counter() - self.heard_s
        self._listener.probe.requests(lane.api_key, lane.count, seconds, lane.bytes_in, lane.bytes_out)
        lane.count = lane.bytes_in = lane.bytes_out = 0

    def _keep(self, rest: memoryview) -> None:
        if self._is_blocked:
            self._stash = memoryview(bytearray(rest))
            self._pause()
            return
        self._rest = bytes(rest)
        if len(rest) < 4:
            return
        (size,) = LENGTH.unpack_from(rest)
        limit = self._listener.frame_bytes_max
        if not HEADER_BYTES_MIN <= size <= limit:
            self.close("frame_size", f"{size} bytes, at least {HEADER_BYTES_MIN} and at most {limit} are read")
            return
        if size <= REST_BYTES_MAX:
            return
        if self._listener.budget.borrow(size, lambda: self._on_room(size)):
            self._begin_large(size)
        else:
            self._waits_for_room = True
            self._pause()

    def _on_room(self, size: int) -> None:
        """The budget lends the bytes that were asked for."""
        self._waits_for_room = False
        if self._transport is None:
            self._listener.budget.give_back(size)
        else:
            self._begin_large(size)
            self._go_on()

    def _begin_large(self, size: int) -> None:
        self._large = LargeRequest(size, self._rest[4:])
        self._rest = b""

    def _drop_large(self) -> None:
        if self._large is not None:
            self._listener.budget.give_back(self._large.size)
            self._large = None

    def _pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Something that was waited for has happened: handle what is stashed, then read on."""
        if self._transport is None or self._is_blocked:
            return
        if self._stash is not None:
            stash, self._stash = self._stash, None
            self._consume(stash)
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
        call = Call(api_key, version, correlation_id, client_id, started_s, len(frame), self._on_answer)
        self.calls.append(call)
        result = route.handler(request, call, self._listener.broker)
        if isinstance(result, Coroutine):
            self.task = asyncio.get_running_loop().create_task(self._wait(result, call))
        elif result is not None:
            call.answer(result)
            self._collect()
            self._learn(api_key, version, frame, request)

    def _learn(self, api_key: int, version: int, frame: memoryview, request: Any) -> None:
        """A request that was answered at once may come again: let it take the express lane then."""
        number = api_key << 16 | version
        lane = self._lanes.get(number) or open_lane(api_key, version, self._listener.broker.clock.now_ms)
        if lane is not None:
            self._lanes[number] = lane
            lane.learn(frame, request, self._listener.broker)

    async def _wait(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        """Run a handler that waits. Whatever it raises ends the connection and is logged."""
        try:
            result = await work
        except BaseException:
            self.close("handler_failed")
            raise
        finally:
            self.task = None
        if result is not None:
            call.answer(result)
        self._go_on()

    def _refuse(self, header: RequestHeader) -> None:
        if header.api_key != ApiKey.API_VERSIONS:
            self.close("unsupported", f"API {header.api_key} version {header.version} is not served")
            return
        # A client that is newer than this broker is told what there is, in the oldest words (KIP-511).
        call = Call(header.api_key, 0, header.correlation_id, header.client_id, perf_counter(), 0, self._on_answer)
        self.calls.append(call)
        call.answer(served(ErrorCode.UNSUPPORTED_VERSION))

    # -- answers out

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

    def _send(self) -> None:
        """Write everything that is queued, in one go."""
        if self.calls:
            self._collect()
        if self._transport is None:
            return
        if self._out:
            out, self._out = self._out, []
            self._out_bytes = 0
            self._write(out)
        if self._hang_up:
            self._transport.close()

    def _write(self, out: list[Buffer]) -> None:
        assert self._transport is not None
        if sum(map(len, out)) > JOIN_BYTES_MAX:
            self._transport.writelines(out)
        else:
            self._transport.write(b"".join(out))
