"""Following, in a broker: one task for each other broker that leads something this one has a replica of."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.address import Address
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.cluster.image import Broker, ClusterImage
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.replication.fetch_link import Link
from penstock.replication.fetch_links import Links
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.throttle import Throttle

logger = logging.getLogger(__name__)

BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
LOOK_S: Final = 0.05
"""How soon it is looked again whether something may be asked for, if nothing may be now."""
LOOK_MAX_S: Final = 1.0
"""How soon, if all that it could ask for is throttled."""
FETCH_VERSION: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How followers ask; read anew for every request."""

    wait_ms: int
    partition_bytes: int
    response_bytes: int
    timeout_ms: int


class Fetchers:
    """Follows the image: begins and ends with what this broker has to follow."""

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        clock: Clock,
        settings: Callable[[], FetchSettings],
        throttle: Throttle | None = None,
    ) -> None:
        """`throttle`: of what this broker fetches while it lags."""
        self._node_id = node_id
        self._partitions = partitions
        self._clock = clock
        self._settings = settings
        self._links = Links(node_id=node_id, partitions=partitions, throttle=throttle)
        self.throttle = self._links.throttle
        self._fetchers: dict[int, _Fetcher] = {}
        self._brokers: Mapping[int, Broker] = {}
        """Those that the fetchers are in step with."""
        self.bytes = 0
        """Fetched since the start."""

    def apply(self, image: ClusterImage) -> None:
        """Call it after the partitions have got on with the image. Leaders that are offline brokers are not asked."""
        changed = self._links.apply(image)
        if image.brokers is not self._brokers:
            self._brokers = image.brokers
            changed |= self._links.by_leader.keys() | self._fetchers.keys()
        for node in changed:
            self._keep(node)

    def _keep(self, node: int) -> None:
        """Start, go on or end asking a broker."""
        fetcher, link, broker = self._fetchers.get(node), self._links.by_leader.get(node), self._brokers.get(node)
        address = Address(broker.host, broker.port) if broker is not None else None
        if fetcher is not None and (fetcher.link is not link or fetcher.address != address):
            self._fetchers.pop(node).stop()
            fetcher = None
        if fetcher is None and link is not None and address is not None:
            fetcher = self._fetchers[node] = _Fetcher(self, node, address, link)
        if fetcher is not None:
            fetcher.wake()

    def wake(self, partition: Partition) -> None:
        """A follower has become as safe as its topic wants it, and may ask for more."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    async def close(self) -> None:
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        for fetcher in fetchers:
            fetcher.stop()
        await asyncio.gather(*(fetcher.task for fetcher in fetchers), return_exceptions=True)


class _Fetcher:
    """The task that asks one other broker."""

    def __init__(self, owner: Fetchers, node: int, address: Address, link: Link) -> None:
        self._owner = owner
        self._node = node
        self.address = address
        self.link = link
        self._connection: Connection | None = None
        self._news = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._news.set()

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
                    logger.info("leader_not_reached node=%d reason=%r", self._node, str(error))
                    self._hang_up()
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
        finally:
            self._hang_up()

    async def _fetch(self) -> None:
        """Ask once, and do what the answer says; or wait until there is something to ask."""
        owner, settings = self._owner, self._owner._settings()
        if self._connection is None or not self._connection.is_open:
            self.link.forget()
            connection = ConnectionSettings(
                client_id=f"penstock-replica-{owner._node_id}", request_timeout_s=settings.timeout_ms / 1000
            )
            self._connection = await open_connection(self.address, connection)
        self._news.clear()
        self.link.fetch_bytes = settings.partition_bytes
        request = self.link.request(
            broker_epoch=owner._partitions.broker_epoch,
            max_wait_ms=settings.wait_ms,
            max_bytes=settings.response_bytes,
            now_ms=owner._clock.steady_ms(),
        )
        if request is None:
            throttled_s = self.link.wait_ms(owner._clock.steady_ms()) / 1000
            await self._wait(min(max(LOOK_S, throttled_s), LOOK_MAX_S))
            return
        response = await self._connection.request(request, newest=FETCH_VERSION)
        taken = self.link.take(response, owner._clock.steady_ms())
        owner.bytes += taken.bytes
        if taken.cut:
            logger.warning("log_truncated leader=%d offsets=%d", self._node, taken.cut)

    async def _wait(self, patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await self._news.wait()
        except TimeoutError:
            pass

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
