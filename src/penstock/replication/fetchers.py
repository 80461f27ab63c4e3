"""Replica fetchers: one task for each other broker that leads a partition with a replica on this broker."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.address import Address
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.client.security import PLAINTEXT, SecuritySettings
from penstock.cluster.image import Broker, ClusterImage
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.replication.fetch_link import FetchLink
from penstock.replication.fetch_links import FetchLinks
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.throttle import Throttle

logger = logging.getLogger(__name__)

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
IDLE_WAIT_S: Final = 0.05
"""Wait, in seconds, before the next fetch if no partition can be fetched now."""
THROTTLED_WAIT_MAX_S: Final = 1.0
"""Maximum wait, in seconds, before the next fetch if all partitions are throttled."""
FETCH_VERSION: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Settings of replica fetchers, read for every Fetch request."""

    wait_ms: int
    partition_bytes: int
    response_bytes: int
    timeout_ms: int


class ReplicaFetchers:
    """Starts and stops replica fetchers as leaders change in the metadata image."""

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        clock: Clock,
        settings: Callable[[], FetchSettings],
        throttle: Throttle | None = None,
        listener: str = "",
        security: SecuritySettings = PLAINTEXT,
    ) -> None:
        """`throttle`: limits the fetches of lagging replicas. `listener`: name of the inter-broker listener."""
        self._listener = listener
        self._security = security
        self._node_id = node_id
        self._partitions = partitions
        self._clock = clock
        self._settings = settings
        self._links = FetchLinks(node_id=node_id, partitions=partitions, throttle=throttle)
        self.throttle = self._links.throttle
        self._fetchers: dict[int, _ReplicaFetcher] = {}
        self._brokers: Mapping[int, Broker] = {}
        """The registered brokers as of the last `apply`."""
        self.bytes = 0
        """Bytes fetched since the broker started."""

    def apply(self, image: ClusterImage) -> None:
        """Updates the fetchers; call it after `Partitions.apply`. Offline leaders get no fetcher."""
        changed = self._links.apply(image)
        if image.brokers is not self._brokers:
            self._brokers = image.brokers
            changed |= self._links.by_leader.keys() | self._fetchers.keys()
        for node in changed:
            self._update(node)

    def _update(self, node: int) -> None:
        """Starts, wakes or stops the fetcher for a leader."""
        fetcher, link, broker = self._fetchers.get(node), self._links.by_leader.get(node), self._brokers.get(node)
        at = broker.endpoint(self._listener) if broker is not None else None
        address = Address(at.host, at.port) if at is not None else None
        if fetcher is not None and (fetcher.link is not link or fetcher.address != address):
            self._fetchers.pop(node).stop()
            fetcher = None
        if fetcher is None and link is not None and address is not None:
            fetcher = self._fetchers[node] = _ReplicaFetcher(self, node, address, link)
        if fetcher is not None:
            fetcher.wake()

    def wake(self, partition: Partition) -> None:
        """Wakes all fetchers; called when the records of the follower `partition` have become durable. A partition
        is not fetched while it has records that are not durable."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    async def close(self) -> None:
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        for fetcher in fetchers:
            fetcher.stop()
        await asyncio.gather(*(fetcher.task for fetcher in fetchers), return_exceptions=True)


class _ReplicaFetcher:
    """The task that fetches from one leader."""

    def __init__(self, owner: ReplicaFetchers, node: int, address: Address, link: FetchLink) -> None:
        self._owner = owner
        self._node = node
        self.address = address
        self.link = link
        self._connection: Connection | None = None
        self._wakeup = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._wakeup.set()

    def stop(self) -> None:
        self.task.cancel()

    async def _run(self) -> None:
        backoff_s = BACKOFF_MIN_S
        try:
            while True:
                try:
                    await self._fetch()
                    backoff_s = BACKOFF_MIN_S
                except PenstockError as error:
                    if backoff_s == BACKOFF_MIN_S:  # once while it lasts
                        logger.warning("leader_unreachable node=%d reason=%r", self._node, str(error))
                    self._disconnect()
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
        finally:
            self._disconnect()

    async def _fetch(self) -> None:
        """Sends one Fetch request and applies the response, or waits until a partition can be fetched."""
        owner, settings = self._owner, self._owner._settings()
        if self._connection is None or not self._connection.is_open:
            self.link.reset_session()
            connection = ConnectionSettings(
                client_id=f"penstock-replica-{owner._node_id}",
                request_timeout_s=settings.timeout_ms / 1000,
                security=owner._security,
            )
            self._connection = await open_connection(self.address, connection)
        self._wakeup.clear()
        self.link.fetch_bytes = settings.partition_bytes
        request = self.link.request(
            broker_epoch=owner._partitions.broker_epoch,
            max_wait_ms=settings.wait_ms,
            max_bytes=settings.response_bytes,
            now_ms=owner._clock.steady_ms(),
        )
        if request is None:
            throttled_s = self.link.wait_ms(owner._clock.steady_ms()) / 1000
            await self._wait(min(max(IDLE_WAIT_S, throttled_s), THROTTLED_WAIT_MAX_S))
            return
        response = await self._connection.request(request, version_max=FETCH_VERSION)
        counts = self.link.apply(response, owner._clock.steady_ms())
        owner.bytes += counts.bytes
        if counts.truncated:
            logger.warning("log_truncated leader=%d offsets=%d", self._node, counts.truncated)

    async def _wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._wakeup.wait()
        except TimeoutError:
            pass

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
