"""State machines of one internal topic, such as `__consumer_offsets`: finds the coordinator partition of a key."""

from collections import Counter
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
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import Answer, StateRuntime
from penstock.replication.runtime_set import RuntimeSet


@lru_cache(maxsize=10_000)
def java_hash(text: str) -> int:
    """Returns Java's String.hashCode without its sign bit; Kafka chooses coordinator partitions by this hash.

    >>> java_hash("my-group") % 50
    36
    """
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


class StateRuntimes(RuntimeSet[int]):
    """Finds the state machine runtime that is responsible for a key, such as a group id."""

    skips_unreadable = True

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
        super().__init__(make=make, clock=clock, timer=timer, threads=threads, perform=perform)
        self.topic: Final = topic
        self._hashed_by = hashed_by
        """Function that returns the part of a key to hash: keys with the same part share a partition."""
        self._partitions = partitions
        self._count = 0
        self._to_lead: frozenset[int] = frozenset()
        """Partitions that this broker was elected to lead, even if their logs are not open yet."""
        self.is_paused = False
        """Whether this internal topic is being repaired: requests get an error that clients retry, and the next
        `apply` unloads all runtimes."""

    def partition_of(self, key: str) -> int | None:
        """Returns the index of the partition that holds the state of a key; None while the topic does not exist."""
        return java_hash(self._hashed_by(key)) % self._count if self._count else None

    def find(self, key: str) -> StateRuntime:
        """Returns the runtime of the state machine (the coordinator) that holds the state of `key`, such as a
        group id. Raises CoordinatorNotAvailable, CoordinatorLoadInProgress or NotCoordinator."""
        number = self.partition_of(key)
        if number is None:
            raise CoordinatorNotAvailable(f"{self.topic} does not exist yet; send FindCoordinator first")
        if self.is_paused:
            raise self._paused()
        runtime = self._running.get(number)
        if runtime is None and number in self._to_lead:
            raise CoordinatorLoadInProgress(f"{self.topic}-{number} is being opened; retry")
        if runtime is None:
            raise NotCoordinator(f"{self.topic}-{number} is led by another broker; send FindCoordinator again")
        if not runtime.is_loaded:
            if not runtime.partition.is_online:
                raise CoordinatorNotAvailable(f"{self.topic}-{number} is offline: {runtime.partition.offline_reason}")
            if number in self.failures:
                reason = self.failures[number].reason
                raise CoordinatorNotAvailable(f"{self.topic}-{number} could not be loaded: {reason}; retrying")
            raise CoordinatorLoadInProgress(f"{self.topic}-{number} is loading; retry")
        return runtime

    def check_loaded(self) -> None:
        """Raises CoordinatorLoadInProgress or CoordinatorNotAvailable unless all partitions led here are loaded."""
        if self.is_paused:
            raise self._paused()
        states = self.unloaded
        if states["loading"]:
            raise CoordinatorLoadInProgress(f"{states['loading']} partitions of {self.topic} are loading; retry")
        if states:
            raise CoordinatorNotAvailable(f"{states.total()} partitions of {self.topic} cannot be loaded")

    @property
    def unloaded(self) -> Counter[str]:
        return (
            Counter(paused=len(self._partitions.by_name.get(self.topic, ()))) if self.is_paused else super().unloaded
        )

    def _paused(self) -> PenstockError:
        return CoordinatorLoadInProgress(f"{self.topic} is being repaired; retry")

    def is_here(self, key: str) -> bool:
        """Whether this broker is the coordinator of a key, and the state of the key is loaded."""
        number = self.partition_of(key)
        runtime = self._running.get(number) if number is not None else None
        return runtime is not None and runtime.is_loaded

    def submit(self, key: str, command: Any, answer: Answer) -> None:
        """Submits a command about a key; `answer` gets the reply, or an error of `find`."""
        try:
            runtime = self.find(key)
        except PenstockError as error:
            answer(error)
        else:
            runtime.submit(command, answer)

    def apply(self, image: ClusterImage) -> None:
        """Loads the partitions that this broker now leads, and unloads the partitions that it no longer leads."""
        topic = image.by_name.get(self.topic)
        states = topic.partitions if topic else {}
        self._count = len(states)
        node_id, broker_epoch = self._partitions.node_id, self._partitions.broker_epoch
        self._to_lead = frozenset(
            number for number, state in states.items() if state.is_led_by(node_id, broker_epoch)
        )
        if self.is_paused:
            self.update_roles({}, {}, self._paused())
            return
        led = dict(self._partitions.by_name.get(self.topic, {}))
        self.update_roles(led, self._partitions.replicas.get(topic.topic_id, {}) if topic else {})
