"""The servers of an etcd cluster: one of them is asked, and another one when it does not answer.

Of aetcd, only the generated stubs are used: its client knows one server, and takes transactions apart when watching.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from aetcd import rpc
from grpc import ChannelConnectivity, StatusCode
from grpc.aio import UsageError

from penstock.coordination.store import StoreUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ask = Callable[[Any, float], Awaitable[T]]
"""Asks over this channel, waiting so many seconds."""

_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),  # which is also how long it tries to connect
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),  # servers hang up on whoever pings more often than every 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", -1),  # what a watch missed comes in one message
    ("grpc.max_send_message_length", -1),
)
_PAUSE_S: Final = 0.02
_REFUSALS: Final = {
    StatusCode.INVALID_ARGUMENT,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.NOT_FOUND,
    StatusCode.OUT_OF_RANGE,
}
"""The server has understood, and says no: another one would say the same."""


class Refused(StoreUnavailable):
    """A server's no, for whoever asked to make sense of."""

    def __init__(self, error: rpc.AioRpcError) -> None:
        super().__init__(f"etcd refused: {error.details()}")
        self.status = error.code()


class EtcdClient:
    """Channels to all servers; the current one is asked until it fails."""

    def __init__(self, addresses: Sequence[str], timeout_s: float) -> None:
        self.name = f"etcd at {','.join(addresses)}"
        self.timeout_s = timeout_s
        self.on_moved: list[Callable[[], None]] = []
        """Called when another server is turned to: what hangs on the old one should be begun again."""
        self._channels = [rpc.insecure_channel(address, options=_OPTIONS) for address in addresses]
        self._turns = itertools.cycle(self._channels)
        self._current = next(self._turns)
        self._is_closed = False

    @property
    def channel(self) -> Any:
        return self._current

    @property
    def is_ready(self) -> bool:
        return not self._is_closed and self._current.get_state() == ChannelConnectivity.READY

    def move_from(self, channel: Any) -> None:
        """The server failed: turn to another one, if that has not been done already."""
        if channel is self._current and not self._is_closed:
            self._current = next(self._turns)
            for callback in tuple(self.on_moved):
                callback()

    async def read(self, ask: Ask[T]) -> T:
        """Ask one server after another until one answers."""
        ends_s = time.monotonic() + self.timeout_s
        while True:
            channel = await self._ready(self.timeout_s, ends_s)
            try:
                return await self._ask(ask, channel, min(self.timeout_s / 2, ends_s - time.monotonic()))
            except Refused:
                raise
            except StoreUnavailable:
                if time.monotonic() + _PAUSE_S > ends_s:
                    raise
                await asyncio.sleep(_PAUSE_S)

    async def write(self, ask: Ask[T], timeout_s: float | None = None) -> T:
        """Ask a connected server, once: if it fails the outcome is unknown, and asking again could hide it."""
        timeout_s = min(timeout_s or self.timeout_s, self.timeout_s)
        ends_s = time.monotonic() + timeout_s
        channel = await self._ready(timeout_s, ends_s)
        return await self._ask(ask, channel, ends_s - time.monotonic())

    async def _ready(self, timeout_s: float, ends_s: float) -> Any:
        """The channel of a server that is connected."""
        while not self._is_closed:
            channel = self._current
            state = channel.get_state(try_to_connect=True)
            if state == ChannelConnectivity.READY:
                return channel
            if time.monotonic() > ends_s:
                raise StoreUnavailable(f"{self.name} did not answer within {timeout_s:g} s")
            if state == ChannelConnectivity.TRANSIENT_FAILURE:
                self.move_from(channel)
                if channel is not self._current and not self._all_failing():
                    continue
            # Nothing here says when a channel has been closed, so this looks again now and then.
            await asyncio.sleep(_PAUSE_S)
        raise StoreUnavailable(f"the connection to {self.name} is closed")

    def _all_failing(self) -> bool:
        failed = ChannelConnectivity.TRANSIENT_FAILURE
        return all(channel.get_state(try_to_connect=True) == failed for channel in self._channels)

    async def _ask(self, ask: Ask[T], channel: Any, timeout_s: float) -> T:
        try:
            return await ask(channel, max(timeout_s, _PAUSE_S))
        except rpc.AioRpcError as error:
            if error.code() in _REFUSALS:
                raise Refused(error) from error
            self.move_from(channel)
            raise StoreUnavailable(f"{self.name} failed: {error.code().name}: {error.details()}") from error
        except StoreUnavailable:
            self.move_from(channel)
            raise
        except UsageError as error:
            raise StoreUnavailable(f"the connection to {self.name} is closed") from error
        except asyncio.InvalidStateError as error:
            raise StoreUnavailable(f"the call to {self.name} was broken off") from error
        except asyncio.CancelledError as error:
            # Not this task, but its call: the connection was closed, or another server was turned to meanwhile.
            if not is_cancelled():
                raise StoreUnavailable(f"the call to {self.name} was broken off") from error
            raise

    async def close(self) -> None:
        self._is_closed = True
        for channel in self._channels:
            await channel.close()


def is_cancelled() -> bool:
    """Whether this task is: gRPC raises CancelledError too when it is the call that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
