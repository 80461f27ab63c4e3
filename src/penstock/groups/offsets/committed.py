"""Offsets that groups have committed, and those that will count once a transaction has committed."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import count
from typing import Final, NamedTuple

from penstock.cluster.image import Topic
from penstock.foundation.decision import NO_PRODUCER, StateRecord
from penstock.groups.records import (
    OFFSET_COMMIT,
    OFFSET_COMMIT_VERSION,
    OFFSET_COMMIT_VERSION_WITH_ID,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.wire.schema import NIL_UUID
from penstock.wire.state import state_record
from penstock.wire.templates import Holes, find_holes

OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
"""Clients that say how long their offsets are to be kept (OffsetCommit v2 to v4) get a record that says it too."""
NO_EXPIRY: Final = -1
Place = tuple[str, int]
"""A topic's name and a partition."""


class Committed(NamedTuple):
    """Where a group is in a partition. One is made of every commit, which is why it is a tuple."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = NO_EXPIRY
    topic_id: bytes = NIL_UUID
    """The topic that was read; another topic may get its name."""
    number: int = 0
    """Its turn in the log: of a plain commit and a transaction's, the later one counts, whenever the marker comes."""

    def to_record(self, group_id: str, topic: str, partition: int) -> StateRecord:
        key, written = _key(group_id, topic, partition)
        if self.expires_ms != NO_EXPIRY:
            return state_record(OFFSET_COMMIT, key, self._value(), OFFSET_COMMIT_VERSION_WITH_EXPIRY, meant=self)
        layout, (head, _, _, metadata, _, end) = _value_like(self.metadata, self.topic_id)
        value = layout.pack(head, self.offset, self.leader_epoch, metadata, self.committed_ms, end)
        return StateRecord(key=written, value=value, parsed=(key, self))

    def _value(self) -> OffsetCommitValue:
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.committed_ms,
            expire_timestamp=self.expires_ms,
            topic_id=self.topic_id,
        )

    @classmethod
    def from_record(cls, value: "OffsetCommitValue | Committed", number: int) -> "Committed":
        """What a record says that was read back, or has just been made of it."""
        if isinstance(value, Committed):
            return _new_committed((*value[:-1], number))
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            committed_ms=value.commit_timestamp,
            expires_ms=value.expire_timestamp,
            topic_id=value.topic_id,
            number=number,
        )

    def is_of(self, topic_id: bytes) -> bool:
        """Whether it may be a commit to the topic with this id: who does not know an id does not object."""
        return self.topic_id == topic_id or NIL_UUID in (self.topic_id, topic_id)


_new_committed: Final = partial(tuple.__new__, Committed)  # of a row; a third of the time of NamedTuple's own


@lru_cache(maxsize=10_000)
def _key(group_id: str, topic: str, partition: int) -> tuple[OffsetCommitKey, bytes]:
    """A group commits to the same partitions over and over: the key, and how it is written."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return key, state_record(OFFSET_COMMIT, key, None).key


@lru_cache(maxsize=1000)
def _value_like(metadata: str, topic_id: bytes) -> Holes:
    """How values are written that differ by offset, leader epoch and time, as the encoder does it."""
    version = OFFSET_COMMIT_VERSION if topic_id == NIL_UUID else OFFSET_COMMIT_VERSION_WITH_ID
    key, _ = _key("", "", 0)
    zeros, ones = (
        state_record(
            OFFSET_COMMIT, key, Committed(number, number, metadata, number, topic_id=topic_id)._value(), version
        ).value
        for number in (0, -1)
    )
    assert zeros is not None
    assert ones is not None
    return find_holes(zeros, ones, "qiq")


def offset_tombstone(group_id: str, topic: str, partition: int) -> StateRecord:
    key, written = _key(group_id, topic, partition)
    return StateRecord(key=written, value=None, parsed=(key, None))


class Offsets:
    """Of all groups that one coordinator holds. Changes only by what was persisted."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[str, dict[int, Committed]]] = {}
        self._pending: dict[int, dict[tuple[str, str, int], Committed]] = {}
        """By the producer whose transaction they are in."""
        self._producers: dict[str, dict[Place, set[int]]] = {}
        """Who has a pending offset for a place, by group."""
        self._numbers = count(1)

    # -- looking

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        """By topic and partition."""
        return self._committed.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that is not over has an offset for this place."""
        return (topic, partition) in self._producers.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._producers

    def has_any(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._producers

    def places(self, group_id: str) -> list[Place]:
        """Of all offsets that a group has, committed or pending."""
        found = {(topic, number): None for topic, table in self.of_group(group_id).items() for number in table}
        found.update(dict.fromkeys(self._producers.get(group_id, ())))
        return list(found)

    def of_topic(self, topic: str) -> Iterator[tuple[str, int, Committed]]:
        """Group, partition and offset of all that is committed or pending in a topic; a place may come twice."""
        for group_id, topics in self._committed.items():
            for number, committed in topics.get(topic, {}).items():
                yield group_id, number, committed
        for pending in self._pending.values():
            for (group_id, name, number), committed in pending.items():
                if name == topic:
                    yield group_id, number, committed

    # -- changing

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | Committed | None, producer_id: int) -> None:
        """An offset was committed, plainly or within a transaction, or is gone for good."""
        if value is None:
            self._remove(key)
            return
        committed = Committed.from_record(value, next(self._numbers))
        if producer_id == NO_PRODUCER:
            self._put(key.group, key.topic, key.partition, committed)
            return
        self._pending.setdefault(producer_id, {})[key.group, key.topic, key.partition] = committed
        places = self._producers.setdefault(key.group, {})
        places.setdefault((key.topic, key.partition), set()).add(producer_id)

    def put_all(
        self, group_id: str, topic: Topic, commits: Iterable[tuple[int, int, int, str]], committed_ms: int
    ) -> None:
        """Plain commits to partitions of one topic: as `apply`, for partition, offset, leader epoch and metadata."""
        table = self._committed.setdefault(group_id, {}).setdefault(topic.name, {})
        numbers, topic_id = self._numbers, topic.topic_id
        for partition, offset, leader_epoch, metadata in commits:
            table[partition] = _new_committed(
                (offset, leader_epoch, metadata, committed_ms, NO_EXPIRY, topic_id, next(numbers))
            )

    def end_transaction(self, producer_id: int, committed: bool) -> set[str]:
        """What a producer has pending counts now, or never. The groups that it concerns."""
        pending = self._pending.pop(producer_id, {})
        for (group_id, topic, partition), offset in pending.items():
            self._release(group_id, (topic, partition), producer_id)
            known = self.get(group_id, topic, partition)
            if committed and (known is None or known.number < offset.number):
                self._put(group_id, topic, partition, offset)
        return {group_id for group_id, _, _ in pending}

    def _put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        self._committed.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def _remove(self, key: OffsetCommitKey) -> None:
        topics = self._committed.get(key.group, {})
        table = topics.get(key.topic, {})
        table.pop(key.partition, None)
        if not table:
            topics.pop(key.topic, None)
        if not topics:
            self._committed.pop(key.group, None)
        place = (key.topic, key.partition)
        for producer_id in list(self._producers.get(key.group, {}).get(place, ())):
            self._release(key.group, place, producer_id)
            pending = self._pending[producer_id]
            del pending[key.group, key.topic, key.partition]
            if not pending:
                del self._pending[producer_id]

    def _release(self, group_id: str, place: Place, producer_id: int) -> None:
        places = self._producers[group_id]
        places[place].discard(producer_id)
        if not places[place]:
            del places[place]
        if not places:
            del self._producers[group_id]
