"""Garbage collector tuning for a process with many objects: freezes survivors, so that full collections stay short.

Python's full collection visits every live object without a break: 100 ms for 10,000 consumer groups. Objects that
survive a long collection are mostly state, which stays or is freed by reference counting. They are frozen: later
collections skip them. An occasional collection of everything finds frozen cycles that have become garbage.
"""

import gc
import logging
import time
from collections.abc import Callable
from typing import Any, Final

logger = logging.getLogger(__name__)

LONG_S: Final = 0.005
"""A full garbage collection that takes at least this CPU time, in seconds, is followed by `gc.freeze`."""
COLLECT_ALL_S: Final = 6 * 3600.0
"""Minimum time, in seconds, between two garbage collections that include frozen objects (see `gc.freeze`). There must
also have been FREEZES_MIN calls of `gc.freeze` between them."""
FREEZES_MIN: Final = 100
"""Minimum number of calls of `gc.freeze` between two garbage collections that include frozen objects. COLLECT_ALL_S
must also have passed between them."""
THRESHOLDS: Final = (700, 10, 5)
"""gc.set_threshold values: a full collection after about 35,000 new surviving objects, half of Python's default."""
OLDEST: Final = 2
"""The oldest garbage collector generation: collecting it is a full collection."""


class Collector:
    """Freezes objects that survive a slow full garbage collection. Affects the whole process: create only one."""

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
        """Callback in `gc.callbacks`: measures full collections, and freezes surviving objects after a slow one."""
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
            gc.unfreeze()  # the next full collection visits everything, then freezes again
            return
        self._freezes += 1
        gc.freeze()
