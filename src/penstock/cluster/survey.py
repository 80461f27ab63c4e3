"""The cluster as a client can learn of it: an image to plan on, and how well it is. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.cluster_admin import BrokerInfo, Reassignment
from penstock.client.metadata import TopicInfo
from penstock.cluster.image import Broker, ClusterImage, PartitionState, Placed, Topic
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
    """What plans are made on. Versions and registrations are not in it: nothing can be written by it.

    `machines`: the machine of a broker, where it is another than its host's name tells. `closed`: brokers that are to
    get no replicas.
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
        move = reassignments.get(info.name)
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
    """What is not as it should be, and what is under way."""

    offline: tuple[Placed, ...]
    """Partitions that nobody leads."""
    under_min_isr: tuple[Placed, ...]
    """Partitions that take no message that is to be acknowledged by all: too few replicas are in sync."""
    under_replicated: tuple[Placed, ...]
    """Partitions that not all of their replicas are in sync with."""
    moving: tuple[Placed, ...]
    not_preferred: tuple[Placed, ...]
    """Partitions that another broker leads than the first of their replicas."""
    missing: tuple[int, ...]
    """Brokers that have replicas and are not there."""

    @property
    def is_good(self) -> bool:
        """Whether every message is where it should be, as often as it should be. Moving is no illness."""
        return not (self.offline or self.under_min_isr or self.under_replicated or self.missing)


def examine(image: ClusterImage, min_isrs: Mapping[str, int]) -> Health:
    """How the cluster is. `min_isrs`: min.insync.replicas of topics, by name."""
    placed = list(image.placed())
    names = {topic_id: topic.name for topic_id, topic in image.topics.items()}
    holders = {node for _, state in placed for node in state.replicas}
    return Health(
        offline=tuple(image.offline()),
        under_min_isr=tuple(
            (place, state)
            for place, state in placed
            # Of fewer replicas than are wanted, all must be in sync (KIP-966).
            if len(state.isr) < min(min_isrs.get(names[place.topic_id], 1), len(state.replicas))
        ),
        under_replicated=tuple(image.under_replicated()),
        moving=tuple(image.placed(lambda state: state.is_reassigned)),
        not_preferred=tuple(plan_leaders(image)),
        missing=tuple(sorted(holders - image.brokers.keys())),
    )
