"""Drafts of a group's state: changes that are decided but not persisted yet, and their records."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from penstock.foundation.decision import StateRecord
from penstock.wire.state import state_record

Writers = Mapping[int, Callable[[Any], Any]]
"""Converts the value of a change to its record value, by kind; values of other kinds are written unchanged."""


class Change(NamedTuple):
    """One record before it is encoded: its kind, key and value; the value is None for a tombstone.

    The value is the in-memory object (a Member, or the partitions of a target), so that it need not be decoded again
    when the record is applied.
    """

    kind: int
    key: Any
    value: Any | None


def to_state_record(change: Change, writers: Writers) -> StateRecord:
    """Encodes a change as it is persisted."""
    kind, key, value = change
    write = writers.get(kind)
    if value is None or write is None:
        return state_record(kind, key, value)
    return state_record(kind, key, write(value), parsed=value)


class ReplayableState(Protocol):
    """The state of a group, changed only by records."""

    def copy(self) -> Self: ...

    def apply(self, kind: int, key: Any, value: Any | None) -> None: ...


S = TypeVar("S", bound=ReplayableState)


class Draft(Generic[S]):
    """The state of a group with changes that are not persisted yet, and the records of these changes."""

    def __init__(self, state: S, to_record: Callable[[Change], StateRecord]) -> None:
        self.state = state
        self._to_record = to_record
        self._changes: list[Change] = []

    def put(self, *changes: Change) -> None:
        if changes and not self._changes:
            self.state = self.state.copy()
        for change in changes:
            self._changes.append(change)
            self.state.apply(*change)

    @property
    def records(self) -> tuple[StateRecord, ...]:
        return tuple(map(self._to_record, self._changes))
