"""Simulated threads: work is done, and its outcome reported, when a simulation decides."""

from collections.abc import Callable
from random import Random
from typing import Any

from penstock.log.io_queue import Outcome


class _Job:
    def __init__(self, work: Callable[[], Any], done: Callable[[Outcome], None]) -> None:
        self.work = work
        self.done = done
        self.outcome: Outcome | None = None


class FakeThreads:
    """A runner of IoQueues. Between the work and its end, and before both, anything may happen on the event loop."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._jobs: list[_Job] = []

    def run(self, work: Callable[[], Any], done: Callable[[Outcome], None]) -> None:
        self._jobs.append(_Job(work, done))

    @property
    def is_idle(self) -> bool:
        return not self._jobs

    def step(self) -> bool:
        """Take one job a step further: do its work, or tell of its end. False if there is none."""
        if not self._jobs:
            return False
        job = self._rng.choice(self._jobs)
        if job.outcome is None:
            job.outcome = Outcome.of(job.work)
        else:
            self._jobs.remove(job)
            job.done(job.outcome)
        return True

    def run_all(self) -> None:
        while self.step():
            pass

    def clear(self) -> None:
        """The process has ended."""
        self._jobs.clear()
