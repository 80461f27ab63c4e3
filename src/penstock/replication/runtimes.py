"""The state machines of one internal topic: one for each of its partitions that this broker has a replica of.

Those of the partitions that it leads decide. The others stand by: they read what is committed as it comes, so that
whoever is elected has little to read back.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import lru_cache
from typing import Any, Final

from penstock.cluster.image import ClusterImage
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.decision import StateMachine
from penstock.foundation.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    PenstockError,
)
from penstock.log.disk import ColdRead
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import Answer, StateRuntime

logger = logging.getLogger(__name__)

FOLLOW_S: Final = 0.5
"""How far those who stand by may be behind."""


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """Java's String.hashCode, which Kafka chooses coordinators by, without its sign.

    >>> java_hash("my-group") % 50
    36
    """
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


class StateRuntimes:
    """Finds who decides about a key. Follows the image."""

    def __init__(
        self,
        *,
        topic: str,
        make: Callable[[Partition], StateMachine],
        partitions: Partitions,
        clock: Clock,
        timer: Timer,
        threads: Executor,
        perform: Callable[[Any], None],
        hashed_by: Callable[[str], str] = str,
    ) -> None:
        self.topic: Final = topic
        self._hashed_by = hashed_by
        """What of a key says where it lives: keys that are decided about together live together."""
        self._make = make
        self._partitions = partitions
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self._perform = perform
        self._count = 0
        self._running: dict[int, StateRuntime] = {}
        self._standing: dict[int, StateRuntime] = {}
        self._stop_following: Callable[[], None] | None = None
        self._loads: dict[int, asyncio.Task[None]] = {}

    def partition_of(self, key: str) -> int | None:
        """Which partition holds the state of a key; None while the topic is not there."""
        return java_hash(self._hashed_by(key)) % self._count if self._count else None

    def find(self, key: str) -> StateRuntime:
        """Who decides about a key. Raises CoordinatorNotAvailable, CoordinatorLoadInProgress, NotCoordinator."""
        number = self.partition_of(key)
        if number is None:
            raise CoordinatorNotAvailable(f"{self.topic} is not there yet; ask for the coordinator first")
        runtime = self._running.get(number)
        if runtime is None:
            raise NotCoordinator(f"{self.topic}-{number} is led by another broker; ask for the coordinator again")
        if not runtime.is_loaded:
            if not runtime.partition.is_online:
                raise CoordinatorNotAvailable(f"{self.topic}-{number} is offline: {runtime.partition.offline_reason}")
            raise CoordinatorLoadInProgress(f"{self.topic}-{number} is being read back; try again")
        return runtime

    def is_here(self, key: str) -> bool:
        """Whether this broker decides about a key."""
        number = self.partition_of(key)
        runtime = self._running.get(number) if number is not None else None
        return runtime is not None and runtime.is_loaded

    def submit(self, key: str, command: Any, answer: Answer) -> None:
        """Have a command about a key decided; what `find` raises is an answer too."""
        try:
            runtime = self.find(key)
        except PenstockError as error:
            answer(error)
        else:
            runtime.submit(command, answer)

    @property
    def all(self) -> list[StateRuntime]:
        """Those that decide, ready or not, and those that stand by."""
        return [*self._running.values(), *self._standing.values()]

    @property
    def loaded(self) -> dict[int, StateRuntime]:
        """By partition, those that are ready to decide."""
        return {number: runtime for number, runtime in self._running.items() if runtime.is_loaded}

    @property
    def is_loading(self) -> bool:
        return bool(self._loads)

    async def settle(self) -> None:
        """Return when everything that is being read back now has been."""
        if self._loads:
            await asyncio.wait(list(self._loads.values()))

    def apply(self, image: ClusterImage) -> None:
        """Take over the partitions that this broker leads now, and give up those that it does not."""
        topic = image.by_name.get(self.topic)
        self._count = len(topic.partitions) if topic else 0
        led = dict(self._partitions.by_name.get(self.topic, {}))
        for number, runtime in list(self._running.items()):
            if led.get(number) is not runtime.partition:
                del self._running[number]
                self._stop_load(number)
                runtime.close(NotCoordinator(f"{runtime.partition.name} is led by another broker now"))
        for number, partition in led.items():
            if number not in self._running:
                runtime = self._running[number] = self._stood_by(number, partition)
                if partition.is_online:
                    self._start_load(number, runtime)
        replicas = self._partitions.replicas.get(topic.topic_id, {}) if topic else {}
        self._standing = {
            number: self._stood_by(number, partition) for number, partition in replicas.items() if number not in led
        }
        if self._standing and self._stop_following is None:
            self._stop_following = self._timer(FOLLOW_S, self._follow)

    def _stood_by(self, number: int, partition: Partition) -> StateRuntime:
        """Whoever has read along, or a new one."""
        known = self._standing.get(number)
        if known is not None and known.partition is partition and (not partition.is_online or not known.is_astray):
            return known
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
        for number, runtime in list(self._standing.items()):
            if not runtime.partition.is_online:
                continue
            try:
                runtime = self._standing[number] = self._stood_by(number, runtime.partition)
                has_more |= runtime.follow()
            except ColdRead as cold:
                self._threads.submit(cold.warm)
            except PenstockError as error:  # it is said again, louder, if this broker is elected
                logger.debug("state_not_followed partition=%s reason=%r", runtime.partition.name, str(error))
        self._stop_following = self._timer(0 if has_more else FOLLOW_S, self._follow) if self._standing else None

    def _start_load(self, number: int, runtime: StateRuntime) -> None:
        task = self._loads[number] = asyncio.get_running_loop().create_task(runtime.load())
        task.add_done_callback(lambda done: self._on_loaded(number, done))

    def _stop_load(self, number: int) -> None:
        task = self._loads.pop(number, None)
        if task is not None:
            task.cancel()

    def _on_loaded(self, number: int, task: asyncio.Task[None]) -> None:
        if self._loads.get(number) is task:
            del self._loads[number]
        if not task.cancelled() and task.exception() is not None:
            logger.error("state_not_loaded partition=%s-%d", self.topic, number, exc_info=task.exception())

    def tell_all(self, command: Any) -> None:
        for runtime in self.loaded.values():
            runtime.tell(command)

    def close(self) -> None:
        for number in list(self._loads):
            self._stop_load(number)
        for runtime in self._running.values():
            runtime.close(CoordinatorNotAvailable("the broker is shutting down"))
        self._running.clear()
        self._standing.clear()
        if self._stop_following is not None:
            self._stop_following()
            self._stop_following = None
