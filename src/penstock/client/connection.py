"""One TCP connection to a broker: versions are agreed on first, then requests are pipelined.

Answers come back in the order of their requests, so that one that does not come holds up all others: a request
that times out closes the connection.
"""

import asyncio
import itertools
import os
import socket
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import penstock
from penstock.client.address import Address
from penstock.client.errors import ConnectionFailed, ConnectionLost, RequestTimedOut, UnsupportedByBroker, check
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import MalformedRequest, PenstockError
from penstock.wire.frames import LENGTH, read_response, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.schema import message_of

RECEIVE_BYTES: Final = 64 << 10
RESPONSE_BYTES_MAX: Final = 256 << 20
"""The largest answer that is read; a longer one is taken for something other than Kafka."""
ADVICE: Final = "is `penstock serve` running? Set --bootstrap or PENSTOCK_BOOTSTRAP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    client_id: str = "penstock"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    in_flight_max: int = 64
    """Requests that may wait for their answers; the next one waits to be sent."""


class _Waiting(NamedTuple):
    """A request that was sent, and who waits for its answer."""

    key: ApiKey
    version: int
    answer: asyncio.Future[Any]


async def open_connection(address: Address, settings: ConnectionSettings) -> "Connection":
    """Connect and agree on versions. ConnectionFailed says what was tried and what to do."""
    loop = asyncio.get_running_loop()
    connection = Connection(address, settings)
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await loop.create_connection(lambda: connection, address.host, address.port)
            await connection.agree_on_versions()
    except TimeoutError:
        reason = f"no answer within {settings.connect_timeout_s:g} s"
    except ConnectionLost as error:
        reason = f"{error}; is that a Kafka listener?"
    except OSError as error:
        reason = _reason(error)
    else:
        return connection
    finally:
        if not connection.versions:
            connection.abort()
    raise ConnectionFailed(f"cannot reach {address}: {reason}; {ADVICE}")


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or not error.errno:
        return (error.strerror or str(error)).lower()
    return os.strerror(error.errno).lower()


