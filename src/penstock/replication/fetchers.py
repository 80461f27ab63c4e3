"""Following, in a broker: one task for each other broker that leads something this one has a replica of."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.client.address import Address
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.cluster.image import ClusterImage
from penstock.foundation.clock import Clock
from penstock.foundation.errors import PenstockError
from penstock.replication.led_partitions import not_led
from penstock.replication.link import Link
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
        self.throttle = throttle or Throttle()
        self._fetchers: dict[int, _Fetcher] = {}
        self.bytes = 0
        """Fetched since the start."""

    def apply(self, image: ClusterImage) -> None:
        """Call it after the partitions have got on with the image. One that has not been told yet who leads it now is
        followed when it has."""
        followed: dict[int, list[Partition]] = {}
        lagging: set[Partition] = set()
        for partition in not_led(self._partitions.replicas, self._partitions.by_id):
            if partition.following is not None:
                state = image.state(partition.place)
                is_current = state is not None and state.leader_epoch == partition.leader_epoch
                if state is not None and is_current and state.leader in image.brokers:
                    followed.setdefault(state.leader, []).extend(partition.tracks)
                    if self._node_id not in state.isr:
                        lagging.update(partition.tracks)
        for node, partitions in followed.items():
            broker = image.brokers[node]
            address = Address(broker.host, broker.port)
            fetcher = self._fetchers.get(node)
            if fetcher is None or fetcher.address != address:
                if fetcher is not None:
                    fetcher.stop()
                fetcher = self._fetchers[node] = _Fetcher(self, node, address)
            fetcher.link.follow(partitions, lagging)
            fetcher.wake()
        for node in [known for known in self._fetchers if known not in followed]:
            self._fetchers.pop(node).stop()

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

    def __init__(self, owner: Fetchers, node: int, address: Address) -> None:
        self._owner = owner
        self._node = node
        self.address = address
        self.link = Link(owner._node_id, throttle=owner.throttle)
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
