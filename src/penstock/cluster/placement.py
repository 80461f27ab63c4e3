"""Where replicas go: rendezvous hashing over failure domains. Pure.

Every broker has a score for every partition, which nothing but the two decides: so brokers that come and go change
little. The best score wins among those that the rules allow: first racks that have no replica of the partition, then
machines that have none, then brokers that have less than their share.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from penstock.cluster.image import Broker, ClusterImage, Place
from penstock.cluster.settings import CORDONED
from penstock.foundation.errors import InvalidReplicationFactor

Replicas = tuple[int, ...]
_SLACK: Final = 2
"""By so many replicas a broker may be ahead of its share, so that the last partitions still have a choice."""


def score(place: Place, node_id: int) -> int:
    """How much a broker is drawn to a partition: the same everywhere, and even over all of them."""
    key = b"%b/%d/%d" % (place.topic_id, place.number, node_id)
    return int.from_bytes(blake2b(key, digest_size=8).digest())


def closed_brokers(image: ClusterImage) -> frozenset[int]:
    """The brokers that are to get no replicas any more: they are drained, or cordoned (KIP-1066)."""
    cordoned = (node for node, configs in image.broker_configs.items() if node and configs.get(CORDONED, "").strip())
    return image.drained.union(map(int, cordoned))


def open_brokers(image: ClusterImage) -> list[Broker]:
    """The brokers that may get replicas: those that are there, and neither leave nor are closed."""
    closed = closed_brokers(image)
    return [broker for node, broker in sorted(image.brokers.items()) if not broker.leaving and node not in closed]


def awaited_brokers(image: ClusterImage, factor: int) -> list[int]:
    """The brokers that are away and are missed, if a partition is to have so many replicas: those that have some of
    others. None, if there are enough without them."""
    there = {broker.node_id for broker in open_brokers(image)}
    if len(there) >= factor:
        return []
    known = {node for _, state in image.placed() for node in state.replicas}
    return sorted(known - there - closed_brokers(image))


def crowding(replicas: Iterable[Broker]) -> tuple[int, int]:
    """How many replicas of a partition share a rack, and how many a machine. The less the better."""
    domains = [broker.failure_domain for broker in replicas]
    return len(domains) - len({rack for rack, _ in domains}), len(domains) - len(set(domains))


@dataclass(slots=True, kw_only=True)
class Spread:
    """Which brokers there are, and how much each has so far."""

    brokers: Mapping[int, Broker]
    replicas: Counter[int] = field(default_factory=Counter)
    leaders: Counter[int] = field(default_factory=Counter)
    share: float = 0.0
    """Replicas that each broker would have if all had the same."""

    def choose(self, place: Place, chosen: Sequence[Broker]) -> Broker | None:
        """The best broker for one more replica of a partition."""
        racks = Counter(broker.failure_domain[0] for broker in chosen)
        hosts = Counter(broker.failure_domain for broker in chosen)
        taken = {broker.node_id for broker in chosen}

        def rank(broker: Broker) -> tuple[bool, int, int, bool, bool, int]:
            rack, load = racks[broker.failure_domain[0]], self.replicas[broker.node_id]
            overfull, full = load >= self.share, load + 1 > self.share
            return rack > 0, hosts[broker.failure_domain], rack, overfull, full, -score(place, broker.node_id)

        return min((found for node, found in self.brokers.items() if node not in taken), key=rank, default=None)

    def lead_first(self, place: Place, replicas: Iterable[int]) -> Replicas:
        """The replicas in order: first whoever leads the least, then by score."""
        ranked = sorted(replicas, key=lambda node: -score(place, node))
        first = min(ranked, key=lambda node: self.leaders[node])
        return (first, *(node for node in ranked if node != first))

    def add(self, replicas: Replicas) -> None:
        self.replicas.update(replicas)
        self.leaders[replicas[0]] += 1


class Placer:
    """Places the new partitions of a topic, one after another. The same answers to the same questions.

    Partitions are placed one at a time: a topic may have ten thousand, and a transaction takes about a hundred.
    """

    def __init__(
        self, brokers: Iterable[Broker], topic_id: bytes, count: int, factor: int, beside: Iterable[Replicas] = ()
    ) -> None:
        """`beside`: the replicas of the partitions that the topic has already."""
        table = {broker.node_id: broker for broker in brokers}
        check_factor(factor, len(table))
        self._topic_id = topic_id
        self._factor = factor
        self._spread = Spread(brokers=table)
        for replicas in beside:
            self._spread.add(replicas)
        self._total = self._spread.replicas.total()
        self._share_at_last = (self._total + count * factor) / len(table)

    def place(self, number: int) -> Replicas:
        """Replicas for the next partition, the preferred leader first."""
        spread, factor = self._spread, self._factor
        place = Place(self._topic_id, number)
        spread.share = min(self._share_at_last, (self._total + factor) / len(spread.brokers) + _SLACK)
        chosen: list[Broker] = []
        while len(chosen) < factor:
            found = spread.choose(place, chosen)
            assert found is not None, "there are at least as many brokers as replicas"
            chosen.append(found)
        replicas = spread.lead_first(place, (broker.node_id for broker in chosen))
        spread.add(replicas)
        self._total += factor
        return replicas


def check_factor(factor: int, brokers: int) -> None:
    """Raises InvalidReplicationFactor if so many replicas cannot lie on so many brokers."""
    if factor < 1:
        raise InvalidReplicationFactor(f"a partition has at least 1 replica, asked for {factor}")
    if factor > brokers:
        raise InvalidReplicationFactor(f"{factor} replicas need {factor} brokers, there are {brokers}")


def place_replicas(
    brokers: Iterable[Broker], topic_id: bytes, numbers: Sequence[int], factor: int, beside: Iterable[Replicas] = ()
) -> dict[int, Replicas]:
    """Replicas for new partitions of a topic, the preferred leader first. The same answer to the same question.

    `beside`: those of the partitions that the topic has already.
    """
    placer = Placer(brokers, topic_id, len(numbers), factor, beside)
    return {number: placer.place(number) for number in numbers}
