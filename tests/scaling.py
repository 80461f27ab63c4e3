"""CPU time of functions, and how it grows with their input. A busy machine must not change the verdict."""

import time
from collections.abc import Callable

import pytest

FACTOR = 8
GROWTH_MAX = 24.0
"""For FACTOR times the input: linear work takes 8 times as long, quadratic work 64 times."""
_ROUNDS = 7


def growth(work: Callable[[int], Callable[[], object]], small: int) -> float:
    """Returns how much longer FACTOR times the input takes; `work(size)` prepares one and returns what to measure."""
    return cpu_s(work(FACTOR * small)) / max(cpu_s(work(small)), 1e-6)


def cpu_s(work: Callable[[], object]) -> float:
    """The least CPU time of several runs, each long enough for the clock."""
    return min(_run_s(work) for _ in range(_ROUNDS))


def _run_s(work: Callable[[], object]) -> float:
    count, started_s = 0, time.thread_time()
    while (took_s := time.thread_time() - started_s) < 0.001 or count == 0:
        work()
        count += 1
    return took_s / count


def refused_cpu_s(work: Callable[[], object], error: type[Exception]) -> float:
    """CPU time of a call that raises this exception: the least of a few calls, since a host may stop the machine."""

    def call() -> None:
        with pytest.raises(error):
            work()

    return min(_once_s(call) for _ in range(3))


def _once_s(work: Callable[[], None]) -> float:
    started_s = time.thread_time()
    work()
    return time.thread_time() - started_s
