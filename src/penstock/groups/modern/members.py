"""Members of consumer, share and streams groups: member epochs, reconciliation state, current assignment."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from penstock.foundation.ids import TopicIdPartition

JOINING: Final = 0
"""Value of the member epoch in a heartbeat of a member that joins, or rejoins after being fenced."""
LEAVING: Final = -1
"""Value of the member epoch in a heartbeat of a member that leaves."""
AWAY: Final = -2
"""Value of the member epoch in a heartbeat of a static member that leaves and will rejoin soon."""
NOTHING_HELD: Final[Mapping[Any, int]] = MappingProxyType({})


class MemberState(IntEnum):
    """The reconciliation state of a member; the enum values are those in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has to revoke partitions before it may enter the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member is in the newest epoch and waits for partitions that other members have not released yet."""
    UNKNOWN = 127
    """A state written by a later software version; the member has to rejoin."""

    @classmethod
    def of(cls, number: int) -> "MemberState":
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


P = TypeVar("P", bound=NamedTuple)
"""Type variable for what is assigned to members: a partition, or a task of a streams group."""


class CurrentAssignment(NamedTuple, Generic[P]):
    """Fields of a member that reconciliation changes: epochs, state, assigned partitions, partitions to revoke."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Mapping[P, int]
    revoking: Mapping[P, int]


class ModernMember(Protocol):
    """Interface (typing.Protocol) of group members, which are immutable named tuples. The fields from `epoch` on
    are the current assignment, the fields before it are metadata. Each of the two parts has a record of its own."""

    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member is in this epoch and has all partitions of its target assignment."""

    def metadata_record(self) -> Any:
        """Returns the record value for the member's metadata."""

    def assignment_record(self) -> Any:
        """Returns the record value for the member's current assignment."""

    def with_metadata_record(self, value: Any) -> Self:
        """Returns a copy of this member with the metadata in `value`, the value of a member metadata record."""

    def with_assignment_record(self, value: Any) -> Self:
        """Returns the member with the current assignment of a record value."""

    def without_assignment(self) -> Self:
        """Returns the member with an empty current assignment, as after a tombstone."""


M = TypeVar("M", bound=ModernMember)


def with_assignment(member: M, other: Any) -> M:
    """Returns `member` with the current assignment of `other`, which is a member or a CurrentAssignment."""
    metadata: Any = member
    fields = (*metadata[: metadata._fields.index("epoch")], *other[other._fields.index("epoch") :])
    made: M = tuple.__new__(type(metadata), fields)  # three times as fast as calling the class
    return made


def by_topic(tps: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """Groups partitions by topic id; topics and partitions are sorted, so that equal sets have equal encodings."""
    table: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(tps):
        table.setdefault(topic_id, []).append(partition)
    return table
