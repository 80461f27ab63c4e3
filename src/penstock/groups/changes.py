"""Draft of a group's state: changes that are decided but not persisted yet, and the records of these changes."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from penstock.foundation.decision import StateRecord
from penstock.wire.state import state_record

Writers = Mapping[int, Callable[[Any], Any]]
"""Functions, by record kind, that convert a change's value to its record value; other kinds need no conversion."""


class Change(NamedTuple):
    """One record before it is encoded: its kind, key and value; the value is None for a tombstone.

    The value is the in-memory object (a Member, or a member's target partitions), so that the record need not be
    decoded when it is applied.
    """

    kind: int
    key: Any
    value: Any | None


def to_state_record(change: Change, writers: Writers) -> StateRecord:
    """Returns the encoded record of a change. `writers` convert the values of some kinds."""
    kind, key, value = change
    write = writers.get(kind)
    if value is None or write is None:
        return state_record(kind, key, value)
    return state_record(kind, key, write(value), parsed=value)


class ReplayableState(Protocol):
    """Protocol class for the state of a group, which is changed by applying records only."""

    def copy(self) -> Self: ...

    def apply(self, kind: int, key: Any, value: Any | None) -> None: ...


S = TypeVar("S", bound=ReplayableState)


class Draft(Generic[S]):
    """A copy of a group's state with changes that are not persisted yet, and the records of these changes."""

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
