"""Kafka's simple assignor: who of a share group's members fetches from which partitions (KIP-932). Pure.

Several members may have the same partition: what keeps a message in one pair of hands is its delivery state. So no
member is idle: with more members than partitions, each partition has several, and all have about as many.
"""

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from penstock.foundation.steps import Steps
from penstock.groups.consumer.assignors import STEP, Partitions, Shares, Subscriber
from penstock.groups.consumer.members import TopicIdPartition

SIMPLE: Final = "simple"


def assign_simple(subscribers: Sequence[Subscriber], partitions: Partitions) -> Steps[Shares]:
    """Equal shares, and as few partitions as possible change hands. Balance comes before stickiness. Interruptible.

    If all want the same topics, loads are level over all of them; if not, over each topic by itself, as in Kafka.
    """
    order = sorted(subscribers, key=lambda one: one.member_id)
    shares: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in order}
    topics = sorted(frozenset().union(*(one.topics for one in order)) & partitions.keys())
    is_uniform = len({one.topics for one in order}) <= 1
    for pool in [topics] if is_uniform else [[topic_id] for topic_id in topics]:
        places = [TopicIdPartition(topic_id, number) for topic_id in pool for number in partitions[topic_id]]
        readers = [one for one in order if one.topics.intersection(pool)]
        if places and readers:
            shared = yield from _Pool(readers, places).share_out()
            for member_id, share in shared.items():
                shares[member_id] |= share
        yield
    return {member_id: frozenset(share) for member_id, share in shares.items()}


class _Pool:
    """Partitions that the same members share: each has as many of them as any other, or one less."""

    def __init__(self, readers: Sequence[Subscriber], places: Sequence[TopicIdPartition]) -> None:
        self._sharing = -(-len(readers) // len(places))
        """How many members a partition has."""
        self._places = places
        wanted = frozenset(places)
        self._held = held = {one.member_id: sorted(one.held & wanted) for one in readers}
        size, larger = divmod(self._sharing * len(places), len(readers))
        # Whoever has most keeps the odd ones, so that nobody gives one up only for another to take it.
        fullest = sorted(held, key=lambda member_id: -len(held[member_id]))
        self._limits = {member_id: size + (index < larger) for index, member_id in enumerate(fullest)}
        self._readers: Counter[TopicIdPartition] = Counter()
        self.shares: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in held}

    def share_out(self) -> Steps[dict[str, set[TopicIdPartition]]]:
        for member_id, had in self._held.items():
            for place in had:
                if self._readers[place] < self._sharing and len(self.shares[member_id]) < self._limits[member_id]:
                    self._give(place, member_id)
            yield
        yield from self._deal(self._places)
        return self.shares

    def _give(self, place: TopicIdPartition, member_id: str) -> None:
        self.shares[member_id].add(place)
        self._readers[place] += 1

    def _deal(self, places: Sequence[TopicIdPartition]) -> Steps[None]:
        """First every partition gets one member, then a second one, and so on."""
        hungry = deque(member_id for member_id, share in self.shares.items() if len(share) < self._limits[member_id])
        for round_number in range(self._sharing):
            for count, place in enumerate(places, 1):
                if not count % STEP:
                    yield
                if self._readers[place] <= round_number and hungry:
                    taker = self._taker(place, hungry)
                    if len(self.shares[taker]) < self._limits[taker]:
                        hungry.append(taker)

    def _taker(self, place: TopicIdPartition, hungry: deque[str]) -> str:
        """Give a partition to the next one who lacks it, and say who has more for it."""
        for index, member_id in enumerate(hungry):
            if place not in self.shares[member_id]:
                del hungry[index]
                self._give(place, member_id)
                return member_id
        # All who lack something have this one: somebody else takes it, and leaves them another.
        taker = hungry.popleft()
        for member_id, share in self.shares.items():
            spare = next((other for other in sorted(share) if other not in self.shares[taker]), None)
            if place not in share and spare is not None:
                share.remove(spare)
                self._readers[spare] -= 1
                self._give(place, member_id)
                self._give(spare, taker)
                break
        else:
            self._limits[taker] = len(self.shares[taker])  # it has all that there is for it
        return taker
