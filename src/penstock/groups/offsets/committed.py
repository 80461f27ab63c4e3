"""Committed offsets of groups, and pending offsets of transactions that have not ended."""

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
from penstock.wire.templates import Template, make_template

OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1
"""Version of offset commit records with an expiry time, used if the client set one (OffsetCommit v2 to v4)."""
NO_EXPIRY: Final = -1
TopicPartition = tuple[str, int]
"""A topic name and a partition index."""


class Committed(NamedTuple):
    """A committed offset with its metadata. A tuple for speed: every commit creates one Committed per partition."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int = NO_EXPIRY
    topic_id: bytes = NIL_UUID
    """Id of the topic at the time of the commit. A later topic with the same name has another id."""
    sequence: int = 0
    """Number of the commit in log order. The commit with the highest number takes effect, even if it is part of a
    transaction that ends earlier than that of another commit."""

    def to_record(self, group_id: str, topic: str, partition: int) -> StateRecord:
        key, written = _key(group_id, topic, partition)
        if self.expires_ms != NO_EXPIRY:
            return state_record(OFFSET_COMMIT, key, self._value(), OFFSET_COMMIT_VERSION_WITH_EXPIRY, parsed=self)
        layout, (head, _, _, metadata, _, end) = _value_template(self.metadata, self.topic_id)
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
    def from_record(cls, value: "OffsetCommitValue | Committed", sequence: int) -> "Committed":
        """Returns a record's value as a Committed. `value` is an OffsetCommitValue if the record is replayed, and
        already a Committed if this process has built the record. `sequence`: number of the commit in log order."""
        if isinstance(value, Committed):
            return _new_committed((*value[:-1], sequence))
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            committed_ms=value.commit_timestamp,
            expires_ms=value.expire_timestamp,
            topic_id=value.topic_id,
            sequence=sequence,
        )

    def matches_topic(self, topic_id: bytes) -> bool:
        """Whether the offset may belong to the topic with this id. Also true if one of the ids is nil, that is,
        unknown."""
        return self.topic_id == topic_id or NIL_UUID in (self.topic_id, topic_id)


_new_committed: Final = partial(tuple.__new__, Committed)  # three times as fast as Committed()


@lru_cache(maxsize=10_000)
def _key(group_id: str, topic: str, partition: int) -> tuple[OffsetCommitKey, bytes]:
    """Returns the record key and its encoding; cached, since groups commit to the same partitions repeatedly."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return key, state_record(OFFSET_COMMIT, key, None).key


@lru_cache(maxsize=1000)
def _value_template(metadata: str, topic_id: bytes) -> Template:
    """Returns a template of the encoded record value: only offset, leader epoch and commit time are filled in."""
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
    return make_template(zeros, ones, "qiq")


def offset_tombstone(group_id: str, topic: str, partition: int) -> StateRecord:
    key, written = _key(group_id, topic, partition)
    return StateRecord(key=written, value=None, parsed=(key, None))


class Offsets:
    """Committed and pending offsets of all groups of one coordinator. Changed only by applying persisted records."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[str, dict[int, Committed]]] = {}
        self._pending: dict[int, dict[tuple[str, str, int], Committed]] = {}
        """Offsets of open transactions, by producer id."""
        self._producers: dict[str, dict[TopicPartition, set[int]]] = {}
        """Ids of the producers that have a pending offset, by group id and partition."""
        self._sequence = count(1)

    # -- queries

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        """Returns the committed offsets of a group by topic and partition."""
        return self._committed.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending offset for this partition."""
        return (topic, partition) in self._producers.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._producers

    def has_any(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._producers

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        """Returns all partitions for which a group has committed or pending offsets."""
        found = {(topic, number): None for topic, table in self.of_group(group_id).items() for number in table}
        found.update(dict.fromkeys(self._producers.get(group_id, ())))
        return list(found)

    def of_topic(self, topic: str) -> Iterator[tuple[str, int, Committed]]:
        """Yields group id, partition and offset for all committed and pending offsets of a topic."""
        for group_id, topics in self._committed.items():
            for number, committed in topics.get(topic, {}).items():
                yield group_id, number, committed
        for pending in self._pending.values():
            for (group_id, name, number), committed in pending.items():
                if name == topic:
                    yield group_id, number, committed

    # -- changes

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | Committed | None, producer_id: int) -> None:
        """Applies a record: a commit, a pending commit of a transaction, or a tombstone (`value` is None)."""
        if value is None:
            self._remove(key)
            return
        committed = Committed.from_record(value, next(self._sequence))
        if producer_id == NO_PRODUCER:
            self._put(key.group, key.topic, key.partition, committed)
            return
        self._pending.setdefault(producer_id, {})[key.group, key.topic, key.partition] = committed
        tps = self._producers.setdefault(key.group, {})
        tps.setdefault((key.topic, key.partition), set()).add(producer_id)

    def put_all(
        self, group_id: str, topic: Topic, commits: Iterable[tuple[int, int, int, str]], committed_ms: int
    ) -> None:
        """Applies commits to one topic; each has a partition index, offset, leader epoch and metadata."""
        table = self._committed.setdefault(group_id, {}).setdefault(topic.name, {})
        sequence, topic_id = self._sequence, topic.topic_id
        for partition, offset, leader_epoch, metadata in commits:
            table[partition] = _new_committed(
                (offset, leader_epoch, metadata, committed_ms, NO_EXPIRY, topic_id, next(sequence))
            )

    def end_transaction(self, producer_id: int, committed: bool) -> set[str]:
        """Commits or discards a producer's pending offsets; returns the ids of the groups concerned."""
        pending = self._pending.pop(producer_id, {})
        for (group_id, topic, partition), offset in pending.items():
            self._release(group_id, (topic, partition), producer_id)
            known = self.get(group_id, topic, partition)
            if committed and (known is None or known.sequence < offset.sequence):
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
        tp = (key.topic, key.partition)
        for producer_id in list(self._producers.get(key.group, {}).get(tp, ())):
            self._release(key.group, tp, producer_id)
            pending = self._pending[producer_id]
            del pending[key.group, key.topic, key.partition]
            if not pending:
                del self._pending[producer_id]

    def _release(self, group_id: str, tp: TopicPartition, producer_id: int) -> None:
        tps = self._producers[group_id]
        tps[tp].discard(producer_id)
        if not tps[tp]:
            del tps[tp]
        if not tps:
            del self._producers[group_id]
