"""Handles the requests of a Kafka connection: on the fast path, by a handler that answers at once, or in a task."""

import asyncio
import struct
from collections.abc import Coroutine
from time import perf_counter
from typing import Any, Final

from penstock.broker.call import Call
from penstock.broker.fastpath.produce_and_fetch import AnyFastPath, learn
from penstock.broker.handlers.api_versions import served
from penstock.broker.large_requests import handle_large
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import MalformedRequest
from penstock.network import connection_flags as flags
from penstock.network.kafka_listener import KafkaListener
from penstock.network.large_request import RECEIVE_BYTES, SMALL_FRAME_BYTES_MAX
from penstock.network.response_sender import ResponseSender
from penstock.wire.codec import decode
from penstock.wire.codegen import TooManyElements
from penstock.wire.frames import RequestHeader, read_request_header, skip_tags
from penstock.wire.keys import ApiKey

LOGIN_APIS: Final = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
"""The APIs of clients that have not authenticated yet, or not again in time."""
_KIND: Final = struct.Struct(">ii")  # API key and version, correlation id


class RequestDispatcher(ResponseSender):
    """Passes the requests of one connection to their handlers."""

    __slots__ = ("_sampled_s", "fast_paths", "task")

    def __init__(self, listener: KafkaListener, name: str) -> None:
        super().__init__(listener, name)
        self.task: asyncio.Task[None] | None = None  # a handler that waits; the next request waits for it
        self.fast_paths: dict[int, AnyFastPath] = {}
        self._sampled_s = 0.0
        """Seconds that it took to handle the last sampled socket read: latency reported for fast-path requests."""

    def report(self) -> None:
        """Updates the metrics: adds requests answered on the fast path, each with the last sampled latency."""
        for path in self.fast_paths.values():
            if path.count:
                self._listener.probe.requests(path.api_key, *path.take_counts(self._sampled_s))

    def _handle(self, data: memoryview, at: int, stop: int) -> None:
        """Handles the request `data[at:stop]`, on the fast path if possible."""
        if not self.calls and not self._state & flags.EXPIRED:  # else its response would overtake theirs
            kind, correlation_id = _KIND.unpack_from(data, at)
            path = self.fast_paths.get(kind)
            if path is not None and (answered := path.handle(data, at, stop, correlation_id, self._out)):
                path.count += 1
                path.bytes_in += stop - at
                path.bytes_out += answered
                self._out_bytes += answered
                return
        self._dispatch(data[at:stop])

    def _dispatch(self, frame: memoryview) -> None:
        """Decodes a request and calls its handler, which answers at once or later, or returns a coroutine that is
        run as a task."""
        started_s = perf_counter()
        try:
            header = read_request_header(frame)
            api_key, version, *_, at = header
            if self._state & flags.EXPIRED and api_key not in LOGIN_APIS:
                self.close("session_expired", f"API {api_key} in place of the login that was due")
                return
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
            if not call.was_denied:
                learn(self.fast_paths, frame, request, self._listener.broker)

    def _refuse(self, header: RequestHeader) -> None:
        if header.api_key != ApiKey.API_VERSIONS:
            self.close("unsupported", f"API {header.api_key} version {header.version} is not served")
            return
        # A client that is newer than this broker gets the served versions in a version 0 response (KIP-511).
        self._expect(header._replace(version=0), perf_counter(), 0).answer(served(ErrorCode.UNSUPPORTED_VERSION))

    def _run(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        """Runs a handler's coroutine as a task; the connection handles no further request until it is done."""
        self._state |= flags.HAS_TASK
        self.task = asyncio.get_running_loop().create_task(self._wait(work, call))

    async def _wait(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        """Awaits the handler and sends its response. Errors close the connection; unexpected errors are re-raised."""
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
        self._resume()
