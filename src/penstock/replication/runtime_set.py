"""State machines, each on a log of its own: one for every such log that this broker has a replica of.

Those of the logs that it leads decide. The others stand by: they read what is committed as it comes, so that whoever
is elected has little to read back.
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

FOLLOW_S: Final = 0.5
"""How far those who stand by may be behind."""
LOADS_MAX: Final = 16
"""Logs that are read back at the same time."""
RELOAD_MIN_S: Final = 1.0
RELOAD_MAX_S: Final = 60.0
"""After how long a log that could not be read is read again: each time twice as long as before."""

K = TypeVar("K", bound=Hashable)


class Failure(NamedTuple):
    """A log that could not be read."""

    reason: str
    tries: int
    cancel_reload: Callable[[], None]


class RuntimeSet(Generic[K]):
    """Takes machines over and gives them up, as their logs are led here or elsewhere."""

    skips_unreadable: ClassVar[bool] = False
    """Whether records that a machine cannot read are skipped, or stop it: see replay.py."""

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
        self._standing: dict[K, StateRuntime] = {}
        self._stop_following: Callable[[], None] | None = None
        self._loads: dict[K, asyncio.Task[None]] = {}
        self._to_load: dict[K, StateRuntime] = {}
        """Those that wait until others have been read."""
        self._reading: set[K] = set()
        self.failures: dict[K, Failure] = {}
        """Logs led here that could not be read; they are read again."""
        self.skipped_count = 0
        """Records that could not be read and were skipped, ever."""

    @property
    def all(self) -> list[StateRuntime]:
        """Those that decide, ready or not, and those that stand by."""
        return [*self._running.values(), *self._standing.values()]

    @property
    def loaded(self) -> dict[K, StateRuntime]:
        """Those that are ready to decide."""
        return {key: runtime for key, runtime in self._running.items() if runtime.is_loaded}

    @property
    def is_loading(self) -> bool:
        return bool(self._loads or self._to_load)

    @property
    def unloaded(self) -> Counter[str]:
        """How many logs that are led here have no machine that decides, by what it waits for."""
        return Counter(
            "offline" if not runtime.partition.is_online else "failed" if key in self.failures else "loading"
            for key, runtime in self._running.items()
            if not runtime.is_loaded
        )

    async def settle(self) -> None:
        """Return when everything that is being read back now has been."""
        left = {*self._loads, *self._to_load}
        while left:
            tasks = [self._loads[key] for key in left if key in self._loads]
            if tasks:
                await asyncio.wait(tasks)
            await asyncio.sleep(0)  # until those that have waited have begun
            left &= {*self._loads, *self._to_load}

    # -- taking over and giving up

    def follow_to(
        self, led: Mapping[K, Partition], replicas: Mapping[K, Partition], why: PenstockError | None = None
    ) -> None:
        """Take over the logs that this broker leads now, give up those that it does not, stand by at all others.

        `why`: what whoever waits at one that is given up is told, if it is not that another broker leads.
        """
        for key, runtime in list(self._running.items()):
            if led.get(key) is not runtime.partition:
                del self._running[key]
                self._stop_load(key)
                self._forget_failure(key)
                left = NotCoordinator(f"{runtime.partition.name} is led by another broker now")
                self._give_up(key, runtime, why or left)
        for key, partition in led.items():
            if key not in self._running:
                runtime = self._running[key] = self._stood_by(key, partition)
                if partition.is_online:
                    self._start_load(key, runtime)
        self._standing = {
            key: self._stood_by(key, partition, may_have_failed=True)
            for key, partition in replicas.items()
            if key not in led
        }
        if self._standing and self._stop_following is None:
            self._stop_following = self._timer(FOLLOW_S, self._follow)

    def _give_up(self, key: K, runtime: StateRuntime, error: PenstockError) -> None:
        runtime.close(error)

    def _ready(self, key: K, runtime: StateRuntime) -> None:
        """It decides from now on."""

    def _stood_by(self, key: K, partition: Partition, *, may_have_failed: bool = False) -> StateRuntime:
        """Whoever has read along, or a new one."""
        known = self._standing.get(key)
        if known is None or known.partition is not partition:
            return self._new(partition)
        if known.has_failed:  # to read it all again before this broker leads would only fail again
            return known if may_have_failed else self._new(partition)
        return known if not partition.is_online or not known.is_astray else self._new(partition)

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

    def _follow(self) -> None:
        """Let each of those who stand by read a little, and again when there is more."""
        has_more = False
        try:
            for key, runtime in list(self._standing.items()):
                if runtime.partition.is_online and not runtime.has_failed:
                    runtime = self._standing[key] = self._stood_by(key, runtime.partition)
                    has_more |= self._follow_one(runtime)
        finally:
            self._stop_following = self._timer(0 if has_more else FOLLOW_S, self._follow) if self._standing else None

    def _follow_one(self, runtime: StateRuntime) -> bool:
        runtime.has_failed = True
        try:
            has_more = runtime.follow()
        except ColdRead as cold:
            self._threads.submit(cold.warm)
            has_more = False
        except PenstockError as error:  # it is read from the beginning if this broker is elected
            logger.warning("state_not_followed partition=%s reason=%r", runtime.partition.name, str(error))
            return False
        runtime.has_failed = False
        return has_more

    # -- loading

    def _start_load(self, key: K, runtime: StateRuntime) -> None:
        """A few at a time: thousands that are read side by side would hold the event loop in each of their steps."""
        if len(self._reading) >= LOADS_MAX:
            self._to_load[key] = runtime
            return
        self._reading.add(key)
        task = self._loads[key] = asyncio.get_running_loop().create_task(runtime.load(lambda: self._on_read(key)))
        task.add_done_callback(lambda done: self._on_loaded(key, runtime, done))

    def _on_read(self, key: K) -> None:
        """Another one may begin to be read."""
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
        """A log could not be read, or what was read could not be committed: begin again, with a new machine."""
        partition, tries = runtime.partition, self.failures[key].tries + 1 if key in self.failures else 1
        reason = str(error) if error is not None else "what was read is not committed"
        level = logging.INFO if error is None else logging.ERROR
        trace = None if isinstance(error, PenstockError) else error
        logger.log(
            level, "state_not_loaded partition=%s tries=%d reason=%r", partition.name, tries, reason, exc_info=trace
        )
        if isinstance(error, DamagedBatch):
            partition.go_offline(reason)  # another replica that is in sync leads then, if there is one
            self._forget_failure(key)
            return

        def reload() -> None:
            if self._running.get(key) is runtime and partition.is_online:
                self._running[key] = again = self._new(partition)
                self._start_load(key, again)

        self._give_up(key, runtime, CoordinatorNotAvailable(f"{partition.name} could not be read: {reason}"))
        wait_s = min(RELOAD_MAX_S, RELOAD_MIN_S * 2 ** min(tries - 1, 16))
        self.failures[key] = Failure(reason, tries, self._timer(wait_s, reload))

    def _forget_failure(self, key: K) -> None:
        failure = self.failures.pop(key, None)
        if failure is not None:
            failure.cancel_reload()

    def tell_all(self, command: Any) -> None:
        for runtime in self.loaded.values():
            runtime.tell(command)

    def close(self) -> None:
        self._to_load.clear()
        for key in list(self._loads):
            self._stop_load(key)
        for key in list(self.failures):
            self._forget_failure(key)
        for key, runtime in self._running.items():
            self._give_up(key, runtime, CoordinatorNotAvailable("the broker is shutting down"))
        self._running.clear()
        self._standing.clear()
        if self._stop_following is not None:
            self._stop_following()
            self._stop_following = None
