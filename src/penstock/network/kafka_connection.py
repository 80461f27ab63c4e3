"""The receiving half of a Kafka connection: frames, dispatch to handlers, back-pressure.

Responses are sent in request order (responses.py). All connections share one receive buffer: a request received
completely is handled before the next read. Only a partial request is copied to its own buffer.
"""

import asyncio
import logging
import struct
from collections.abc import Coroutine
from time import perf_counter
from typing import Any, Final, cast

from penstock.broker.call import Call
from penstock.broker.fastpath.produce_and_fetch import AnyFastPath, learn
from penstock.broker.handlers.api_versions import served
from penstock.broker.large_requests import handle_large
from penstock.foundation.codes import ErrorCode
from penstock.foundation.descriptors import Reserve
from penstock.foundation.errors import MalformedRequest
from penstock.network import flags
from penstock.network.kafka_listener import KafkaListener
from penstock.network.large_request import PARTIAL_BYTES_MAX, RECEIVE_BYTES, SMALL_FRAME_BYTES_MAX, LargeRequest
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

logger = logging.getLogger(__name__)

SAMPLE_MASK: Final = 31
"""Bit mask on the count of reads: one read in 32 is timed, since reading the clock is slow for the fast path."""
SLICE_S: Final = 0.005
"""Seconds that the requests of one read may occupy the event loop before other connections run."""
FAST_REQUESTS_MAX: Final = 256
"""Maximum number of requests of one read that the fast path answers before the clock is checked."""
_START: Final = struct.Struct(">iii")  # length, API key and version, correlation id
_FAST_REQUESTS: Final = range(FAST_REQUESTS_MAX)
_KIND: Final = struct.Struct(">ii")
WRITE_BYTES_HIGH: Final = 1 << 20
"""Number of unsent response bytes above which reading from the connection pauses."""


