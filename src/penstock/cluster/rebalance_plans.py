"""Plans for operators: spread the load again, empty a broker, change how many replicas there are. Pure.

A plan says where each partition should lie; nothing moves before somebody asks for it (reassignment.py). What lies
well is left alone: a plan moves what a new broker lacks, or what one that goes has, and no more.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from penstock.cluster.elections import prefers_another
from penstock.cluster.image import Broker, ClusterImage, Place, Placed, Topic
from penstock.cluster.placement import Replicas, Spread, closed_brokers, crowding, open_brokers, score
from penstock.cluster.reassignment import target_of
from penstock.foundation.errors import InvalidReplicationFactor


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition whose replicas should be others, or in another order."""

    place: Place
    topic: str
    before: Replicas
    after: Replicas

    @property
    def copies(self) -> int:
        """How many replicas must be copied over the network."""
        return len(set(self.after) - set(self.before))


def plan_leaders(image: ClusterImage) -> list[Placed]:
    """The partitions that could be led by the first of their replicas, and are not."""
    return [(place, state) for place, state in image.placed() if prefers_another(place, state, image.brokers)]


def throttled_replicas(moves: Iterable[Move]) -> dict[str, tuple[str, str]]:
    """For each topic the replicas that send while these moves are under way, and those that get: as its settings
    `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` name them (KIP-73)."""
    senders: dict[str, list[str]] = {}
    getters: dict[str, list[str]] = {}
    for move in moves:
        if move.copies:
            number, new = move.place.number, [node for node in move.after if node not in move.before]
            senders.setdefault(move.topic, []).extend(f"{number}:{node}" for node in move.before)
            getters.setdefault(move.topic, []).extend(f"{number}:{node}" for node in new)
    return {topic: (",".join(senders[topic]), ",".join(getters[topic])) for topic in senders}


def plan_rebalance(image: ClusterImage) -> list[Move]:
    """The fewest moves after which every broker has its share of replicas and leaders, and every rule is kept."""
    layout = _Layout(image)
    layout.mend()
    layout.level()
    layout.level_leaders()
    return list(layout.moves())


def plan_drain(image: ClusterImage, node_id: int) -> list[Move]:
    """The moves after which a broker holds nothing. It may be gone already."""
    layout = _Layout(image, without=node_id)
    layout.evacuate(node_id)
    layout.level_leaders()
    return list(layout.moves(lambda move: node_id in move.before))


def plan_replication(image: ClusterImage, topics: Iterable[Topic], factor: int) -> list[Move]:
    """The moves that give every partition of these topics so many replicas."""
    layout = _Layout(image)
    if not 1 <= factor <= len(layout.spread.brokers):
        there = len(layout.spread.brokers)
        raise InvalidReplicationFactor(
            f"{factor} replicas need {factor} brokers that may get some, there are {there}"
        )
    wanted = {topic.topic_id for topic in topics}
    for place in [place for place in layout.replicas if place.topic_id in wanted]:
        layout.resize(place, factor)
    return list(layout.moves())