class Connection(asyncio.BufferedProtocol):
    """Made by `open_connection`."""

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        self.address: Final = address
        self.versions: dict[int, range] = {}
        """What the broker serves, by API key."""
        self._settings = settings
        self._transport: asyncio.Transport | None = None
        self._lost: PenstockError | None = None
        self._gone = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._numbers = itertools.count()
        self._slots = asyncio.Semaphore(settings.in_flight_max)
        self._waiting: dict[int, _Waiting] = {}
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._filled = 0
        self._frame: memoryview | None = None  # an answer that is larger than what was read of it

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._lost is None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    # -- requests

    async def agree_on_versions(self) -> None:
        """Ask what the broker serves: in our newest words, else in the oldest, which all brokers know (KIP-511)."""
        ours = message_of(ApiVersionsRequest).versions
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version=penstock.__version__)
        for version in (ours[-1], 0):
            response: ApiVersionsResponse = await self._ask(request, ApiKey.API_VERSIONS, version, None)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        check(response.error_code, f"{self.address} did not say which versions it serves")
        self.versions = {
            entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in response.api_keys
        }

    def version_of(self, request_class: type, newest: int | None = None) -> int:
        """The highest version that both sides have, not above `newest`."""
        message = message_of(request_class)
        theirs = self.versions.get(message.key, range(0))
        common = [version for version in message.versions if version in theirs]
        if newest is not None:
            common = [version for version in common if version <= newest]
        if not common:
            has = f"versions {theirs[0]} to {theirs[-1]}" if theirs else "none"
            raise UnsupportedByBroker(
                f"{message.key.name} needs version {message.versions[0]} to {message.versions[-1]}, "
                f"{self.address} has {has}; use a newer broker"
            )
        return common[-1]

    async def request(self, message: Any, *, timeout_s: float | None = None, newest: int | None = None) -> Any:
        """Send a request and wait for its answer. Many may be under way at a time."""
        key = message_of(type(message)).key
        return await self._ask(message, key, self.version_of(type(message), newest), timeout_s)

    async def _ask(self, message: Any, key: ApiKey, version: int, timeout_s: float | None) -> Any:
        timeout_s = self._settings.request_timeout_s if timeout_s is None else timeout_s
        await self._take_slot()
        number = next(self._numbers) & 0x7FFFFFFF
        answer = asyncio.get_running_loop().create_future()
        self._write(message, version, number)
        self._waiting[number] = _Waiting(key, version, answer)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            late = RequestTimedOut(f"{self.address} did not answer {key.name} within {timeout_s:g} s; try again")
            self._break(late)
            raise late from None

    async def send(self, message: Any, *, newest: int | None = None) -> None:
        """Send a request that is not answered (Produce with acks=0); waits only until the socket takes more."""
        version = self.version_of(type(message), newest)
        self._check_open()
        self._write(message, version, next(self._numbers) & 0x7FFFFFFF)
        await self._may_write.wait()
        self._check_open()

    async def _take_slot(self) -> None:
        # A slot is given back by the answer, not by the caller: one who was cancelled still has one coming.
        await self._slots.acquire()
        if not self.is_open:
            self._slots.release()
            self._check_open()

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} is closed; connect again")

    def _write(self, message: Any, version: int, number: int) -> None:
        assert self._transport is not None
        self._transport.writelines(request_frame(message, version, number, self._settings.client_id))

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has a class of its own

    def connection_lost(self, error: Exception | None) -> None:
        why = _reason(error) if isinstance(error, OSError) else "the broker hung up"
        lost = self._lost or ConnectionLost(
            f"the connection to {self.address} was lost ({why}); whether what was under way was done is not known"
        )
        self._lost = lost
        self._transport = None
        waiting, self._waiting = self._waiting, {}
        for entry in waiting.values():
            if not entry.answer.done():
                entry.answer.set_exception(lost)
            self._slots.release()
        self._may_write.set()
        self._gone.set()

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
                what = f"an answer of {size} bytes: it does not speak Kafka"
                if bytes(self._buffer[at : at + LENGTH.size]) == b"HTTP":
                    what = "HTTP: give the port of Kafka clients (9092, unless --listen says another)"
                self._break(ConnectionLost(f"{self.address} sent {what}"))
                return
            end = at + LENGTH.size + size
            have = self._buffer[at + LENGTH.size : min(end, self._filled)]
            # A copy, always: what is decoded points into its frame, and the buffer is used again.
            frame = memoryview(bytearray(size))
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
        (number,) = LENGTH.unpack_from(frame, 0)
        entry = self._waiting.pop(number, None)
        if entry is None:
            self._break(ConnectionLost(f"{self.address} answered request {number}, which was not asked"))
            return
        self._slots.release()
        if entry.answer.done():
            return  # nobody waits for it any more
        version = entry.version
        if entry.key is ApiKey.API_VERSIONS and frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0  # such a refusal comes in the oldest words
        try:
            entry.answer.set_result(read_response(entry.key, version, frame)[1])
        except MalformedRequest as error:
            broken = ConnectionLost(f"{self.address} sent an answer that cannot be read: {error}")
            entry.answer.set_exception(broken)
            self._break(broken)

    # -- the end

    def _break(self, error: PenstockError) -> None:
        self._lost = self._lost or error
        if self._transport is not None:
            self._transport.abort()

    def abort(self) -> None:
        """Close at once."""
        self._break(ConnectionLost(f"the connection to {self.address} was closed"))

    async def close(self) -> None:
        """Write what is still to be written, then close."""
        if self._transport is None:
            return
        self._lost = self._lost or ConnectionLost(f"the connection to {self.address} was closed")
        self._transport.close()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await self._gone.wait()
        except TimeoutError:
            self.abort()
