"""Computes cluster health, and a metadata image to plan reassignments with, from data that clients query. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.cluster_admin import BrokerInfo, Reassignment
from penstock.client.metadata import TopicInfo
from penstock.cluster.image import Broker, ClusterImage, PartitionEntry, PartitionState, Topic
from penstock.cluster.rebalance_plans import plan_leaders
from penstock.foundation.ids import TopicPartition

MIN_ISR: Final = "min.insync.replicas"


def image_of(
    brokers: Iterable[BrokerInfo],
    topics: Iterable[TopicInfo],
    reassignments: Mapping[TopicPartition, Reassignment],
    *,
    machines: Mapping[int, str] | None = None,
    closed: Iterable[int] = (),
) -> ClusterImage:
    """Builds a metadata image for planning reassignments. Without store versions, it cannot be used for writes.

    `machines`: the machine of a broker, if it differs from its host name. `closed`: brokers that must get no
    replicas.
    """
    named = machines or {}
    made = [_topic(topic, reassignments) for topic in topics]
    return ClusterImage(
        brokers={
            known.node_id: Broker(
                node_id=known.node_id,
                host=known.host,
                port=known.port,
                rack=known.rack,
                host_id=named.get(known.node_id) or known.host,
            )
            for known in brokers
        },
        drained=frozenset(closed),
        topics={topic.topic_id: topic for topic in made},
        by_name={topic.name: topic for topic in made},
    )


def _topic(topic: TopicInfo, reassignments: Mapping[TopicPartition, Reassignment]) -> Topic:
    partitions = {}
    for number, info in sorted(topic.partitions.items()):
        move = reassignments.get(info.tp)
        partitions[number] = PartitionState(
            replicas=info.replicas if move is None else move.replicas,
            leader=info.leader,
            leader_epoch=info.leader_epoch,
            isr=info.isr,
            adding=() if move is None else move.adding,
            removing=() if move is None else move.removing,
        )
    return Topic(topic_id=topic.topic_id, name=topic.name, partitions=partitions, count=len(partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Problems of the cluster, and reassignments in progress."""

    offline: tuple[PartitionEntry, ...]
    """Partitions that have no leader, or whose leader is not registered."""
    under_min_isr: tuple[PartitionEntry, ...]
    """Partitions below min.insync.replicas, which refuse writes with acks=all."""
    under_replicated: tuple[PartitionEntry, ...]
    """Partitions with replicas that are not in sync."""
    moving: tuple[PartitionEntry, ...]
    not_preferred: tuple[PartitionEntry, ...]
    """Partitions whose preferred leader could lead, but does not."""
    missing: tuple[int, ...]
    """Offline brokers that have replicas."""

    @property
    def is_good(self) -> bool:
        """Whether all partitions have a leader and are fully replicated. Reassignments in progress are no problem."""
        return not (self.offline or self.under_min_isr or self.under_replicated or self.missing)


def examine(image: ClusterImage, min_isrs: Mapping[str, int]) -> Health:
    """Returns the health of the cluster. `min_isrs`: min.insync.replicas of topics, by name."""
    placed = list(image.find_partitions())
    names = {topic_id: topic.name for topic_id, topic in image.topics.items()}
    holders = {node for _, state in placed for node in state.replicas}
    return Health(
        offline=tuple(image.offline()),
        under_min_isr=tuple(
            (tp, state)
            for tp, state in placed
            # With fewer replicas than min.insync.replicas, all must be in sync (KIP-966).
            if len(state.isr) < min(min_isrs.get(names[tp.topic_id], 1), len(state.replicas))
        ),
        under_replicated=tuple(image.under_replicated()),
        moving=tuple(image.find_partitions(lambda state: state.is_reassigned)),
        not_preferred=tuple(plan_leaders(image)),
        missing=tuple(sorted(holders - image.brokers.keys())),
    )
