"""The store of a single node: SQLite in the data folder, synced on every change. Nothing to install."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from penstock.coordination.store import (
    ABSENT,
    Change,
    Check,
    Conflict,
    Delete,
    Op,
    Put,
    StoreUnavailable,
    Versioned,
    Watcher,
)

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS revision (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), value INTEGER NOT NULL);
INSERT OR IGNORE INTO revision VALUES (1, 0);
"""


class EmbeddedStore:
    """One thread owns the database; the event loop asks it. A key's version is the revision of its last change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._database: sqlite3.Connection | None = None
        self._watchers: list[tuple[str, Watcher]] = []
        self._is_closed = False

    async def open(self) -> None:
        await self._on_thread(self._connect)

    def _connect(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # isolation_level None: transactions are begun and ended by name below.
        self._database = sqlite3.connect(self._path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(_SCHEMA)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._is_closed:
            raise StoreUnavailable(f"the embedded store {self._path} is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the embedded store {self._path} failed: {error}") from error

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._database is not None, "open() comes first"
        return self._database

    async def get(self, key: str) -> Versioned | None:
        return await self._on_thread(lambda: self._get(key))

    def _get(self, key: str) -> Versioned | None:
        row = self._db.execute("SELECT value, version FROM entries WHERE key = ?", (key,)).fetchone()
        return Versioned(value=row[0], version=row[1]) if row else None

    async def transact(self, ops: Sequence[Op]) -> int:
        # A caller that is cancelled must not keep from the watchers what the thread has done already.
        return await asyncio.shield(self._transact_and_tell(tuple(ops)))

    async def _transact_and_tell(self, ops: Sequence[Op]) -> int:
        change = await self._on_thread(lambda: self._transact(ops))
        for prefix, watcher in self._watchers:
            states = {key: state for key, state in change.states.items() if key.startswith(prefix)}
            if states:
                watcher(Change(revision=change.revision, states=states))
        return change.revision

    def _transact(self, ops: Sequence[Op]) -> Change:
        states: dict[str, Versioned | None] = {}
        with self._db:  # commits, or rolls back whatever goes wrong
            self._db.execute("BEGIN IMMEDIATE")
            revision = self._revision()
            if any(not isinstance(op, Check) for op in ops):
                revision += 1
                self._db.execute("UPDATE revision SET value = ?", (revision,))
            for op in ops:
                self._apply(op, revision, states)
        return Change(revision=revision, states=states)

    def _apply(self, op: Op, revision: int, states: dict[str, Versioned | None]) -> None:
        found = self._get(op.key)
        if (found.version if found else ABSENT) != op.version:
            raise Conflict(op.key)
        match op:
            case Put():
                self._db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (op.key, op.value, revision))
                states[op.key] = Versioned(value=op.value, version=revision)
            case Delete():
                self._db.execute("DELETE FROM entries WHERE key = ?", (op.key,))
                states[op.key] = None
            case Check():
                pass

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        watcher(await self._on_thread(lambda: self._snapshot(prefix)))
        self._watchers.append((prefix, watcher))

    def _snapshot(self, prefix: str) -> Change:
        rows = self._db.execute("SELECT key, value, version FROM entries WHERE key >= ? ORDER BY key", (prefix,))
        states: dict[str, Versioned | None] = {
            key: Versioned(value=value, version=version) for key, value, version in rows if key.startswith(prefix)
        }
        return Change(revision=self._revision(), snapshot=True, states=states)

    def _revision(self) -> int:
        (revision,) = self._db.execute("SELECT value FROM revision").fetchone()
        return int(revision)

    async def close(self) -> None:
        if self._is_closed:
            return
        if self._database is not None:
            await self._on_thread(self._database.close)
        self._is_closed = True
        self._thread.shutdown()
