"""A store in memory that several brokers hold sessions of, and that fails on demand."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.coordination.store import (
    ABSENT,
    Change,
    Check,
    Conflict,
    Op,
    Put,
    StoreUnavailable,
    Versioned,
    Watcher,
    validate,
)


class Server:
    """The keys and their watchers."""

    def __init__(self) -> None:
        self.states: dict[str, Versioned] = {}
        self.revision = 0
        self.leases: dict[str, SessionStore] = {}
        self.stores: list[SessionStore] = []
        self.changes: list[Change] = []

    def session(self) -> "SessionStore":
        store = SessionStore(self)
        self.stores.append(store)
        return store

    def transact(self, ops: Sequence[Op], holder: "SessionStore") -> int:
        for op in ops:
            found = self.states.get(op.key)
            if (found.version if found else ABSENT) != op.version:
                raise Conflict(op.key)
        changed: dict[str, Versioned | None] = {}
        self.revision += 1
        for op in ops:
            if isinstance(op, Put):
                changed[op.key] = self.states[op.key] = Versioned(value=op.value, version=self.revision)
                if op.leased:
                    self.leases[op.key] = holder
            elif not isinstance(op, Check):
                changed[op.key] = self._remove(op.key)
        self._notify(changed)
        return self.revision

    def _remove(self, key: str) -> None:
        self.states.pop(key, None)
        self.leases.pop(key, None)

    def end(self, holder: "SessionStore") -> None:
        """A session is over: what was leased to it goes."""
        gone = [key for key, owner in self.leases.items() if owner is holder]
        if gone:
            self.revision += 1
            self._notify({key: self._remove(key) for key in gone})

    def _notify(self, states: dict[str, Versioned | None]) -> None:
        change = Change(revision=self.revision, states=states)
        self.changes.append(change)
        for store in self.stores:
            for watcher in store.watchers:
                watcher(change)

    def snapshot(self) -> Change:
        return Change(revision=self.revision, snapshot=True, states=dict(self.states))


class SessionStore:
    """One broker's connection, and its session."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.watchers: list[Watcher] = []
        self.on_session_lost: list[Callable[[], None]] = []
        self.is_connected = True
        self.failures = 0
        """So many of the next transactions get no answer."""
        self.loses_answers = False
        """Whether those happen all the same."""
        self.held: asyncio.Event | None = None
        """If set, transactions wait for it: the process is paused."""

    async def get(self, key: str) -> Versioned | None:
        self._check()
        return self.server.states.get(key)

    async def transact(self, ops: Sequence[Op]) -> int:
        await asyncio.sleep(0)
        if self.held is not None:
            await self.held.wait()
        self._check()
        if self.failures:
            self.failures -= 1
            if self.loses_answers:
                self.server.transact(validate(ops), self)
            raise StoreUnavailable("no answer")
        return self.server.transact(validate(ops), self)

    def _check(self) -> None:
        if not self.is_connected:
            raise StoreUnavailable("the store is away")

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        watcher(self.server.snapshot())
        self.watchers.append(watcher)

    def expire(self) -> None:
        """The session is over, though its holder lives; it has another one at once."""
        self.server.end(self)
        for callback in self.on_session_lost:
            callback()

    def die(self) -> None:
        """The process is killed; its session has not expired yet."""
        self.watchers.clear()
        self.is_connected = False

    async def close(self) -> None:
        self.watchers.clear()
        self.server.end(self)
