"""Brokers of one cluster in one process: registered, with a controller. Nothing else of them runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.cluster import keys
from penstock.cluster.administration import create_topic
from penstock.cluster.controller_task import ControllerTask
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.membership import Membership
from penstock.cluster.metadata import Metadata
from penstock.cluster.registration import Identity
from penstock.cluster.topic_changes import Defaults, NewTopic
from penstock.coordination.store import Put
from penstock.foundation.clock import SystemClock
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition

from .sessions import Server, SessionStore

DEFAULTS = Defaults(partitions=1, replication_factor=1, partitions_max=1000)
PATIENCE_S = 30.0


def nothing_is_lost(topic: Topic, number: int) -> bool:
    return False


class Node:
    """One process of a broker: registered, and perhaps the controller."""

    def __init__(self, server: Server, node_id: int, folder: str = "", cluster_id: str = "", **about: object) -> None:
        self.store: SessionStore = server.session()
        self.metadata = Metadata(self.store)
        self.epochs: list[int] = []
        self.refusals: list[PenstockError] = []
        self.clusters: list[str] = []
        self.refused = asyncio.Event()
        self.registered = asyncio.Event()
        identity = Identity(
            node_id=node_id,
            host=f"host-{node_id}",
            port=9092,
            folder=folder or f"folder-{node_id}",
            cluster_id=cluster_id,
        )
        self.membership = Membership(
            store=self.store,
            metadata=self.metadata,
            identity=identity,
            is_lost=about.get("is_lost", nothing_is_lost),  # type: ignore[arg-type]
            may_lack=about.get("may_lack", lambda topic, number: False),  # type: ignore[arg-type]
            note_cluster=self._note_cluster,
            on_registered=self._registered,
            on_refused=self._refuse,
        )
        self.controlling = ControllerTask(
            node_id=node_id,
            store=self.store,
            metadata=self.metadata,
            clock=SystemClock(),
            is_unclean=lambda topic: False,
        )
        self._task: asyncio.Task[None] | None = None

    async def _note_cluster(self, cluster_id: str) -> None:
        self.clusters.append(cluster_id)

    def _registered(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.registered.set()

    def _refuse(self, error: PenstockError) -> None:
        self.refusals.append(error)
        self.refused.set()

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    async def start(self) -> "Node":
        await self.metadata.start()
        await self.membership.prepare()
        await self.membership.join()
        self._task = asyncio.create_task(self.controlling.run())
        return self

    async def until(self, condition: Callable[[ClusterImage], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.metadata.until(condition)

    async def kill(self) -> None:
        """Its process is gone; its session goes on."""
        self.store.die()
        await self._end()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.membership.close()
        await self.metadata.close()

    async def stop(self) -> None:
        await self._end()
        await self.store.close()

    async def create(self, name: str, topic_id: bytes = b"\7" * 16, **wanted: object) -> TopicIdPartition:
        await create_topic(self.metadata, NewTopic(name=name, **wanted), topic_id, DEFAULTS)  # type: ignore[arg-type]
        return TopicIdPartition(topic_id, 0)

    async def set_isr(self, place: TopicIdPartition, *isr: int) -> None:
        """What the leader does."""

        def plan(image: ClusterImage) -> list[Put]:
            state = image.topics[place.topic_id].partitions[place.partition]
            value = keys.decode(state.dump()) | {"isr": isr}
            return [Put(keys.partition(*place), keys.encode(value), state.version)]

        await self.metadata.change(plan)


@asynccontextmanager
async def cluster(*node_ids: int) -> AsyncIterator[list[Node]]:
    server = Server()
    nodes = [await Node(server, node_id).start() for node_id in node_ids]
    try:
        yield nodes
    finally:
        for node in nodes:
            await node.stop()


def led(image: ClusterImage, place: TopicIdPartition) -> bool:
    """Whether a partition has a leader that is registered."""
    state = image.state(place)
    return (
        state is not None
        and state.leader in image.brokers
        and image.brokers[state.leader].epoch == state.leader_broker_epoch
    )
