"""Helpers for tests of stores: opening, watching, waiting."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.coordination.store import ABSENT, Change, Conflict, Put, Store, StoreUnavailable, Versioned
from penstock.coordination.store_security import StoreSecurity
from penstock.coordination.stores import NO_SECURITY, open_store

T = TypeVar("T")

PATIENCE_S = 30.0
"""Far more than anything here takes, so that a slow machine does not fail a test."""
TTL_S = 5.0


@dataclass(frozen=True)
class Stores:
    """One store, which can be opened several times: what one connection writes, the others see."""

    kind: str
    url: str
    folder: Path
    security: StoreSecurity = NO_SECURITY

    @asynccontextmanager
    async def opened(
        self, *, ttl_s: float = TTL_S, timeout_s: float = PATIENCE_S, url: str | None = None
    ) -> AsyncIterator[Store]:
        store = await open_store(url or self.url, self.folder, ttl_s, timeout_s, self.security)
        try:
            yield store
        finally:
            await store.close()


class Watched:
    """The changes that a watcher has received. Raises AssertionError for those that no watcher may see."""

    def __init__(self) -> None:
        self.states: dict[str, Versioned] = {}
        self.revision = -1
        self.changes: list[Change] = []
        self.violations: list[str] = []
        self._changed = asyncio.Event()

    def __call__(self, change: Change) -> None:
        if change.revision < self.revision:
            self.violations.append(f"revision {change.revision} came after {self.revision}")
        if not self.changes and not change.snapshot:
            self.violations.append("there was a change before the snapshot")
        self.changes.append(change)
        if change.snapshot:
            self.states.clear()
        for key, state in change.states.items():
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
        self.revision = change.revision
        self._changed.set()

    @property
    def values(self) -> dict[str, bytes]:
        assert not self.violations
        return {key: state.value for key, state in self.states.items()}

    @property
    def snapshots(self) -> int:
        return sum(change.snapshot for change in self.changes)

    async def until(self, look: Callable[[], bool], what: str) -> None:
        """Returns when `look` is true after a change."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not look():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"waited {PATIENCE_S:g} s in vain for: {what}; seen: {self.values!r:.500}") from None

    async def shows(self, values: dict[str, bytes]) -> None:
        await self.until(lambda: self.values == values, f"the watcher sees {values!r:.500}")


async def until(look: Callable[[], object], what: str, pause_s: float = 0.02) -> None:
    """Returns when `look` is true. AssertionError, naming `what`, if that takes too long."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline_s, f"waited {PATIENCE_S:g} s in vain for: {what}"
        await asyncio.sleep(pause_s)


async def sometime(attempt: Callable[[], Awaitable[T]]) -> T:
    """The outcome of the first attempt that finds the store available."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await attempt()
        except StoreUnavailable:
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.05)


async def put(store: Store, key: str, value: bytes) -> int:
    """Sets a key, unconditionally; returns its new version."""
    found = await store.get(key)
    await store.transact([Put(key, value, found.version if found else ABSENT)])
    now = await store.get(key)
    assert now is not None
    return now.version


async def count_up(store: Store, key: str) -> int:
    """Add one to a number; the number that this attempt wrote."""
    while True:
        found = await store.get(key)
        number = int(found.value) + 1 if found else 1
        try:
            await store.transact([Put(key, b"%d" % number, found.version if found else ABSENT)])
        except Conflict:
            continue
        return number
