"""The Store port: a small linearizable key-value store with compare-and-set, leases and watches.

Every change names the version it was decided on, so that whoever decided on an old view changes nothing.

A version means something only while its key is there. A key that was removed and made again gets a version that it
never had where the store can promise that (embedded, etcd); ZooKeeper counts every node from the beginning. So a key
that is made again must hold something unique in its name (a topic's id, an incarnation), or be changed only together
with one that does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

ABSENT = 0
"""The version of a key that is not there."""

TIMEOUT_S: Final = 5.0
"""How long a caller waits for a store of other machines before it is StoreUnavailable."""


class Conflict(PenstockError):
    """A key had another version than the change was decided on: look again, decide again."""

    code = ErrorCode.OPERATION_NOT_ATTEMPTED

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed by someone else meanwhile")
        self.key = key


class StoreUnavailable(PenstockError):
    """The store did not answer: what was asked may or may not have happened."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class TransactionTooLarge(PenstockError):
    """More than the store's servers take in one transaction, which is never split. Nothing has changed."""

    code = ErrorCode.POLICY_VIOLATION


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
    """Set the key, which must have this version (ABSENT: it is made).

    `leased`: the key lives no longer than this store's session. That is said when the key is made, and stays so.
    """

    key: str
    value: bytes
    version: int
    leased: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key, which must have this version (ABSENT: there is nothing to remove, and must not be)."""

    key: str
    version: int


Op = Check | Put | Delete


def checked(ops: Sequence[Op]) -> tuple[Op, ...]:
    """The operations of a transaction, if they are such as every store can carry out. ValueError if not."""
    seen: dict[str, Op] = {}
    for op in ops:
        if not op.key:
            raise ValueError("a key has at least one character")
        if isinstance(op, Put) and op.leased and op.version != ABSENT:
            raise ValueError(f"a key is leased when it is made: {op.key!r} is put with version {op.version}")
        if seen.setdefault(op.key, op) != op:
            raise ValueError(f"a transaction does one thing with a key, and two with {op.key!r}")
    return tuple(seen.values())


def changes_anything(ops: Sequence[Op]) -> bool:
    """Whether a transaction is more than a look."""
    return any(isinstance(op, Put) or (isinstance(op, Delete) and op.version != ABSENT) for op in ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a watcher is told: the latest states of keys, None for those that are gone.

    `snapshot`: these are all the keys there are; forget any other. All that happened up to `revision` has been told;
    a change may bring nothing but that.
    """

    revision: int
    snapshot: bool = False
    states: Mapping[str, Versioned | None] = field(default_factory=dict)


Watcher = Callable[[Change], None]


class Store(Protocol):
    """One connection to the store, and one session in it. Whatever it loses it takes up again by itself."""

    on_session_lost: list[Callable[[], None]]
    """Called on the event loop when the session is over: its leased keys are gone, or will be soon. The store begins
    another one as soon as it can. Not called for a session that ends by `close`."""

    @property
    def is_connected(self) -> bool:
        """Whether the store could be reached when that was last tried."""

    async def get(self, key: str) -> Versioned | None:
        """What the key holds now."""

    async def transact(self, ops: Sequence[Op]) -> int:
        """All of it or, with Conflict, nothing; one thing with a key. The revision from which watchers see it.

        When it returns, the watchers of this store have been told already. One that is cancelled may still happen,
        and the watchers are told if it does.
        """

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        """Call `watcher` with a snapshot now, then with changes, on the event loop; with a snapshot after any gap.

        Changes may come together. The keys of one transaction come in one Change from embedded and etcd; ZooKeeper
        tells of each node by itself, so a transaction may be seen in parts there when much else happens.
        """

    async def close(self) -> None:
        """Ends the session too: its leased keys go at once."""
