"""What this broker knows of views: their predicates, who reads them, and which of them nobody does."""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.views.decompression import Arenas
from penstock.cluster.administration import drop_view
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import Metadata
from penstock.cluster.views import View, plan_drop, plan_touch
from penstock.coordination.store import Op, StoreUnavailable
from penstock.foundation.clock import Clock
from penstock.foundation.time_slices import TimeSlices
from penstock.views.predicate import Predicate, compile_expression

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
TOUCHES: Final = 4
"""How often, within the time after which it is idle, a view that is read is marked as such."""


@dataclass(slots=True)
class ViewCounts:
    """What views have cost and given."""

    scanned_bytes: int = 0
    scanned: int = 0
    matched: int = 0
    unknown: int = 0
    """Records that could not be judged: no such header, not JSON, not a number."""


@dataclass(slots=True)
class _Use:
    """What this broker has seen of a view that can become idle. Times are steady ones."""

    touched: int
    since_ms: int
    """When it was first seen like that."""
    read_ms: int = 0
    """When somebody last read it here."""
    told_ms: int = 0
    """When the others were told so."""


class ViewService:
    """Views on this broker. It costs nothing while there are none."""

    def __init__(self, *, metadata: Metadata, clock: Clock, threads: Executor, slices: TimeSlices) -> None:
        self._metadata = metadata
        self._clock = clock
        self._threads = threads
        self._predicates: dict[str, Predicate] = {}
        self._uses: dict[bytes, _Use] = {}
        self.tasks: Final[set[asyncio.Task[Any]]] = set()
        """Fetches that are under way."""
        self.slices: Final = slices
        self.arenas: Final = Arenas(threads)
        self.counts: Final[dict[str, ViewCounts]] = {}
        """By the views' names."""

    # -- predicates

    async def predicate(self, view: View) -> Predicate:
        """What a view's expression has been compiled into; the first time, on a thread."""
        found = self._predicates.get(view.where)
        if found is None:
            found = await self.check(view.where)
            alive = {each.where for each in self._metadata.image.views.values()}
            self._predicates = {text: kept for text, kept in self._predicates.items() if text in alive}
            self._predicates[view.where] = found
        return found

    async def check(self, where: str) -> Predicate:
        """Raises BadExpression. Loading the parser takes longer than others should have to wait."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, compile_expression, where)

    # -- who reads what

    def note_read(self, view: View) -> None:
        """Somebody reads a view now."""
        if view.idle_ms:
            self._use(view).read_ms = self._clock.steady_ms()

    def counts_of(self, name: str) -> ViewCounts:
        found = self.counts.get(name)
        if found is None:
            known = {view.name for view in self._metadata.image.views.values()}
            for gone in self.counts.keys() - known:
                del self.counts[gone]
            found = self.counts[name] = ViewCounts()
        return found

    def _use(self, view: View) -> _Use:
        use = self._uses.get(view.view_id)
        if use is None or use.touched != view.touched:
            now_ms = self._clock.steady_ms()
            read_ms = use.read_ms if use is not None else 0
            use = self._uses[view.view_id] = _Use(view.touched, now_ms, read_ms, now_ms)
        return use

    # -- views that go

    async def run(self) -> None:
        """Drop views whose topics are gone, and those that nobody reads any more."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._metadata.image.views or self._uses:
                try:
                    await self.look()
                except StoreUnavailable as error:
                    logger.warning("views_not_looked_after reason=%r", str(error))

    async def look(self) -> None:
        image = self._metadata.image
        for view_id in self._uses.keys() - image.views.keys():
            del self._uses[view_id]
        for view in tuple(image.views.values()):
            if view.topic_id not in image.topics:
                # What is written in part may be on its way: the topic's own key is written last and deleted first.
                if view.topic_id not in image.waiting:
                    logger.info("view_dropped view=%s reason=topic_deleted topic=%s", view.name, view.of)
                    await drop_view(self._metadata, view.view_id)
            elif view.idle_ms:
                await self._look_at(view)

    async def _look_at(self, view: View) -> None:
        """Tell others that it is read; or drop it, if neither they nor this broker have seen it read for long.

        Only time that has passed here counts, never what a clock says: who was just started waits as long again.
        """
        use, now_ms = self._use(view), self._clock.steady_ms()
        if use.read_ms > use.told_ms and now_ms - use.told_ms >= view.idle_ms // TOUCHES:
            use.told_ms = now_ms
            await self._metadata.change(lambda image: plan_touch(image, view.view_id))
        elif now_ms - max(use.since_ms, use.read_ms) >= view.idle_ms:
            await self._metadata.change(lambda image: _plan_drop_idle(image, view))
            logger.info("view_dropped view=%s reason=idle idle_ms=%s", view.name, view.idle_ms)


def _plan_drop_idle(image: ClusterImage, seen: View) -> list[Op]:
    """Not if somebody has marked it meanwhile."""
    return plan_drop(image, seen.view_id) if image.views.get(seen.view_id) == seen else []
