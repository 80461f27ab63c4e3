"""The Kafka listener: shares receive buffers, routes API versions, closes idle connections, drains at shutdown."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple, Protocol

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.fastpath.produce_and_fetch import AnyFastPath
from penstock.broker.large_requests import inline_max
from penstock.broker.registry import APIS, Api
from penstock.cluster.image import ClusterImage
from penstock.network.budget import ReceiveBudget
from penstock.network.large_request import RECEIVE_BYTES, BufferPool, LargeRequest


class Probe(Protocol):
    """Interface of the metrics that the listener reports."""

    def connected(self) -> None: ...

    def disconnected(self) -> None: ...

    def requests(self, api_key: int, count: int, seconds: float, bytes_in: int, bytes_out: int) -> None: ...

    def refused(self, kind: str) -> None: ...


class ListenedConnection(Protocol):
    """The interface of a connection that its listener uses; implemented in kafka_connection.py."""

    peer: str
    calls: deque[Call]
    task: asyncio.Task[None] | None
    fast_paths: dict[int, AnyFastPath]

    def report(self) -> None: ...

    def idle_for_s(self, now_s: float) -> float: ...

    def is_slow(self, now_s: float) -> bool: ...

    def stop_reading(self) -> None: ...

    def finish(self) -> None: ...

    def close(self, kind: str) -> None: ...


class Route(NamedTuple):
    """How to decode and handle one version of one API."""

    api: Api
    flexible: bool
    inline_max: int
    """Maximum number of array elements in a request that is handled without yielding to the event loop."""


class KafkaListener:
    """State shared by all Kafka connections of a broker."""

    def __init__(self, broker: Broker, probe: Probe) -> None:
        self.broker = broker
        self.probe = probe
        self.connections: set[ListenedConnection] = set()
        self._buffers = BufferPool()
        self.receive_buffer = self._buffers.make()
        self.frame_bytes_max: int = broker.configs["socket.request.max.bytes"]
        self.connections_max: int = broker.configs["max.connections"]
        self.idle_s: float = broker.configs["connections.max.idle.ms"] / 1000
        self.budget = ReceiveBudget(broker.configs["queued.max.request.bytes"])
        self._broker_configs = broker.image.broker_configs
        self.http = ""
        """The HTTP address that is told to an HTTP client which connects to this port by mistake."""
        self._all_closed: asyncio.Event | None = None
        self._routes: dict[tuple[int, int], Route | None] = {}

    def route(self, api_key: int, version: int) -> Route | None:
        """Returns the route; None if this broker does not serve that version of that API."""
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
        """Returns a buffer for a request of `size` bytes, whose first bytes are in `data` from `at` to `end`.

        If the rest fits behind these bytes in the shared buffer, the request takes over that buffer and another one
        becomes the shared buffer, so that nothing is copied. `resume`: see ReceiveBudget.
        """
        reservation = self.budget.open(resume)
        buffer = self._buffers.take() if size <= RECEIVE_BYTES else None
        if buffer is None:
            return LargeRequest.allocate(size, data[at:end], reservation)
        if data is self.receive_buffer and at + size <= len(data):
            self.receive_buffer = buffer
            return LargeRequest.within(data, at, size, end - at, reservation)
        buffer[: end - at] = data[at:end]
        return LargeRequest.within(buffer, 0, size, end - at, reservation)

    def release(self, large: LargeRequest) -> None:
        """Returns the buffer of a handled request to the pool."""
        if large.borrowed is not None:
            self._buffers.put_back(large.borrowed)

    def apply(self, image: ClusterImage) -> None:
        """Clears the connections' fast paths, which depend on the broker's settings, if these have changed."""
        if image.broker_configs is not self._broker_configs:
            self._broker_configs = image.broker_configs
            for connection in self.connections:
                connection.report()
                connection.fast_paths.clear()

    def report(self) -> None:
        """Reports the fast-path requests of all connections to the probe."""
        for connection in self.connections:
            connection.report()

    def close_idle(self) -> None:
        """Closes connections that are idle or send a large request too slowly; also expires metrics of clients."""
        self.broker.telemetry.expire()
        self._buffers.shrink()
        now_s = perf_counter()
        for connection in list(self.connections):
            idle_for_s = connection.idle_for_s(now_s)
            if idle_for_s > self.idle_s and not connection.calls:
                connection.close("idle")
            elif connection.is_slow(now_s):
                connection.close("slow")

    async def drain(self, timeout_s: float) -> None:
        """Stops reading, waits for requests in progress, and closes connections; aborts them after the timeout."""
        self.broker.share_sessions.drop_all()
        for connection in list(self.connections):
            connection.stop_reading()
        tasks = [connection.task for connection in self.connections if connection.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        self._all_closed = asyncio.Event()
        for connection in list(self.connections):
            connection.finish()
        if self.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), timeout_s)
        for connection in list(self.connections):
            connection.close("shutdown")

    def remove(self, connection: ListenedConnection) -> None:
        self.connections.discard(connection)
        self.broker.share_sessions.hang_up(connection.peer)
        self.broker.telemetry.disconnect(connection.peer)
        self.probe.disconnected()
        if not self.connections and self._all_closed is not None:
            self._all_closed.set()