class _Layout:
    """Where everything lies, and where it will."""

    def __init__(self, image: ClusterImage, without: int | None = None) -> None:
        self._image = image
        self._closed = closed_brokers(image)
        self._before = {place: target_of(state) for place, state in image.placed()}
        self.replicas = dict(self._before)
        table = {broker.node_id: broker for broker in open_brokers(image) if broker.node_id != without}
        self.spread = Spread(brokers=table)
        for replicas in self.replicas.values():
            self.spread.add(replicas)
        # A broker that is away for a while keeps what it has, and counts.
        self._sharers = (table.keys() | self.spread.replicas.keys()) - self._closed - {without}
        self.spread.share = self.spread.replicas.total() / max(1, len(self._sharers))

    def moves(self, which: Callable[[Move], bool] = lambda _: True) -> Iterator[Move]:
        for place, after in self.replicas.items():
            before = self._before[place]
            move = Move(place=place, topic=self._image.topics[place.topic_id].name, before=before, after=after)
            if before != after and which(move):
                yield move

    def _broker(self, node_id: int) -> Broker:
        """Also one that is gone, of which nothing is known."""
        return self._image.brokers.get(node_id) or Broker(node_id=node_id, host="", port=0)

    def _set(self, place: Place, replicas: Replicas) -> None:
        before = self.replicas[place]
        self.spread.replicas.subtract(before)
        self.spread.leaders[before[0]] -= 1
        self.replicas[place] = replicas
        self.spread.add(replicas)

    def _swap(self, place: Place, old: int, new: int) -> None:
        self._set(place, tuple(new if node == old else node for node in self.replicas[place]))

    def _others(self, place: Place, without: int) -> list[Broker]:
        return [self._broker(node) for node in self.replicas[place] if node != without]

    def evacuate(self, node_id: int) -> None:
        """Give every replica of a broker to another one."""
        for place in [place for place, replicas in self.replicas.items() if node_id in replicas]:
            found = self.spread.choose(place, self._others(place, node_id))
            if found is None:
                name, factor = self._image.topics[place.topic_id].name, len(self.replicas[place])
                raise InvalidReplicationFactor(
                    f"broker {node_id} cannot be emptied: topic {name!r} has {factor} replicas, and there are "
                    f"{len(self.spread.brokers)} other brokers; add one, or lower the replication factor"
                )
            self._swap(place, node_id, found.node_id)

    def resize(self, place: Place, factor: int) -> None:
        """Add the best brokers, or drop the fullest; the preferred leader remains, if it is there and in sync."""
        replicas = self.replicas[place]
        while len(replicas) < factor:
            found = self.spread.choose(place, [self._broker(node) for node in replicas])
            assert found is not None, "there are at least as many brokers as replicas"
            replicas += (found.node_id,)
        while len(replicas) > factor:
            replicas = self._without_worst(place, replicas)
        if replicas != self.replicas[place]:
            self._set(place, replicas)

    def _without_worst(self, place: Place, replicas: Replicas) -> Replicas:
        """Those that are gone, or not in sync, go first: the others have what was acknowledged."""
        isr = self._image.topics[place.topic_id].partitions[place.number].isr

        def rank(dropped: int) -> tuple[bool, bool, bool, tuple[int, int], int, int]:
            rest = (node for node in replicas if node != dropped)
            is_first, is_there, is_in_sync = dropped == replicas[0], dropped in self.spread.brokers, dropped in isr
            crowding_left, load = self._crowding(rest), self.spread.replicas[dropped]
            return is_there, is_in_sync, is_first, crowding_left, -load, dropped

        worst = min(replicas, key=rank)
        return tuple(node for node in replicas if node != worst)

    def _crowding(self, replicas: Iterable[int]) -> tuple[int, int]:
        return crowding(self._broker(node) for node in replicas)

    def mend(self) -> None:
        """Part replicas that share a rack or a machine while another has none, and empty brokers that are drained."""
        for node_id in sorted(self._closed):
            self.evacuate(node_id)
        domains = {broker.failure_domain for broker in self.spread.brokers.values()}
        racks = {rack for rack, _ in domains}
        for place, replicas in self.replicas.items():
            factor = len(replicas)
            best = factor - min(factor, len(racks)), factor - min(factor, len(domains))
            if self._crowding(replicas) > best:
                self._part(place)

    def _part(self, place: Place) -> None:
        """Replace those replicas of a partition that are in each other's way."""
        for old in reversed(self.replicas[place]):
            replicas = self.replicas[place]
            found = self.spread.choose(place, self._others(place, old))
            if found is not None and found.node_id != old:
                after = tuple(found.node_id if node == old else node for node in replicas)
                if self._crowding(after) < self._crowding(replicas):
                    self._set(place, after)

    def level(self) -> None:
        """Brokers that have less than their share get what is drawn to them most, from those that have most.

        First from those that have more than their share; then, where racks do not allow that, from any that has more.
        """
        for least in (self.spread.share, 0.0):
            while self._level_above(least):
                pass

    def _level_above(self, least: float) -> bool:
        """One round; whether anything was moved. Every move makes two loads more alike, so there is a last one."""
        share, loads, moved = self.spread.share, self.spread.replicas, False
        for node_id in sorted(self.spread.brokers, key=lambda node: (loads[node], node)):
            for place in self._drawn_to(node_id) if loads[node_id] + 1 <= share else ():
                if loads[node_id] + 1 > share:
                    break
                moved |= self._give(place, node_id, least)
        return moved

    def _drawn_to(self, node_id: int) -> list[Place]:
        missing = [place for place, replicas in self.replicas.items() if node_id not in replicas]
        return sorted(missing, key=lambda place: -score(place, node_id))

    def _give(self, place: Place, node_id: int, least: float) -> bool:
        """Take a replica from the fullest broker that has more than `least`, if no rule is broken by that."""
        loads, replicas = self.spread.replicas, self.replicas[place]
        for old in sorted(replicas, key=lambda node: (-loads[node], node)):
            if old not in self.spread.brokers or loads[old] <= max(least, loads[node_id] + 1):
                continue
            after = tuple(node_id if node == old else node for node in replicas)
            if self._crowding(after) <= self._crowding(replicas):
                self._set(place, after)
                return True
        return False

    def level_leaders(self) -> None:
        """Change the order of replicas where a broker would lead more than its share."""
        while self._level_leaders_once():
            pass

    def _level_leaders_once(self) -> bool:
        """One round; whether anything was changed. Every change makes loads more alike, so there is a last one."""
        leaders, changed = self.spread.leaders, False
        for place, replicas in self.replicas.items():
            first = replicas[0]
            others = [node for node in replicas if node in self.spread.brokers and node != first]
            best = min(others, key=lambda node: (leaders[node], -score(place, node)), default=None)
            if best is not None and (first not in self._sharers or leaders[best] + 1 < leaders[first]):
                self._set(place, (best, *(node for node in replicas if node != best)))
                changed = True
        return changed
