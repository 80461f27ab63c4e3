"""EmbeddedStore: the coordination store of a single node: SQLite in the data folder, synced on every change."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from penstock.coordination.store import (
    ABSENT,
    Change,
    Conflict,
    Delete,
    Op,
    Put,
    StoreDamaged,
    StoreUnavailable,
    Versioned,
    Watcher,
    has_writes,
    validate,
)
from penstock.coordination.watchers import Watchers
from penstock.foundation.errors import PenstockError

T = TypeVar("T")

_LASTING: Final = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
"""SQLite's errors that last until the disk or the file is repaired."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS revision (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), value INTEGER NOT NULL);
INSERT OR IGNORE INTO revision VALUES (1, 0);
CREATE TABLE IF NOT EXISTS leased (key TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS moved (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    url TEXT NOT NULL, move_id TEXT NOT NULL, is_done INTEGER NOT NULL
);
"""


class StoreMoved(PenstockError):
    """The cluster was migrated from this store to another store: no broker may start on this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """Marks a store as migrated: the target's URL, the id of the migration, and whether the migration is complete."""

    url: str
    move_id: str
    is_done: bool = False


class EmbeddedStore:
    """SQLite store: one thread owns the database. The version of a key is the revision of its last change.

    Its session lasts from `open` to `close`. After a crash, the next `open` deletes the keys leased in it.
    `open` raises StoreMoved if the store is sealed (marked as migrated), except with `opens_sealed`, for migrations.
    """

    def __init__(self, path: Path, *, opens_sealed: bool = False) -> None:
        self._path = path
        self._opens_sealed = opens_sealed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._database: sqlite3.Connection | None = None
        self._watchers = Watchers()
        self._is_closed = False
        self.on_session_lost: list[Callable[[], None]] = []

    @property
    def is_connected(self) -> bool:
        return self._database is not None and not self._is_closed

    async def open(self) -> None:
        await self._on_thread(self._connect)

    def _connect(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # isolation_level None: transactions are begun explicitly below.
        database = sqlite3.connect(self._path, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.executescript(_SCHEMA)
            self._check_seal(database)
        except (sqlite3.Error, StoreMoved):
            database.close()
            raise
        self._database = database
        self._end_leases()

    def _check_seal(self, database: sqlite3.Connection) -> None:
        seal = _read_seal(database)
        if seal is None or self._opens_sealed:
            return
        folder = self._path.parent
        if seal.is_done:
            raise StoreMoved(f"the cluster of {folder} was moved to {seal.url}; start with --store {seal.url}")
        raise StoreMoved(
            f"the cluster of {folder} is being moved to {seal.url}; finish that with "
            f"`penstock cluster migrate-store --data-dir {folder} --to {seal.url} --execute`, then start with --store"
        )

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._is_closed:
            raise StoreUnavailable(f"the embedded store {self._path} is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            kind = StoreDamaged if getattr(error, "sqlite_errorcode", 0) & 0xFF in _LASTING else StoreUnavailable
            raise kind(f"the embedded store {self._path} failed: {error}") from error

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._database is not None, "call open() first"
        return self._database

    async def get(self, key: str) -> Versioned | None:
        return await self._on_thread(lambda: self._get(key))

    def _get(self, key: str) -> Versioned | None:
        row = self._db.execute("SELECT value, version FROM entries WHERE key = ?", (key,)).fetchone()
        return Versioned(value=row[0], version=row[1]) if row else None

    async def seal(self) -> Seal | None:
        """Returns the seal, which names the target of a migration; None if the store is not sealed."""
        return await self._on_thread(lambda: _read_seal(self._db))

    async def put_seal(self, seal: Seal) -> None:
        """Marks this store as migrated, or being migrated, to another: brokers that open it get StoreMoved."""

        def put() -> None:
            with self._db:
                self._db.execute(
                    "INSERT OR REPLACE INTO moved VALUES (1, ?, ?, ?)", (seal.url, seal.move_id, seal.is_done)
                )

        await self._on_thread(put)

    async def transact(self, ops: Sequence[Op]) -> int:
        # If the caller is cancelled, watchers must still be notified of a transaction that was executed.
        return await asyncio.shield(self._transact_and_notify(validate(ops)))

    async def _transact_and_notify(self, ops: Sequence[Op]) -> int:
        change = await self._on_thread(lambda: self._transact(ops))
        if change.states:
            self._watchers.notify(change)
        return change.revision

    def _transact(self, ops: Sequence[Op]) -> Change:
        states: dict[str, Versioned | None] = {}
        with self._db:  # commits, or rolls back after any error
            self._db.execute("BEGIN IMMEDIATE")
            revision = self._revision()
            if has_writes(ops):
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
                if op.leased:
                    self._db.execute("INSERT INTO leased VALUES (?)", (op.key,))
                states[op.key] = Versioned(value=op.value, version=revision)
            case Delete() if found:
                self._db.execute("DELETE FROM entries WHERE key = ?", (op.key,))
                self._db.execute("DELETE FROM leased WHERE key = ?", (op.key,))
                states[op.key] = None
            case _:  # only the version had to be checked
                pass

    def _end_leases(self) -> None:
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if self._db.execute("SELECT 1 FROM leased").fetchone():
                self._db.execute("UPDATE revision SET value = value + 1")
                self._db.execute("DELETE FROM entries WHERE key IN (SELECT key FROM leased)")
                self._db.execute("DELETE FROM leased")

    async def watch(self, prefix: str, watcher: Watcher) -> None:
        watch = self._watchers.join(prefix, watcher)
        try:
            snapshot = await self._on_thread(lambda: self._snapshot(prefix))
        except BaseException:
            self._watchers.leave(watch)
            raise
        watch.begin(snapshot)

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
        try:
            if self._database is not None:
                await self._on_thread(self._disconnect)
        finally:
            self._is_closed = True
            self._thread.shutdown()

    def _disconnect(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # such as a full disk: the next open removes them
            self._end_leases()
        self._db.close()


def _read_seal(database: sqlite3.Connection) -> Seal | None:
    row = database.execute("SELECT url, move_id, is_done FROM moved").fetchone()
    return Seal(url=row[0], move_id=row[1], is_done=bool(row[2])) if row else None
