"""The queue partitions led by this broker: opened when their delivery state is loaded, closed on failover."""

import logging
from bisect import insort
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any, Final

from penstock.broker.queues.clock_steps import ClockSteps
from penstock.broker.queues.partition import QueuePartition
from penstock.cluster.image import ClusterImage
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.ids import TopicIdPartition
from penstock.log.settings import delays_messages
from penstock.queues.commands import SetPosition
from penstock.queues.machine import QueueMachine
from penstock.replication.companions import CompanionRuntimes
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import StateRuntime

logger = logging.getLogger(__name__)

WATCH_S: Final = 1.0
"""Interval, in seconds, at which the wall clock is checked for steps."""


class QueuePartitions:
    """One QueuePartition for each partition that this broker leads and whose delivery state is loaded."""

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
        self.by_tp: Final[dict[TopicIdPartition, QueuePartition]] = {}
        self._by_topic: dict[bytes, list[QueuePartition]] = {}
        self._clock_steps = ClockSteps(clock, timer)
        self._stop_watch: Callable[[], None] | None = None
        self.on_ready: list[Callable[[QueuePartition], None]] = []
        """Callbacks that are called with each partition that becomes ready on this broker."""
        self.perform: Callable[[TopicIdPartition, Any], None] = _ignore_effect
        """Function that carries out the effects of queue state machines: see queues/commands.py."""
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
        """Returns the QueuePartition if this broker leads the partition and it is ready, else None."""
        found = self.by_tp.get(TopicIdPartition(topic_id, number))
        return found if found is not None and found.partition.is_online else None

    def of_topic(self, topic_id: bytes) -> list[QueuePartition]:
        """Returns the partitions of a topic that this broker leads and that are ready, by partition index."""
        found = self._by_topic.get(topic_id, ())
        return [partition for partition in found if partition.partition.is_online]

    def __iter__(self) -> Iterator[QueuePartition]:
        yield from list(self.by_tp.values())

    def apply(self, image: ClusterImage) -> None:
        """Starts and stops the state machines of delivery state, as a new metadata image requires. Call after
        `Partitions.apply` with the same image."""
        self.runtimes.apply(image)

    def _on_ready(self, tp: TopicIdPartition, runtime: StateRuntime) -> None:
        """Opens a partition whose delivery state is loaded, once all of its messages are committed.

        A new leader does not know its high watermark at first (KIP-207): it could not read a message that was
        delivered before, and would mistake the message for one that retention has removed.
        """
        partition = self._partition_of(tp, runtime)
        if partition is not None:
            end = partition.log.end_offset
            partition.when_committed(end, lambda: self._open(tp, runtime, end))

    def _partition_of(self, tp: TopicIdPartition, runtime: StateRuntime) -> Partition | None:
        """Returns the partition of a state machine runtime; None if it is offline or led by another broker."""
        partition = self._partitions.by_id.get(tp.topic_id, {}).get(tp.partition)
        if partition is None or partition.companion is not runtime.partition or not partition.is_online:
            return None
        return partition

    def _open(self, tp: TopicIdPartition, runtime: StateRuntime, end: int) -> None:
        partition = self._partition_of(tp, runtime)
        if partition is None or not runtime.is_loaded or not partition.has_committed(end):
            return
        found = self.by_tp[tp] = QueuePartition(
            partition=partition, runtime=runtime, clock=self._clock, timer=self._timer, threads=self._threads
        )
        insort(self._by_topic.setdefault(tp.topic_id, []), found, key=lambda partition: partition.number)
        self._reset_lost_groups(found)
        self._clock_steps.check_last_leader(found)
        if self._stop_watch is None:
            self._stop_watch = self._timer(WATCH_S, self._watch_clock)
        for notify in self.on_ready:
            notify(found)

    def _watch_clock(self) -> None:
        for found in self:
            self._clock_steps.follow(found)
        self._stop_watch = self._timer(WATCH_S, self._watch_clock) if self.by_tp else None

    @staticmethod
    def _reset_lost_groups(found: QueuePartition) -> None:
        """Resets share groups whose end offset (first never-delivered message) is above the log end offset: after an
        unclean election has lost messages, new messages get the same offsets.

        All unfinished messages are then delivered again.
        """
        end = found.partition.log.end_offset
        for name in found.machine.groups:
            delivery = found.machine.group(name)
            if delivery is not None and delivery.end > end:
                logger.warning("queue_messages_lost partition=%s group=%s end=%d", found.partition.name, name, end)
                found.runtime.post(SetPosition(name, min(delivery.start, end)))

    def _on_gone(self, tp: TopicIdPartition, runtime: StateRuntime) -> None:
        found = self.by_tp.get(tp)
        if found is not None and found.runtime is runtime:
            del self.by_tp[tp]
            self._by_topic[tp.topic_id].remove(found)
            if not self._by_topic[tp.topic_id]:
                del self._by_topic[tp.topic_id]
            found.close()

    def _perform(self, tp: TopicIdPartition, effect: Any) -> None:
        self.perform(tp, effect)

    def close(self) -> None:
        if self._stop_watch is not None:
            self._stop_watch()
        self.runtimes.close()


def _ignore_effect(tp: TopicIdPartition, effect: object) -> None:
    pass
