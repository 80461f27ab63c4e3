"""Server-side assignors: who gets which partitions. Pure functions of who subscribes to what and holds what.

Both give every partition of every subscribed topic to exactly one subscriber, and the same input gives the same
result on every broker.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

from penstock.foundation.steps import Steps
from penstock.groups.consumer.members import TopicIdPartition
from penstock.groups.settings import RANGE, UNIFORM

ROUNDS_MAX: Final = 16
"""How often the topics are gone over to level loads. Each round about halves the imbalance that overlapping
subscriptions leave; where subscribers of a topic want the same topics, the first round is the last."""

STEP: Final = 500
"""Partitions, or subscriptions, that are looked at before the work may be interrupted: about a millisecond."""
MEMBERS_STEP: Final = 50

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


Assignor = Callable[[Sequence[Subscriber], Partitions], Steps[Shares]]
"""Interruptible: with thousands of members and topics it takes seconds."""


def assign_range(subscribers: Sequence[Subscriber], partitions: Partitions) -> Steps[Shares]:
    """Each topic is cut into ranges, in the order of its subscribers.

    Topics with equally many partitions and the same subscribers are cut alike, which is what joins need. Static
    members come first, by their instance ids, so that they get the same ranges after a restart.
    """
    order = sorted(subscribers, key=lambda one: (one.instance_id is None, one.instance_id or "", one.member_id))
    shares: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in subscribers}
    table = yield from _subscribed(subscribers, partitions)
    readers = yield from _readers(order, table)
    for topic_id, numbers in table.items():
        size, longer = divmod(len(numbers), len(readers[topic_id]))
        start = 0
        for index, reader in enumerate(readers[topic_id]):
            end = start + size + (index < longer)
            shares[reader].update(TopicIdPartition(topic_id, number) for number in numbers[start:end])
            start = end
            if not index % STEP:
                yield
    return (yield from _frozen(shares))


def assign_uniform(subscribers: Sequence[Subscriber], partitions: Partitions) -> Steps[Shares]:
    """Equal shares, and as few partitions as possible change hands. Balance comes before stickiness."""
    order = sorted(subscribers, key=lambda one: one.member_id)
    if len({one.topics for one in order}) <= 1:
        return (yield from _share_evenly(order, partitions))
    scales = _Scales((yield from _subscribed(order, partitions)))
    return (yield from scales.shares(order))


ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_range}


def _subscribed(subscribers: Iterable[Subscriber], partitions: Partitions) -> Steps[dict[bytes, Sequence[int]]]:
    wanted: set[bytes] = set()
    count = 0
    for topics in {one.topics for one in subscribers}:
        wanted |= topics
        count += len(topics)
        if count > STEP:
            count = 0
            yield
    return {topic_id: partitions[topic_id] for topic_id in sorted(wanted) if topic_id in partitions}


def _frozen(found: Mapping[str, Iterable[TopicIdPartition]]) -> Steps[Shares]:
    shares: Shares = {}
    for member_id, places in found.items():
        shares[member_id] = frozenset(places)
        if not len(shares) % MEMBERS_STEP:
            yield
    return shares


def _readers(order: Iterable[Subscriber], topics: Iterable[bytes]) -> Steps[dict[bytes, list[str]]]:
    """By topic, who subscribes to it."""
    found: dict[bytes, list[str]] = {topic_id: [] for topic_id in topics}
    count = 0
    for one in order:
        for topic_id in one.topics:
            if topic_id in found:
                found[topic_id].append(one.member_id)
        count += len(one.topics)
        if count > STEP:
            count = 0
            yield
    return found


def _sorted(places: Iterable[TopicIdPartition]) -> Steps[list[TopicIdPartition]]:
    """As `sorted`, a topic at a time."""
    table: dict[bytes, list[TopicIdPartition]] = {}
    for count, place in enumerate(places, 1):
        table.setdefault(place.topic_id, []).append(place)
        if not count % STEP:
            yield
    found: list[TopicIdPartition] = []
    for topic_id in sorted(table):
        found += sorted(table[topic_id])
        yield
    return found


def _share_evenly(order: Sequence[Subscriber], partitions: Partitions) -> Steps[Shares]:
    """All want the same topics: sizes differ by one at most, and no fewer partitions could move."""
    if not order:
        return {}
    free: set[TopicIdPartition] = set()
    for topic_id, numbers in (yield from _subscribed(order, partitions)).items():
        free |= _places(topic_id, tuple(numbers))
        yield
    size, larger = divmod(len(free), len(order))
    shares: Shares = {}
    for count, one in enumerate(order):
        shares[one.member_id] = held = one.held if one.held <= free else one.held & free
        free -= held
        if not count % MEMBERS_STEP:
            yield
    # Whoever holds most keeps the odd ones, so that nobody gives one up only for another to take it.
    fullest = sorted(shares, key=lambda member_id: -len(shares[member_id]))  # of equals, the first by name
    limits = {member_id: size + (index < larger) for index, member_id in enumerate(fullest)}
    hungry: deque[tuple[str, list[TopicIdPartition]]] = deque()
    for count, (member_id, share) in enumerate(shares.items()):
        limit = limits[member_id]
        if len(share) > limit:
            kept = yield from _sorted(share)
            free.update(kept[limit:])
            shares[member_id] = frozenset(kept[:limit])
        elif len(share) < limit:
            hungry.append((member_id, list(share)))
        if not count % MEMBERS_STEP:
            yield
    for count, place in enumerate((yield from _sorted(free))):
        # Dealt out one by one, so that a topic is spread over many.
        member_id, taken = hungry.popleft()
        taken.append(place)
        if len(taken) < limits[member_id]:
            hungry.append((member_id, taken))
        else:
            shares[member_id] = frozenset(taken)
        if not count % STEP:
            yield
    return shares


@lru_cache(maxsize=64)
def _places(topic_id: bytes, numbers: tuple[int, ...]) -> frozenset[TopicIdPartition]:
    """While a group comes together its topics are shared out many times over, and making these takes longest."""
    return frozenset(TopicIdPartition(topic_id, number) for number in numbers)


class _Scales:
    """Subscriptions differ: loads are levelled topic by topic, among those who may have it."""

    def __init__(self, table: Mapping[bytes, Sequence[int]]) -> None:
        self._table = table
        self._readers: dict[bytes, list[str]] = {}
        self._free = {topic_id: set(numbers) for topic_id, numbers in table.items()}
        self._held: dict[bytes, dict[str, list[int]]] = {topic_id: {} for topic_id in table}
        """By topic, what each member has of it."""
        self._loads: Counter[str] = Counter()

    def shares(self, order: Sequence[Subscriber]) -> Steps[Shares]:
        self._readers = yield from _readers(order, self._table)
        for one in order:
            for place in (yield from _sorted(one.held)):
                if place.topic_id in one.topics and place.partition in self._free.get(place.topic_id, ()):
                    self._free[place.topic_id].remove(place.partition)
                    self._give(place.topic_id, one.member_id, place.partition)
            yield
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
            yield from self._deal(topic_id)
        for _ in range(ROUNDS_MAX):
            moved = 0
            for topic_id in topics:
                moved += yield from self._level(topic_id)
            if not moved:
                break
        found: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in order}
        for topic_id, holders in self._held.items():
            for member_id, numbers in holders.items():
                found[member_id].update(TopicIdPartition(topic_id, number) for number in numbers)
            yield
        return (yield from _frozen(found))

    def _give(self, topic_id: bytes, member_id: str, number: int) -> None:
        self._held[topic_id].setdefault(member_id, []).append(number)
        self._loads[member_id] += 1

    def _deal(self, topic_id: bytes) -> Steps[None]:
        """What nobody has goes to whoever has least."""
        least = [(self._loads[member_id], member_id) for member_id in self._readers[topic_id]]
        heapify(least)
        for count, number in enumerate(sorted(self._free[topic_id])):
            _, member_id = least[0]
            self._give(topic_id, member_id, number)
            heapreplace(least, (self._loads[member_id], member_id))
            if not count % STEP:
                yield

    def _level(self, topic_id: bytes) -> Steps[int]:
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
            if not moved % STEP:
                yield
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
