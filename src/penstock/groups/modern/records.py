"""Builds, encodes and decodes the records of consumer, share and streams groups in `__consumer_offsets`."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol

from penstock.foundation.decision import StateRecord
from penstock.foundation.ids import TopicIdPartition
from penstock.groups.modern.members import M, P, by_topic
from penstock.groups.records import GroupKey, MemberKey, TargetTopicPartitions
from penstock.wire.state import state_record


class Change(NamedTuple):
    """One record before it is encoded: its kind, key and value; the value is None for a tombstone.

    The value is the in-memory object (a member, or its target partitions), so that the record need not be decoded
    when it is applied.
    """

    kind: int
    key: Any
    value: Any | None


class GroupRecords(ABC, Generic[M, P]):
    """Builds and encodes the records of one group; each kind of group has a subclass with its kinds of records."""

    kinds: ClassVar[Mapping[int, tuple[type, type]]]
    """Key class and value class of each kind of record, by the number of the kind."""
    group_kind: ClassVar[int]
    """Kind (number) of the record with the group's metadata. The fields from `member_kind` to `current_kind` are the
    kinds of the other records."""
    member_kind: ClassVar[int]
    target_epoch_kind: ClassVar[int]
    target_kind: ClassVar[int]
    current_kind: ClassVar[int]

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def group_epoch(self, epoch: int, metadata_hash: int, **more: Any) -> Change:
        return self.of_group(self.group_kind, epoch=epoch, metadata_hash=metadata_hash, **more)

    def target_epoch(self, epoch: int, at_ms: int) -> Change:
        return self.of_group(self.target_epoch_kind, assignment_epoch=epoch, assignment_timestamp=at_ms)

    def of_group(self, kind: int, **fields: Any) -> Change:
        """Returns the change that writes the group's record of this kind, with `fields` as its value."""
        return Change(kind, GroupKey(group=self._group_id), self.kinds[kind][1](**fields))

    def target(self, member_id: str, target: Iterable[P]) -> Change:
        return self._of_member(self.target_kind, member_id, frozenset(target))

    def member_metadata(self, member: M) -> Change:
        return self._of_member(self.member_kind, member.member_id, member)

    def current_assignment(self, member: M) -> Change:
        return self._of_member(self.current_kind, member.member_id, member)

    def _of_member(self, kind: int, member_id: str, value: Any | None) -> Change:
        return Change(kind, MemberKey(group=self._group_id, member_id=member_id), value)

    def member_tombstones(self, member_ids: Collection[str]) -> list[Change]:
        """Returns tombstones of members: assignments first, so that no assignment is replayed without its member."""
        kinds = (self.current_kind, self.target_kind, self.member_kind)
        return [self._of_member(kind, member_id, None) for kind in kinds for member_id in member_ids]

    def group_tombstones(self) -> list[Change]:
        """Returns tombstones of the group's records, except records of members; the group's metadata comes last."""
        kinds = [kind for kind, (key, _) in self.kinds.items() if key is GroupKey and kind != self.group_kind]
        return [Change(kind, GroupKey(group=self._group_id), None) for kind in (*kinds, self.group_kind)]

    def to_record(self, change: Change) -> StateRecord:
        kind, key, value = change
        return state_record(kind, key, None if value is None else self.encode(kind, value), parsed=value)

    def encode(self, kind: int, value: Any) -> Any:
        """Converts an in-memory object, such as a member, to the value message of a record of this `kind`."""
        if kind == self.member_kind:
            return value.metadata_record()
        if kind == self.current_kind:
            return value.assignment_record()
        return self.encode_target(value) if kind == self.target_kind else value

    @abstractmethod
    def encode_target(self, target: frozenset[P]) -> Any:
        """Returns the record value for a member's target assignment."""

    @staticmethod
    @abstractmethod
    def decode_target(value: Any) -> frozenset[P]: ...


class PartitionRecords(GroupRecords[M, TopicIdPartition]):
    """Records of consumer and share groups, in which partitions are assigned to members."""

    def encode_target(self, target: frozenset[TopicIdPartition]) -> Any:
        return self.kinds[self.target_kind][1](topic_partitions=write_partitions(target))

    @staticmethod
    def decode_target(value: Any) -> frozenset[TopicIdPartition]:
        return read_partitions(value.topic_partitions)


def write_partitions(tps: Iterable[TopicIdPartition]) -> list[TargetTopicPartitions]:
    return [
        TargetTopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(tps).items()
    ]


class _TopicPartitions(Protocol):
    """Protocol class for the partitions of one topic in requests and records."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[int]: ...


def read_partitions(topics: Iterable[_TopicPartitions]) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions)
