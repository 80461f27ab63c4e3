"""Kafka's simple assignor for share groups: which members fetch from which partitions (KIP-932). Pure.

A partition may be assigned to several members; the delivery state ensures that only one member acquires a message.
With more members than partitions, each partition has several members, so that no member is idle.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from penstock.foundation.ids import TopicIdPartition
from penstock.foundation.steps import Steps
from penstock.groups.consumer.assignors import STEP, Assignments, Partitions, Subscriber

SIMPLE: Final = "simple"


def assign_simple(subscribers: Sequence[Subscriber], partitions: Partitions) -> Steps[Assignments]:
    """Assigns equal numbers of partitions to members; as far as that allows, members keep their partitions.

    If all members subscribe to the same topics, loads are balanced over all topics, else per topic, as in Kafka.
    """
    order = sorted(subscribers, key=lambda one: one.member_id)
    assignments: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in order}
    topics = sorted(frozenset().union(*(one.topics for one in order)) & partitions.keys())
    is_uniform = len({one.topics for one in order}) <= 1
    for pool in [topics] if is_uniform else [[topic_id] for topic_id in topics]:
        tps = [TopicIdPartition(topic_id, number) for topic_id in pool for number in partitions[topic_id]]
        readers = [one for one in order if one.topics.intersection(pool)]
        if tps and readers:
            shared = yield from _Pool(readers, tps).assign()
            for member_id, assignment in shared.items():
                assignments[member_id] |= assignment
        yield
    return {member_id: frozenset(assignment) for member_id, assignment in assignments.items()}


class _Pool:
    """Assigns partitions to members: the numbers of partitions of any two members differ by at most one."""

    def __init__(self, readers: Sequence[Subscriber], tps: Sequence[TopicIdPartition]) -> None:
        self._members_per_partition = -(-len(readers) // len(tps))
        self._tps = tps
        wanted = frozenset(tps)
        self._held = held = {one.member_id: sorted(one.held & wanted) for one in readers}
        size, larger = divmod(self._members_per_partition * len(tps), len(readers))
        # The members with most partitions get the larger quotas, so that as few partitions as possible move.
        fullest = sorted(held, key=lambda member_id: -len(held[member_id]))
        self._limits = {member_id: size + (index < larger) for index, member_id in enumerate(fullest)}
        self._readers: Counter[TopicIdPartition] = Counter()
        self.assignments: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in held}

    def assign(self) -> Steps[dict[str, set[TopicIdPartition]]]:
        for member_id, had in self._held.items():
            for tp in had:
                if self._readers[tp] < self._members_per_partition and self._is_underloaded(member_id):
                    self._give(tp, member_id)
            yield
        yield from self._assign_remaining(self._tps)
        return self.assignments

    def _is_underloaded(self, member_id: str) -> bool:
        return len(self.assignments[member_id]) < self._limits[member_id]

    def _give(self, tp: TopicIdPartition, member_id: str) -> None:
        self.assignments[member_id].add(tp)
        self._readers[tp] += 1

    def _assign_remaining(self, tps: Sequence[TopicIdPartition]) -> Steps[None]:
        """Assigns a first member to every partition that lacks one, then a second member, and so on."""
        underloaded = deque(filter(self._is_underloaded, self.assignments))
        for round_number in range(self._members_per_partition):
            for count, tp in enumerate(tps, 1):
                if not count % STEP:
                    yield
                if self._readers[tp] <= round_number and underloaded:
                    taker = self._assign_next(tp, underloaded)
                    if self._is_underloaded(taker):
                        underloaded.append(taker)

    def _assign_next(self, tp: TopicIdPartition, underloaded: deque[str]) -> str:
        """Adds `tp` to an underloaded member and returns the member's id. If all of them have `tp`, another member
        takes `tp` and gives one of its own partitions to the first underloaded member."""
        for index, member_id in enumerate(underloaded):
            if tp not in self.assignments[member_id]:
                del underloaded[index]
                self._give(tp, member_id)
                return member_id
        # All underloaded members have it: another member takes it and passes one of its own to the first of them.
        taker = underloaded.popleft()
        for member_id, assignment in self.assignments.items():
            spare = next((other for other in sorted(assignment) if other not in self.assignments[taker]), None)
            if tp not in assignment and spare is not None:
                assignment.remove(spare)
                self._readers[spare] -= 1
                self._give(tp, member_id)
                self._give(spare, taker)
                break
        else:
            self._limits[taker] = len(self.assignments[taker])  # it has all partitions that it can have
        return taker
