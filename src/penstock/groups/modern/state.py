"""The persisted state of a consumer, share or streams group, and drafts: copies with changes not persisted yet."""

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, Generic, Self, TypeVar

from penstock.foundation.decision import StateRecord
from penstock.groups.modern.members import M, P, with_assignment
from penstock.groups.modern.records import Change, GroupRecords


class ModernState(ABC, Generic[M, P]):
    """The persisted state of one group. It is changed only by applying records."""

    records: type[GroupRecords[M, P]]

    def __init__(self) -> None:
        self.epoch = 0
        """The group epoch, incremented when members, subscriptions, topics or assignment settings change."""
        self.metadata_hash = 0
        self.target_epoch = 0
        """The group epoch for which the target assignment was computed."""
        self.members: dict[str, M] = {}
        self.by_instance: dict[str, str] = {}
        """Member ids of static members by instance id; only consumer groups have static members."""
        self.targets: dict[str, frozenset[P]] = {}
        self.is_dead = False

    def copy(self) -> Self:
        """Returns a copy that can be changed; it shares members and targets, which are immutable."""
        copied = copy(self)
        vars(copied).update((name, dict(value)) for name, value in vars(self).items() if isinstance(value, dict))
        return copied

    # -- queries

    @property
    def name(self) -> str:
        """The name of the group state, as Kafka's tools show it."""
        if self.is_dead:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        is_stable = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    @abstractmethod
    def subscribed(self) -> frozenset[str]:
        """Returns the topic names that any member subscribes to."""

    # -- changes

    def apply(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record. Records may arrive in any order, and compaction may have removed some of them."""
        records = self.records
        match kind:
            case records.group_kind:
                self.is_dead = value is None
                self.epoch = value.epoch if value else 0
                self.metadata_hash = value.metadata_hash if value else 0
            case records.target_epoch_kind:
                self.target_epoch = value.assignment_epoch if value else 0
            case records.target_kind:
                if value is None:
                    self.targets.pop(key.member_id, None)
                else:
                    target = value if isinstance(value, frozenset) else records.decode_target(value)
                    self.targets[key.member_id] = target
            case records.member_kind:
                old = self.members.get(key.member_id)
                self._put(old, None if value is None else self._with_metadata(key.member_id, value))
            case records.current_kind:
                old = self.members.get(key.member_id)
                if value is not None:
                    self._put(old, self._with_assignment(key.member_id, value))
                elif old is not None:
                    self._put(old, old.without_assignment())

    def _with_metadata(self, member_id: str, value: Any) -> M:
        member = self.members.get(member_id) or self.new_member(member_id)
        return (
            with_assignment(value, member) if isinstance(value, type(member)) else member.with_metadata_record(value)
        )

    def _with_assignment(self, member_id: str, value: Any) -> M:
        member = self.members.get(member_id) or self.new_member(member_id)
        return (
            with_assignment(member, value)
            if isinstance(value, type(member))
            else member.with_assignment_record(value)
        )

    @abstractmethod
    def new_member(self, member_id: str) -> M:
        """Returns a member without metadata and assignment."""

    @abstractmethod
    def _put(self, old: M | None, new: M | None) -> None:
        """Replaces member `old` with `new` (None: no member) and updates all indexes."""


S = TypeVar("S", bound=ModernState[Any, Any])


class Draft(Generic[S]):
    """A copy of a group's state with changes that are not persisted yet, and the records of these changes."""

    def __init__(self, state: S, records: GroupRecords[Any, Any]) -> None:
        self.state = state
        self._records = records
        self._changes: list[Change] = []

    def put(self, *changes: Change) -> None:
        if changes and not self._changes:
            self.state = self.state.copy()
        for change in changes:
            self._changes.append(change)
            self.state.apply(*change)

    @property
    def records(self) -> tuple[StateRecord, ...]:
        return tuple(map(self._records.to_record, self._changes))
