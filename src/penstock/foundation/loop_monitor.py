"""Event loop stall monitor: the lateness of a timer shows how long one callback blocked the event loop.

The CPU time that the event loop's thread used since the last timer tells a slow callback from a slow disk or a busy
machine. A stall above the warning threshold is logged with the handler that a watching thread found running.
"""

import asyncio
import bisect
import logging
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import Final

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.1
WARN_S: Final = 0.2
BUCKETS_S: Final = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
STILL_STALLED_S: Final = 5.0
"""Duration, in seconds, after which a stall is logged while it still lasts, in case it never ends."""
_HANDLER_PACKAGES: Final = ("penstock.broker.handlers.", "penstock.sqs.actions.")
_PLUMBING: Final = ("penstock.network.", "penstock.cli.", "penstock.foundation.", "penstock.node")
"""Prefixes of modules that call handlers: the handler in a stack is the first frame outside these modules."""


class Histogram:
    """A Prometheus histogram of durations."""

    __slots__ = ("buckets_s", "counts", "max_s", "sum_s")

    def __init__(self, buckets_s: Sequence[float] = BUCKETS_S) -> None:
        self.buckets_s: Final = tuple(buckets_s)
        self.counts = [0] * (len(buckets_s) + 1)
        self.sum_s = 0.0
        self.max_s = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(self.buckets_s, seconds)] += 1
        self.sum_s += seconds
        self.max_s = max(self.max_s, seconds)


class LoopMonitor:
    """Measures stalls of one event loop. Start and stop it on the event loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, interval_s: float = INTERVAL_S, warn_s: float = WARN_S
    ) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._warn_s = warn_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop_thread = 0
        self._cpu_s = 0.0
        self._suspect = ""
        """The handler that was running when the watching thread found the event loop stalled; else empty."""
        self.last_tick_s = time.monotonic()
        """Time when the event loop last ran the monitor's timer; readable from any thread."""
        self.stalls: Final = Histogram()
        self.stall_cpu: Final = Histogram()

    def start(self) -> None:
        self._loop_thread = threading.get_ident()
        self._arm()
        self._thread = threading.Thread(target=self._watch, name="penstock-loop-monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _arm(self) -> None:
        self.last_tick_s = time.monotonic()
        self._cpu_s = time.thread_time()
        self._timer = self._loop.call_later(self._interval_s, self._tick)

    def _tick(self) -> None:
        stall_s = max(0.0, time.monotonic() - self.last_tick_s - self._interval_s)
        cpu_s = min(stall_s, time.thread_time() - self._cpu_s)
        self.stalls.observe(stall_s)
        self.stall_cpu.observe(cpu_s)
        suspect, self._suspect = self._suspect, ""
        if stall_s >= self._warn_s:
            logger.warning("event_loop_stalled seconds=%.3f cpu_seconds=%.3f %s", stall_s, cpu_s, suspect)
        self._arm()

    def _watch(self) -> None:
        """Runs on a thread: reads the event loop's stack during a stall, to find the callback that blocks it."""
        report_s = STILL_STALLED_S
        while not self._stopping.wait(self._warn_s / 2):
            stall_s = time.monotonic() - self.last_tick_s - self._interval_s
            if stall_s < self._warn_s / 2:
                report_s = STILL_STALLED_S
                continue
            frame = sys._current_frames().get(self._loop_thread)
            self._suspect = describe_stack(frame) if frame is not None else ""
            if stall_s >= report_s:
                report_s = 2 * stall_s
                logger.warning("event_loop_stalled seconds=%.1f still=true %s", stall_s, self._suspect)


def describe_stack(frame: FrameType) -> str:
    """Returns `handler=MODULE.FUNCTION at=MODULE:LINE` for a stack: its handler, and the line being executed."""
    stack = []
    while frame.f_back is not None:
        stack.append(frame)
        frame = frame.f_back
    stack.append(frame)
    ours = [(_module(each), each) for each in stack if _module(each).startswith("penstock.")]  # innermost first
    if not ours:
        return f"handler=unknown at={_module(stack[0])}:{stack[0].f_lineno}"
    outermost_first = ours[::-1]
    named = [each for each in outermost_first if each[0].startswith(_HANDLER_PACKAGES)]
    named += [each for each in outermost_first if not each[0].startswith(_PLUMBING)]
    module, handler = (named or outermost_first)[0]
    where, innermost = ours[0]
    return f"handler={module}.{handler.f_code.co_qualname} at={where}:{innermost.f_lineno}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
