"""The Store port: a small linearizable key-value store with compare-and-set and watches.

Every change names the version it was decided on, so that whoever decided on an old view changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

ABSENT = 0
"""The version of a key that is not there."""


class Conflict(PenstockError):
    """A key had another version than the change was decided on: look again, decide again."""

    code = ErrorCode.OPERATION_NOT_ATTEMPTED

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by someone else meanwhile")
        self.key = key


class StoreUnavailable(PenstockError):
    """The store did not answer: what was asked may or may not have happened."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioned:
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """The key must have this version (ABSENT: must not be there)."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Set the key, which must have this version (ABSENT: it is made)."""

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key, which must have this version."""

    key: str
    version: int


Op = Check | Put | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a watcher is told: the latest states of keys, None for those that are gone.

    `snapshot`: these are all the keys there are; forget any other.
    """

    revision: int
    snapshot: bool = False
    states: Mapping[str, Versioned | None] = field(default_factory=dict)


Watcher = Callable[[Change], None]


class Store(Protocol):
    async def get(self, key: str) -> Versioned | None: ...

    async def transact(self, ops: Sequence[Op]) -> int:
        """All of it or, with Conflict, nothing. The revision from which watchers see it."""

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        """Call `watcher` with a snapshot now, then with changes, on the event loop."""

    async def close(self) -> None: ...
