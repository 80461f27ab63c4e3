"""A Kafka connection: receives bytes, splits them into requests, and stops reading while requests must wait.

request_dispatcher.py handles the requests, and response_sender.py sends the responses in the order of the requests.
All connections share one receive buffer: a request received completely is handled before the next read. Only a
partial request is copied to its own buffer.
"""

import asyncio
import logging
import struct
from time import perf_counter
from typing import Final, cast

from penstock.broker.fastpath.produce_and_fetch import AnyFastPath
from penstock.foundation.descriptors import Reserve
from penstock.network import connection_flags as flags
from penstock.network.kafka_listener import KafkaListener
from penstock.network.large_request import PARTIAL_BYTES_MAX, LargeRequest
from penstock.network.listen_socket import is_scarce_for
from penstock.network.request_dispatcher import RequestDispatcher
from penstock.network.wrong_port import TLS_HINT, answer_http, is_tls
from penstock.security.certificate_principal import NO_RULE, PrincipalOf, no_certificate
from penstock.security.login_sessions import LoginSession
from penstock.wire.frames import HEADER_BYTES_MIN, LENGTH
from penstock.wire.schema import Buffer

logger = logging.getLogger(__name__)

SAMPLE_MASK: Final = 31
"""Bit mask of the read counter: a read is timed if these bits are 0, which is one read in 32, to save clock calls."""
SLICE_S: Final = 0.005
"""Seconds for which one connection may handle the requests of one read before other connections run."""
FAST_REQUESTS_MAX: Final = 256
"""Maximum number of requests that the fast path answers per read without checking the time."""
_START: Final = struct.Struct(">iii")  # length, API key and version, correlation id
_FAST_REQUESTS: Final = range(FAST_REQUESTS_MAX)
WRITE_BYTES_HIGH: Final = 1 << 20
"""Number of unsent response bytes above which the connection handles no further requests."""


