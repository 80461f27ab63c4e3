"""One TCP connection to a broker: negotiates API versions, then pipelines requests.

Responses come in the order of the requests, so a missing response would block all that follow: a request that times
out closes the connection.
"""

import asyncio
import itertools
import random
import ssl
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import penstock
from penstock.client.address import Address
from penstock.client.errors import (
    ConnectionFailed,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedByBroker,
    check,
    os_reason,
)
from penstock.client.sasl import log_in
from penstock.client.security import PLAINTEXT, SecuritySettings
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import MalformedRequest, PenstockError
from penstock.foundation.new_buffer import new_buffer
from penstock.foundation.tls_settings import TRUSTSTORE
from penstock.wire.frames import LENGTH, read_response, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from penstock.wire.schema import message_of

RECEIVE_BYTES: Final = 64 << 10
RESPONSE_BYTES_MAX: Final = 256 << 20
"""Maximum size, in bytes, of a response; a larger length means that the server does not speak the Kafka protocol."""
LOGIN_AGAIN: Final = (0.75, 0.85)
"""The part of a session's lifetime after which a client authenticates again."""
ADVICE: Final = "is `penstock serve` running? Set --bootstrap or PENSTOCK_BOOTSTRAP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    client_id: str = "penstock"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    in_flight_max: int = 64
    """Maximum number of requests that await their responses; further requests wait to be sent."""
    security: SecuritySettings = PLAINTEXT


class _PendingRequest(NamedTuple):
    """A request that was sent, and the future of its response."""

    key: ApiKey
    version: int
    answer: asyncio.Future[Any]


async def open_connection(address: Address, settings: ConnectionSettings) -> "Connection":
    """Connects, negotiates API versions and logs in. Raises ConnectionFailed with the address, the reason and advice,
    or LoginRefused."""
    loop = asyncio.get_running_loop()
    connection, context = Connection(address, settings), settings.security.context
    is_ready = False
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await loop.create_connection(lambda: connection, address.host, address.port, ssl=context)
            await connection.negotiate_versions()
            await connection.log_in()
        is_ready = True
    except TimeoutError:
        reason = f"no answer within {settings.connect_timeout_s:g} s"
    except ConnectionLost as error:
        reason = f"{error}; is that a Kafka listener?"
        if not context:
            reason += " If it has TLS, set security.protocol to SSL or SASL_SSL"
    except ssl.SSLError as error:
        raise ConnectionFailed(f"cannot reach {address}: {_tls_reason(error)}") from error
    except OSError as error:
        reason = os_reason(error)
    else:
        return connection
    finally:
        if not is_ready:
            connection.abort()
    raise ConnectionFailed(f"cannot reach {address}: {reason}; {ADVICE}")


