"""The state machines of one internal topic: one for each of its partitions that this broker leads."""

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
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import Answer, StateRuntime

logger = logging.getLogger(__name__)


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
        make: Callable[[int], StateMachine],
        partitions: Partitions,
        clock: Clock,
        timer: Timer,
        threads: Executor,
        perform: Callable[[Any], None],
    ) -> None:
        self.topic: Final = topic
        self._make = make
        self._partitions = partitions
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self._perform = perform
        self._count = 0
        self._running: dict[int, StateRuntime] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}

    def partition_of(self, key: str) -> int | None:
        """Which partition holds the state of a key; None while the topic is not there."""
        return java_hash(key) % self._count if self._count else None

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
    def running(self) -> list[StateRuntime]:
        """All that this broker leads, ready or not."""
        return list(self._running.values())

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
                runtime = self._running[number] = StateRuntime(
                    partition=partition,
                    machine=self._make(number),
                    clock=self._clock,
                    timer=self._timer,
                    threads=self._threads,
                    perform=self._perform,
                )
                if partition.is_online:
                    self._start_load(number, runtime)

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
