"""The Kafka listener: what all connections share. One client's side is connection.py."""

import asyncio
import contextlib
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple, Protocol

from penstock.broker.broker import Broker
from penstock.broker.large_requests import inline_max
from penstock.broker.registry import APIS, Api
from penstock.cluster.image import ClusterImage
from penstock.network.budget import ReceiveBudget
from penstock.network.connection import KafkaConnection
from penstock.network.large_request import RECEIVE_BYTES, Buffers, LargeRequest


class Probe(Protocol):
    """What the listener reports."""

    def connected(self) -> None: ...

    def disconnected(self) -> None: ...

    def requests(self, api_key: int, count: int, seconds: float, bytes_in: int, bytes_out: int) -> None: ...

    def refused(self, kind: str) -> None: ...


class Route(NamedTuple):
    """How to read and handle one version of one API."""

    api: Api
    flexible: bool
    inline_max: int
    """Array elements of a request that is decoded and handled without a break."""


class KafkaListener:
    """What all connections share."""

    def __init__(self, broker: Broker, probe: Probe) -> None:
        self.broker = broker
        self.probe = probe
        self.connections: set[KafkaConnection] = set()
        self._buffers = Buffers()
        self.receive_buffer = self._buffers.make()
        self.frame_bytes_max: int = broker.configs["socket.request.max.bytes"]
        self.connections_max: int = broker.configs["max.connections"]
        self.idle_s: float = broker.configs["connections.max.idle.ms"] / 1000
        self.budget = ReceiveBudget(broker.configs["queued.max.request.bytes"])
        self._broker_configs = broker.image.broker_configs
        self.http = ""
        """Where clients of HTTP are told to go."""
        self._all_gone: asyncio.Event | None = None
        self._routes: dict[tuple[int, int], Route | None] = {}

    def __call__(self) -> KafkaConnection:
        return KafkaConnection(self)

    def route(self, api_key: int, version: int) -> Route | None:
        """None if this broker does not serve that version of that API."""
        try:
            return self._routes[api_key, version]
        except KeyError:
            api = APIS.get(api_key)
            if api is None or version not in api.versions:
                return None
            found = Route(api, version >= api.flexible_from, inline_max(api_key))
            self._routes[api_key, version] = found
            return found

    def receive_large(
        self, size: int, data: memoryview, at: int, end: int, resume: Callable[[], None]
    ) -> LargeRequest:
        """A place for a request of `size` bytes, whose first ones are in `data` from `at` to `end`.

        Where they were read into the shared buffer, and the rest fits behind, that becomes the place, and another
        buffer the shared one: nothing is copied. `resume`: see ReceiveBudget.
        """
        loan = self.budget.open(resume)
        buffer = self._buffers.take() if size <= RECEIVE_BYTES else None
        if buffer is None:
            return LargeRequest.alone(size, data[at:end], loan)
        if data is self.receive_buffer and at + size <= len(data):
            self.receive_buffer = buffer
            return LargeRequest.within(data, at, size, end - at, loan)
        buffer[: end - at] = data[at:end]
        return LargeRequest.within(buffer, 0, size, end - at, loan)

    def release(self, large: LargeRequest) -> None:
        """Take back the buffer of a request that was handled."""
        if large.borrowed is not None:
            self._buffers.give(large.borrowed)

    def apply(self, image: ClusterImage) -> None:
        """The broker's settings may have changed, by which requests took the express lane."""
        if image.broker_configs is not self._broker_configs:
            self._broker_configs = image.broker_configs
            for connection in self.connections:
                connection.report()
                connection.lanes.clear()

    def report(self) -> None:
        """Have everything counted that was answered so far."""
        for connection in self.connections:
            connection.report()

    def tidy(self) -> None:
        """Close connections that are idle, or send a large request too slowly, and forget old metrics of clients."""
        self.broker.telemetry.tidy()
        self._buffers.shrink()
        now_s = perf_counter()
        for connection in list(self.connections):
            silent_s = connection.silent_s(now_s)
            if silent_s > self.idle_s and not connection.calls:
                connection.close("idle")
            elif connection.is_slow(now_s):
                connection.close("slow")

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests, let those under way end, and close; what is left after the timeout is cut off."""
        self.broker.share_sessions.leave_all()
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

    def gone(self, connection: KafkaConnection) -> None:
        self.connections.discard(connection)
        self.broker.share_sessions.hang_up(connection.peer)
        self.broker.telemetry.hang_up(connection.peer)
        self.probe.disconnected()
        if not self.connections and self._all_gone is not None:
            self._all_gone.set()
