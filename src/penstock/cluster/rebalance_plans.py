"""Reassignment plans for operators: rebalance replicas, drain a broker, change the replication factor. Pure.

A plan lists target replicas and moves as few replicas as possible; reassignment.py executes the plan.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from penstock.cluster.elections import is_imbalanced
from penstock.cluster.image import Broker, ClusterImage, PartitionEntry, Topic
from penstock.cluster.placement import Replicas, Spread, closed_brokers, crowding, open_brokers, score
from penstock.cluster.reassignment import target_replicas
from penstock.foundation.errors import InvalidReplicationFactor
from penstock.foundation.ids import TopicIdPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The planned change of a partition's replicas, or only of their order."""

    tp: TopicIdPartition
    topic: str
    before: Replicas
    after: Replicas

    @property
    def copies(self) -> int:
        """Number of replicas that the move copies over the network."""
        return len(set(self.after) - set(self.before))


def plan_leaders(image: ClusterImage) -> list[PartitionEntry]:
    """Returns the partitions whose preferred leader could lead, but does not."""
    return [(tp, state) for tp, state in image.find_partitions() if is_imbalanced(tp, state, image.brokers)]


def throttled_replicas(moves: Iterable[Move]) -> dict[str, tuple[str, str]]:
    """Returns by topic the values of `leader.replication.throttled.replicas` and
    `follower.replication.throttled.replicas` for these moves (KIP-73)."""
    senders: dict[str, list[str]] = {}
    getters: dict[str, list[str]] = {}
    for move in moves:
        if move.copies:
            number, new = move.tp.partition, [node for node in move.after if node not in move.before]
            senders.setdefault(move.topic, []).extend(f"{number}:{node}" for node in move.before)
            getters.setdefault(move.topic, []).extend(f"{number}:{node}" for node in new)
    return {topic: (",".join(senders[topic]), ",".join(getters[topic])) for topic in senders}


def plan_rebalance(image: ClusterImage) -> list[Move]:
    """Returns the moves, as few as possible, that give all brokers their share of replicas and leaders."""
    layout = _Layout(image)
    layout.separate_replicas()
    layout.balance()
    layout.balance_leaders()
    return list(layout.moves())


def plan_drain(image: ClusterImage, node_id: int) -> list[Move]:
    """Returns the moves that take all replicas off a broker, which may be offline."""
    layout = _Layout(image, without=node_id)
    layout.evacuate(node_id)
    layout.balance_leaders()
    return list(layout.moves(lambda move: node_id in move.before))


def plan_replication(image: ClusterImage, topics: Iterable[Topic], factor: int) -> list[Move]:
    """Returns the moves that give every partition of these topics this number of replicas."""
    layout = _Layout(image)
    if not 1 <= factor <= len(layout.spread.brokers):
        there = len(layout.spread.brokers)
        raise InvalidReplicationFactor(
            f"{factor} replicas need {factor} brokers that accept replicas, but there are {there}"
        )
    wanted = {topic.topic_id for topic in topics}
    for tp in [tp for tp in layout.replicas if tp.topic_id in wanted]:
        layout.resize(tp, factor)
    return list(layout.moves())


