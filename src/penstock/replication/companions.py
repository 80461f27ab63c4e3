"""The state machines on companion logs: one for each partition that has one and a replica here."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any

from penstock.cluster.image import ClusterImage, Place, Topic
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.decision import StateMachine
from penstock.foundation.errors import PenstockError
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import StateRuntime
from penstock.replication.runtime_set import RuntimeSet

Watcher = Callable[[Place, StateRuntime], None]


class CompanionRuntimes(RuntimeSet[Place]):
    """Finds who decides about a partition. Call `apply` after the partitions have followed the image."""

    def __init__(
        self,
        *,
        make: Callable[[Partition], StateMachine],
        partitions: Partitions,
        clock: Clock,
        timer: Timer,
        threads: Executor,
        perform: Callable[[Place, Any], None],
        on_ready: Watcher,
        on_gone: Watcher,
        wants: Callable[[Topic], bool] = lambda topic: True,
    ) -> None:
        """`on_ready`: a machine decides from now on; `on_gone`: it does no more. Both with the partition's place.

        `wants`: which topics' companions have machines of this kind. None has machines of two.
        """
        super().__init__(make=make, clock=clock, timer=timer, threads=threads, perform=_nothing)
        self._perform_at = perform
        self._partitions = partitions
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._wants = wants
        self._topics: Mapping[bytes, Topic] = {}
        self._accompanied: list[Topic] = []
        """Those of the topics that have companions of this kind."""

    def find(self, place: Place) -> StateRuntime | None:
        """Who decides about a partition, if it is here and has read everything back."""
        runtime = self._running.get(place)
        return runtime if runtime is not None and runtime.is_loaded else None

    def at(self, place: Place) -> StateRuntime | None:
        """Of a partition that has a replica here: who decides, ready or not, or who reads along."""
        return self._running.get(place) or self._standing.get(place)

    @property
    def standing(self) -> dict[Place, StateRuntime]:
        """Those that read along what others decide."""
        return dict(self._standing)

    def apply(self, image: ClusterImage) -> None:
        led: dict[Place, Partition] = {}
        replicas: dict[Place, Partition] = {}
        if image.topics is not self._topics:
            self._topics = image.topics
            self._accompanied = [topic for topic in image.topics.values() if topic.companion and self._wants(topic)]
        for topic in self._accompanied:
            for partition in self._partitions.replicas.get(topic.topic_id, {}).values():
                if partition.companion is not None:
                    replicas[partition.place] = partition.companion
            for companion in self._partitions.companions.get(topic.companion, {}).values():
                led[companion.place] = companion
        self.follow_to(led, replicas)

    def _new(self, partition: Partition) -> StateRuntime:
        return StateRuntime(
            partition=partition,
            machine=self._make(partition),
            clock=self._clock,
            timer=self._timer,
            threads=self._threads,
            perform=partial(self._perform_at, partition.place),
            on_skipped=self._count_skipped if self.skips_unreadable else None,
        )

    def _ready(self, key: Place, runtime: StateRuntime) -> None:
        self._on_ready(key, runtime)

    def _give_up(self, key: Place, runtime: StateRuntime, error: PenstockError) -> None:
        super()._give_up(key, runtime, error)
        self._on_gone(key, runtime)


def _nothing(effect: object) -> None:
    """Effects are performed where they belong: see `_new`."""
