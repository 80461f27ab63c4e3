"""Store of handled message ids: skips redelivered messages whose side effects must not happen twice.

for message in mq.subscribe("orders", group="billing", idempotent_by=lambda m: m.json()["id"]):
    charge(message.json())
"""

import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

from penstock.api.core.message import Message
from penstock.api.core.settings import check_positive
from penstock.api.errors import InvalidArgument, InvalidValue
from penstock.foundation.clock import Clock, SystemClock
from penstock.foundation.settings import LONG_MAX

MessageId = str | bytes | int
IdempotentBy = Callable[[Message], MessageId]
"""Function that returns the id of a message; messages with the same id count as duplicates."""
KEEP: Final = 1_000_000
KEEP_S: Final = 7 * 24 * 3600.0
TRIM_EVERY: Final = 1_000
"""Number of `mark` calls between deletions of old ids (older than `keep_s`, or beyond the `keep` newest)."""
MEMORY: Final = ":memory:"
FILE_NAME_CHARS_MAX: Final = 200

_SCHEMA: Final = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS handled (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, marked_ms INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS handled_by_time ON handled (marked_ms);
"""


class HandledStore(Protocol):
    """Interface of a store of handled message ids. To survive any crash, write id and side effect in one transaction.

    class InPostgres:
        def seen(self, id): return self.row("SELECT 1 FROM handled WHERE id = %s", id) is not None
        def mark(self, id): self.run("INSERT INTO handled VALUES (%s) ON CONFLICT DO NOTHING", id)
    """

    def seen(self, id: MessageId) -> bool:
        """Returns whether `mark` was called with this id; False again once the store has dropped the id."""

    def mark(self, id: MessageId) -> None:
        """Marks the message with this id as handled. Must accept an id that is marked already."""


class SqliteHandled:
    """Handled ids in a SQLite file (processes may share it) or in memory: at most `keep` ids, for `keep_s` seconds.

    >>> store = SqliteHandled(":memory:", keep=1000, keep_s=3600)
    >>> store.mark("order-1"); store.seen("order-1"), store.seen("order-2")
    (True, False)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = MEMORY,
        *,
        keep: int = KEEP,
        keep_s: float = KEEP_S,
        clock: Clock | None = None,
    ) -> None:
        check_positive("keep", keep)
        check_positive("keep_s", keep_s)
        self._keep = keep
        self._keep_ms = int(keep_s * 1000)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._marks = 0
        try:
            self._database = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            self._database.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise InvalidArgument(
                f"{os.fspath(path)!r} cannot be used as a store of handled messages: {error}"
            ) from error
        self._trim()

    def seen(self, id: MessageId) -> bool:
        """Returns whether this id was marked as handled in the last `keep_s` seconds, and is still stored."""
        oldest_ms = self._clock.now_ms() - self._keep_ms
        with self._lock:
            found = self._database.execute("SELECT marked_ms FROM handled WHERE id = ?", (id,)).fetchone()
        return found is not None and found[0] >= oldest_ms

    def mark(self, id: MessageId) -> None:
        """Marks this id as handled. A process crash does not lose the id; a power failure shortly after can."""
        now_ms = self._clock.now_ms()
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO handled (id, marked_ms) VALUES (?, ?)", (id, now_ms))
            self._marks += 1
            is_time = self._marks % TRIM_EVERY == 0
        if is_time:
            self._trim()

    def _trim(self) -> None:
        with self._lock:
            self._database.execute("DELETE FROM handled WHERE marked_ms < ?", (self._clock.now_ms() - self._keep_ms,))
            self._database.execute(
                "DELETE FROM handled WHERE number <= (SELECT max(number) FROM handled) - ?", (self._keep,)
            )

    def close(self) -> None:
        """Closes the file; the ids stay in it."""
        self._database.close()


class HandledFilter:
    """Finds messages of a subscription that were handled before, by their ids in a HandledStore."""

    def __init__(self, id_of: IdempotentBy, store: HandledStore, owned: SqliteHandled | None) -> None:
        self._id_of = id_of
        self._store = store
        self._owned = owned

    def id(self, message: Message) -> MessageId:
        found = self._id_of(message)
        if not isinstance(found, str | bytes | int) or (isinstance(found, int) and abs(found) > LONG_MAX):
            raise InvalidValue(
                f"idempotent_by returned {found!r} for offset {message.offset} of partition "
                f"{message.topic}-{message.partition}; it must return str, bytes or int"
            )
        return found

    def seen(self, id: MessageId) -> bool:
        return self._store.seen(id)

    def mark(self, id: MessageId) -> None:
        self._store.mark(id)

    def close(self) -> None:
        if self._owned is not None:
            self._owned.close()


def create_handled_filter(
    id_of: IdempotentBy | None, store: HandledStore | str | os.PathLike[str] | None, group: str | None
) -> HandledFilter | None:
    """Returns a filter that finds handled messages by `id_of`. None if `id_of` is None; `store` must then be None.
    `store`: where handled ids are stored; None: in a file of consumer group `group`, or in memory without a group."""
    if id_of is None:
        if store is not None:
            raise InvalidArgument("store= needs idempotent_by=, which returns the id of a message; give both")
        return None
    if store is None:
        store = MEMORY if group is None else default_path(group)
        if isinstance(store, Path):
            store.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(store, str | os.PathLike):
        owned = SqliteHandled(store)
        return HandledFilter(id_of, owned, owned)
    return HandledFilter(id_of, store, None)


def default_path(group: str) -> Path:
    """Returns the default SQLite file for the handled ids of a consumer group on this machine.

    >>> default_path("billing/eu").name
    'billing%2Feu.sqlite'
    """
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    name = quote(group, safe="")
    if len(name) > FILE_NAME_CHARS_MAX:
        name = hashlib.sha256(group.encode()).hexdigest()
    return Path(home, "penstock", "handled", f"{name}.sqlite")
