"""Metadata on this broker: follows the store's watch, publishes metadata images, writes by compare-and-set."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from penstock.cluster import keys
from penstock.cluster.image import NO_EPOCH, SLICE_KEYS, ClusterImage
from penstock.cluster.topic_changes import Step
from penstock.coordination.store import ABSENT, Change, Check, Conflict, Op, Put, Store
from penstock.foundation.errors import PenstockError

logger = logging.getLogger(__name__)

Plan = Callable[[ClusterImage], Sequence[Op]]
Condition = Callable[[ClusterImage], bool]


class ImageFailed(PenstockError):
    """Applying a metadata image failed with an unexpected error."""


class Metadata:
    """Follows the coordination store. `image` is always a complete metadata image; it is replaced, never modified."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.image = ClusterImage()
        self.listeners: list[Callable[[ClusterImage], None]] = []
        self.on_failed: Callable[[Exception], None] = lambda error: None
        """Callback for an exception in a listener of the image, after which this broker cannot follow the cluster."""
        self.wait_settled: Callable[[bytes], Awaitable[None]] = _return_at_once
        """Waits, for a limited time, until this broker has opened its partitions of a topic."""
        self.broker_epoch = NO_EPOCH
        """The broker epoch of this broker's current registration."""
        self._changes: deque[Change] = deque()
        """Changes of the store that are not yet applied to the image, oldest first."""
        self._has_published = False
        """Whether a change was already applied in this iteration of the event loop."""
        self._building: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._awaited: list[tuple[Condition, asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._store.watch("", self._on_change)
        if self._building is not None:
            await asyncio.shield(self._building)

    def _on_change(self, change: Change) -> None:
        """Applies a change of the store to the image: a small change at once, a large one in time slices.

        Applies one small change per iteration of the event loop, so that a burst of changes does not block it.
        """
        loop = asyncio.get_running_loop()
        if self._building is None and len(change.states) <= SLICE_KEYS and not self._has_published:
            self._has_published = True
            loop.call_soon(self._allow_publish)
            self._publish(self.image.with_change(change))
            return
        self._changes.append(change)
        if self._building is None:
            self._building = loop.create_task(self._build())
            self._building.add_done_callback(self._on_built)

    def _allow_publish(self) -> None:
        self._has_published = False

    async def _build(self) -> None:
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
                self._publish(image)
        finally:
            self._building = None  # not in `_on_built`: a change that arrives before that callback would be lost

    def _on_built(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            logger.error("metadata_image_failed", exc_info=error)
            if error is not self._failure:
                self.on_failed(error)

    def _publish(self, image: ClusterImage) -> None:
        self.image = image
        try:
            for listener in tuple(self.listeners):
                listener(self.image)
        except Exception as error:  # after any error this broker must stop: it no longer follows the cluster
            self._failure = error
            self.on_failed(error)
            raise
        finally:
            self._wake()

    def _wake(self) -> None:
        """Wakes the tasks in `until` whose condition the image now fulfils."""
        awaited, self._awaited = self._awaited, []
        for condition, future in awaited:
            if future.done():
                continue
            if condition(self.image):
                future.set_result(None)
            else:
                self._awaited.append((condition, future))

    async def change(self, plan: Plan) -> None:
        """Executes the store operations that `plan` returns for the image; calls `plan` again after a write
        conflict. Returns once the image contains the change."""
        while True:
            seen = self.image
            ops = plan(seen)
            if not ops:
                return
            try:
                revision = await self._store.transact(ops)
            except Conflict:
                await self._wait_newer(seen)
                continue
            await self._wait_revision(revision)
            return

    async def execute_steps(self, next_step: Callable[[ClusterImage], Step]) -> None:
        """Executes the transactions that `next_step` returns, one after another, up to the last (`Step.is_last`)."""
        while True:
            seen = self.image
            try:
                step = next_step(seen)
                ops = (*step.ops, self._registration_check(seen)) if step.is_part else step.ops
                revision = await self._store.transact(ops)
            except Conflict:
                await self._wait_newer(seen)
                continue
            await self._wait_revision(revision)
            if step.is_last:
                return

    def _registration_check(self, image: ClusterImage) -> Check:
        """Returns the condition that this broker is still registered, so that its leased keys still exist."""
        key = keys.incarnation(self.broker_epoch)
        if key not in image.versions:
            raise Conflict(key)
        return Check(key, image.versions[key])

    async def until(self, condition: Condition) -> None:
        """Waits until the metadata image fulfils the condition."""
        if not condition(self.image):
            future = asyncio.get_running_loop().create_future()
            self._awaited.append((condition, future))
            await future

    async def is_stored(self, key: str) -> bool:
        """Whether the store has a key; this broker's image may not show the key yet."""
        return await self._store.get(key) is not None

    async def _wait_newer(self, seen: ClusterImage) -> None:
        """Waits for an image newer than `seen`; called after a write conflict."""
        await self._wait_revision(seen.revision + 1)

    async def _wait_revision(self, revision: int) -> None:
        await self.until(lambda image: image.revision >= revision)

    async def stored(self, key: str) -> Any:
        """Reads the value of a key that is not part of the image; None if the key does not exist."""
        found = await self._store.get(key)
        return None if found is None else keys.decode(found.value)

    async def edit(self, key: str, change: Callable[[Any], Any]) -> Any:
        """Replaces the value of a key that is not part of the image by `change(old)`; calls `change` again after a
        write conflict. Returns the old value."""
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
        """Adds `count` to the counter in this key; returns the first of the reserved values."""
        return int(await self.edit(key, lambda first: (first or 0) + count) or 0)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` in a background task, which `close` cancels."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancels the tasks started by `spawn`, and the task that builds an image."""
        tasks = [*self._tasks, *([self._building] if self._building is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _return_at_once(topic_id: bytes) -> None:
    """Default of `Metadata.wait_settled` (waits until this broker has opened a topic's replicas): does not wait."""
