"""Delayed messages on this broker: a visibility filter for each replica, a DelayPartition for each led partition."""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final

from penstock.broker.delays.batch_decoder import BatchDecoder
from penstock.broker.delays.partition import DelayPartition
from penstock.broker.delays.stats import DelayStats
from penstock.broker.delays.visibility_filter import VisibilityFilter
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.matching_topics import MatchingTopics
from penstock.delays.machine import DelayMachine
from penstock.delays.run_storage import RunStorage
from penstock.foundation.clock import Clock, Timer
from penstock.foundation.ids import TopicIdPartition
from penstock.log.setting_table import DELAYED_MESSAGES, DELIVERY_DELAY_MS
from penstock.log.settings import LogSettings, delays_messages
from penstock.replication.companions import CompanionRuntimes
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.runtime import StateRuntime

logger = logging.getLogger(__name__)


class DelayPartitions:
    """Has one DelayPartition for each partition led by this broker whose pending messages are loaded."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        settings_of: Callable[[Topic], LogSettings],
        make_storage: Callable[[], RunStorage],
        clock: Clock,
        timer: Timer,
        threads: Executor,
    ) -> None:
        self._partitions = partitions
        self._settings_of = settings_of
        self._clock = clock
        self._timer = timer
        self._threads = threads
        self._decoder = BatchDecoder()
        self.stats: Final = DelayStats()
        self.by_tp: Final[dict[TopicIdPartition, DelayPartition]] = {}
        self._names: dict[TopicIdPartition, str] = {}
        self._topics: Mapping[bytes, Topic] = {}
        self._delayed = MatchingTopics(
            lambda topic: DELAYED_MESSAGES in topic.configs or DELIVERY_DELAY_MS in topic.configs
        )
        """The topics whose settings allow delayed messages."""
        self._filtered: dict[TopicIdPartition, Partition] = {}
        self.runtimes: Final = CompanionRuntimes(
            make=lambda partition: DelayMachine(make_storage()),
            partitions=partitions,
            clock=clock,
            timer=timer,
            threads=threads,
            perform=self._perform,
            on_ready=self._on_ready,
            on_gone=self._on_gone,
            wants=lambda topic: delays_messages(topic.configs),
        )

    def __iter__(self) -> Iterator[DelayPartition]:
        yield from list(self.by_tp.values())

    def find(self, topic_id: bytes, number: int) -> DelayPartition | None:
        """Returns the DelayPartition of a partition; None if this broker does not lead it or is still loading it."""
        found = self.by_tp.get(TopicIdPartition(topic_id, number))
        return found if found is not None and found.partition.is_online else None

    def apply(self, image: ClusterImage) -> None:
        """Installs and removes visibility filters, and starts and stops DelayPartitions, as a new metadata image
        requires. Call after `Partitions.apply` with the same image."""
        self._topics = image.topics
        wanted: dict[TopicIdPartition, tuple[Partition, Topic]] = {}
        for topic in self._delayed.follow(image):
            for partition in self._partitions.replicas.get(topic.topic_id, {}).values():
                wanted[partition.tp] = partition, topic
        for tp, known in list(self._filtered.items()):
            if tp not in wanted or wanted[tp][0] is not known:
                del self._filtered[tp]
                if known.visibility is not None:
                    known.visibility.close()
                    known.visibility = None
        for partition, topic in wanted.values():
            self.install_filter(topic, partition)
        self.runtimes.apply(image)

    def install_filter(self, topic: Topic, partition: Partition) -> None:
        """Installs the visibility filter on a replica with delayed messages. Call before the replica is read."""
        if DELAYED_MESSAGES not in topic.configs and DELIVERY_DELAY_MS not in topic.configs:
            return
        if partition.visibility is None:
            tp = partition.tp
            before = self._filtered.get(tp)
            if before is not None and before.visibility is not None:
                before.visibility.close()
            partition.visibility = VisibilityFilter(
                partition, partial(self.machine, tp), self._clock, self._timer, self._decoder
            )
            self._filtered[tp] = partition
        partition.visibility.configure(self._settings_of(topic))

    def machine(self, tp: TopicIdPartition) -> DelayMachine | None:
        """Returns the delay state machine of a replica, on a leader or a follower; None if it is not loaded."""
        runtime = self.runtimes.at(tp)
        machine = runtime.machine if runtime is not None else None
        return machine if isinstance(machine, DelayMachine) else None

    def _on_ready(self, tp: TopicIdPartition, runtime: StateRuntime) -> None:
        partition = self._partitions.by_id.get(tp.topic_id, {}).get(tp.partition)
        if partition is None or partition.companion is not runtime.partition or not partition.is_online:
            return
        visibility = partition.visibility
        assert isinstance(visibility, VisibilityFilter)
        found = self.by_tp[tp] = DelayPartition(
            partition=partition,
            runtime=runtime,
            visibility=visibility,
            clock=self._clock,
            timer=self._timer,
            threads=self._threads,
            stats=self.stats,
        )
        self._names[tp] = str(partition.name)
        logger.info("delays_ready partition=%s pending=%d", partition.name, found.machine.pending_count)
        found.start()

    def _on_gone(self, tp: TopicIdPartition, runtime: StateRuntime) -> None:
        found = self.by_tp.get(tp)
        if found is not None and found.runtime is runtime:
            del self.by_tp[tp]
            name = self._names.pop(tp)
            if tp.topic_id not in self._topics and found.machine.pending_count:
                count = found.machine.pending_count
                logger.warning("delayed_messages_dropped partition=%s count=%d reason='topic deleted'", name, count)
            found.close()

    def _perform(self, tp: TopicIdPartition, effect: Any) -> None:
        found = self.by_tp.get(tp)
        if found is not None:
            found.perform(effect)

    def close(self) -> None:
        for partition in self._filtered.values():
            if partition.visibility is not None:
                partition.visibility.close()
        self.runtimes.close()
