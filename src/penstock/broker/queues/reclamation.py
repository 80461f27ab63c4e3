"""Reclaims disk space of queues: trims the log below the first unfinished message and applies retention.

A queue's own log starts at its first unfinished message. Later segments are dropped once all of their messages are
finished, so that one stuck message does not retain all later messages; every replica drops segments on its own. A
topic with an attached queue keeps its own retention. The log of a FIFO queue keeps the last five minutes, from which
a new leader reads the deduplication ids (deduplication.py).
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

from penstock.broker.queues.partition import QueuePartition
from penstock.broker.queues.partitions import QueuePartitions
from penstock.cluster.image import ClusterImage, Topic
from penstock.foundation.clock import Clock, conservative_now_ms
from penstock.foundation.errors import PenstockError
from penstock.log.disk import ColdRead
from penstock.log.io_queue import Outcome
from penstock.log.log import Log
from penstock.log.settings import Storage
from penstock.log.timestamp_lookup import find_time
from penstock.queues.commands import Trimmed
from penstock.queues.deduplication import WINDOW_MS
from penstock.queues.machine import QueueMachine
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions

logger = logging.getLogger(__name__)

TICK_S: Final = 1.0
EVICT_TICKS: Final = 30
ROLL_BYTES: Final = 1 << 20
"""Size of the active segment, in bytes, above which it is rolled once all of its messages are finished."""
SUMMARY_BYTES: Final = 16 << 20
"""Size, in bytes, above which the companion log (log of delivery state) of a memory topic is replaced by a snapshot
of the state. Logs in memory are never compacted."""


class Reclaimer:
    """Frees disk space of queues and share groups on this broker: trims finished and expired messages from
    partition logs, and old records from companion logs (logs of delivery state)."""

    def __init__(
        self,
        *,
        queue_partitions: QueuePartitions,
        partitions: Partitions,
        image: Callable[[], ClusterImage],
        clock: Clock,
        deduplication_ms: int = WINDOW_MS,
    ) -> None:
        self._queue_partitions = queue_partitions
        self._partitions = partitions
        self._image = image
        self._clock = clock
        self._ticks = 0
        self._queues: object = None
        self._names: dict[bytes, list[str]] = {}
        """Names of the queues by topic id, as of the last tick."""
        self._fifo: set[bytes] = set()
        """Ids of the topics of FIFO queues."""
        self._deduplication_ms = deduplication_ms

    async def run(self) -> None:
        """Reclaims disk space periodically until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        self._ticks += 1
        image = self._image()
        if self._queues is not image.queues:
            self._queues, self._names = image.queues, {}
            for queue in image.queues.values():
                self._names.setdefault(queue.topic_id, []).append(queue.name)
            self._fifo = {queue.topic_id for queue in image.queues.values() if queue.settings.is_fifo}
        for partition in self._queue_partitions:
            self._run_guarded(partition.partition, partial(self._reclaim_led, image, partition))
            if self._ticks % EVICT_TICKS == 0:
                partition.evict_unused()
        for tp, runtime in self._queue_partitions.runtimes.standbys.items():
            replica = self._partitions.replicas.get(tp.topic_id, {}).get(tp.partition)
            topic = image.topics.get(tp.topic_id)
            machine = runtime.machine
            if replica is not None and topic is not None and topic.is_queue and isinstance(machine, QueueMachine):
                self._run_guarded(replica, partial(self._drop_finished, topic, replica, machine))

    @staticmethod
    def _run_guarded(partition: Partition, work: Callable[[], None]) -> None:
        if not partition.is_online:
            return
        try:
            work()
        except ColdRead as cold:
            partition.log.io.add_warming(cold.warm)  # the next tick tries again
        except PenstockError as error:
            logger.warning("not_reclaimed partition=%s reason=%r", partition.name, str(error))

    # -- leader

    def _reclaim_led(self, image: ClusterImage, found: QueuePartition) -> None:
        partition, machine = found.partition, found.machine
        topic = image.topics.get(partition.topic_id)
        if topic is not None and topic.is_queue:
            self._trim(topic, partition, machine)
            self._drop_finished(topic, partition, machine)
        start = partition.log.start_offset
        for name in machine.groups:
            delivery = machine.group(name)
            if delivery is not None and delivery.start < start:
                found.runtime.post(Trimmed(name, start))
        companion = found.runtime.partition.log
        if companion.settings.storage is Storage.MEMORY and companion.size_bytes > SUMMARY_BYTES:
            found.runtime.append_snapshot(machine.summary())

    def _trim(self, topic: Topic, partition: Partition, machine: QueueMachine) -> None:
        """Advances the log start offset, which followers copy, past finished and expired messages."""
        log, mark = partition.log, partition.high_watermark
        start = machine.start if self._all_queues_started(topic, machine) else None
        finished_to = min(mark, start, self._needed_from(topic, log)) if start is not None else log.start_offset
        if finished_to >= log.end_offset and log.segments[-1].size > ROLL_BYTES:
            log.roll(self._clock.now_ms())
        target = max(finished_to, self._expired_to(log, partition.last_stable_offset))
        if target <= log.start_offset:
            return
        is_worth_it = len(log.segments) > 1 and log.segments[1].base_offset <= target
        if is_worth_it or target > finished_to:
            log.trim(target)

    def _expired_to(self, log: Log, limit: int) -> int:
        """Returns the exact offset below which all messages have exceeded the retention time; at most `limit`."""
        retention_ms = log.settings.retention_ms
        first_ms = log.segments[0].first_timestamp_ms
        oldest_retained_ms = conservative_now_ms(self._clock) - retention_ms
        if retention_ms < 0 or not 0 <= first_ms < oldest_retained_ms:
            return log.start_offset
        found = find_time(log, oldest_retained_ms, limit)
        return found[1] if found is not None else limit

    def _needed_from(self, topic: Topic, log: Log) -> int:
        """Returns the offset from which deduplication needs a FIFO queue's log; the log end for other queues."""
        if topic.topic_id not in self._fifo:
            return log.end_offset
        oldest_ms = conservative_now_ms(self._clock) - self._deduplication_ms
        return next((each.base_offset for each in log.segments if each.latest_ms >= oldest_ms), log.end_offset)

    # -- every replica

    def _drop_finished(self, topic: Topic, partition: Partition, machine: QueueMachine) -> None:
        """Drops closed segments whose messages are all finished."""
        log = partition.log
        if len(log.segments) < 3 or not self._all_queues_started(topic, machine):
            return
        limit = min(
            log.last_stable_offset(partition.high_watermark), log.durable_stable_offset, log.checkpoint.synced_to
        )
        limit = min(limit, self._needed_from(topic, log))
        bases = [segment.base_offset for segment in log.segments]
        finished = {first for first, end in pairwise(bases) if end <= limit and _is_finished(machine, first, end)}
        if finished and not log.io.is_busy:  # else the next tick tries again

            def then(outcome: Outcome) -> None:
                if outcome.error is not None:
                    logger.warning("not_reclaimed partition=%s reason=%r", partition.name, str(outcome.error))
                else:
                    logger.info("reclaimed partition=%s freed_bytes=%d", partition.name, outcome.value)

            log.drop_segments(finished, self._clock.now_ms(), then)

    def _all_queues_started(self, topic: Topic, machine: QueueMachine) -> bool:
        """Whether every queue of a topic has delivery state here; a queue without it has not finished any message."""
        names = self._names.get(topic.topic_id)
        return bool(names) and all(machine.group(name) is not None for name in names or ())


def _is_finished(machine: QueueMachine, first: int, end: int) -> bool:
    """Whether all messages in the offsets [first, end) are finished in all share groups."""
    for name in machine.groups:
        delivery = machine.group(name)
        if delivery is not None and (delivery.end < end or next(delivery.between(first, end - 1), None) is not None):
            return False
    return True
