"""A snapshot of a cluster for `penstock cluster` commands: metadata image, reassignments, unreachable brokers."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.client.address import Address
from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import BrokerInfo, ClusterAdmin, ClusterDescription, Reassignment
from penstock.client.configs import Resource
from penstock.client.connection import ADVICE, ConnectionSettings, open_connection
from penstock.client.errors import ConnectionFailed, refusal
from penstock.client.metadata import TopicInfo
from penstock.cluster.image import ClusterImage, PartitionEntry, Topic
from penstock.cluster.settings import CORDONED
from penstock.cluster.survey import MIN_ISR, Health, examine, image_of
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicIdPartition, TopicPartition
from penstock.foundation.view_names import VIEW_OF

HOST_ID: Final = "broker.host.id"
ANSWER_S: Final = 5.0
"""Seconds after which a broker that has not answered is reported as unreachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A snapshot of a cluster: its metadata image, its controller, and its unreachable brokers."""

    admin: ClusterAdmin
    cluster_id: str
    controller: int
    image: ClusterImage
    unreachable: Mapping[int, str] = field(default_factory=dict)
    """Id of each unreachable broker, and the reason. A dead broker stays registered until its session expires."""

    @property
    def node_ids(self) -> list[int]:
        """Sorted ids of all registered brokers, and of unregistered brokers that still have replicas."""
        holders = {node for _, state in self.image.find_partitions() for node in state.replicas}
        return sorted(self.image.brokers.keys() | holders)

    def state_of(self, node_id: int) -> str:
        if node_id not in self.image.brokers:
            return "missing"
        if node_id in self.unreachable:
            return "unreachable"
        if node_id in self.image.drained:
            return "drained"
        return "controller" if node_id == self.controller else "up"

    def name(self, tp: TopicIdPartition) -> TopicPartition:
        return TopicPartition(self.image.topics[tp.topic_id].name, tp.partition)

    def topic(self, name: str) -> Topic:
        found = self.image.by_name.get(name)
        if found is None:
            raise refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                name,
                f"there is no topic {name!r}; `penstock topic list --internal` lists them",
            )
        return found

    def resolve(self, name: TopicPartition) -> TopicIdPartition:
        topic = self.topic(name.topic)
        if name.partition not in topic.partitions:
            raise refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                str(name),
                f"topic {name.topic!r} has {len(topic.partitions)} partitions; {name.partition} does not exist",
            )
        return TopicIdPartition(topic.topic_id, name.partition)

    def led_by_unreachable(self) -> list[PartitionEntry]:
        """Returns partitions whose leader in the metadata is an unreachable broker."""
        return [placed for placed in self.image.find_partitions() if placed[1].leader in self.unreachable]

    async def examine(self) -> Health:
        found = await self.admin.configs(Resource.TOPIC, self.image.by_name, [MIN_ISR])
        return examine(self.image, {topic: int(values.get(MIN_ISR) or 1) for topic, values in found.items()})

    def progress(self, placed: PartitionEntry, sizes: Mapping[int, Mapping[TopicPartition, int]]) -> float | None:
        """Returns the fraction, from 0 to 1, of a partition's bytes that its new replicas have copied; None if the
        leader's size is unknown or the partition gets no new replica."""
        tp, state = placed
        name = self.name(tp)
        whole = sizes.get(state.leader, {}).get(name)
        if whole is None or not state.adding:
            return None
        if whole == 0:
            return 1.0
        have = sum(min(whole, sizes.get(node, {}).get(name, 0)) for node in state.adding)
        return have / (whole * len(state.adding))


async def _without_views(admin: ClusterAdmin, topics: list[TopicInfo]) -> list[TopicInfo]:
    """Returns the topics except views (filtered virtual topics), which have no replicas of their own."""
    found = await admin.configs(Resource.TOPIC, [topic.name for topic in topics], [VIEW_OF])
    return [topic for topic in topics if not found.get(topic.name, {}).get(VIEW_OF)]


async def survey(client: KafkaClient) -> Survey:
    """Returns a snapshot of the cluster. If the controller does not answer, waits for a new controller."""
    admin = ClusterAdmin(client)
    cluster = await admin.describe()
    return await _survey(client, cluster, await admin.reassignments(), {})


async def survey_now(client: KafkaClient) -> Survey:
    """Returns a snapshot of the cluster that includes unreachable brokers; waits at most 5 s for each broker."""
    admin = ClusterAdmin(client)
    cluster = await admin.describe()
    unreachable = await _find_unreachable(cluster.brokers.values(), client.settings.connection)
    moves: dict[TopicPartition, Reassignment] = {}
    if cluster.controller not in unreachable:
        try:
            async with asyncio.timeout(ANSWER_S):
                moves = await admin.reassignments()
        except TimeoutError:
            unreachable[cluster.controller] = f"no answer within {ANSWER_S:g} s"
    return await _survey(client, cluster, moves, unreachable)


async def _survey(
    client: KafkaClient,
    cluster: ClusterDescription,
    moves: Mapping[TopicPartition, Reassignment],
    unreachable: Mapping[int, str],
) -> Survey:
    admin = ClusterAdmin(client)
    topics = await _without_views(admin, await Admin(client).topics())
    asked = [str(node_id) for node_id in cluster.brokers if node_id not in unreachable]
    own = await admin.configs(Resource.BROKER, asked, [HOST_ID, CORDONED])
    return Survey(
        admin=admin,
        cluster_id=cluster.cluster_id,
        controller=cluster.controller,
        image=image_of(
            cluster.brokers.values(),
            topics,
            moves,
            machines={int(node): values.get(HOST_ID) or "" for node, values in own.items()},
            closed=[int(node) for node, values in own.items() if values.get(CORDONED)],
        ),
        unreachable=unreachable,
    )


async def _find_unreachable(brokers: Iterable[BrokerInfo], settings: ConnectionSettings) -> dict[int, str]:
    """Connects to all brokers concurrently; returns the id of each unreachable broker, and the reason."""

    async def ask(broker: BrokerInfo) -> str | None:
        try:
            connection = await open_connection(
                Address(broker.host, broker.port), replace(settings, connect_timeout_s=ANSWER_S)
            )
        except ConnectionFailed as error:
            return str(error).removesuffix(f"; {ADVICE}")
        await connection.close()
        return None

    asked = list(brokers)
    reasons = await asyncio.gather(*map(ask, asked))
    return {broker.node_id: reason for broker, reason in zip(asked, reasons, strict=True) if reason is not None}
