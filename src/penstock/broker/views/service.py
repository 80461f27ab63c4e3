"""The views (filtered virtual topics) of this broker: compiled predicates, usage, and removal of idle views."""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.views.decompression import Arenas
from penstock.cluster.administration import drop_view
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata import Metadata
from penstock.cluster.view_changes import plan_drop, plan_touch
from penstock.cluster.views import View
from penstock.coordination.store import Op, StoreUnavailable
from penstock.foundation.clock import Clock
from penstock.foundation.time_slices import TimeSlices
from penstock.views.predicate import Predicate, compile_expression

logger = logging.getLogger(__name__)

CHECK_S: Final = 1.0
TOUCHES: Final = 4
"""How many times per idle period a view (filtered virtual topic) that is being read is marked as used in the metadata
store, so that no broker drops it."""


@dataclass(slots=True)
class ViewCounts:
    """Counters of a view (filtered virtual topic): records scanned, records matched."""

    scanned_bytes: int = 0
    scanned: int = 0
    matched: int = 0
    unknown: int = 0
    """Number of records for which the expression is UNKNOWN: no such header, not JSON, or not a number."""


@dataclass(slots=True)
class _Usage:
    """When a view (filtered virtual topic) was last used, as far as this broker knows; only for views that are
    dropped when idle. Times are in ms of the steady clock."""

    touched: int
    since_ms: int
    """When this broker first saw the value `touched` of the counter that brokers increment while the view is read."""
    read_ms: int = 0
    """When the view was last read on this broker; 0: never."""
    marked_ms: int = 0
    """When the view was last marked as used in the metadata store."""


class ViewService:
    """The views (filtered virtual topics) of this broker: compiled predicates, counters, removal of idle views."""

    def __init__(self, *, metadata: Metadata, clock: Clock, threads: Executor, slices: TimeSlices) -> None:
        self._metadata = metadata
        self._clock = clock
        self._threads = threads
        self._predicates: dict[str, Predicate] = {}
        self._usages: dict[bytes, _Usage] = {}
        self.tasks: Final[set[asyncio.Task[Any]]] = set()
        """Tasks of the Fetches in progress that read views."""
        self.slices: Final = slices
        self.arenas: Final = Arenas(threads)
        self.counts: Final[dict[str, ViewCounts]] = {}
        """Counters by view name."""

    # -- predicates

    async def predicate(self, view: View) -> Predicate:
        """Returns the compiled filter expression of a view; compiles it on a thread the first time."""
        found = self._predicates.get(view.where)
        if found is None:
            found = await self.check(view.where)
            alive = {each.where for each in self._metadata.image.views.values()}
            self._predicates = {text: predicate for text, predicate in self._predicates.items() if text in alive}
            self._predicates[view.where] = found
        return found

    async def check(self, where: str) -> Predicate:
        """Compiles a view's filter expression on a thread, as loading the parser takes long. Raises BadExpression."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, compile_expression, where)

    # -- usage

    def note_read(self, view: View) -> None:
        """Records that a view is being read, so that it is not dropped as idle."""
        if view.idle_ms:
            self._usage_of(view).read_ms = self._clock.steady_ms()

    def counts_of(self, name: str) -> ViewCounts:
        found = self.counts.get(name)
        if found is None:
            known = {view.name for view in self._metadata.image.views.values()}
            for gone in self.counts.keys() - known:
                del self.counts[gone]
            found = self.counts[name] = ViewCounts()
        return found

    def _usage_of(self, view: View) -> _Usage:
        usage = self._usages.get(view.view_id)
        if usage is None or usage.touched != view.touched:
            now_ms = self._clock.steady_ms()
            read_ms = usage.read_ms if usage is not None else 0
            usage = self._usages[view.view_id] = _Usage(view.touched, now_ms, read_ms, now_ms)
        return usage

    # -- dropping views

    async def run(self) -> None:
        """Drops views whose source topics are deleted and views that are idle, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            if self._metadata.image.views or self._usages:
                try:
                    await self.check_all()
                except StoreUnavailable as error:
                    logger.warning("view_maintenance_failed reason=%r", str(error))

    async def check_all(self) -> None:
        image = self._metadata.image
        for view_id in self._usages.keys() - image.views.keys():
            del self._usages[view_id]
        for view in tuple(image.views.values()):
            if view.topic_id not in image.topics:
                # A topic may be partly written: its own key is written last and deleted first.
                if view.topic_id not in image.incomplete:
                    await drop_view(self._metadata, view, "topic_deleted")
            elif view.idle_ms:
                await self._check_idle(view)

    async def _check_idle(self, view: View) -> None:
        """Marks a view as used if this broker has read it; drops it if no broker has read it for its idle period.

        Time is measured by this broker's steady clock, not by wall clocks: a broker that has just started waits a
        full idle period.
        """
        usage, now_ms = self._usage_of(view), self._clock.steady_ms()
        if usage.read_ms > usage.marked_ms and now_ms - usage.marked_ms >= view.idle_ms // TOUCHES:
            usage.marked_ms = now_ms
            await self._metadata.change(lambda image: plan_touch(image, view.view_id))
        elif now_ms - max(usage.since_ms, usage.read_ms) >= view.idle_ms:
            await self._metadata.change(lambda image: _plan_drop_idle(image, view))
            if view.view_id in self._metadata.image.views:
                return  # changed, or used through another broker
            logger.info("view_dropped view=%r topic=%r reason=idle idle_ms=%d", view.name, view.of, view.idle_ms)


def _plan_drop_idle(image: ClusterImage, seen: View) -> list[Op]:
    """Returns the store operations that drop the idle view `seen`; empty if the view in `image` is not equal to
    `seen`, because it was used, changed or dropped in the meantime."""
    return plan_drop(image, seen.view_id) if image.views.get(seen.view_id) == seen else []
