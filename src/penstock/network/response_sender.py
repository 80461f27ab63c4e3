"""The sending half of a Kafka connection: sends responses in the order of the requests."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from time import perf_counter
from typing import Any, Final

from penstock.broker.call import Call
from penstock.broker.fastpath.produce_and_fetch import JOIN_BYTES_MAX
from penstock.network import connection_flags as flags
from penstock.network.kafka_listener import KafkaListener
from penstock.security.certificate_principal import ANONYMOUS
from penstock.security.login_sessions import LoginSession
from penstock.wire.frames import RequestHeader, response_frame_steps
from penstock.wire.schema import Buffer

logger = logging.getLogger(__name__)

CALLS_MAX: Final = 128
"""Number of unanswered requests of one connection at which it handles no further request."""


class ResponseSender(asyncio.BufferedProtocol, ABC):
    """Writes the responses of one connection in the order of its requests. A Call is a request not answered yet."""

    __slots__ = (
        "_closes_after_write",
        "_encoding",
        "_handling",
        "_listener",
        "_out",
        "_out_bytes",
        "_state",
        "_transport",
        "calls",
        "listener_name",
        "login",
        "peer",
        "principal",
    )

    def __init__(self, listener: KafkaListener, name: str) -> None:
        """`name`: of the listener that accepted the connection."""
        self._listener = listener
        self.listener_name = name
        self.principal = ANONYMOUS
        self.login: LoginSession | None = None
        self._transport: asyncio.Transport | None = None
        self._state = flags.CLOSED
        self.peer = ""
        self.calls: deque[Call] = deque()
        self._handling = False
        """Whether received requests are being handled; their responses are collected and then written together."""
        self._encoding = 0
        """Number of responses that are currently being encoded in time slices."""
        self._closes_after_write = False
        self._out: list[Buffer] = []
        self._out_bytes = 0

    def close(self, kind: str, detail: str = "", answer: bytes | None = None) -> None:
        """Sends `answer` and closes the connection; aborts it if `answer` is None. `kind`: reason, for metrics."""
        if self._transport is not None:
            logger.info("connection_closed peer=%s kind=%s detail=%r", self.peer, kind, detail)
            self._listener.probe.refused(kind)
            self._state |= flags.STOPPED  # further requests are not handled
            if answer is None:
                self._transport.abort()
            else:
                self._transport.write(answer)
                self._transport.close()

    def finish(self) -> None:
        """Closes the connection after the responses that are ready are written."""
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self._state |= flags.WRITE_PAUSED

    def resume_writing(self) -> None:
        self._state &= ~flags.WRITE_PAUSED
        self._resume()

    @abstractmethod
    def _resume(self) -> None:
        """Handles requests that were received while the connection was blocked (for example, by too many
        unanswered requests), then resumes reading. Does nothing if the connection is still blocked."""

    @abstractmethod
    def _mute(self, seconds: float) -> None:
        """Handles no further request for this time, because the client has exceeded a quota."""

    def _on_answer(self, call: Call) -> None:
        """Called when a call is answered: writes the responses that are next in request order, then handles
        requests that had to wait."""
        if not self._handling:
            self._send()
            self._resume()

    def _expect(self, header: RequestHeader, started_s: float, frame_bytes: int) -> Call:
        """Creates the Call of a request and appends it to `calls`, whose order is the order of the responses."""
        api_key, version, correlation_id, client_id, _ = header
        call = Call(
            api_key,
            version,
            correlation_id,
            client_id,
            started_s,
            frame_bytes,
            self.peer,
            self._on_answer,
            self._encode_later,
            self.listener_name,
            self.principal,
            self.login,
            self._listener.broker.authorizer,
            self._listener.quotas.limits_of(self.principal, client_id or ""),
            self._listener.broker.audit,
        )
        self.calls.append(call)
        self._state |= flags.HAS_CALLS if len(self.calls) < CALLS_MAX else flags.HAS_CALLS | flags.HAS_MANY_CALLS
        return call

    def _encode_later(self, call: Call, response: Any) -> None:
        """Encodes a response with many elements in time slices, then sends it."""
        steps = response_frame_steps(response, call.version, call.correlation_id)

        def encoded(parts: list[Buffer]) -> None:
            self._encoding -= 1
            if not self._encoding:
                self._state &= ~flags.ENCODING
            call.parts = parts
            self._send()
            self._resume()

        self._encoding += 1
        self._state |= flags.ENCODING
        self._listener.broker.run(self._listener.broker.slices.run(steps), encoded)

    def _collect(self) -> None:
        """Moves responses to the output queue in request order, up to the first call that is not answered yet."""
        calls = self.calls
        now_s = perf_counter()
        while calls and calls[0].parts is not None:
            call = calls.popleft()
            parts = call.parts
            assert parts is not None
            if call.release is not None:
                call.release()
            self._out += parts
            self._closes_after_write = self._closes_after_write or call.hang_up
            if call.throttle_ms:
                self._mute(call.throttle_ms / 1000)
            size = sum(map(len, parts))
            self._out_bytes += size
            self._listener.probe.requests(call.api_key, 1, now_s - call.started_s, call.frame_bytes, size)
        if len(calls) < CALLS_MAX:
            self._state &= ~flags.HAS_MANY_CALLS if calls else ~(flags.HAS_MANY_CALLS | flags.HAS_CALLS)

    def _send(self) -> None:
        """Writes all responses that are ready and next in request order, with one call of the transport."""
        if self.calls:
            self._collect()
        if self._transport is None:
            return
        if self._out:
            out, self._out = self._out, []
            self._write(out, self._out_bytes)
            self._out_bytes = 0
        if self._closes_after_write:
            self.finish()

    def _write(self, out: list[Buffer], size: int) -> None:
        assert self._transport is not None
        if size > JOIN_BYTES_MAX:
            self._transport.writelines(out)
        else:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
