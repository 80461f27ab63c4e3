"""Replica placement: rendezvous hashing over failure domains (racks and machines). Pure.

The score of a broker for a partition does not depend on other brokers, so adding or removing brokers moves few
replicas. The best score wins among the brokers that the rules prefer: first racks without a replica of the partition,
then machines without a replica, then brokers with less than their share of replicas.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from penstock.cluster.image import Broker, ClusterImage
from penstock.cluster.settings import CORDONED
from penstock.foundation.errors import InvalidReplicationFactor
from penstock.foundation.ids import TopicIdPartition

Replicas = tuple[int, ...]
_SLACK: Final = 2
"""Number of replicas by which a broker may exceed its share, so that the last partitions have several candidates."""


def score(tp: TopicIdPartition, node_id: int) -> int:
    """Returns the rendezvous hash of a broker for a partition: the same in every process, and evenly distributed."""
    key = b"%b/%d/%d" % (tp.topic_id, tp.partition, node_id)
    return int.from_bytes(blake2b(key, digest_size=8).digest())


def closed_brokers(image: ClusterImage) -> frozenset[int]:
    """Returns the brokers that must get no new replicas: drained or cordoned (KIP-1066)."""
    cordoned = (node for node, configs in image.broker_configs.items() if node and configs.get(CORDONED, "").strip())
    return image.drained.union(map(int, cordoned))


def open_brokers(image: ClusterImage) -> list[Broker]:
    """Returns the brokers that may get replicas: registered, and neither shutting down, drained nor cordoned."""
    closed = closed_brokers(image)
    return [broker for node, broker in sorted(image.brokers.items()) if not broker.leaving and node not in closed]


def awaited_brokers(image: ClusterImage, factor: int) -> list[int]:
    """Returns the unavailable brokers with replicas, which may come back; empty if `factor` brokers are available."""
    there = {broker.node_id for broker in open_brokers(image)}
    if len(there) >= factor:
        return []
    known = {node for _, state in image.find_partitions() for node in state.replicas}
    return sorted(known - there - closed_brokers(image))


def crowding(replicas: Iterable[Broker]) -> tuple[int, int]:
    """Returns how badly a partition's replicas are spread: the number of replicas minus that of distinct racks,
    and minus that of distinct machines. Lower is better."""
    domains = [broker.failure_domain for broker in replicas]
    return len(domains) - len({rack for rack, _ in domains}), len(domains) - len(set(domains))


@dataclass(slots=True, kw_only=True)
class Spread:
    """The brokers that may get replicas, and the number of replicas and leaders on each."""

    brokers: Mapping[int, Broker]
    replicas: Counter[int] = field(default_factory=Counter)
    leaders: Counter[int] = field(default_factory=Counter)
    share: float = 0.0
    """Number of replicas per broker if all brokers had the same number."""

    def choose(self, tp: TopicIdPartition, chosen: Sequence[Broker]) -> Broker | None:
        """Returns the best broker for one more replica beside those on `chosen`; None if no other broker is left."""
        racks = Counter(broker.failure_domain[0] for broker in chosen)
        hosts = Counter(broker.failure_domain for broker in chosen)
        taken = {broker.node_id for broker in chosen}

        def rank(broker: Broker) -> tuple[bool, int, int, bool, bool, int]:
            rack, load = racks[broker.failure_domain[0]], self.replicas[broker.node_id]
            overfull, full = load >= self.share, load + 1 > self.share
            return rack > 0, hosts[broker.failure_domain], rack, overfull, full, -score(tp, broker.node_id)

        return min((found for node, found in self.brokers.items() if node not in taken), key=rank, default=None)

    def order_replicas(self, tp: TopicIdPartition, replicas: Iterable[int]) -> Replicas:
        """Returns the replicas: first the one that leads the fewest partitions, the others by rendezvous hash."""
        ranked = sorted(replicas, key=lambda node: -score(tp, node))
        first = min(ranked, key=lambda node: self.leaders[node])
        return (first, *(node for node in ranked if node != first))

    def add(self, replicas: Replicas) -> None:
        self.replicas.update(replicas)
        self.leaders[replicas[0]] += 1


class Placer:
    """Chooses the replicas of a topic's new partitions, one partition after another. Deterministic."""

    def __init__(
        self, brokers: Iterable[Broker], topic_id: bytes, count: int, factor: int, existing: Iterable[Replicas] = ()
    ) -> None:
        """`existing`: the replicas of the existing partitions of the topic."""
        table = {broker.node_id: broker for broker in brokers}
        check_factor(factor, len(table))
        self._topic_id = topic_id
        self._factor = factor
        self._spread = Spread(brokers=table)
        for replicas in existing:
            self._spread.add(replicas)
        self._total = self._spread.replicas.total()
        self._share_at_last = (self._total + count * factor) / len(table)

    def place(self, number: int) -> Replicas:
        """Returns the replicas of the next partition, the preferred leader first. `number`: the partition index."""
        spread, factor = self._spread, self._factor
        tp = TopicIdPartition(self._topic_id, number)
        spread.share = min(self._share_at_last, (self._total + factor) / len(spread.brokers) + _SLACK)
        chosen: list[Broker] = []
        while len(chosen) < factor:
            found = spread.choose(tp, chosen)
            assert found is not None, "there are at least as many brokers as replicas"
            chosen.append(found)
        replicas = spread.order_replicas(tp, (broker.node_id for broker in chosen))
        spread.add(replicas)
        self._total += factor
        return replicas


def check_factor(factor: int, brokers: int) -> None:
    """Raises InvalidReplicationFactor unless `factor` replicas can be placed on this number of brokers."""
    if factor < 1:
        raise InvalidReplicationFactor(f"the replication factor must be at least 1, got {factor}")
    if factor > brokers:
        raise InvalidReplicationFactor(f"{factor} replicas need {factor} brokers, but {brokers} are available")


def place_replicas(
    brokers: Iterable[Broker], topic_id: bytes, numbers: Sequence[int], factor: int, existing: Iterable[Replicas] = ()
) -> dict[int, Replicas]:
    """Returns the replicas of new partitions by partition index, the preferred leader first. Deterministic.

    `existing`: the replicas of the existing partitions of the topic.
    """
    placer = Placer(brokers, topic_id, len(numbers), factor, existing)
    return {number: placer.place(number) for number in numbers}
