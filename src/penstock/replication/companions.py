"""State machines on companion logs: the second logs of partitions, for queue state or delayed messages."""

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.matching_topics import MatchingTopics
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.decision import StateMachine
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import StateRuntime
from penstock.replication.runtime_set import RuntimeSet

Watcher = Callable[[TopicIdPartition, StateRuntime], None]


class CompanionRuntimes(RuntimeSet[TopicIdPartition]):
    """Runs and finds the state machines on companion logs (second logs of partitions, for queue state or delayed
    messages). Call `apply` with each metadata image, after `Partitions.apply`."""

    def __init__(
        self,
        *,
        make: Callable[[Partition], StateMachine],
        partitions: Partitions,
        clock: Clock,
        timer: Timer,
        threads: Executor,
        perform: Callable[[TopicIdPartition, Any], None],
        on_ready: Watcher,
        on_gone: Watcher,
        wants: Callable[[Topic], bool] = lambda topic: True,
    ) -> None:
        """`on_ready`: called when a state machine is loaded and accepts commands; `on_gone`: when it no longer
        does. `wants`: whether to run state machines built by `make` on a topic's companion logs."""
        super().__init__(make=make, clock=clock, timer=timer, threads=threads, perform=_ignore_effect)
        self._perform_for = perform
        self._partitions = partitions
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._topics = MatchingTopics(lambda topic: bool(topic.companion) and wants(topic))

    def find(self, tp: TopicIdPartition) -> StateRuntime | None:
        """Returns the state machine runtime of a partition if this broker leads the partition and the runtime is
        loaded, else None."""
        runtime = self._running.get(tp)
        return runtime if runtime is not None and runtime.is_loaded else None

    def at(self, tp: TopicIdPartition) -> StateRuntime | None:
        """Returns the state machine runtime of a replica, whether loaded, loading or standby; None if there is no
        runtime for it."""
        return self._running.get(tp) or self._standbys.get(tp)

    @property
    def standbys(self) -> dict[TopicIdPartition, StateRuntime]:
        """Runtimes of replicas that this broker does not lead, by topic-partition. They replay committed records,
        so that this broker can take over quickly if it is elected."""
        return dict(self._standbys)

    def apply(self, image: ClusterImage) -> None:
        led: dict[TopicIdPartition, Partition] = {}
        replicas: dict[TopicIdPartition, Partition] = {}
        for topic in self._topics.follow(image):
            for partition in self._partitions.replicas.get(topic.topic_id, {}).values():
                if partition.companion is not None:
                    replicas[partition.tp] = partition.companion
            for companion in self._partitions.companions.get(topic.companion, {}).values():
                led[companion.tp] = companion
        self.update_roles(led, replicas)

    def _new(self, partition: Partition) -> StateRuntime:
        return StateRuntime(
            partition=partition,
            machine=self._make(partition),
            clock=self._clock,
            timer=self._timer,
            threads=self._threads,
            perform=partial(self._perform_for, partition.tp),
            on_skipped=self._count_skipped if self.skips_unreadable else None,
        )

    def _ready(self, key: TopicIdPartition, runtime: StateRuntime) -> None:
        self._on_ready(key, runtime)

    def _unload(self, key: TopicIdPartition, runtime: StateRuntime, error: PenstockError) -> None:
        super()._unload(key, runtime, error)
        self._on_gone(key, runtime)


def _ignore_effect(effect: object) -> None:
    """Does nothing: the callback for effects that RuntimeSet requires. It is never called, because `_new` passes
    another callback to each runtime."""