class KafkaConnection(RequestDispatcher):
    """One client connection of a Kafka listener."""

    __slots__ = (
        "_deferred", "_expiry", "_large", "_last_read_s", "_partial", "_principal_of", "_reads_before", "_unmute",
        "reads"
    )  # fmt: skip

    def __init__(
        self,
        listener: KafkaListener,
        name: str,
        principal_of: PrincipalOf = no_certificate,
        login: LoginSession | None = None,
    ) -> None:
        """`login`: of a client that has authenticated with SASL."""
        super().__init__(listener, name)
        self._principal_of = principal_of
        self.login = login
        self._expiry: asyncio.TimerHandle | None = None
        self._unmute: asyncio.TimerHandle | None = None
        self.reads = self._reads_before = -1  # number of reads, less one
        self._last_read_s = perf_counter()
        self._large: LargeRequest | None = None
        self._partial = b""  # the beginning of a small request
        self._deferred: memoryview | None = None  # received requests that must wait

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is another class
        listener = self._listener
        self._transport = transport
        self.peer = "/{}:{}".format(*transport.get_extra_info("peername") or "??")  # as Java writes addresses
        is_full = len(listener.connections) >= listener.connections_max
        if is_full or is_scarce_for(transport, Reserve.KAFKA_CONNECTIONS):
            if self.login is not None:
                listener.hosts.leave(self.host)
            listener.probe.refused("too_many")
            transport.abort()
            return
        if self.login is None and (reason := listener.hosts.admit(self.host, perf_counter())):
            listener.probe.refused(reason)
            transport.abort()
            return
        login = self.login
        principal = login.principal if login else self._principal_of(transport.get_extra_info("peercert"))
        if principal is None:
            logger.info("connection_closed peer=%s kind=no_principal detail=%r", self.peer, NO_RULE)
            listener.probe.refused("no_principal")
            listener.hosts.leave(self.host)
            transport.abort()
            return
        self.principal = principal
        self._state = 0
        listener.connections.add(self)
        listener.probe.connected(self.listener_name)
        transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH)
        if login is not None:
            login.on_login = self._start_session
            self._start_session()

    @property
    def host(self) -> str:
        return self.peer.removeprefix("/").rpartition(":")[0]

    def _start_session(self) -> None:
        """The client has logged in: its session ends after the lifetime, unless it logs in again before."""
        assert self.login is not None
        self._state &= ~flags.EXPIRED
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self.login.expires_s is not None and self._transport is not None:
            self._expiry = asyncio.get_running_loop().call_at(self.login.expires_s, self._expire)

    def _expire(self) -> None:
        self._state |= flags.EXPIRED

    def connection_lost(self, error: Exception | None) -> None:
        if self not in self._listener.connections:
            return
        self.report()
        self._listener.remove(self)
        self._listener.hosts.leave(self.host)
        self._transport = None
        self._state |= flags.CLOSED
        for timer in (self._expiry, self._unmute):
            if timer is not None:
                timer.cancel()
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

    def get_buffer(self, sizehint: int) -> memoryview:
        shared = self._listener.receive_buffer
        if not self._state:
            return shared
        if self._large is not None:
            return self._large.next_buffer()
        shared[: len(self._partial)] = self._partial
        return shared[len(self._partial) :]

    def buffer_updated(self, count: int) -> None:
        """Answers requests on the fast path as far as possible; `_handle_received` handles the rest."""
        self.reads = reads = self.reads + 1
        if self._state or not reads & SAMPLE_MASK:
            if self._state != flags.HAS_PARTIAL or not reads & SAMPLE_MASK:
                self._receive(count)
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
            self._handle_received(data, at, count)

    # -- receiving

    def _receive(self, count: int) -> None:
        """Handles `count` received bytes: the slow path of `buffer_updated`. Used for one read in 32, to measure
        its latency, and while the connection is blocked or has unanswered or large requests."""
        if self._large is not None:
            self._receive_large(self._large, count)
            return
        started_s = perf_counter()
        count += self._take_partial()
        self._handle_received(self._listener.receive_buffer, 0, count)
        self._sampled_s = perf_counter() - started_s
        self.report()

    def _take_partial(self) -> int:
        """Clears the partial request, which `get_buffer` has copied in front of the new bytes; returns its length."""
        rest, self._partial = self._partial, b""
        self._state &= ~flags.HAS_PARTIAL
        return len(rest)

    def _handle_received(self, data: memoryview, at: int, end: int) -> None:
        """Handles the complete requests in `data[at:end]`, and buffers the rest."""
        at = self._handle_requests(data, at, end)
        # Again while responses have freed slots for more calls.
        while not self._state & flags.BLOCKED and self._is_complete(data, at, end):
            at = self._handle_requests(data, at, end)
        if self._transport is not None and at < end:
            self._keep_rest(data, at, end)

    def _is_complete(self, data: memoryview, at: int, end: int) -> bool:
        """Returns whether a complete request of a legal size starts at `data[at]`."""
        if end - at < _START.size:
            return False
        size: int = LENGTH.unpack_from(data, at)[0]
        return HEADER_BYTES_MIN <= size <= min(self._listener.frame_bytes_max, end - at - 4)

    def _handle_requests(self, data: memoryview, at: int, end: int) -> int:
        """Handles requests from `at` until one is incomplete or must wait; returns the position of that request."""
        until_s = perf_counter() + SLICE_S
        self._handling = True
        while not self._state & flags.BLOCKED and self._is_complete(data, at, end):
            stop = at + 4 + LENGTH.unpack_from(data, at)[0]
            self._handle(data, at + 4, stop)
            at = stop
            if self._out_bytes > WRITE_BYTES_HIGH:
                self._send()
            if perf_counter() > until_s:
                self._yield()
        self._handling = False
        self._send()
        return at

    def _keep_rest(self, data: memoryview, at: int, end: int) -> None:
        """Buffers `data[at:end]`, which cannot be handled yet. Closes the connection if these bytes begin with an
        illegal request size."""
        rest = data[at:end]
        if self._state & flags.BLOCKED:
            self._deferred = memoryview(bytearray(rest)) if data is self._listener.receive_buffer else rest
            self._pause()
            return
        size = LENGTH.unpack_from(rest)[0] if len(rest) >= 4 else HEADER_BYTES_MIN
        limit = self._listener.frame_bytes_max
        if not HEADER_BYTES_MIN <= size <= limit:
            if is_tls(rest):
                self.close("tls", TLS_HINT)
                return
            answer = answer_http(rest, self._listener.http)
            detail = f"a request of {size} bytes; expected {HEADER_BYTES_MIN} to {limit}"
            self.close("frame_size" if answer is None else "http", detail, answer)
        elif size <= PARTIAL_BYTES_MAX:
            self._partial = bytes(rest)
            self._state |= flags.HAS_PARTIAL
        else:
            self._large = large = self._listener.receive_large(size, data, at + 4, end, self._on_memory)
            self._state |= flags.HAS_LARGE
            if not large.reservation.charge(len(rest) - 4):
                self._await_memory()

    # -- large requests

    def _receive_large(self, large: LargeRequest, count: int) -> None:
        """Adds received bytes to a large request; handles the request when it is complete."""
        has_memory = large.add(count)
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
            self._handle(frame, 0, len(frame))
        finally:
            self._handling = False
            self._listener.release(large)
            call = self.calls[-1] if self.calls else None
            if call is None or call is before:
                large.reservation.close()
            else:
                call.release = large.reservation.close
        self._send()

    def _await_memory(self) -> None:
        """Pauses reading until the memory budget has room for more of a large request."""
        self._state |= flags.AWAITS_MEMORY
        self._pause()

    def _on_memory(self) -> None:
        """Called when the memory budget has room again. Resumes reading only in the next event-loop iteration,
        because the call may come while another request is being handled."""
        asyncio.get_running_loop().call_soon(self._end_await_memory)

    def _end_await_memory(self) -> None:
        self._state &= ~flags.AWAITS_MEMORY
        if self._large is not None:
            self._large.restart_clock()
        self._resume()

    # -- back-pressure

    def _yield(self) -> None:
        """Lets other connections run before the remaining requests of this connection are handled."""
        self._state |= flags.YIELDED
        asyncio.get_running_loop().call_soon(self._end_yield)

    def _end_yield(self) -> None:
        self._state &= ~flags.YIELDED
        self._resume()

    def _mute(self, seconds: float) -> None:
        self._state |= flags.MUTED
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        if self._unmute is None or until_s > self._unmute.when():
            if self._unmute is not None:
                self._unmute.cancel()
            self._unmute = loop.call_at(until_s, self._end_mute)

    def _end_mute(self) -> None:
        self._unmute = None
        self._state &= ~flags.MUTED
        self._resume()

    def _pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Handles deferred requests and resumes reading, unless a flag still blocks the connection."""
        if self._transport is None or self._state & flags.BLOCKED:
            return
        large = self._large
        if large is not None and large.frame is not None:
            self._handle_large(large, large.frame)
        if self._deferred is not None and not self._state & flags.BLOCKED:
            deferred, self._deferred = self._deferred, None
            self._handle_received(deferred, 0, len(deferred))
        # Also if no request may be handled now: received bytes are deferred then.
        must_wait = self._deferred is not None or self._state & flags.AWAITS_MEMORY
        if self._transport is not None and not must_wait and not self._transport.is_reading():
            self._transport.resume_reading()

    # -- called by the listener

    def is_slow(self, now_s: float) -> bool:
        """Returns whether the client sends a large request too slowly."""
        large = self._large
        if large is None or large.frame is not None or self._state & flags.AWAITS_MEMORY:
            return False
        return large.is_slow(now_s)

    def idle_for_s(self, now_s: float) -> float:
        """Returns the seconds without a read, counted from the first call of this method after the last read."""
        if self.reads != self._reads_before:
            self._reads_before = self.reads
            self._last_read_s = now_s
        return now_s - self._last_read_s

    def stop_reading(self) -> None:
        self._state |= flags.STOPPED
        self._pause()
