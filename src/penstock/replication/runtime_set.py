"""State machines, each on a log of its own: one for every such log that this broker has a replica of.

Those of the logs that it leads decide. The others stand by: they read what is committed as it comes, so that whoever
is elected has little to read back.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Executor
from typing import Any, Final, Generic, TypeVar

from penstock.foundation.clock import Clock, Timer
from penstock.foundation.decision import StateMachine
from penstock.foundation.errors import CoordinatorNotAvailable, NotCoordinator, PenstockError
from penstock.log.disk import ColdRead
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime

logger = logging.getLogger(__name__)

FOLLOW_S: Final = 0.5
"""How far those who stand by may be behind."""

K = TypeVar("K", bound=Hashable)


class RuntimeSet(Generic[K]):
    """Takes machines over and gives them up, as their logs are led here or elsewhere."""

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
        return bool(self._loads)

    async def settle(self) -> None:
        """Return when everything that is being read back now has been."""
        if self._loads:
            await asyncio.wait(list(self._loads.values()))

    # -- taking over and giving up

    def follow_to(self, led: Mapping[K, Partition], replicas: Mapping[K, Partition]) -> None:
        """Take over the logs that this broker leads now, give up those that it does not, stand by at all others."""
        for key, runtime in list(self._running.items()):
            if led.get(key) is not runtime.partition:
                del self._running[key]
                self._stop_load(key)
                self._give_up(key, runtime, NotCoordinator(f"{runtime.partition.name} is led by another broker now"))
        for key, partition in led.items():
            if key not in self._running:
                runtime = self._running[key] = self._stood_by(key, partition)
                if partition.is_online:
                    self._start_load(key, runtime)
        self._standing = {
            key: self._stood_by(key, partition) for key, partition in replicas.items() if key not in led
        }
        if self._standing and self._stop_following is None:
            self._stop_following = self._timer(FOLLOW_S, self._follow)

    def _give_up(self, key: K, runtime: StateRuntime, error: PenstockError) -> None:
        runtime.close(error)

    def _ready(self, key: K, runtime: StateRuntime) -> None:
        """It decides from now on."""

    def _stood_by(self, key: K, partition: Partition) -> StateRuntime:
        """Whoever has read along, or a new one."""
        known = self._standing.get(key)
        if known is not None and known.partition is partition and (not partition.is_online or not known.is_astray):
            return known
        return self._new(partition)

    def _new(self, partition: Partition) -> StateRuntime:
        return StateRuntime(
            partition=partition,
            machine=self._make(partition),
            clock=self._clock,
            timer=self._timer,
            threads=self._threads,
            perform=self._perform,
        )

    def _follow(self) -> None:
        """Let each of those who stand by read a little, and again when there is more."""
        has_more = False
        for key, runtime in list(self._standing.items()):
            if not runtime.partition.is_online:
                continue
            try:
                runtime = self._standing[key] = self._stood_by(key, runtime.partition)
                has_more |= runtime.follow()
            except ColdRead as cold:
                self._threads.submit(cold.warm)
            except PenstockError as error:  # it is said again, louder, if this broker is elected
                logger.debug("state_not_followed partition=%s reason=%r", runtime.partition.name, str(error))
        self._stop_following = self._timer(0 if has_more else FOLLOW_S, self._follow) if self._standing else None

    def _start_load(self, key: K, runtime: StateRuntime) -> None:
        task = self._loads[key] = asyncio.get_running_loop().create_task(runtime.load())
        task.add_done_callback(lambda done: self._on_loaded(key, runtime, done))

    def _stop_load(self, key: K) -> None:
        task = self._loads.pop(key, None)
        if task is not None:
            task.cancel()

    def _on_loaded(self, key: K, runtime: StateRuntime, task: asyncio.Task[None]) -> None:
        if self._loads.get(key) is task:
            del self._loads[key]
        if task.cancelled():
            return
        if task.exception() is not None:
            logger.error("state_not_loaded partition=%s", runtime.partition.name, exc_info=task.exception())
        elif runtime.is_loaded:
            self._ready(key, runtime)

    def tell_all(self, command: Any) -> None:
        for runtime in self.loaded.values():
            runtime.tell(command)

    def close(self) -> None:
        for key in list(self._loads):
            self._stop_load(key)
        for key, runtime in self._running.items():
            self._give_up(key, runtime, CoordinatorNotAvailable("the broker is shutting down"))
        self._running.clear()
        self._standing.clear()
        if self._stop_following is not None:
            self._stop_following()
            self._stop_following = None
