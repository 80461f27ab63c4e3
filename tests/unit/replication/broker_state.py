"""A broker's partitions without a network: real logs, a real store, a clock that is moved by the test."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.metadata import Metadata
from penstock.cluster.topic_changes import Defaults, NewTopic, plan_companion, plan_configure, plan_delete
from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.store import ABSENT, Op, Put, StoreUnavailable
from penstock.foundation.ids import INTERNAL_TOPICS
from penstock.log.disk import Disk, OsDisk
from penstock.log.settings import LogSettings
from penstock.replication.disk_threads import DiskThreads
from penstock.replication.flusher import Flusher
from penstock.replication.maintenance import Intervals, Maintenance
from penstock.replication.partition import Partition
from penstock.replication.partition_waits import close_logs, open_logs, wait_until_settled, wait_until_topic_settled
from penstock.replication.partitions import Partitions
from tests.simulation.clock import FakeClock
from tests.unit.cluster.topic_plans import plan_create, plan_grow

NODE = 1
DEFAULTS = Defaults(partitions=1, replication_factor=1, partitions_max=100)


def settings_of(topic: Topic) -> LogSettings:
    return LogSettings.of(topic.configs)


class FlakyStore(EmbeddedStore):
    """A store that can be made unavailable."""

    is_down = False

    async def transact(self, ops: Sequence[Op]) -> int:
        if self.is_down:
            raise StoreUnavailable("the store does not answer")
        return await super().transact(ops)


class World:
    """One broker; its data folder outlives it."""

    def __init__(self, store: FlakyStore, metadata: Metadata, disk: Disk, boot_id: str) -> None:
        self.store = store
        self.clock = FakeClock()
        self.ticked = asyncio.Event()
        self.metadata = metadata
        self.threads = ThreadPoolExecutor(2)
        self.disk_threads = DiskThreads(2)
        self.flusher = Flusher()
        self.partitions = Partitions(
            node_id=NODE,
            disk=disk,
            clock=self.clock,
            boot_id=boot_id,
            settings_of=settings_of,
            run=self.disk_threads.run,
            soon=asyncio.get_running_loop().call_soon,
        )
        metadata.wait_settled = partial(wait_until_topic_settled, self.partitions)
        self.partitions.on_append = self.flusher.flush_soon
        self.intervals = Intervals(
            first_retention_ms=1000,
            retention_ms=1000,
            compaction_ms=1000,
            producer_expiry_ms=60_000,
            compaction_keys_max=1000,
        )
        self.maintenance = Maintenance(
            partitions=self.partitions,
            metadata=metadata,
            flusher=self.flusher,
            clock=self.clock,
            disk_threads=self.disk_threads,
            intervals=self._intervals,
        )

    def _intervals(self) -> Intervals:
        self.ticked.set()
        return self.intervals

    async def create(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """Make a topic; its id."""
        topic_id = (len(self.metadata.image.versions) + self.metadata.image.revision + 1).to_bytes(16, "big")
        values = {key.replace("_", "."): str(value) for key, value in configs.items()}
        if name in INTERNAL_TOPICS:
            values.setdefault("cleanup.policy", "compact")
        wanted = NewTopic(name=name, partitions=partitions, configs=values)
        await self.metadata.change(lambda image: plan_create(image, wanted, topic_id, DEFAULTS))
        await self.rest()
        return topic_id

    async def delete(self, name: str) -> None:
        await self.metadata.change(lambda image: deletion_of(image, name))
        await self.rest()
        await self.disk_threads.idle()

    async def configure(self, name: str, **configs: object) -> None:
        values = {key.replace("_", "."): str(value) for key, value in configs.items()}
        await self.metadata.change(lambda image: plan_configure(image.by_name[name], values))
        await self.rest()

    async def grow(self, name: str, count: int) -> None:
        await self.metadata.change(lambda image: plan_grow(image, image.by_name[name], count, None, DEFAULTS))
        await self.rest()

    async def drop_companion(self, topic_id: bytes) -> None:
        await self.metadata.change(lambda image: plan_companion(image.topics[topic_id], b""))

    def tell_others(self) -> None:
        """As a node does: what depends on the partitions is updated after them."""
        for listener in self.metadata.listeners[1:]:
            listener(self.metadata.image)

    async def rest(self) -> None:
        """Return when the partitions are as the image says."""
        await wait_until_settled(self.partitions)

    def partition(self, name: str, number: int = 0) -> Partition:
        found = self.partitions.find(name, number)
        assert found is not None
        return found


def deletion_of(image: ClusterImage, name: str) -> list[Op]:
    return plan_delete(image.by_name[name], image.versions[keys.topic_name(name)])


def registration(image: ClusterImage) -> list[Op]:
    value = keys.encode({"host": "h", "port": 1})
    return [Put(keys.broker(NODE), value, image.versions.get(keys.broker(NODE), ABSENT))]


@asynccontextmanager
async def world_at(folder: Path, disk: Disk | None = None, boot_id: str = "boot-1") -> AsyncIterator[World]:
    """A broker that starts, and is stopped properly unless its partitions were closed already."""
    store = FlakyStore(folder / "metadata.db")
    await store.open()
    metadata = Metadata(store)
    await metadata.start()
    await metadata.change(registration)
    world = World(store, metadata, disk or OsDisk(folder), boot_id)
    metadata.listeners.append(world.partitions.apply)
    world.partitions.on_progress = world.tell_others
    await open_logs(world.partitions, metadata.image)
    try:
        yield world
    finally:
        await world.maintenance.close()
        await world.disk_threads.idle()
        await close_logs(world.partitions)
        await store.close()
        world.disk_threads.shutdown()
        world.threads.shutdown()
