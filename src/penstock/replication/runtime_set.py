"""State machines of many logs: runs those of logs led by this broker, and standbys for its other replicas.

A standby replays committed records as they arrive, so that a new leader has little left to load.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from penstock.foundation.clock import Clock, Timer
from penstock.foundation.decision import StateMachine
from penstock.foundation.errors import CoordinatorNotAvailable, NotCoordinator, PenstockError
from penstock.log.disk import ColdRead
from penstock.replication.partition import Partition
from penstock.replication.replay import DamagedBatch
from penstock.replication.runtime import StateRuntime

logger = logging.getLogger(__name__)

STANDBY_S: Final = 0.5
"""Interval, in seconds, at which standbys (state machines of followed logs) replay new records."""
LOADS_MAX: Final = 16
"""Maximum number of logs that are loaded concurrently."""
RELOAD_MIN_S: Final = 1.0
RELOAD_MAX_S: Final = 60.0
"""Maximum delay, in seconds, before a failed load is retried; the delay doubles with each failure."""

K = TypeVar("K", bound=Hashable)


class Failure(NamedTuple):
    """A log that could not be loaded, and the reason."""

    reason: str
    tries: int
    cancel_reload: Callable[[], None]


class RuntimeSet(Generic[K]):
    """The state machine runtimes of many logs, loaded and unloaded as leaders change."""

    skips_unreadable: ClassVar[bool] = False
    """Whether unreadable records are skipped; else they stop the replay (see replay.py)."""

    def __init__(
        self,
        *,
        make: Callable[[Partition], StateMachine],
        clock: Clock,
        timer: Timer,
        threads: Executor,
        perform: Callable[[Any], None],
    ) -> None:
        self._make = make
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self._perform = perform
        self._running: dict[K, StateRuntime] = {}
        self._standbys: dict[K, StateRuntime] = {}
        self._stop_following: Callable[[], None] | None = None
        self._loads: dict[K, asyncio.Task[None]] = {}
        self._to_load: dict[K, StateRuntime] = {}
        """Runtimes that are queued to be loaded, because LOADS_MAX loads are running."""
        self._reading: set[K] = set()
        self.failures: dict[K, Failure] = {}
        """Logs led by this broker that could not be loaded; their loads are retried."""
        self.skipped_count = 0
        """Number of unreadable records skipped since the start."""

    @property
    def all(self) -> list[StateRuntime]:
        """Returns all runtimes: of led logs, loaded or not, and standbys, which replay logs led by other brokers."""
        return [*self._running.values(), *self._standbys.values()]

    @property
    def loaded(self) -> dict[K, StateRuntime]:
        """Returns the runtimes that accept commands."""
        return {key: runtime for key, runtime in self._running.items() if runtime.is_loaded}

    @property
    def is_loading(self) -> bool:
        return bool(self._loads or self._to_load)

    @property
    def unloaded(self) -> Counter[str]:
        """Returns the number of led logs whose state machine is not loaded, by reason."""
        return Counter(
            "offline" if not runtime.partition.is_online else "failed" if key in self.failures else "loading"
            for key, runtime in self._running.items()
            if not runtime.is_loaded
        )

    async def wait_loaded(self) -> None:
        """Waits until all loads that are in progress now have ended."""
        left = {*self._loads, *self._to_load}
        while left:
            tasks = [self._loads[key] for key in left if key in self._loads]
            if tasks:
                await asyncio.wait(tasks)
            await asyncio.sleep(0)  # until queued loads have started
            left &= {*self._loads, *self._to_load}

    # -- loading and unloading

    def update_roles(
        self, led: Mapping[K, Partition], replicas: Mapping[K, Partition], why: PenstockError | None = None
    ) -> None:
        """Loads the logs that this broker now leads, unloads logs that it no longer leads, and keeps standbys (state
        machines that replay committed records) for all other replicas. `why`: error sent to the requests that an
        unloaded runtime has not answered; by default NotCoordinator."""
        for key, runtime in list(self._running.items()):
            if led.get(key) is not runtime.partition:
                del self._running[key]
                self._stop_load(key)
                self._forget_failure(key)
                left = NotCoordinator(f"{runtime.partition.name} is led by another broker now")
                self._unload(key, runtime, why or left)
        for key, partition in led.items():
            if key not in self._running:
                runtime = self._running[key] = self._standby_or_new(key, partition)
                if partition.is_online:
                    self._start_load(key, runtime)
        self._standbys = {
            key: self._standby_or_new(key, partition, may_have_failed=True)
            for key, partition in replicas.items()
            if key not in led
        }
        if self._standbys and self._stop_following is None:
            self._stop_following = self._timer(STANDBY_S, self._follow_standbys)

    def _unload(self, key: K, runtime: StateRuntime, error: PenstockError) -> None:
        runtime.close(error)

    def _ready(self, key: K, runtime: StateRuntime) -> None:
        """Hook for subclasses, called when a runtime accepts commands."""

    def _standby_or_new(self, key: K, partition: Partition, *, may_have_failed: bool = False) -> StateRuntime:
        """Returns the log's standby runtime, or a new runtime if there is none, it has diverged from the log, or
        its replay has failed. With `may_have_failed`, returns also a failed standby."""
        known = self._standbys.get(key)
        if known is None or known.partition is not partition:
            return self._new(partition)
        if known.has_failed:  # replaying it again before this broker leads would fail again
            return known if may_have_failed else self._new(partition)
        return known if not partition.is_online or not known.has_diverged else self._new(partition)

    def _count_skipped(self, count: int) -> None:
        self.skipped_count += count

    def _new(self, partition: Partition) -> StateRuntime:
        return StateRuntime(
            partition=partition,
            machine=self._make(partition),
            clock=self._clock,
            timer=self._timer,
            threads=self._threads,
            perform=self._perform,
            on_skipped=self._count_skipped if self.skips_unreadable else None,
        )

    def _follow_standbys(self) -> None:
        """Lets each standby (state machine of a followed log) replay some new records; schedules the next round."""
        has_more = False
        try:
            for key, runtime in list(self._standbys.items()):
                if runtime.partition.is_online and not runtime.has_failed:
                    runtime = self._standbys[key] = self._standby_or_new(key, runtime.partition)
                    has_more |= self._follow_standby(runtime)
        finally:
            wait_s = 0 if has_more else STANDBY_S
            self._stop_following = self._timer(wait_s, self._follow_standbys) if self._standbys else None

    def _follow_standby(self, runtime: StateRuntime) -> bool:
        runtime.has_failed = True
        try:
            has_more = runtime.follow()
        except ColdRead as cold:
            runtime.partition.log.io.add_warming(cold.warm)  # the next round tries again
            has_more = False
        except PenstockError as error:  # loaded from the beginning if this broker is elected
            logger.warning("state_not_followed partition=%s reason=%r", runtime.partition.name, str(error))
            return False
        runtime.has_failed = False
        return has_more

    # -- loading

    def _start_load(self, key: K, runtime: StateRuntime) -> None:
        """Starts a load, or queues it if too many run: thousands of concurrent loads would block the event loop."""
        if len(self._reading) >= LOADS_MAX:
            self._to_load[key] = runtime
            return
        self._reading.add(key)
        task = self._loads[key] = asyncio.get_running_loop().create_task(runtime.load(lambda: self._on_read(key)))
        task.add_done_callback(lambda done: self._on_loaded(key, runtime, done))

    def _on_read(self, key: K) -> None:
        """Starts the next queued load, after a log was replayed."""
        self._reading.discard(key)
        while self._to_load and len(self._reading) < LOADS_MAX:
            waiting = next(iter(self._to_load))
            self._start_load(waiting, self._to_load.pop(waiting))

    def _stop_load(self, key: K) -> None:
        self._to_load.pop(key, None)
        task = self._loads.pop(key, None)
        if task is not None:
            task.cancel()

    def _on_loaded(self, key: K, runtime: StateRuntime, task: asyncio.Task[None]) -> None:
        if self._loads.get(key, task) is task:
            self._loads.pop(key, None)
            self._on_read(key)
        if task.cancelled() or self._running.get(key) is not runtime:
            return
        error = task.exception()
        if error is None and runtime.is_loaded:
            self._forget_failure(key)
            if runtime.skipped_count:
                name = runtime.partition.name
                logger.warning("state_records_skipped partition=%s records=%d", name, runtime.skipped_count)
            self._ready(key, runtime)
        elif runtime.partition.is_online:
            self._reload_later(key, runtime, error)

    def _reload_later(self, key: K, runtime: StateRuntime, error: BaseException | None) -> None:
        """Schedules another load with a new state machine, after the log could not be read or committed."""
        partition, tries = runtime.partition, self.failures[key].tries + 1 if key in self.failures else 1
        reason = str(error) if error is not None else "the replayed records are not committed"
        level = logging.INFO if error is None else logging.ERROR
        trace = None if isinstance(error, PenstockError) else error
        logger.log(
            level, "state_not_loaded partition=%s tries=%d reason=%r", partition.name, tries, reason, exc_info=trace
        )
        if isinstance(error, DamagedBatch):
            partition.go_offline(reason)  # then another in-sync replica is elected, if there is one
            self._forget_failure(key)
            return

        def reload() -> None:
            if self._running.get(key) is runtime and partition.is_online:
                self._running[key] = again = self._new(partition)
                self._start_load(key, again)

        self._unload(key, runtime, CoordinatorNotAvailable(f"{partition.name} could not be loaded: {reason}"))
        wait_s = min(RELOAD_MAX_S, RELOAD_MIN_S * 2 ** min(tries - 1, 16))
        self.failures[key] = Failure(reason, tries, self._timer(wait_s, reload))

    def _forget_failure(self, key: K) -> None:
        failure = self.failures.pop(key, None)
        if failure is not None:
            failure.cancel_reload()

    def post_all(self, command: Any) -> None:
        for runtime in self.loaded.values():
            runtime.post(command)

    def close(self) -> None:
        self._to_load.clear()
        for key in list(self._loads):
            self._stop_load(key)
        for key in list(self.failures):
            self._forget_failure(key)
        for key, runtime in self._running.items():
            self._unload(key, runtime, CoordinatorNotAvailable("the broker is shutting down"))
        self._running.clear()
        self._standbys.clear()
        if self._stop_following is not None:
            self._stop_following()
            self._stop_following = None