class KafkaConnection(ResponseSender):
    """One client connection: the receiving half; `ResponseSender` is the sending half."""

    __slots__ = (
        "_deferred",
        "_large",
        "_last_read_s",
        "_partial",
        "_reads_before",
        "_sampled_s",
        "fast_paths",
        "reads",
        "task",
    )

    def __init__(self, listener: KafkaListener) -> None:
        super().__init__(listener)
        self.reads = self._reads_before = -1  # number of reads, less one
        self._last_read_s = perf_counter()
        self._sampled_s = 0.0
        self._large: LargeRequest | None = None
        self._partial = b""  # the beginning of a small request
        self._deferred: memoryview | None = None  # received requests that must wait
        self.task: asyncio.Task[None] | None = None  # a handler that waits; the next request waits for it
        self.fast_paths: dict[int, AnyFastPath] = {}

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is another class
        listener = self._listener
        self._transport = transport
        self.peer = "/{}:{}".format(*transport.get_extra_info("peername") or "??")  # as Java writes addresses
        is_full = len(listener.connections) >= listener.connections_max
        if is_full or is_scarce_for(transport, Reserve.KAFKA_CONNECTIONS):
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
        self._listener.remove(self)
        self._transport = None
        self._state |= flags.CLOSED
        if self._large is not None:
            self._listener.release(self._large)
            self._large.reservation.close()
            self._large = None
        self._deferred = None
        for call in self.calls:
            call.is_disconnected = True
            if call.release is not None:
                call.release()
            if call.on_disconnect is not None:
                call.on_disconnect()
        self.calls.clear()

    def is_slow(self, now_s: float) -> bool:
        """Returns whether a large request is being received too slowly."""
        large = self._large
        if large is None or large.frame is not None or self._state & flags.AWAITS_MEMORY:
            return False
        return large.is_slow(now_s)

    def idle_for_s(self, now_s: float) -> float:
        """Returns the seconds since data was received, as seen by calls of this method: reads are not timestamped."""
        if self.reads != self._reads_before:
            self._reads_before = self.reads
            self._last_read_s = now_s
        return now_s - self._last_read_s

    def stop_reading(self) -> None:
        self._state |= flags.STOPPED
        self._pause()

    def get_buffer(self, sizehint: int) -> memoryview:
        shared = self._listener.receive_buffer
        if not self._state:
            return shared
        if self._large is not None:
            return self._large.next_buffer()
        shared[: len(self._partial)] = self._partial
        return shared[len(self._partial) :]

    def buffer_updated(self, count: int) -> None:
        """Answers requests on the fast path where possible. Most requests take this path; it is short on purpose."""
        self.reads = reads = self.reads + 1
        if self._state or not reads & SAMPLE_MASK:
            if self._state != flags.HAS_PARTIAL or not reads & SAMPLE_MASK:
                self._on_bytes(count)
                return
            count += self._take_partial()
        data, fast_paths = self._listener.receive_buffer, self.fast_paths
        path: AnyFastPath | None = None
        out: list[Buffer] = []
        out_bytes = at = 0
        for _ in _FAST_REQUESTS:
            size, kind, correlation_id = _START.unpack_from(data, at)
            stop = at + 4 + size
            found = fast_paths.get(kind)
            if found is None or stop > count or size < HEADER_BYTES_MIN or (path is not None and path is not found):
                break
            answered = found.handle(data, at + 4, stop, correlation_id, out)
            if not answered:
                break
            path = found
            path.count += 1
            out_bytes += answered
            at = stop
            if at > count - _START.size or out_bytes > WRITE_BYTES_HIGH:
                break
        if path is not None:
            path.bytes_in += at
            path.bytes_out += out_bytes
            self._write(out, out_bytes)
        if at < count:
            self._consume(data, at, count)

    def _on_bytes(self, count: int) -> None:
        """Handles received bytes if a partial or large request is pending, or if this read is timed for metrics."""
        if self._large is not None:
            self._fill_large(self._large, count)
            return
        started_s = perf_counter()
        count += self._take_partial()
        self._consume(self._listener.receive_buffer, 0, count)
        self._sampled_s = perf_counter() - started_s
        self.report()

    def _take_partial(self) -> int:
        """Ends buffering of the partial frame, which `get_buffer` put before the new bytes; returns its length."""
        rest, self._partial = self._partial, b""
        self._state &= ~flags.HAS_PARTIAL
        return len(rest)

    def _fill_large(self, large: LargeRequest, count: int) -> None:
        """Adds received bytes to a large request; handles the request when it is complete."""
        large.add(count)
        has_memory = large.reservation.charge(count)
        if large.frame is not None:
            if self._state & flags.BLOCKED:
                self._pause()
            else:
                self._handle_large(large, large.frame)
        elif not has_memory:
            self._await_memory()

    def _handle_large(self, large: LargeRequest, frame: memoryview) -> None:
        """Handles a complete large request; its bytes count against the memory budget until it is answered."""
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
                large.reservation.close()
            else:
                call.release = large.reservation.close
        self._send()

    # -- requests in

    def _consume(self, data: memoryview, at: int, end: int) -> None:
        """Handles the complete requests between `at` and `end`, and buffers the remainder."""
        at = self._handle_complete(data, at, end)
        # Again while responses have freed slots for more calls.
        while not self._state & flags.BLOCKED and self._is_complete(data, at, end):
            at = self._handle_complete(data, at, end)
        if self._transport is not None and at < end:
            self._buffer_rest(data, at, end)

    def _is_complete(self, data: memoryview, at: int, end: int) -> bool:
        """Returns whether a complete request of a legal size starts at `at`."""
        if end - at < _START.size:
            return False
        size: int = LENGTH.unpack_from(data, at)[0]
        return HEADER_BYTES_MIN <= size <= min(self._listener.frame_bytes_max, end - at - 4)

    def _handle_complete(self, data: memoryview, at: int, end: int) -> int:
        """Handles requests from `at` until one is incomplete or must wait; returns that request's position."""
        until_s = perf_counter() + SLICE_S
        self._handling = True
        while not self._state & flags.BLOCKED and self._is_complete(data, at, end):
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
        """Lets other connections run before the remaining requests of this connection are handled."""
        self._state |= flags.YIELDED
        asyncio.get_running_loop().call_soon(self._end_yield)

    def _end_yield(self) -> None:
        self._state &= ~flags.YIELDED
        self._continue()

    def _answer(self, data: memoryview, at: int, stop: int) -> None:
        """Handles the request between `at` and `stop`, on the fast path if possible."""
        if not self.calls:  # else its response would overtake theirs
            kind, correlation_id = _KIND.unpack_from(data, at)
            path = self.fast_paths.get(kind)
            if path is not None and (answered := path.handle(data, at, stop, correlation_id, self._out)):
                path.count += 1
                path.bytes_in += stop - at
                path.bytes_out += answered
                self._out_bytes += answered
                return
        self._handle(data[at:stop])

    def report(self) -> None:
        """Reports the requests answered on the fast path to the probe, all with the last measured latency."""
        for path in self.fast_paths.values():
            if path.count:
                self._listener.probe.requests(path.api_key, *path.take_counts(self._sampled_s))

    def _buffer_rest(self, data: memoryview, at: int, end: int) -> None:
        """Buffers the bytes between `at` and `end`, which cannot be handled yet."""
        rest = data[at:end]
        if self._state & flags.BLOCKED:
            self._deferred = memoryview(bytearray(rest)) if data is self._listener.receive_buffer else rest
            self._pause()
            return
        size = LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else HEADER_BYTES_MIN
        limit = self._listener.frame_bytes_max
        if not HEADER_BYTES_MIN <= size <= limit:
            answer = answer_http(rest, self._listener.http)
            detail = f"a request of {size} bytes; expected {HEADER_BYTES_MIN} to {limit}"
            self.close("frame_size" if answer is None else "http", detail, answer)
        elif size <= PARTIAL_BYTES_MAX:
            self._partial = bytes(rest)
            self._state |= flags.HAS_PARTIAL
        else:
            self._large = large = self._listener.receive_large(size, data, at + 4, end, self._resume)
            self._state |= flags.HAS_LARGE
            if not large.reservation.charge(len(rest) - 4):
                self._await_memory()

    def _await_memory(self) -> None:
        """Pauses reading until the memory budget has room for more of a large request."""
        self._state |= flags.AWAITS_MEMORY
        self._pause()

    def _resume(self) -> None:
        """Schedules `_on_memory` for the next event-loop iteration: the caller may still be handling a request."""
        asyncio.get_running_loop().call_soon(self._on_memory)

    def _on_memory(self) -> None:
        self._state &= ~flags.AWAITS_MEMORY
        if self._large is not None:
            self._large.restart_clock()
        self._continue()

    def _pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _continue(self) -> None:
        """Handles deferred requests and resumes reading, after a blocking condition has ended."""
        if self._transport is None or self._state & flags.BLOCKED:
            return
        large = self._large
        if large is not None and large.frame is not None:
            self._handle_large(large, large.frame)
        if self._deferred is not None and not self._state & flags.BLOCKED:
            deferred, self._deferred = self._deferred, None
            self._consume(deferred, 0, len(deferred))
        # Also if no request may be handled now: received bytes are deferred then.
        must_wait = self._deferred is not None or self._state & flags.AWAITS_MEMORY
        if self._transport is not None and not must_wait and not self._transport.is_reading():
            self._transport.resume_reading()

    def _handle(self, frame: memoryview) -> None:
        """Decodes a request and calls its handler, which answers now or later."""
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
            # A repeated request can take the fast path.
            learn(self.fast_paths, frame, request, self._listener.broker)

    def _run(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        """Runs a handler that waits, as a task; the connection's next request is handled when the task is done."""
        self._state |= flags.HAS_TASK
        self.task = asyncio.get_running_loop().create_task(self._wait(work, call))

    async def _wait(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        """Awaits the handler and sends its response. Any error closes the connection; unexpected ones are
        re-raised."""
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
        self._continue()

    def _refuse(self, header: RequestHeader) -> None:
        if header.api_key != ApiKey.API_VERSIONS:
            self.close("unsupported", f"API {header.api_key} version {header.version} is not served")
            return
        # A client that is newer than this broker gets the served versions in a version 0 response (KIP-511).
        self._expect(header._replace(version=0), perf_counter(), 0).answer(served(ErrorCode.UNSUPPORTED_VERSION))

    def _on_answer(self, call: Call) -> None:
        if not self._handling:
            self._send()
            if self._deferred is not None or self._large is not None:
                self._continue()
