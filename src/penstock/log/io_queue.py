"""A queue of disk jobs for one log (fsync, durable rename, removal, snapshot), run off the event loop.

Jobs run one at a time and in order, so that each job can rely on what the previous job made durable. A job has three
parts: `begin` runs on the event loop and returns the work; the work runs on a thread; `end` runs on the event loop
with the outcome of the work.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.foundation.errors import StorageError

Work = Callable[[], Any]


class Outcome(NamedTuple):
    """The return value of a disk job's work, or the StorageError that it raised."""

    value: Any = None
    error: StorageError | None = None

    @classmethod
    def of(cls, work: Work) -> "Outcome":
        """Runs the work on the calling thread and returns its outcome."""
        try:
            return cls(value=work())
        except StorageError as error:
            return cls(error=error)

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


Runner = Callable[[Work, Callable[[Outcome], None]], None]
"""Function that runs work on a thread, then calls the callback with the outcome on the event loop."""
Begin = Callable[[], Work | None]
End = Callable[[Outcome], None]


def run_inline(work: Work, done: Callable[[Outcome], None]) -> None:
    """Runner for memory logs and tests: runs the work immediately, on the calling thread."""
    done(Outcome.of(work))


def ignore_outcome(outcome: Outcome) -> None:
    """Does nothing: the `end` callback of jobs whose outcome is not needed."""


def _cancelled() -> Outcome:
    return Outcome(error=StorageError("the log is being closed"))


class IoQueue:
    """A queue of the disk jobs of one log. Owned by the event loop's thread."""

    __slots__ = ("_is_pumping", "_is_running", "_is_stopped", "_is_warming", "_jobs", "_on_stopped", "_runner")

    def __init__(self, runner: Runner = run_inline) -> None:
        self._runner: Final = runner
        self._jobs: deque[tuple[Begin, End]] | None = None  # created on demand: most logs are idle
        self._is_running = False
        self._is_pumping = False
        self._is_stopped = False
        self._is_warming = False
        self._on_stopped: Callable[[], None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a job is running or queued."""
        return self._is_running or bool(self._jobs)

    def add(self, begin: Begin, end: End = ignore_outcome) -> None:
        """Adds a job. When all earlier jobs have ended, `begin` returns the work, which runs on a thread; then
        `end` is called with its outcome. If `begin` returns None, there is no work and `end` is not called."""
        if self._is_stopped:
            end(_cancelled())
            return
        if self._jobs is None:
            self._jobs = deque()
        self._jobs.append((begin, end))
        self._pump()

    def add_warming(self, warm: Work) -> None:
        """Adds a job that loads data into the page cache, unless an earlier such job has not ended yet: the caller
        repeats its read later, and adds a job again if its data is still missing."""
        if not self._is_warming:
            self._is_warming = True
            self.add(lambda: warm, self._on_warmed)

    def _on_warmed(self, outcome: Outcome) -> None:
        self._is_warming = False

    def _pump(self) -> None:
        if self._is_pumping:
            return
        self._is_pumping = True
        try:
            while self._jobs and not self._is_running:
                self._start(*self._jobs.popleft())
        finally:
            self._is_pumping = False

    def _start(self, begin: Begin, end: End) -> None:
        try:
            work = begin()
        except StorageError as error:
            end(Outcome(error=error))
            return
        if work is None:
            return

        def done(outcome: Outcome) -> None:
            try:
                end(outcome)
            finally:
                self._is_running = False
                self._jobs = self._jobs or None
                self._pump()
                if self._on_stopped is not None and not self._is_running:
                    on_stopped, self._on_stopped = self._on_stopped, None
                    on_stopped()

        self._is_running = True
        self._runner(work, done)

    def stop(self, then: Callable[[], None]) -> None:
        """Fails the queued jobs and accepts no new jobs. Calls `then` when the running job has ended."""
        self._is_stopped = True
        jobs, self._jobs = self._jobs or (), None
        for _, end in jobs:
            end(_cancelled())
        if self._is_running:
            self._on_stopped = then
        else:
            then()
