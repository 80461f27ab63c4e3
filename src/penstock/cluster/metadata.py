"""The broker's hold on the cluster: the image it follows, and changes that it makes by compare-and-set."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from penstock.cluster import keys
from penstock.cluster.image import NO_EPOCH, SLICE_KEYS, ClusterImage
from penstock.cluster.topic_changes import Step
from penstock.coordination.store import ABSENT, Change, Check, Conflict, Op, Put, Store

logger = logging.getLogger(__name__)

Plan = Callable[[ClusterImage], Sequence[Op]]
Condition = Callable[[ClusterImage], bool]


class Metadata:
    """Follows the store. `image` is always whole; it is replaced, never changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.image = ClusterImage()
        self.listeners: list[Callable[[ClusterImage], None]] = []
        self.on_failed: Callable[[Exception], None] = lambda error: None
        """Called when a listener has failed: this broker does not follow the cluster any more."""
        self.settled: Callable[[bytes], Awaitable[None]] = _at_once
        """Waits until this broker has opened what it has of a topic that the image shows, within reason."""
        self.broker_epoch = NO_EPOCH
        """The registration that this broker has."""
        self._changes: deque[Change] = deque()
        """Changes that wait for an image that is being made of a large one, or for the next iteration of the loop."""
        self._has_shown = False
        """Whether a change was applied in this iteration of the loop."""
        self._making: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._awaited: list[tuple[Condition, asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._store.watch("", self._on_change)
        if self._making is not None:
            await asyncio.shield(self._making)

    def _on_change(self, change: Change) -> None:
        """Applies a change to the image: a small one at once, a large one, and those after it, in slices.

        Applies one small change per iteration of the event loop, so that a burst of them does not block it.
        """
        loop = asyncio.get_running_loop()
        if self._making is None and len(change.states) <= SLICE_KEYS and not self._has_shown:
            self._has_shown = True
            loop.call_soon(self._may_show)
            self._show(self.image.with_change(change))
            return
        self._changes.append(change)
        if self._making is None:
            self._making = loop.create_task(self._make())
            self._making.add_done_callback(self._made)

    def _may_show(self) -> None:
        self._has_shown = False

    async def _make(self) -> None:
        try:
            while self._changes:
                await asyncio.sleep(0)
                steps = self.image.change_steps(self._changes.popleft())
                image: ClusterImage | None = None
                while image is None:
                    try:
                        next(steps)
                        await asyncio.sleep(0)
                    except StopIteration as done:
                        image = done.value
                self._show(image)
        finally:
            self._making = None  # not in `_made`: a change that arrives before that callback would be lost

    def _made(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            logger.error("image_not_followed", exc_info=error)
            if error is not self._failure:
                self.on_failed(error)

    def _show(self, image: ClusterImage) -> None:
        self.image = image
        try:
            for listener in tuple(self.listeners):
                listener(self.image)
        except Exception as error:  # whatever the mistake: nobody may take this broker for one that follows
            self._failure = error
            self.on_failed(error)
            raise
        finally:
            self._wake()

    def _wake(self) -> None:
        """Those who waited for an image such as this one."""
        awaited, self._awaited = self._awaited, []
        for condition, future in awaited:
            if future.done():
                continue
            if condition(self.image):
                future.set_result(None)
            else:
                self._awaited.append((condition, future))

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

    async def work_off(self, next_step: Callable[[ClusterImage], Step]) -> None:
        """Carry out a change that may take several transactions, one after another."""
        while True:
            seen = self.image
            try:
                step = next_step(seen)
                ops = (*step.ops, self._still_there(seen)) if step.is_part else step.ops
                revision = await self._store.transact(ops)
            except Conflict:
                await self._changed_since(seen)
                continue
            await self._reached(revision)
            if step.is_last:
                return

    def _still_there(self, image: ClusterImage) -> Check:
        """The condition that this broker is registered as it was: what is leased to it is there then, too."""
        key = keys.incarnation(self.broker_epoch)
        if key not in image.versions:
            raise Conflict(key)
        return Check(key, image.versions[key])

    async def until(self, condition: Condition) -> None:
        """Wait for an image of which this is true."""
        if not condition(self.image):
            future = asyncio.get_running_loop().create_future()
            self._awaited.append((condition, future))
            await future

    async def is_stored(self, key: str) -> bool:
        """Whether the store knows a key, which this broker may hear of only in a moment."""
        return await self._store.get(key) is not None

    async def _changed_since(self, seen: ClusterImage) -> None:
        """The store knows better than `seen`: wait until the image has caught up a step."""
        await self._reached(seen.revision + 1)

    async def _reached(self, revision: int) -> None:
        await self.until(lambda image: image.revision >= revision)

    async def stored(self, key: str) -> Any:
        """What the store has under a key that no image shows; None if there is no such key."""
        found = await self._store.get(key)
        return None if found is None else keys.decode(found.value)

    async def edit(self, key: str, change: Callable[[Any], Any]) -> Any:
        """Replace the value of a key that no image shows; returns what it was. `change` may be called again."""
        while True:
            found = await self._store.get(key)
            before = None if found is None else keys.decode(found.value)
            value = keys.encode(change(before))
            try:
                await self._store.transact([Put(key, value, ABSENT if found is None else found.version)])
            except Conflict:
                continue
            return before

    async def reserve(self, key: str, count: int) -> int:
        """The first of `count` numbers that nobody else will get."""
        return int(await self.edit(key, lambda first: (first or 0) + count) or 0)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what nobody waits for."""
        tasks = [*self._tasks, *([self._making] if self._making is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _at_once(topic_id: bytes) -> None:
    """Nobody opens anything here."""
