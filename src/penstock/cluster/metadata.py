"""The broker's hold on the cluster: the image it follows, and changes that it makes by compare-and-set."""

import asyncio
from collections.abc import Callable, Sequence

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import ABSENT, Change, Conflict, Op, Put, Store

Plan = Callable[[ClusterImage], Sequence[Op]]


class Metadata:
    """Follows the store. `image` is always whole; it is replaced, never changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.image = ClusterImage()
        self.listeners: list[Callable[[ClusterImage], None]] = []
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []

    async def start(self) -> None:
        await self._store.watch("", self._on_change)

    def _on_change(self, change: Change) -> None:
        self.image = self.image.with_change(change)
        for listener in self.listeners:
            listener(self.image)
        awaited, self._awaited = self._awaited, []
        for revision, future in awaited:
            if revision <= self.image.revision:
                if not future.done():
                    future.set_result(None)
            else:
                self._awaited.append((revision, future))

    async def change(self, plan: Plan) -> None:
        """Decide on the image and write; decide again if someone was faster. Returns when the image shows it."""
        while True:
            seen = self.image
            ops = plan(seen)
            if not ops:
                return
            try:
                revision = await self._store.transact(ops)
            except Conflict:
                await self._changed_since(seen)
                continue
            await self._reached(revision)
            return

    async def _changed_since(self, seen: ClusterImage) -> None:
        """The store knows better than `seen`: wait until the image has caught up a step."""
        await self._reached(seen.revision + 1)

    async def _reached(self, revision: int) -> None:
        if self.image.revision < revision:
            future = asyncio.get_running_loop().create_future()
            self._awaited.append((revision, future))
            await future

    async def reserve(self, key: str, count: int) -> int:
        """The first of `count` numbers that nobody else will get."""
        while True:
            found = await self._store.get(key)
            first = keys.decode(found.value) if found else 0
            try:
                await self._store.transact([Put(key, keys.encode(first + count), found.version if found else ABSENT)])
            except Conflict:
                continue
            return int(first)