def _tls_reason(error: ssl.SSLError) -> str:
    """Returns why a TLS handshake failed, and what to do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is refused: {error.verify_message}; is {TRUSTSTORE} the certificate of the broker's "
            "authority, and does the broker's certificate name this host?"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "record layer failure" in reason:
        return f"it does not speak TLS ({reason}); give the port of a listener with the protocol SSL"
    return f"the TLS handshake failed: {reason}"


class Connection(asyncio.BufferedProtocol):
    """A connection to one broker. Created by `open_connection`."""

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        self.address: Final = address
        self.versions: dict[int, range] = {}
        """The versions that the broker supports, by API key."""
        self._settings = settings
        self._transport: asyncio.Transport | None = None
        self._failure: PenstockError | None = None
        self._closed = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._correlation_ids = itertools.count()
        self._slots = asyncio.Semaphore(settings.in_flight_max)
        self._pending: dict[int, _PendingRequest] = {}
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._filled = 0
        self._frame: memoryview | None = None  # a response that is not complete yet
        self._has_answers = False
        """Whether the broker has answered a request other than ApiVersions."""
        self._may_request = asyncio.Event()
        self._may_request.set()
        self._next_login: asyncio.TimerHandle | None = None
        self._login_task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._failure is None

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    # -- requests

    async def negotiate_versions(self) -> None:
        """Fetches the broker's API versions with the newest ApiVersions, or version 0 if unsupported (KIP-511)."""
        ours = message_of(ApiVersionsRequest).versions
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version=penstock.__version__)
        for version in (ours[-1], 0):
            response: ApiVersionsResponse = await self._request(request, ApiKey.API_VERSIONS, version, None)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        check(response.error_code, f"the API versions of {self.address}")
        self.versions = {
            entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in response.api_keys
        }

    async def log_in(self) -> None:
        """Authenticates with SASL, if the settings have a user; again and again, if the broker demands that."""
        login = self._settings.security.login
        if login is None:
            return
        lifetime_ms = await log_in(login, self._login_request, self.address)
        if lifetime_ms:
            delay_s = lifetime_ms / 1000 * random.uniform(*LOGIN_AGAIN)
            self._next_login = asyncio.get_running_loop().call_later(delay_s, self._start_login)

    def _start_login(self) -> None:
        self._login_task = asyncio.get_running_loop().create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        """Authenticates when no request is in flight: answers come in order, and one may take long to come."""
        self._may_request.clear()
        try:
            while self._pending:
                await asyncio.wait([entry.answer for entry in self._pending.values()])
            await self.log_in()
        except PenstockError as error:
            self._fail(error)
        finally:
            self._may_request.set()

    async def _login_request(self, message: SaslHandshakeRequest | SaslAuthenticateRequest) -> Any:
        kind = type(message)
        return await self._request(message, message_of(kind).key, self.version_of(kind), None)

    def version_of(self, request_class: type, version_max: int | None = None) -> int:
        """Returns the highest version that both sides support, up to `version_max`, or raises UnsupportedByBroker."""
        message = message_of(request_class)
        theirs = self.versions.get(message.key, range(0))
        common = [version for version in message.versions if version in theirs]
        if version_max is not None:
            common = [version for version in common if version <= version_max]
        if not common:
            has = f"versions {theirs[0]} to {theirs[-1]}" if theirs else "none"
            raise UnsupportedByBroker(
                f"{message.key.name} needs version {message.versions[0]} to {message.versions[-1]}, "
                f"{self.address} has {has}; use a newer broker"
            )
        return common[-1]

    async def request(self, message: Any, *, timeout_s: float | None = None, version_max: int | None = None) -> Any:
        """Sends a request and returns its response. Many requests may be in flight."""
        await self._may_request.wait()
        key = message_of(type(message)).key
        return await self._request(message, key, self.version_of(type(message), version_max), timeout_s)

    async def _request(self, message: Any, key: ApiKey, version: int, timeout_s: float | None) -> Any:
        timeout_s = self._settings.request_timeout_s if timeout_s is None else timeout_s
        await self._acquire_slot()
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        answer = asyncio.get_running_loop().create_future()
        self._write(message, version, correlation_id)
        self._pending[correlation_id] = _PendingRequest(key, version, answer)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            late = RequestTimedOut(f"{self.address} did not answer {key.name} within {timeout_s:g} s; try again")
            self._fail(late)
            raise late from None

    async def send(self, message: Any, *, version_max: int | None = None) -> None:
        """Sends a request that has no response (Produce with acks=0). Waits while the socket's buffer is full."""
        await self._may_request.wait()
        version = self.version_of(type(message), version_max)
        self._check_open()
        self._write(message, version, next(self._correlation_ids) & 0x7FFFFFFF)
        await self._may_write.wait()
        self._check_open()

    async def _acquire_slot(self) -> None:
        # The response releases the slot, not the caller: a cancelled request still gets its response.
        await self._slots.acquire()
        if not self.is_open:
            self._slots.release()
            self._check_open()

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} is closed; connect again")

    def _write(self, message: Any, version: int, correlation_id: int) -> None:
        assert self._transport is not None
        self._transport.writelines(request_frame(message, version, correlation_id, self._settings.client_id))

    # -- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own class

    def connection_lost(self, error: Exception | None) -> None:
        why = os_reason(error) if isinstance(error, OSError) else "the broker closed it"
        then = "requests in flight may have been carried out"
        if self.versions and not self._has_answers and self._settings.security.login is None:
            then = "the listener may need a login: set security.protocol to SASL_SSL or SASL_PLAINTEXT, and a user"
        failure = self._failure or ConnectionLost(f"the connection to {self.address} was lost ({why}); {then}")
        self._failure = failure
        self._transport = None
        if self._next_login is not None:
            self._next_login.cancel()
        pending, self._pending = self._pending, {}
        for entry in pending.values():
            if not entry.answer.done():
                entry.answer.set_exception(failure)
            self._slots.release()
        self._may_write.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :] if self._frame is None else self._frame[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        if self._frame is not None:
            if self._filled == len(self._frame):
                frame, self._frame, self._filled = self._frame, None, 0
                self._on_frame(frame)
            return
        at = 0
        while self._filled - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._buffer, at)
            if not LENGTH.size <= size <= RESPONSE_BYTES_MAX:
                what = f"a response of {size} bytes: it does not speak the Kafka protocol"
                if bytes(self._buffer[at : at + LENGTH.size]) == b"HTTP":
                    what = "HTTP: give the port of Kafka clients (9092, unless --listen sets another)"
                self._fail(ConnectionLost(f"{self.address} sent {what}"))
                return
            end = at + LENGTH.size + size
            have = self._buffer[at + LENGTH.size : min(end, self._filled)]
            # Always copied: decoded values point into the frame, and the buffer is reused.
            frame = memoryview(new_buffer(size))
            frame[: len(have)] = have
            if end > self._filled:
                self._frame, self._filled = frame, len(have)
                return
            at = end
            self._on_frame(frame)
        rest = bytes(self._buffer[at : self._filled])
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)

    def _on_frame(self, frame: memoryview) -> None:
        (correlation_id,) = LENGTH.unpack_from(frame, 0)
        entry = self._pending.pop(correlation_id, None)
        if entry is None:
            self._fail(ConnectionLost(f"{self.address} sent the unknown correlation id {correlation_id}"))
            return
        self._slots.release()
        if entry.answer.done():
            return  # the caller was cancelled
        version = entry.version
        self._has_answers = self._has_answers or entry.key is not ApiKey.API_VERSIONS
        if entry.key is ApiKey.API_VERSIONS and frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0  # this error is encoded in version 0
        try:
            entry.answer.set_result(read_response(entry.key, version, frame)[1])
        except MalformedRequest as error:
            broken = ConnectionLost(f"{self.address} sent a malformed response: {error}")
            entry.answer.set_exception(broken)
            self._fail(broken)

    # -- closing

    def _fail(self, error: PenstockError) -> None:
        self._failure = self._failure or error
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        self._fail(ConnectionLost(f"the connection to {self.address} was closed"))

    async def close(self) -> None:
        """Flushes the write buffer, then closes the connection."""
        if self._transport is None:
            return
        self._failure = self._failure or ConnectionLost(f"the connection to {self.address} was closed")
        self._transport.close()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await self._closed.wait()
        except TimeoutError:
            self.abort()
