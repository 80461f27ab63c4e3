"""Server-side assignors `uniform` and `range` (KIP-848). Pure functions of subscriptions and previous targets.

Both assign every partition of every subscribed topic to exactly one subscriber, and are deterministic.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps
from penstock.groups.settings import RANGE, UNIFORM

ROUNDS_MAX: Final = 16
"""Maximum number of passes over all topics to balance loads. Each pass about halves the imbalance; one pass is
enough if all subscribers of a topic subscribe to the same topics."""

STEP: Final = 500
"""Number of partitions or subscriptions processed between two yields of a generator, about a millisecond of work."""
MEMBERS_STEP: Final = 50

Partitions = Mapping[bytes, Sequence[int]]
"""Sorted partition indexes of every existing topic, by topic id."""
Assignments = dict[str, frozenset[TopicIdPartition]]
"""The partitions assigned to each member, by member id."""


class Subscriber(NamedTuple):
    """A group member, as input of an assignor."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    held: frozenset[TopicIdPartition] = frozenset()
    """The member's partitions in the last target assignment."""


Assignor = Callable[[Sequence[Subscriber], Partitions], Steps[Assignments]]
"""Type of generator functions that compute the assignment of each subscriber; for large groups that takes seconds."""


def assign_range(subscribers: Sequence[Subscriber], partitions: Partitions) -> Steps[Assignments]:
    """Assigns a contiguous range of each topic's partitions to each of its subscribers.

    Topics with equal partition counts and the same subscribers are co-partitioned, which joins need. Static members
    come first, sorted by instance id, so that they get the same ranges after a restart.
    """
    order = sorted(subscribers, key=lambda one: (one.instance_id is None, one.instance_id or "", one.member_id))
    assignments: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in subscribers}
    table = yield from _subscribed(subscribers, partitions)
    readers = yield from _readers(order, table)
    for topic_id, numbers in table.items():
        size, longer = divmod(len(numbers), len(readers[topic_id]))
        start = 0
        for index, reader in enumerate(readers[topic_id]):
            end = start + size + (index < longer)
            assignments[reader].update(TopicIdPartition(topic_id, number) for number in numbers[start:end])
            start = end
            if not index % STEP:
                yield
    return (yield from _frozen(assignments))


def assign_uniform(subscribers: Sequence[Subscriber], partitions: Partitions) -> Steps[Assignments]:
    """Assigns equal numbers of partitions to members; as far as that allows, members keep their partitions."""
    order = sorted(subscribers, key=lambda one: one.member_id)
    if len({one.topics for one in order}) <= 1:
        return (yield from _assign_homogeneous(order, partitions))
    scales = _HeterogeneousAssignment((yield from _subscribed(order, partitions)))
    return (yield from scales.assignments(order))


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


def _frozen(found: Mapping[str, Iterable[TopicIdPartition]]) -> Steps[Assignments]:
    assignments: Assignments = {}
    for member_id, tps in found.items():
        assignments[member_id] = frozenset(tps)
        if not len(assignments) % MEMBERS_STEP:
            yield
    return assignments


def _readers(order: Iterable[Subscriber], topics: Iterable[bytes]) -> Steps[dict[bytes, list[str]]]:
    """Returns the member ids of each topic's subscribers, by topic id."""
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


def _sorted(tps: Iterable[TopicIdPartition]) -> Steps[list[TopicIdPartition]]:
    """Sorts partitions one topic at a time; a generator that yields after each topic."""
    table: dict[bytes, list[TopicIdPartition]] = {}
    for count, tp in enumerate(tps, 1):
        table.setdefault(tp.topic_id, []).append(tp)
        if not count % STEP:
            yield
    found: list[TopicIdPartition] = []
    for topic_id in sorted(table):
        found += sorted(table[topic_id])
        yield
    return found


