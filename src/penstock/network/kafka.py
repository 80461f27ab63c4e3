"""The Kafka listener: frames in, answers out, in order, with bounded memory.

All connections share one receive buffer: a request that arrived whole is handled before the next read. Only what
is left of a request that did not is kept, in a buffer of its own.
"""

import asyncio
import contextlib
import logging
import struct
from collections import deque
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol, cast

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.express import ExpressLane, open_lane
from penstock.broker.handlers.api_versions import served
from penstock.broker.registry import APIS
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import MalformedRequest
from penstock.network.budget import Budget
from penstock.wire.codec import decode
from penstock.wire.frames import LENGTH, RequestHeader, read_request_header, skip_tags
from penstock.wire.keys import ApiKey
from penstock.wire.schema import Buffer

logger = logging.getLogger(__name__)

RECEIVE_BYTES: Final = 1 << 20
REST_BYTES_MAX: Final = 256 << 10
"""Of a request up to this size, what was read is kept and put before the next read; a larger one gets a buffer."""
CALLS_MAX: Final = 512
"""Requests of one connection that may wait for their answers; then it is not read from."""
_START: Final = struct.Struct(">ihhi")  # length, API key, version, correlation id
SMALL_FRAME_BYTES_MAX: Final = 2 << 20
"""For every API but Produce, whose bytes are mostly records: decoding costs by the field, on the event loop."""
HEADER_BYTES_MIN: Final = 10
WRITE_BYTES_HIGH: Final = 1 << 20
"""Bytes that wait to be written to one connection before it is no longer read from."""
STALLED_S: Final = 30.0
JOIN_BYTES_MAX: Final = 64 << 10
"""Answers up to this size are joined into one write; larger ones are handed over in pieces."""


class Probe(Protocol):
    """What the listener reports."""

    def connected(self) -> None: ...

    def disconnected(self) -> None: ...

    def requests(self, api_key: int, count: int, seconds: float, bytes_in: int, bytes_out: int) -> None: ...

    def refused(self, kind: str) -> None: ...


class _Route(NamedTuple):
    """How to read and handle one version of one API."""

    request: type
    handler: Callable[..., Any]
    flexible: bool