class _Layout:
    """The replicas of all partitions, before and after the planned moves."""

    def __init__(self, image: ClusterImage, without: int | None = None) -> None:
        self._image = image
        self._closed = closed_brokers(image)
        self._before = {tp: target_replicas(state) for tp, state in image.find_partitions()}
        self.replicas = dict(self._before)
        table = {broker.node_id: broker for broker in open_brokers(image) if broker.node_id != without}
        self.spread = Spread(brokers=table)
        for replicas in self.replicas.values():
            self.spread.add(replicas)
        # An offline broker keeps its replicas, and has a share.
        self._sharers = (table.keys() | self.spread.replicas.keys()) - self._closed - {without}
        self.spread.share = self.spread.replicas.total() / max(1, len(self._sharers))

    def moves(self, which: Callable[[Move], bool] = lambda _: True) -> Iterator[Move]:
        for tp, after in self.replicas.items():
            before = self._before[tp]
            move = Move(tp=tp, topic=self._image.topics[tp.topic_id].name, before=before, after=after)
            if before != after and which(move):
                yield move

    def _broker(self, node_id: int) -> Broker:
        """Returns a broker by node id; an offline broker has neither rack nor machine."""
        return self._image.brokers.get(node_id) or Broker(node_id=node_id, host="", port=0)

    def _set(self, tp: TopicIdPartition, replicas: Replicas) -> None:
        before = self.replicas[tp]
        self.spread.replicas.subtract(before)
        self.spread.leaders[before[0]] -= 1
        self.replicas[tp] = replicas
        self.spread.add(replicas)

    def _swap(self, tp: TopicIdPartition, old: int, new: int) -> None:
        self._set(tp, tuple(new if node == old else node for node in self.replicas[tp]))

    def _others(self, tp: TopicIdPartition, without: int) -> list[Broker]:
        return [self._broker(node) for node in self.replicas[tp] if node != without]

    def evacuate(self, node_id: int) -> None:
        """Moves all replicas off a broker. Raises InvalidReplicationFactor if there are too few other brokers."""
        for tp in [tp for tp, replicas in self.replicas.items() if node_id in replicas]:
            found = self.spread.choose(tp, self._others(tp, node_id))
            if found is None:
                name, factor = self._image.topics[tp.topic_id].name, len(self.replicas[tp])
                raise InvalidReplicationFactor(
                    f"broker {node_id} cannot be drained: topic {name!r} has {factor} replicas, but there are "
                    f"{len(self.spread.brokers)} other brokers; add one, or lower the replication factor"
                )
            self._swap(tp, node_id, found.node_id)

    def resize(self, tp: TopicIdPartition, factor: int) -> None:
        """Adds replicas on the best brokers (`Spread.choose`), or drops the worst replicas (`_without_worst`),
        until there are `factor`."""
        replicas = self.replicas[tp]
        while len(replicas) < factor:
            found = self.spread.choose(tp, [self._broker(node) for node in replicas])
            assert found is not None, "there are at least as many brokers as replicas"
            replicas += (found.node_id,)
        while len(replicas) > factor:
            replicas = self._without_worst(tp, replicas)
        if replicas != self.replicas[tp]:
            self._set(tp, replicas)

    def _without_worst(self, tp: TopicIdPartition, replicas: Replicas) -> Replicas:
        """Returns the replicas without the worst. Offline or drained brokers are worst, then replicas out of sync."""
        isr = self._image.topics[tp.topic_id].partitions[tp.partition].isr

        def rank(dropped: int) -> tuple[bool, bool, bool, tuple[int, int], int, int]:
            rest = (node for node in replicas if node != dropped)
            is_first, is_there, is_in_sync = dropped == replicas[0], dropped in self.spread.brokers, dropped in isr
            crowding_left, load = self._crowding(rest), self.spread.replicas[dropped]
            return is_there, is_in_sync, is_first, crowding_left, -load, dropped

        worst = min(replicas, key=rank)
        return tuple(node for node in replicas if node != worst)

    def _crowding(self, replicas: Iterable[int]) -> tuple[int, int]:
        return crowding(self._broker(node) for node in replicas)

    def separate_replicas(self) -> None:
        """Moves replicas of a partition that share a rack or machine unnecessarily; evacuates drained brokers."""
        for node_id in sorted(self._closed):
            self.evacuate(node_id)
        domains = {broker.failure_domain for broker in self.spread.brokers.values()}
        racks = {rack for rack, _ in domains}
        for tp, replicas in self.replicas.items():
            factor = len(replicas)
            best = factor - min(factor, len(racks)), factor - min(factor, len(domains))
            if self._crowding(replicas) > best:
                self._separate(tp)

    def _separate(self, tp: TopicIdPartition) -> None:
        """Moves replicas of one partition that share a rack or machine."""
        for old in reversed(self.replicas[tp]):
            replicas = self.replicas[tp]
            found = self.spread.choose(tp, self._others(tp, old))
            if found is not None and found.node_id != old:
                after = tuple(found.node_id if node == old else node for node in replicas)
                if self._crowding(after) < self._crowding(replicas):
                    self._set(tp, after)

    def balance(self) -> None:
        """Moves replicas from the fullest brokers to brokers with fewer than their share, the average number.

        Takes them first from brokers above their share; then from any with at least two replicas more than the
        target.
        """
        for least in (self.spread.share, 0.0):
            while self._balance_above(least):
                pass

    def _balance_above(self, least: float) -> bool:
        """Moves replicas from brokers with over `least` replicas to brokers below their share; True if any moved."""
        share, loads, moved = self.spread.share, self.spread.replicas, False
        for node_id in sorted(self.spread.brokers, key=lambda node: (loads[node], node)):
            for tp in self._by_score(node_id) if loads[node_id] + 1 <= share else ():
                if loads[node_id] + 1 > share:
                    break
                moved |= self._take_replica(tp, node_id, least)
        return moved

    def _by_score(self, node_id: int) -> list[TopicIdPartition]:
        missing = [tp for tp, replicas in self.replicas.items() if node_id not in replicas]
        return sorted(missing, key=lambda tp: -score(tp, node_id))

    def _take_replica(self, tp: TopicIdPartition, node_id: int, least: float) -> bool:
        """Moves a replica of `tp` from a broker with over `least` replicas to `node_id`. Returns whether it did."""
        loads, replicas = self.spread.replicas, self.replicas[tp]
        for old in sorted(replicas, key=lambda node: (-loads[node], node)):
            if old not in self.spread.brokers or loads[old] <= max(least, loads[node_id] + 1):
                continue
            after = tuple(node_id if node == old else node for node in replicas)
            if self._crowding(after) <= self._crowding(replicas):
                self._set(tp, after)
                return True
        return False

    def balance_leaders(self) -> None:
        """Reorders the replicas of partitions so that no broker is preferred leader of more than its share."""
        while self._balance_leaders_once():
            pass

    def _balance_leaders_once(self) -> bool:
        """Runs one round of `balance_leaders`; returns whether the preferred leader of a partition changed."""
        leaders, changed = self.spread.leaders, False
        for tp, replicas in self.replicas.items():
            first = replicas[0]
            others = [node for node in replicas if node in self.spread.brokers and node != first]
            best = min(others, key=lambda node: (leaders[node], -score(tp, node)), default=None)
            if best is not None and (first not in self._sharers or leaders[best] + 1 < leaders[first]):
                self._set(tp, (best, *(node for node in replicas if node != best)))
                changed = True
        return changed
