"""Changes of what a group remembers: decided on first, persisted next, and only then what holds."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from penstock.foundation.decision import StateRecord
from penstock.wire.state import state_record

Writers = Mapping[int, Callable[[Any], Any]]
"""What is written of a change's value, by its kind; a kind that is missing is written as it is."""


class Change(NamedTuple):
    """One record: its kind, its key, and what it says, None if that is gone.

    What it says of a member is a Member, what it says of a target the partitions: what has just been worked out need
    not be read back from what is written of it.
    """

    kind: int
    key: Any
    value: Any | None


def written(change: Change, writers: Writers) -> StateRecord:
    """As it is persisted."""
    kind, key, value = change
    write = writers.get(kind)
    if value is None or write is None:
        return state_record(kind, key, value)
    return state_record(kind, key, write(value), meant=value)


class Changing(Protocol):
    """What a group remembers."""

    def copy(self) -> Self: ...

    def apply(self, kind: int, key: Any, value: Any | None) -> None: ...


S = TypeVar("S", bound=Changing)


class Draft(Generic[S]):
    """Changes that are decided on and not persisted yet: the state as it will be, and the records that make it so."""

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
