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
from penstock.network.host_limits import HostLimits
from penstock.network.large_request import RECEIVE_BYTES, BufferPool, LargeRequest


class Probe(Protocol):
    """Interface to which the listener reports connections and requests, for metrics."""

    def connected(self, listener: str) -> None: ...

    def disconnected(self, listener: str) -> None: ...

    def requests(self, api_key: int, count: int, seconds: float, bytes_in: int, bytes_out: int) -> None: ...

    def refused(self, kind: str) -> None: ...


class ListenedConnection(Protocol):
    """The members of a Kafka connection that the listener uses; kafka_connection.py implements them."""

    peer: str
    listener_name: str
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
    """How requests of one version of one API are decoded and handled."""

    api: Api
    flexible: bool
    inline_max: int
    """Maximum number of array elements in a request that is decoded at once rather than in time slices."""


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
        self.quotas = broker.quotas
        self.hosts = HostLimits(broker.configs.__getitem__, lambda: broker.image.client_quotas)
        self.budget = ReceiveBudget(broker.configs["queued.max.request.bytes"])
        self._applied = broker.image
        self.http = ""
        """Address of the HTTP listener, told to HTTP clients that connect to the Kafka port by mistake."""
        self._all_closed: asyncio.Event | None = None
        self._routes: dict[tuple[int, int], Route | None] = {}

    def route(self, api_key: int, version: int) -> Route | None:
        """Returns the route of a version of an API; None if this broker does not serve that version."""
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
        """Creates a LargeRequest of `size` bytes, whose first bytes are `data[at:end]`. If the connection has stopped
        reading because of the memory budget, `resume` is called when it may read again.

        If `data` is the shared receive buffer and has room for the whole request from `at` on, the request keeps that
        buffer, so that nothing is copied. A buffer of the pool then becomes the shared buffer.
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
        """Returns the buffer of a large request to the pool, if it was taken from the pool."""
        if large.borrowed is not None:
            self._buffers.put_back(large.borrowed)

    def apply(self, image: ClusterImage) -> None:
        """Clears the fast paths of all connections if what they depend on has changed: settings, ACLs and quotas."""
        before, self._applied = self._applied, image
        if (
            image.broker_configs is not before.broker_configs
            or image.acls is not before.acls
            or image.client_quotas is not before.client_quotas
        ):
            for connection in self.connections:
                connection.report()
                connection.fast_paths.clear()

    def report(self) -> None:
        """Updates the metrics with the requests that connections have answered on the fast path since last time."""
        for connection in self.connections:
            connection.report()

    def close_idle(self) -> None:
        """Closes connections that are idle or send a large request too slowly; also frees unused receive buffers
        and expired client metrics."""
        self.broker.telemetry.expire()
        if self.broker.audit is not None:
            self.broker.audit.flush()
        self._buffers.shrink()
        now_s = perf_counter()
        for connection in list(self.connections):
            idle_for_s = connection.idle_for_s(now_s)
            if idle_for_s > self.idle_s and not connection.calls:
                connection.close("idle")
            elif connection.is_slow(now_s):
                connection.close("slow")

    async def drain(self, timeout_s: float) -> None:
        """Stops reading, waits for running handlers, and closes all connections; each phase takes at most
        `timeout_s`."""
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
        self.probe.disconnected(connection.listener_name)
        if not self.connections and self._all_closed is not None:
            self._all_closed.set()
