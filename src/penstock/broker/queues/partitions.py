"""The partitions with delivery state that this broker leads: found, taken over and given up as the image says."""

import logging
from bisect import insort
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any, Final

from penstock.broker.queues.clock_steps import ClockSteps
from penstock.broker.queues.partition import QueuePartition
from penstock.cluster.image import ClusterImage, Place
from penstock.foundation.clock import Clock, Timer
from penstock.log.settings import delays_messages
from penstock.queues.commands import SetPosition
from penstock.queues.machine import QueueMachine
from penstock.replication.companions import CompanionRuntimes
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import StateRuntime

logger = logging.getLogger(__name__)

WATCH_S: Final = 1.0
"""How often it is looked whether the clock was set."""


class QueuePartitions:
    """One QueuePartition for each partition that is led here and has read its delivery state back."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        clock: Clock,
        timer: Timer,
        threads: Executor,
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self.by_place: Final[dict[Place, QueuePartition]] = {}
        self._by_topic: dict[bytes, list[QueuePartition]] = {}
        self._clock_steps = ClockSteps(clock, timer)
        self._stop_watch: Callable[[], None] | None = None
        self.on_ready: list[Callable[[QueuePartition], None]] = []
        """Called when a partition has come to be served here."""
        self.perform: Callable[[Place, Any], None] = _nothing
        """Does what a machine wants done: see queues/commands.py."""
        self.runtimes: Final = CompanionRuntimes(
            make=lambda partition: QueueMachine(),
            partitions=partitions,
            clock=clock,
            timer=timer,
            threads=threads,
            perform=self._perform,
            on_ready=self._on_ready,
            on_gone=self._on_gone,
            wants=lambda topic: not delays_messages(topic.configs),
        )

    def find(self, topic_id: bytes, number: int) -> QueuePartition | None:
        """A partition that is led here and ready."""
        found = self.by_place.get(Place(topic_id, number))
        return found if found is not None and found.partition.is_online else None

    def of_topic(self, topic_id: bytes) -> list[QueuePartition]:
        """All of a topic's that are led here and ready, by their numbers."""
        found = self._by_topic.get(topic_id, ())
        return [partition for partition in found if partition.partition.is_online]

    def __iter__(self) -> Iterator[QueuePartition]:
        yield from list(self.by_place.values())

    def apply(self, image: ClusterImage) -> None:
        """Call after the partitions have followed the image."""
        self.runtimes.apply(image)

    def _on_ready(self, place: Place, runtime: StateRuntime) -> None:
        """Serves a partition whose delivery state has been read back, once all of its messages are committed.

        What was delivered before is committed, but a new leader does not know that yet (KIP-207): it cannot read such
        a message, and would take it for one that retention has removed.
        """
        partition = self._partition_of(place, runtime)
        if partition is not None:
            end = partition.log.end_offset
            partition.when_committed(end, lambda: self._serve(place, runtime, end))

    def _partition_of(self, place: Place, runtime: StateRuntime) -> Partition | None:
        """Returns the partition of a runtime; None if it is not led here any more, or is offline."""
        partition = self._partitions.by_id.get(place.topic_id, {}).get(place.number)
        if partition is None or partition.companion is not runtime.partition or not partition.is_online:
            return None
        return partition

    def _serve(self, place: Place, runtime: StateRuntime, end: int) -> None:
        partition = self._partition_of(place, runtime)
        if partition is None or not runtime.is_loaded or not partition.has_committed(end):
            return
        found = self.by_place[place] = QueuePartition(
            partition=partition, runtime=runtime, clock=self._clock, timer=self._timer, threads=self._threads
        )
        insort(self._by_topic.setdefault(place.topic_id, []), found, key=lambda partition: partition.number)
        self._check(found)
        self._clock_steps.check_last_leader(found)
        if self._stop_watch is None:
            self._stop_watch = self._timer(WATCH_S, self._watch_clock)
        for tell in self.on_ready:
            tell(found)

    def _watch_clock(self) -> None:
        for found in self:
            self._clock_steps.follow(found)
        self._stop_watch = self._timer(WATCH_S, self._watch_clock) if self.by_place else None

    @staticmethod
    def _check(found: QueuePartition) -> None:
        """An unclean election may have taken back messages that groups have looked at: others get their offsets.

        Then whatever is not finished for good is delivered again.
        """
        end = found.partition.log.end_offset
        for name in found.machine.groups:
            delivery = found.machine.group(name)
            if delivery is not None and delivery.end > end:
                logger.warning("messages_taken_back partition=%s group=%s end=%d", found.partition.name, name, end)
                found.runtime.tell(SetPosition(name, min(delivery.start, end)))

    def _on_gone(self, place: Place, runtime: StateRuntime) -> None:
        found = self.by_place.get(place)
        if found is not None and found.runtime is runtime:
            del self.by_place[place]
            self._by_topic[place.topic_id].remove(found)
            if not self._by_topic[place.topic_id]:
                del self._by_topic[place.topic_id]
            found.close()

    def _perform(self, place: Place, effect: Any) -> None:
        self.perform(place, effect)

    def close(self) -> None:
        if self._stop_watch is not None:
            self._stop_watch()
        self.runtimes.close()


def _nothing(place: Place, effect: object) -> None:
    """Nobody listens yet."""
