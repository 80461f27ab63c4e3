"""Members of a consumer group (KIP-848): what they ask for, what they hold, and how far they have come."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import partial
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.groups.records import ClassicMemberMetadata

JOINING: Final = 0
"""The epoch of a request to join, or to join again after having been fenced."""
LEAVING: Final = -1
"""The epoch of a request to leave."""
AWAY: Final = -2
"""The epoch of a static member that leaves and will be back within its session timeout."""


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    partition: int


Held = Mapping[TopicIdPartition, int]
"""Partitions that a member holds, and the epoch of the target that gave each to it (KIP-1251)."""
NOTHING_HELD: Final[Held] = MappingProxyType({})


class MemberState(IntEnum):
    """How a member stands to its target, by its number in the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions before it may go on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in the newest epoch and waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """Written by a later version; the member has to start over."""

    @classmethod
    def of(cls, number: int) -> "MemberState":
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


P = TypeVar("P", bound=NamedTuple)
"""What is assigned: a partition, or a task of a streams group."""


class Standing(NamedTuple, Generic[P]):
    """How far a member has come towards its target."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Mapping[P, int]
    revoking: Mapping[P, int]


class Member(NamedTuple):
    """One member. A tuple, since one or two are made of every heartbeat that changes something.

    What it says about itself comes first, then what it holds: the two are kept in records of their own.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    """Empty: it subscribes by names only."""
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Set while the member speaks the classic protocol."""
    epoch: int = JOINING
    previous_epoch: int = JOINING
    """The epoch that it may still speak of, if the response that told it the newest was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING_HELD
    revoking: Held = NOTHING_HELD
    """No longer assigned, and the member's own until it says that it gave them up."""

    def saying(self, other: "Member") -> "Member":
        """The member with what another one says about itself."""
        return _new_member((*other[:_HOLDS_FROM], *self[_HOLDS_FROM:]))

    def holding(self, other: "Member") -> "Member":
        """The member with what another one holds, and how far that one has come."""
        return _new_member((*self[:_HOLDS_FROM], *other[_HOLDS_FROM:]))

    @property
    def standing(self) -> Standing[TopicIdPartition]:
        return Standing(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def at(self, standing: Standing[TopicIdPartition]) -> "Member":
        """The member as it is after a step towards its target."""
        return _new_member((*self[:_HOLDS_FROM], *standing))

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        """What it subscribes to."""
        return self.topic_names, self.topic_regex

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def must_revoke(self) -> bool:
        """Whether the rebalance timeout runs."""
        return self.state is MemberState.UNREVOKED_PARTITIONS and self.epoch > JOINING and self.classic is None


_HOLDS_FROM: Final = Member._fields.index("epoch")
_new_member: Final = partial(tuple.__new__, Member)  # of its fields; a third of the time of NamedTuple's own


def by_topic(places: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """Partitions in order, by topics in order: the same for the same partitions, wherever they are written."""
    table: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(places):
        table.setdefault(topic_id, []).append(partition)
    return table
