"""Stores to test against: each factory opens one and the same store as often as it is asked to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.store import Change, Store, Versioned

WAIT_S = 10.0

Opened = Callable[[], AbstractAsyncContextManager[Store]]
"""A connection to the store; what an earlier one wrote is there."""


def embedded(folder: Path) -> Opened:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store = EmbeddedStore(folder / "data" / "metadata.db")
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    return opened


FACTORIES = {"embedded": embedded}
"""By name. A store of several machines takes the address of a server from its own fixture."""


class Watched:
    """What a watcher has been told. Changes may come together, and at any time after the transaction."""

    def __init__(self) -> None:
        self.states: dict[str, Versioned] = {}
        self.revision = -1
        self.changes: list[Change] = []
        self._told = asyncio.Event()

    def __call__(self, change: Change) -> None:
        self.changes.append(change)
        if change.snapshot:
            self.states.clear()
        for key, state in change.states.items():
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
        self.revision = change.revision
        self._told.set()

    @property
    def values(self) -> dict[str, bytes]:
        return {key: state.value for key, state in self.states.items()}

    async def reached(self, revision: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.revision < revision:
                self._told.clear()
                await self._told.wait()
