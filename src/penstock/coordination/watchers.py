"""What the stores share: who watches, how far they have been told, and for how long anyone waits."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from penstock.coordination.store import Change, StoreUnavailable, Versioned, Watcher

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Watch:
    """One watcher of the keys that begin with `prefix`."""

    prefix: str
    watcher: Watcher
    floor: int = -1
    """What is not past this revision is known to the watcher already."""
    waiting: list[Change] | None = field(default_factory=list)
    """What happened since the snapshot was asked for; None once the watcher has that snapshot."""

    def tell(self, change: Change) -> None:
        if self.waiting is not None:
            self.waiting.append(change)
        elif change.revision > self.floor:
            self._call(change)

    def begin(self, snapshot: Change) -> None:
        """The snapshot is there: tell it, and what has happened since."""
        self._call(snapshot)
        self.floor = snapshot.revision
        waiting, self.waiting = self.waiting or [], None
        for change in waiting:
            self.tell(change)

    def _call(self, change: Change) -> None:
        states: dict[str, Versioned | None] = {
            key: state for key, state in change.states.items() if key.startswith(self.prefix)
        }
        try:
            self.watcher(Change(revision=change.revision, snapshot=change.snapshot, states=states))
        except Exception:  # one watcher's mistake must not keep the others from the truth
            logger.exception("watcher_failed prefix=%r revision=%d", self.prefix, change.revision)


class Watchers:
    """All of a store's watchers. They are told of every change, each of the keys that it watches."""

    def __init__(self) -> None:
        self._watches: list[Watch] = []
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self.told = -1
        """All that happened up to this revision has been told."""

    def join(self, prefix: str, watcher: Watcher) -> Watch:
        """From now on changes are kept for the watcher; they are told after its snapshot (`Watch.begin`)."""
        watch = Watch(prefix=prefix, watcher=watcher)
        self._watches.append(watch)
        return watch

    def leave(self, watch: Watch) -> None:
        self._watches.remove(watch)

    def tell(self, change: Change) -> None:
        for watch in tuple(self._watches):
            watch.tell(change)
        self.has_told(change.revision)

    def has_told(self, revision: int) -> None:
        """Wakes those who wait for it."""
        self.told = max(self.told, revision)
        awaited, self._awaited = self._awaited, []
        for wanted, future in awaited:
            if wanted > self.told:
                self._awaited.append((wanted, future))
            elif not future.done():
                future.set_result(None)

    async def reached(self, revision: int) -> None:
        """Returns when every watcher that has its snapshot has been told of all that happened up to `revision`."""
        if self.told < revision and any(watch.waiting is None for watch in self._watches):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaited.append((revision, future))
            await future

    def close(self) -> None:
        """Nobody will be told anything more."""
        awaited, self._awaited = self._awaited, []
        for _, future in awaited:
            if not future.done():
                future.set_exception(StoreUnavailable("the store was closed before its watchers were told"))

    def seen_of(self, revision: int) -> int:
        """As much of `revision` as the watchers have seen: what a transaction that changes nothing returns."""
        return min(revision, self.told) if any(watch.waiting is None for watch in self._watches) else revision


@asynccontextmanager
async def in_time(timeout_s: float, whom: str) -> AsyncIterator[None]:
    """StoreUnavailable if what is done within takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise StoreUnavailable(f"{whom} did not answer within {timeout_s:g} s") from None
