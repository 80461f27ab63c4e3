"""gRPC client for the servers of an etcd cluster; fails over to another server when the current one fails.

Uses only the generated stubs of aetcd: aetcd's own client knows a single server, and its watch splits transactions.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from aetcd import rpc
from grpc import ChannelConnectivity, StatusCode, ssl_channel_credentials
from grpc.aio import UsageError

from penstock.coordination.store import StoreUnavailable
from penstock.coordination.store_security import StoreSecurity

logger = logging.getLogger(__name__)

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]
Call = Callable[[Any, float], Awaitable[T]]
"""A function that makes a call on a gRPC channel, with a timeout in seconds."""

_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # also the connect timeout
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),  # servers disconnect clients that ping more often than every 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", -1),  # all missed changes of a watch are one message
    ("grpc.max_send_message_length", -1),
)
_PAUSE_S: Final = 0.02
_OLD_TOKEN: Final = "revision of auth store is old"
_REFUSALS: Final = {
    StatusCode.INVALID_ARGUMENT,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.NOT_FOUND,
    StatusCode.OUT_OF_RANGE,
}
"""gRPC status codes of a wrong request, which other servers would refuse as well."""


class Refused(StoreUnavailable):
    """The server refused the request, with this gRPC `status`."""

    def __init__(self, error: rpc.AioRpcError) -> None:
        super().__init__(f"etcd refused: {error.details()}")
        self.status = error.code()


class EtcdClient:
    """Channels to all etcd servers; the current server is used until it fails."""

    def __init__(self, addresses: Sequence[str], timeout_s: float, security: StoreSecurity) -> None:
        self.name = f"etcd at {','.join(addresses)}"
        self.timeout_s = timeout_s
        self.on_failover: list[Callable[[], None]] = []
        """Callbacks called after a failover to another server, to restart calls that wait for the old server."""
        self._channels = [_channel(address, security) for address in addresses]
        self._security = security
        self._token = ""
        """What calls are authenticated with; empty before the login, or if the server needs none."""
        self._turns = itertools.cycle(self._channels)
        self._current = next(self._turns)
        self._is_closed = False

    @property
    def channel(self) -> Any:
        return self._current

    @property
    def metadata(self) -> Metadata:
        """Returns the metadata of calls, with the token of the login."""
        return (("token", self._token),) if self._token else ()

    @property
    def is_ready(self) -> bool:
        return not self._is_closed and self._current.get_state() == ChannelConnectivity.READY

    def fail_over_from(self, channel: Any) -> None:
        """Fails over to the next server, unless `channel` is no longer the current channel."""
        if channel is self._current and not self._is_closed:
            self._current = next(self._turns)
            for callback in tuple(self.on_failover):
                callback()

    async def read(self, call: Call[T]) -> T:
        """Calls one server after another until one answers, and returns the answer."""
        ends_s = time.monotonic() + self.timeout_s
        while True:
            channel = await self._ready(self.timeout_s, ends_s)
            try:
                return await self._call(call, channel, min(self.timeout_s / 2, ends_s - time.monotonic()))
            except Refused:
                raise
            except StoreUnavailable:
                if time.monotonic() + _PAUSE_S > ends_s:
                    raise
                await asyncio.sleep(_PAUSE_S)

    async def write(self, call: Call[T], timeout_s: float | None = None) -> T:
        """Calls one server, without a retry: after a failure it is unknown whether the write was executed."""
        timeout_s = min(timeout_s or self.timeout_s, self.timeout_s)
        ends_s = time.monotonic() + timeout_s
        channel = await self._ready(timeout_s, ends_s)
        return await self._call(call, channel, ends_s - time.monotonic())

    async def _ready(self, timeout_s: float, ends_s: float) -> Any:
        """Returns the channel of a connected server. Raises StoreUnavailable after the monotonic time `ends_s`;
        `timeout_s` is only for its message."""
        while not self._is_closed:
            channel = self._current
            state = channel.get_state(try_to_connect=True)
            if state == ChannelConnectivity.READY:
                return channel
            if time.monotonic() > ends_s:
                raise StoreUnavailable(f"{self.name} did not answer within {timeout_s:g} s")
            if state == ChannelConnectivity.TRANSIENT_FAILURE:
                self.fail_over_from(channel)
                if channel is not self._current and not self._all_failing():
                    continue
            # gRPC does not notify when a channel is closed, so this polls.
            await asyncio.sleep(_PAUSE_S)
        raise StoreUnavailable(f"the connection to {self.name} is closed")

    def _all_failing(self) -> bool:
        failed = ChannelConnectivity.TRANSIENT_FAILURE
        return all(channel.get_state(try_to_connect=True) == failed for channel in self._channels)

    async def _call(self, call: Call[T], channel: Any, timeout_s: float) -> T:
        try:
            return await self._attempt(call, channel, max(timeout_s, _PAUSE_S))
        except rpc.AioRpcError as error:
            if error.code() in _REFUSALS:
                raise Refused(error) from error
            self.fail_over_from(channel)
            raise StoreUnavailable(f"{self.name} failed: {error.code().name}: {error.details()}") from error
        except StoreUnavailable:
            self.fail_over_from(channel)
            raise
        except UsageError as error:
            raise StoreUnavailable(f"the connection to {self.name} is closed") from error
        except asyncio.InvalidStateError as error:
            raise StoreUnavailable(f"the call to {self.name} was cancelled") from error
        except asyncio.CancelledError as error:
            # The call was cancelled, not this task: by close, or by a failover to another server.
            if not is_cancelled():
                raise StoreUnavailable(f"the call to {self.name} was cancelled") from error
            raise

    async def _attempt(self, call: Call[T], channel: Any, timeout_s: float) -> T:
        if self._security.username and not self._token:
            await self._log_in(channel, timeout_s)
        try:
            return await call(channel, timeout_s)
        except rpc.AioRpcError as error:
            if not self.check_token(error):
                raise
        await self._log_in(channel, timeout_s)  # the call was not executed
        return await call(channel, timeout_s)

    async def _log_in(self, channel: Any, timeout_s: float) -> None:
        security = self._security
        request = rpc.AuthenticateRequest(name=security.username, password=security.password)
        answer = await rpc.AuthStub(channel).Authenticate(request, timeout=timeout_s)
        self._token = answer.token

    def check_token(self, error: rpc.AioRpcError) -> bool:
        """Returns whether the token has expired, or is older than a change of users; the next call then logs in."""
        is_old = error.code() == StatusCode.UNAUTHENTICATED or _OLD_TOKEN in str(error.details())
        if not (self._token and is_old):
            return False
        self._token = ""
        return True

    async def close(self) -> None:
        self._is_closed = True
        for channel in self._channels:
            await channel.close()


def _channel(address: str, security: StoreSecurity) -> Any:
    if security.tls is None:
        return rpc.insecure_channel(address, options=_OPTIONS)
    credentials = ssl_channel_credentials(security.trusted, security.key, security.chain)
    return rpc.secure_channel(address, credentials, options=_OPTIONS)


def is_cancelled() -> bool:
    """Whether this task was cancelled. gRPC raises CancelledError also when only its own call was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