def _assign_homogeneous(order: Sequence[Subscriber], partitions: Partitions) -> Steps[Assignments]:
    """Assigns partitions if all members subscribe to the same topics: numbers of partitions differ by at most 1."""
    if not order:
        return {}
    free: set[TopicIdPartition] = set()
    for topic_id, numbers in (yield from _subscribed(order, partitions)).items():
        free |= _tps(topic_id, tuple(numbers))
        yield
    size, larger = divmod(len(free), len(order))
    assignments: Assignments = {}
    for count, one in enumerate(order):
        assignments[one.member_id] = held = one.held if one.held <= free else one.held & free
        free -= held
        if not count % MEMBERS_STEP:
            yield
    # The members with most partitions get the larger quotas, so that as few partitions as possible move.
    fullest = sorted(assignments, key=lambda member_id: -len(assignments[member_id]))  # stable: ties by member id
    limits = {member_id: size + (index < larger) for index, member_id in enumerate(fullest)}
    underloaded: deque[tuple[str, list[TopicIdPartition]]] = deque()
    for count, (member_id, assignment) in enumerate(assignments.items()):
        limit = limits[member_id]
        if len(assignment) > limit:
            kept = yield from _sorted(assignment)
            free.update(kept[limit:])
            assignments[member_id] = frozenset(kept[:limit])
        elif len(assignment) < limit:
            underloaded.append((member_id, list(assignment)))
        if not count % MEMBERS_STEP:
            yield
    for count, tp in enumerate((yield from _sorted(free))):
        # Round-robin, so that a topic is spread over many members.
        member_id, taken = underloaded.popleft()
        taken.append(tp)
        if len(taken) < limits[member_id]:
            underloaded.append((member_id, taken))
        else:
            assignments[member_id] = frozenset(taken)
        if not count % STEP:
            yield
    return assignments


@lru_cache(maxsize=64)
def _tps(topic_id: bytes, numbers: tuple[int, ...]) -> frozenset[TopicIdPartition]:
    """Returns all partitions of a topic; cached, since many groups assign the same topics."""
    return frozenset(TopicIdPartition(topic_id, number) for number in numbers)


class _HeterogeneousAssignment:
    """Assigns partitions if subscriptions differ: balances the load of subscribers, topic by topic."""

    def __init__(self, table: Mapping[bytes, Sequence[int]]) -> None:
        self._table = table
        self._readers: dict[bytes, list[str]] = {}
        self._free = {topic_id: set(numbers) for topic_id, numbers in table.items()}
        self._held: dict[bytes, dict[str, list[int]]] = {topic_id: {} for topic_id in table}
        """Partition indexes assigned so far, by topic id and member id."""
        self._loads: Counter[str] = Counter()

    def assignments(self, order: Sequence[Subscriber]) -> Steps[Assignments]:
        self._readers = yield from _readers(order, self._table)
        for one in order:
            for tp in (yield from _sorted(one.held)):
                if tp.topic_id in one.topics and tp.partition in self._free.get(tp.topic_id, ()):
                    self._free[tp.topic_id].remove(tp.partition)
                    self._give(tp.topic_id, one.member_id, tp.partition)
            yield
        # Topics with the most partitions per subscriber first: later ones can compensate for them.
        topics = sorted(
            self._table,
            key=lambda topic: (
                -len(self._table[topic]) / len(self._readers[topic]),
                len(self._readers[topic]),
                topic,
            ),
        )
        for topic_id in topics:
            if self._free[topic_id]:
                yield from self._assign_unowned(topic_id)
        for _ in range(ROUNDS_MAX):
            moved = 0
            for topic_id in topics:
                moved += yield from self._balance(topic_id)
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

    def _assign_unowned(self, topic_id: bytes) -> Steps[None]:
        """Assigns partitions of a topic that have no owner to its least loaded subscribers."""
        least = [(self._loads[member_id], member_id) for member_id in self._readers[topic_id]]
        heapify(least)
        for count, number in enumerate(sorted(self._free[topic_id])):
            _, member_id = least[0]
            self._give(topic_id, member_id, number)
            heapreplace(least, (self._loads[member_id], member_id))
            if not count % STEP:
                yield

    def _balance(self, topic_id: bytes) -> Steps[int]:
        """Moves partitions of a topic from its most to its least loaded subscribers; returns the number of moves."""
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
