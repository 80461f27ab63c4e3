"""The Store interface: a small linearizable key-value store with compare-and-set transactions, leases, watches.

Every write names the version that it was based on, so that a decision on outdated data changes nothing.

A version is meaningful only while its key exists. A key that is deleted and created again gets a version it never had
in embedded and etcd stores; ZooKeeper restarts versions for every new node. So a key that may be created again must
have something unique in its name (a topic id, an incarnation), or be changed only together with a key that has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError

ABSENT = 0
"""The version of a key that does not exist."""

TIMEOUT_S: Final = 5.0
"""Timeout, in seconds, for requests to a remote store, after which StoreUnavailable is raised."""


class Conflict(PenstockError):
    """A key had another version than expected: the caller must read the key and decide again."""

    code = ErrorCode.OPERATION_NOT_ATTEMPTED

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was changed concurrently; retry")
        self.key = key


class StoreUnavailable(PenstockError):
    """The store did not answer: the request may or may not have been executed."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class StoreDamaged(StoreUnavailable):
    """The file of the embedded store cannot be used, for example because the disk is full; retries would not help."""


class TransactionTooLarge(PenstockError):
    """The transaction exceeds the size limit of the store's servers; it was not executed."""

    code = ErrorCode.POLICY_VIOLATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioned:
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Condition of a transaction: the key has this version (ABSENT: the key does not exist)."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Sets a key, which must have this version (ABSENT: it is created).

    `leased`, allowed only for a new key: the key is deleted at the end of this store's session.
    """

    key: str
    value: bytes
    version: int
    leased: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a key, which must have this version (ABSENT: it must not exist, and nothing is deleted)."""

    key: str
    version: int


Op = Check | Put | Delete


def validate(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Returns the operations of a transaction without duplicates. Raises ValueError if they are invalid."""
    seen: dict[str, Op] = {}
    for op in ops:
        if not op.key:
            raise ValueError("a key must not be empty")
        if isinstance(op, Put) and op.leased and op.version != ABSENT:
            raise ValueError(f"only a new key can be leased, but {op.key!r} has version {op.version}")
        if seen.setdefault(op.key, op) != op:
            raise ValueError(f"a transaction can have one operation per key, but has several for {op.key!r}")
    return tuple(seen.values())


def has_writes(ops: Sequence[Op]) -> bool:
    """Whether a transaction writes anything."""
    return any(isinstance(op, Put) or (isinstance(op, Delete) and op.version != ABSENT) for op in ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Changed keys with their latest states (None: deleted), as sent to watchers.

    `snapshot`: whether `states` holds all existing keys, so that any other key counts as deleted. All changes up to
    `revision` have been sent; a change may contain nothing but a new revision.
    """

    revision: int
    snapshot: bool = False
    states: Mapping[str, Versioned | None] = field(default_factory=dict)


Watcher = Callable[[Change], None]


class Store(Protocol):
    """One connection to the coordination store, with one session. Reconnects automatically."""

    on_session_lost: list[Callable[[], None]]
    """Called on the event loop when the session has expired: its leased keys are deleted, or will be soon. The
    store starts a new session as soon as it can. Not called for a session that ends by `close`."""

    @property
    def is_connected(self) -> bool:
        """Whether the store was reachable at the last attempt."""

    async def get(self, key: str) -> Versioned | None:
        """Returns the current value and version of a key; None if the key does not exist."""

    async def transact(self, ops: Sequence[Op]) -> int:
        """Executes all operations, or none and raises Conflict; at most one operation per key. Returns the revision.

        When it returns, the watchers of this store have been notified of that revision. A cancelled transaction may
        still be executed; then watchers are notified as well.
        """

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        """Calls `watcher` on the event loop: with a snapshot, then with changes; after a gap, with a new snapshot.

        Several changes may be combined. The keys of one transaction are in one Change with embedded and etcd;
        ZooKeeper reports each node separately, so under load a watcher may see a transaction in parts.
        """

    async def close(self) -> None:
        """Closes the connection and ends the session: its leased keys are deleted at once."""
