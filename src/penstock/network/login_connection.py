"""A Kafka connection until its client has authenticated with SASL: small requests, one at a time, and not for long.

Once the client has authenticated, the transport is passed on to a KafkaConnection.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final, cast

from penstock.broker.call import Call
from penstock.broker.handlers.api_versions import served
from penstock.foundation.codes import ErrorCode
from penstock.foundation.descriptors import Reserve
from penstock.foundation.errors import MalformedRequest
from penstock.network.kafka_connection import KafkaConnection
from penstock.network.kafka_listener import KafkaListener, Route
from penstock.network.large_request import RECEIVE_BYTES
from penstock.network.listen_socket import is_scarce_for
from penstock.network.request_dispatcher import LOGIN_APIS
from penstock.network.wrong_port import TLS_HINT, answer_http, is_tls
from penstock.security.login_sessions import LoginServer, LoginSession
from penstock.wire.codec import decode
from penstock.wire.codegen import TooManyElements
from penstock.wire.frames import LENGTH, RequestHeader, read_request_header, skip_tags
from penstock.wire.keys import ApiKey
from penstock.wire.schema import Buffer

logger = logging.getLogger(__name__)

LOGIN_S: Final = 30.0
"""Seconds that a client has to authenticate."""
LOGINS_MAX: Final = 1000
"""Maximum number of connections that are not authenticated. One more closes the oldest of the host with the most."""
BYTES_MAX: Final = 16 << 20
"""Maximum number of bytes that all these connections together may have sent of requests that are not complete."""
Connect = Callable[[LoginSession], KafkaConnection]
"""A function that creates the connection of a client that has authenticated."""


class Logins:
    """The connections, of all listeners, whose clients have not authenticated yet."""

    def __init__(self, kafka: KafkaListener) -> None:
        self.kafka: Final = kafka
        self.bytes = 0
        """Bytes received of requests that are not complete."""
        self._connections: dict[LoginConnection, str] = {}
        """The host of each connection, the oldest first."""
        self._hosts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: "LoginConnection", host: str) -> None:
        if len(self._connections) >= LOGINS_MAX:
            busiest = self._hosts.most_common(1)[0][0]
            oldest = next(known for known, its_host in self._connections.items() if its_host == busiest)
            oldest.close("too_many_logins")
        self._connections[connection] = host
        self._hosts[host] += 1

    def remove(self, connection: "LoginConnection") -> None:
        host = self._connections.pop(connection, None)
        if host is not None:
            self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]

    def close(self) -> None:
        """Closes all connections: the broker stops."""
        for connection in list(self._connections):
            connection.close("shutdown")


class LoginConnection(asyncio.Protocol):
    """One connection whose client has not authenticated yet."""

    def __init__(self, logins: Logins, server: LoginServer, connect: Connect) -> None:
        self._logins = logins
        self._kafka = logins.kafka
        self._server = server
        self._connect = connect
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._session: LoginSession | None = None
        self._is_raw = False
        """Whether the next bytes are messages of the mechanism, without SaslAuthenticate: after SaslHandshake 0."""
        self._task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._host = ""
        """The host whose connections this one counts toward."""
        self.peer = ""

    # -- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is another class
        host, port = (transport.get_extra_info("peername") or ("?", "?"))[:2]
        self.peer = f"/{host}:{port}"
        kafka = self._kafka
        is_full = len(kafka.connections) + len(self._logins) >= kafka.connections_max
        if is_full or is_scarce_for(transport, Reserve.KAFKA_CONNECTIONS):
            kafka.probe.refused("too_many")
            transport.abort()
            return
        reason = kafka.hosts.admit(str(host), perf_counter())
        if reason:
            kafka.probe.refused(reason)
            transport.abort()
            return
        self._host = str(host)
        self._transport = transport
        self._session = self._server.session(str(host))
        self._logins.add(self, str(host))
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(LOGIN_S, self.close, "login_timeout", f"not within {LOGIN_S:g} s")

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._received += data
        self._logins.bytes += len(data)
        if self._logins.bytes > BYTES_MAX:
            self.close("login_memory", "too many bytes of clients that have not authenticated")
        elif len(self._received) > self._limit + LENGTH.size:
            self._check_size()
            self.close("frame_size", "more bytes than one request before the client has authenticated")
        elif self._task is None:
            self._handle_received()

    # -- requests

    @property
    def _limit(self) -> int:
        return self._server.settings.receive_bytes_max

    def _handle_received(self) -> None:
        """Handles complete requests until one of them must wait, or the client has authenticated."""
        while self._task is None and self._transport is not None and self._check_size():
            size: int = LENGTH.unpack_from(self._received)[0]
            if len(self._received) < LENGTH.size + size:
                return
            frame = memoryview(bytes(self._received[LENGTH.size : LENGTH.size + size]))
            self._drop(LENGTH.size + size)
            if self._is_raw:
                self._run(self._step_raw(bytes(frame)))
            else:
                self._dispatch(frame)

    def _check_size(self) -> bool:
        """Returns whether the size of a request is received; closes the connection if it is not a legal one."""
        if len(self._received) < LENGTH.size:
            return False
        size: int = LENGTH.unpack_from(self._received)[0]
        if 0 <= size <= self._limit:
            return True
        rest = memoryview(bytes(self._received))
        if is_tls(rest):
            self.close("tls", TLS_HINT)
            return False
        answer = answer_http(rest, self._kafka.http)
        self.close("frame_size" if answer is None else "http", f"a request of {size} bytes before a login", answer)
        return False

    def _drop(self, count: int) -> None:
        del self._received[:count]
        self._logins.bytes -= count

    def _dispatch(self, frame: memoryview) -> None:
        """Decodes a request and calls its handler."""
        try:
            header = read_request_header(frame)
            if header.api_key not in LOGIN_APIS:
                self.close("not_authenticated", f"API {header.api_key} before a login")
                return
            route = self._kafka.route(header.api_key, header.version)
            call = self._call(header, len(frame))
            if route is None:
                self._refuse(header)
                return
            at = skip_tags(frame, header.body_at) if route.flexible else header.body_at
            request: Any = decode(route.api.request, header.version, frame, at, route.inline_max)
        except (MalformedRequest, TooManyElements) as error:
            self.close("malformed", str(error))
            return
        self._handle(route, request, call)

    def _handle(self, route: Route, request: Any, call: Call) -> None:
        result = route.api.handler(request, call, self._kafka.broker)
        if isinstance(result, Coroutine):
            self._run(self._wait(result, call))
            return
        call.answer(result, call.hang_up)
        self._is_raw = call.api_key == ApiKey.SASL_HANDSHAKE and call.version == 0

    def _call(self, header: RequestHeader, frame_bytes: int) -> Call:
        api_key, version, correlation_id, client_id, _ = header
        return Call(
            api_key,
            version,
            correlation_id,
            client_id,
            perf_counter(),
            frame_bytes,
            self.peer,
            self._answered,
            listener=self._server.listener,
            login=self._session,
        )

    def _refuse(self, header: RequestHeader) -> None:
        if header.api_key != ApiKey.API_VERSIONS:
            self.close("unsupported", f"API {header.api_key} version {header.version} is not served")
            return
        # A client that is newer than this broker gets the served versions in a version 0 response (KIP-511).
        self._call(header._replace(version=0), 0).answer(served(ErrorCode.UNSUPPORTED_VERSION))

    def _answered(self, call: Call) -> None:
        parts = call.parts or []
        self._write(parts)
        size = sum(map(len, parts))
        self._kafka.probe.requests(call.api_key, 1, perf_counter() - call.started_s, call.frame_bytes, size)
        if call.hang_up and self._transport is not None:
            self._transport.close()
            self._end()

    def _write(self, parts: list[Buffer]) -> None:
        if self._transport is not None:
            self._transport.writelines(parts)

    # -- logins

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(work)

    async def _wait(self, work: Coroutine[Any, Any, Any], call: Call) -> None:
        try:
            response = await work
        except BaseException:
            self.close("handler_failed")
            raise
        finally:
            self._task = None
        call.answer(response, call.hang_up)
        self._go_on()

    async def _step_raw(self, token: bytes) -> None:
        """Handles a message of the mechanism that is not in a SaslAuthenticate request. A failure has no answer."""
        assert self._session is not None
        try:
            answer = await self._session.step(token)
        except BaseException:
            self.close("handler_failed")
            raise
        finally:
            self._task = None
        if answer.code != ErrorCode.NONE:
            self.close("login_failed", answer.message or "")
            return
        if answer.token is not None:
            self._write([LENGTH.pack(len(answer.token)) + answer.token])
        self._go_on()

    def _go_on(self) -> None:
        if self._transport is None:
            return
        if self._session is not None and self._session.principal:
            self._hand_over(self._transport, self._session)
        else:
            self._handle_received()

    def _hand_over(self, transport: asyncio.Transport, session: LoginSession) -> None:
        """Passes the transport on to the connection of a client that has authenticated."""
        rest = bytes(self._received)
        if len(rest) > RECEIVE_BYTES:
            self.close("frame_size", "the client did not wait for the end of its login")
            return
        self._host = ""  # the new connection leaves for it
        self._end()
        connection = self._connect(session)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if rest and not transport.is_closing():
            connection.get_buffer(len(rest))[: len(rest)] = rest
            connection.buffer_updated(len(rest))

    # -- closing

    def close(self, kind: str, detail: str = "", answer: bytes | None = None) -> None:
        """Sends `answer` and closes the connection; aborts it if `answer` is None. `kind`: reason, for metrics."""
        transport = self._transport
        if transport is None:
            return
        logger.info("connection_closed peer=%s kind=%s detail=%r", self.peer, kind, detail)
        self._kafka.probe.refused(kind)
        self._end()
        if answer is None:
            transport.abort()
        else:
            transport.write(answer)
            transport.close()

    def _end(self) -> None:
        self._transport = None
        if self._host:
            self._kafka.hosts.leave(self._host)
            self._host = ""
        self._logins.remove(self)
        self._drop(len(self._received))
        if self._deadline is not None:
            self._deadline.cancel()
