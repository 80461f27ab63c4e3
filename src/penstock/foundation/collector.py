"""The garbage collector of a process that holds many objects: no full collection looks at all of them.

Python's full collection visits every object that lives, in one piece: 100 ms where there are 10,000 groups. What has
survived one that took long is mostly state, which stays, or goes without the collector's help. It is frozen: later
collections pass over it. Cycles that are frozen before they become garbage are found now and then, by a collection of
everything.
"""

import gc
import logging
import time
from collections.abc import Callable
from typing import Any, Final

logger = logging.getLogger(__name__)

LONG_S: Final = 0.005
"""Of CPU time: a full collection that takes as long has seen some 50,000 objects."""
COLLECT_ALL_S: Final = 6 * 3600.0
"""Everything is collected no more often than this, and only if as many collections as FREEZES_MIN were followed by a
freeze: what each has frozen too early is little."""
FREEZES_MIN: Final = 100
THRESHOLDS: Final = (700, 10, 5)
"""A full collection comes after some 35,000 new objects that survived, half as many as Python has by default."""
OLDEST: Final = 2
"""The generation of a full collection."""


class Collector:
    """Freezes what survives long collections. Holds for the whole process: there is one."""

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, cpu_s: Callable[[], float] = time.thread_time
    ) -> None:
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._started_s = 0.0
        self._freezes = 0
        self._collected_all_s = now_s()

    def start(self) -> None:
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self.on_collection)

    def stop(self) -> None:
        gc.callbacks.remove(self.on_collection)

    def on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Called by Python before and after each collection."""
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            self._started_s = self._cpu_s()
        elif self._cpu_s() - self._started_s >= LONG_S:
            self._freeze()

    def _freeze(self) -> None:
        now_s = self._now_s()
        if self._freezes >= FREEZES_MIN and now_s - self._collected_all_s >= COLLECT_ALL_S:
            logger.info("collecting_all_garbage freezes=%d", self._freezes)
            self._freezes, self._collected_all_s = 0, now_s
            gc.unfreeze()  # the next full collection visits everything, and is followed by a freeze
            return
        self._freezes += 1
        gc.freeze()
