"""Notifies watchers of a store: each gets a snapshot, then every later change; callers can wait for a revision."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from penstock.coordination.store import Change, StoreUnavailable, Versioned, Watcher

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Watch:
    """One watcher, and the prefix of the keys that it watches."""

    prefix: str
    watcher: Watcher
    floor: int = -1
    """Revision of the snapshot: earlier changes are not delivered to the watcher."""
    waiting: list[Change] | None = field(default_factory=list)
    """Changes held until the watcher has received its snapshot, and delivered after it; then None."""

    def notify(self, change: Change) -> None:
        if self.waiting is not None:
            self.waiting.append(change)
        elif change.revision > self.floor:
            self._call(change)

    def begin(self, snapshot: Change) -> None:
        """Delivers the snapshot to the watcher, then the changes since the snapshot."""
        self._call(snapshot)
        self.floor = snapshot.revision
        waiting, self.waiting = self.waiting or [], None
        for change in waiting:
            self.notify(change)

    def _call(self, change: Change) -> None:
        states: dict[str, Versioned | None] = {
            key: state for key, state in change.states.items() if key.startswith(self.prefix)
        }
        try:
            self.watcher(Change(revision=change.revision, snapshot=change.snapshot, states=states))
        except Exception:  # an error in one watcher must not affect the others
            logger.exception("watcher_failed prefix=%r revision=%d", self.prefix, change.revision)


class Watchers:
    """All watchers of a store; each is notified of changes to the keys it watches."""

    def __init__(self) -> None:
        self._watches: list[Watch] = []
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self.notified = -1
        """The revision up to which all changes have been delivered."""

    def join(self, prefix: str, watcher: Watcher) -> Watch:
        """Adds a watcher. Its changes are buffered until it has received its snapshot (`Watch.begin`)."""
        watch = Watch(prefix=prefix, watcher=watcher)
        self._watches.append(watch)
        return watch

    def leave(self, watch: Watch) -> None:
        self._watches.remove(watch)

    def notify(self, change: Change) -> None:
        for watch in tuple(self._watches):
            watch.notify(change)
        self.mark_notified(change.revision)

    def mark_notified(self, revision: int) -> None:
        """Wakes the tasks that wait until watchers are notified of this revision."""
        self.notified = max(self.notified, revision)
        awaited, self._awaited = self._awaited, []
        for wanted, future in awaited:
            if wanted > self.notified:
                self._awaited.append((wanted, future))
            elif not future.done():
                future.set_result(None)

    async def wait_notified(self, revision: int) -> None:
        """Waits until all watchers that have a snapshot are notified of all changes up to `revision`."""
        if self.notified < revision and any(watch.waiting is None for watch in self._watches):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append((revision, future))
            await future

    def close(self) -> None:
        """Raises StoreUnavailable in all tasks in `wait_notified`."""
        awaited, self._awaited = self._awaited, []
        for _, future in awaited:
            if not future.done():
                future.set_exception(StoreUnavailable("the store was closed before its watchers were notified"))

    def limit_to_seen(self, revision: int) -> int:
        """Returns `revision`, limited to the last revision sent to watchers, as the result of a transaction without
        writes: it causes no watch event, so a caller that waited for a later revision might wait forever."""
        return min(revision, self.notified) if any(watch.waiting is None for watch in self._watches) else revision


@asynccontextmanager
async def in_time(timeout_s: float, name: str) -> AsyncIterator[None]:
    """Raises StoreUnavailable for the store `name` if the `with` block takes longer than `timeout_s` seconds."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise StoreUnavailable(f"{name} did not answer within {timeout_s:g} s") from None
