"""The schema registry's state machine on this broker, while it leads or follows the registry's topic."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from penstock.cluster.image import NO_LEADER, ClusterImage, Topic
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.decision import NO_TICKET, StateMachine
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import SCHEMAS_TOPIC
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import Answer
from penstock.replication.runtimes import StateRuntimes
from penstock.schemas.registry.machine import RegistryMachine


class RegistryRuntimes(StateRuntimes):
    """Runs the state machine on partition 0 of `_schemas`, if the brokers own that topic (write.access=brokers)."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        clock: Clock,
        timer: Timer,
        threads: Executor,
        bytes_max: Callable[[], int],
    ) -> None:
        super().__init__(
            topic=SCHEMAS_TOPIC,
            make=lambda partition: RegistryMachine(bytes_max=bytes_max()),
            partitions=partitions,
            clock=clock,
            timer=timer,
            threads=threads,
            perform=_ignore,
            hashed_by=lambda key: "",  # all keys are in partition 0
        )

    def apply(self, image: ClusterImage) -> None:
        """Loads or unloads the state machine as the metadata image says."""
        topic = image.by_name.get(self.topic)
        if topic is not None and not topic.is_internal:
            self.update_roles({}, {})
            return
        super().apply(image)


class EmptyRegistry:
    """Stands in for the runtimes while the topic does not exist: there are no schemas, and no changes are made."""

    def __init__(self) -> None:
        self.machine: StateMachine = RegistryMachine(bytes_max=0)

    def find(self, key: str) -> "EmptyRegistry":
        return self

    def submit(self, key: str, command: Any, answer: Answer) -> None:
        try:
            (reply,) = self.machine.decide(NO_TICKET, command, 0).replies
        except PenstockError as error:
            answer(error)
        else:
            answer(reply.value)


def leader_of(image: ClusterImage) -> int:
    """Returns the id of the broker that leads the registry; NO_LEADER if there is none at the moment."""
    topic: Topic | None = image.by_name.get(SCHEMAS_TOPIC)
    state = None if topic is None else topic.partitions.get(0)
    return NO_LEADER if state is None or state.leader not in image.brokers else state.leader


def _ignore(effect: Any) -> None:
    """Does nothing: the registry's decisions have no effects besides their records."""
