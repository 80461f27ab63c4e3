"""Server-side assignors: who gets which partitions. Pure functions of who subscribes to what and holds what.

Both give every partition of every subscribed topic to exactly one subscriber, and the same input gives the same
result on every broker.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

from penstock.groups.consumer_members import TopicIdPartition
from penstock.groups.settings import RANGE, UNIFORM

ROUNDS_MAX: Final = 16
"""How often the topics are gone over to level loads. Each round about halves the imbalance that overlapping
subscriptions leave; where subscribers of a topic want the same topics, the first round is the last."""

Partitions = Mapping[bytes, Sequence[int]]
"""The partitions of every topic that is there, in order."""
Shares = dict[str, frozenset[TopicIdPartition]]
"""What each member is to have."""


class Subscriber(NamedTuple):
    """A member as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    held: frozenset[TopicIdPartition] = frozenset()
    """What the last target gave it."""


Assignor = Callable[[Sequence[Subscriber], Partitions], Shares]


def assign_range(subscribers: Sequence[Subscriber], partitions: Partitions) -> Shares:
    """Each topic is cut into ranges, in the order of its subscribers.

    Topics with equally many partitions and the same subscribers are cut alike, which is what joins need. Static
    members come first, by their instance ids, so that they get the same ranges after a restart.
    """
    order = sorted(subscribers, key=lambda one: (one.instance_id is None, one.instance_id or "", one.member_id))
    shares: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in subscribers}
    for topic_id, numbers in _subscribed(subscribers, partitions).items():
        readers = [one.member_id for one in order if topic_id in one.topics]
        size, longer = divmod(len(numbers), len(readers))
        start = 0
        for index, reader in enumerate(readers):
            end = start + size + (index < longer)
            shares[reader].update(TopicIdPartition(topic_id, number) for number in numbers[start:end])
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def assign_uniform(subscribers: Sequence[Subscriber], partitions: Partitions) -> Shares:
    """Equal shares, and as few partitions as possible change hands. Balance comes before stickiness."""
    order = sorted(subscribers, key=lambda one: one.member_id)
    if len({one.topics for one in order}) <= 1:
        return _share_evenly(order, partitions)
    return _Scales(order, partitions).shares()


ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_range}


def _subscribed(subscribers: Iterable[Subscriber], partitions: Partitions) -> dict[bytes, Sequence[int]]:
    wanted: set[bytes] = set().union(*(one.topics for one in subscribers))
    return {topic_id: partitions[topic_id] for topic_id in sorted(wanted) if topic_id in partitions}


def _share_evenly(order: Sequence[Subscriber], partitions: Partitions) -> Shares:
    """All want the same topics: sizes differ by one at most, and no fewer partitions could move."""
    if not order:
        return {}
    table = _subscribed(order, partitions)
    free = set().union(*(_places(topic_id, tuple(numbers)) for topic_id, numbers in table.items()))
    size, larger = divmod(len(free), len(order))
    shares: Shares = {}
    for one in order:
        shares[one.member_id] = held = one.held if one.held <= free else one.held & free
        free -= held
    # Whoever holds most keeps the odd ones, so that nobody gives one up only for another to take it.
    fullest = sorted(shares, key=lambda member_id: -len(shares[member_id]))  # of equals, the first by name
    limits = {member_id: size + (index < larger) for index, member_id in enumerate(fullest)}
    hungry: deque[tuple[str, list[TopicIdPartition]]] = deque()
    for member_id, share in shares.items():
        limit = limits[member_id]
        if len(share) > limit:
            kept = sorted(share)
            free.update(kept[limit:])
            shares[member_id] = frozenset(kept[:limit])
        elif len(share) < limit:
            hungry.append((member_id, list(share)))
    for place in sorted(free):
        # Dealt out one by one, so that a topic is spread over many.
        member_id, taken = hungry.popleft()
        taken.append(place)
        if len(taken) < limits[member_id]:
            hungry.append((member_id, taken))
        else:
            shares[member_id] = frozenset(taken)
    return shares


@lru_cache(maxsize=64)
def _places(topic_id: bytes, numbers: tuple[int, ...]) -> frozenset[TopicIdPartition]:
    """While a group comes together its topics are shared out many times over, and making these takes longest."""
    return frozenset(TopicIdPartition(topic_id, number) for number in numbers)


class _Scales:
    """Subscriptions differ: loads are levelled topic by topic, among those who may have it."""

    def __init__(self, order: Sequence[Subscriber], partitions: Partitions) -> None:
        self._members = [one.member_id for one in order]
        self._table = _subscribed(order, partitions)
        self._readers = {
            topic_id: [one.member_id for one in order if topic_id in one.topics] for topic_id in self._table
        }
        self._free = {topic_id: set(numbers) for topic_id, numbers in self._table.items()}
        self._held: dict[bytes, dict[str, list[int]]] = {topic_id: {} for topic_id in self._table}
        """By topic, what each member has of it."""
        self._loads: Counter[str] = Counter()
        for one in order:
            for place in sorted(one.held):
                if place.topic_id in one.topics and place.partition in self._free.get(place.topic_id, ()):
                    self._free[place.topic_id].remove(place.partition)
                    self._give(place.topic_id, one.member_id, place.partition)

    def shares(self) -> Shares:
        # First the topics with the most partitions for each reader: later ones can even out what these leave.
        topics = sorted(
            self._table,
            key=lambda topic: (
                -len(self._table[topic]) / len(self._readers[topic]),
                len(self._readers[topic]),
                topic,
            ),
        )
        for topic_id in topics:
            self._deal(topic_id)
        for _ in range(ROUNDS_MAX):
            if not sum(self._level(topic_id) for topic_id in topics):
                break
        found: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in self._members}
        for topic_id, holders in self._held.items():
            for member_id, numbers in holders.items():
                found[member_id].update(TopicIdPartition(topic_id, number) for number in numbers)
        return {member_id: frozenset(places) for member_id, places in found.items()}

    def _give(self, topic_id: bytes, member_id: str, number: int) -> None:
        self._held[topic_id].setdefault(member_id, []).append(number)
        self._loads[member_id] += 1

    def _deal(self, topic_id: bytes) -> None:
        """What nobody has goes to whoever has least."""
        least = [(self._loads[member_id], member_id) for member_id in self._readers[topic_id]]
        heapify(least)
        for number in sorted(self._free[topic_id]):
            _, member_id = least[0]
            self._give(topic_id, member_id, number)
            heapreplace(least, (self._loads[member_id], member_id))

    def _level(self, topic_id: bytes) -> int:
        """Move partitions of a topic from those who have most to those who have least. Returns how many."""
        loads, held = self._loads, self._held[topic_id]
        least = [(loads[member_id], member_id) for member_id in self._readers[topic_id]]
        most = [(-loads[member_id], member_id) for member_id, numbers in held.items() if numbers]
        heapify(least)
        heapify(most)
        moved = 0
        while True:
            while least and least[0][0] != loads[least[0][1]]:
                heappop(least)
            while most and (-most[0][0] != loads[most[0][1]] or not held[most[0][1]]):
                heappop(most)
            if not most or -most[0][0] - least[0][0] <= 1:
                return moved
            giver, taker = most[0][1], least[0][1]
            number = held[giver].pop()
            loads[giver] -= 1
            self._give(topic_id, taker, number)
            for member_id in (giver, taker):
                heappush(least, (loads[member_id], member_id))
                heappush(most, (-loads[member_id], member_id))
            moved += 1