class KafkaListener:
    """What all connections share."""

    def __init__(self, broker: Broker, probe: Probe) -> None:
        self.broker = broker
        self.probe = probe
        self.connections: set[KafkaConnection] = set()
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.frame_bytes_max: int = broker.configs["socket.request.max.bytes"]
        self.connections_max: int = broker.configs["max.connections"]
        self.idle_s: float = broker.configs["connections.max.idle.ms"] / 1000
        self.budget = Budget(broker.configs["queued.max.request.bytes"])
        self._all_gone: asyncio.Event | None = None
        self._routes: dict[tuple[int, int], _Route | None] = {}

    def __call__(self) -> "KafkaConnection":
        return KafkaConnection(self)

    def route(self, api_key: int, version: int) -> _Route | None:
        """None if this broker does not serve that version of that API."""
        try:
            return self._routes[api_key, version]
        except KeyError:
            api = APIS.get(api_key)
            if api is None or version not in api.versions:
                return None
            found = _Route(api.request, api.handler, version >= api.flexible_from)
            self._routes[api_key, version] = found
            return found

    def close_idle(self) -> None:
        """Close connections that said nothing for long, sooner if others wait for what they hold."""
        now_s = perf_counter()
        for connection in list(self.connections):
            silent_s = now_s - connection.heard_s
            if silent_s > self.idle_s and not connection.calls:
                connection.close("idle")
            elif connection.is_receiving and silent_s > STALLED_S and self.budget.is_contended:
                connection.close("stalled")

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests, let those under way end, and close; what is left after the timeout is cut off."""
        for connection in list(self.connections):
            connection.stop_reading()
        tasks = [connection.task for connection in self.connections if connection.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        self._all_gone = asyncio.Event()
        for connection in list(self.connections):
            connection.finish()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), timeout_s)
        for connection in list(self.connections):
            connection.close("shutdown")

    def gone(self, connection: "KafkaConnection") -> None:
        self.connections.discard(connection)
        self.probe.disconnected()
        if not self.connections and self._all_gone is not None:
            self._all_gone.set()


class KafkaConnection(asyncio.BufferedProtocol):
    """One client."""

    __slots__ = (
        "_frame",
        "_handling",
        "_hang_up",
        "_have",
        "_lanes",
        "_listener",
        "_out",
        "_peer",
        "_rest",
        "_stash",
        "_stopped",
        "_transport",
        "_write_paused",
        "calls",
        "heard_s",
        "task",
    )

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self.calls: deque[Call] = deque()
        self.heard_s = perf_counter()
        self._frame: memoryview | None = None  # a request that is larger than what was read of it
        self._have = 0
        self._rest = b""  # the beginning of a small request
        self._stash: memoryview | None = None  # requests that may not be handled yet
        self.task: asyncio.Task[None] | None = None  # a handler that waits; the next request waits for it
        self._handling = False
        self._write_paused = False
        self._stopped = False
        self._hang_up = False
        self._lanes: dict[int, ExpressLane] = {}
        self._out: list[Buffer] = []

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
        self._drop_frame()
        self._stash = None
        for call in self.calls:
            if call.on_gone is not None:
                call.on_gone()
        self.calls.clear()

    @property
    def is_receiving(self) -> bool:
        return self._frame is not None

    def close(self, kind: str, detail: str = "") -> None:
        """Close at once: what the peer sent or does cannot be answered. `kind` is one of a few, for counting."""
        if self._transport is not None:
            logger.info("connection_closed peer=%s kind=%s detail=%r", self._peer, kind, detail)
            self._listener.probe.refused(kind)
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
        if self._frame is not None:
            return self._frame[self._have :]
        shared = self._listener.receive_buffer
        if self._rest:
            shared[: len(self._rest)] = self._rest
            return shared[len(self._rest) :]
        return shared

    def buffer_updated(self, count: int) -> None:
        self.heard_s = perf_counter()
        if self._frame is None:
            count += len(self._rest)
            self._rest = b""
            self._consume(self._listener.receive_buffer[:count])
            return
        self._have += count
        if self._have == len(self._frame):
            frame = self._frame
            self._drop_frame()
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
        return self.task is not None or len(self.calls) >= CALLS_MAX

    def _consume(self, data: memoryview) -> None:
        """Handle the whole requests in `data`, and keep what is left of it."""
        listener = self._listener
        now_ms = listener.broker.clock.now_ms()
        calls, lanes = self.calls, self._lanes
        at, end = 0, len(data)
        self._handling = True
        blocked = self._is_blocked
        while end - at >= _START.size and not blocked:
            size, api_key, version, correlation_id = _START.unpack_from(data, at)
            if not HEADER_BYTES_MIN <= size <= listener.frame_bytes_max:
                self.close("frame_size", f"{size} bytes, at most {listener.frame_bytes_max} are read")
                at = end
                break
            stop = at + 4 + size
            if stop > end:
                break
            frame = data[at + 4 : stop]
            at = stop
            lane = lanes.get(api_key << 16 | version)
            if lane is not None and not calls:  # else its answer would overtake theirs
                answer = lane.handle(frame, correlation_id, now_ms)
                if answer is not None:
                    self._out += answer
                    if lane.bytes_out > WRITE_BYTES_HIGH:
                        self._send()
                        blocked = self._is_blocked
                    continue
            self._handle(frame)
            blocked = self._is_blocked
        self._handling = False
        self._send()
        if self._transport is not None and at < end:
            self._keep(data[at:])

    def _keep(self, rest: memoryview) -> None:
        if self._is_blocked:
            self._stash = memoryview(bytearray(rest))
            self._pause()
            return
        size = LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else 0
        if size <= REST_BYTES_MAX:
            self._rest = bytes(rest)
            return
        # The kernel gives the pages as they are filled: a length alone costs nothing.
        self._frame = memoryview(bytearray(size))
        self._have = len(rest) - 4
        self._frame[: self._have] = rest[4:]
        if not self._listener.budget.borrow(size, self._go_on):
            self._pause()

    def _drop_frame(self) -> None:
        if self._frame is not None:
            self._listener.budget.give_back(len(self._frame))
            self._frame = None

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
        lane = self._lanes.get(number) or open_lane(api_key, version)
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
            self._listener.probe.requests(call.api_key, 1, now_s - call.started_s, call.frame_bytes, size)

    def _send(self) -> None:
        """Write everything that is queued, in one go."""
        if self.calls:
            self._collect()
        for lane in self._lanes.values():
            if lane.count:
                seconds = perf_counter() - self.heard_s
                self._listener.probe.requests(lane.api_key, lane.count, seconds, lane.bytes_in, lane.bytes_out)
                lane.count = lane.bytes_in = lane.bytes_out = 0
        if not self._out or self._transport is None:
            return
        out, self._out = self._out, []
        size = sum(map(len, out))
        if size > JOIN_BYTES_MAX:
            self._transport.writelines(out)
        else:
            self._transport.write(b"".join(out))
        if self._hang_up:
            self._transport.close()
