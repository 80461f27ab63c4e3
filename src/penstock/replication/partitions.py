"""All replicas on this broker (Kafka's ReplicaManager): opens, updates and closes them as in the metadata image.

`apply` queues the partitions that a new image changes; each is then updated to the newest image in a time slice, and
logs are opened and removed on threads (replica_logs.py). Until its log is open, a partition is not found, and
requests for it get an error that clients retry. A deleted topic is not found, and its partitions are offline, as soon
as `apply` returns.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.cluster.image import NO_EPOCH, ClusterImage, PartitionState, Topic
from penstock.foundation.clock import Clock
from penstock.foundation.ids import TopicIdPartition, TopicPartition
from penstock.log.admission import may_decompress
from penstock.log.disk import Disk
from penstock.log.folder import LogFolder
from penstock.log.io_queue import IoQueue, Outcome, Runner, ignore_outcome, run_inline
from penstock.log.settings import LogSettings, Storage
from penstock.replication.led_partitions import LedPartitions
from penstock.replication.partition import Partition
from penstock.replication.pending_partitions import PendingPartitions
from penstock.replication.replica_logs import LogSpec, Opened, OpenedLog, Replica, ReplicaLogs, log_ids, paths_of

logger = logging.getLogger(__name__)

SLICE: Final = 100
"""Number of partitions updated per time slice of the event loop, which takes at most about 10 ms."""
NOTIFY_STEPS: Final = 10
"""Time slices between two calls of `on_progress`, the callback for changed partitions; also called after the last."""


class Partitions:
    """All replicas on this broker, found by topic name or topic id. Owned by the event loop's thread."""

    def __init__(
        self,
        *,
        node_id: int,
        disk: Disk,
        clock: Clock,
        boot_id: str,
        settings_of: Callable[[Topic], LogSettings],
        lag_max_ms: Callable[[], int] = lambda: 30_000,
        run: Runner = run_inline,
        soon: Callable[[Callable[[], None]], object] | None = None,
        slice_size: int = SLICE,
    ) -> None:
        """`run`: runs jobs that wait for the disk; a broker passes DiskThreads.run. `soon`: schedules the next
        time slice on the event loop; if None, `apply` runs all of them. `slice_size`: partitions per time slice."""
        self.node_id: Final = node_id
        self._clock = clock
        self._settings_of = settings_of
        self._lag_max_ms = lag_max_ms
        self._run = run
        self._soon, self._slice_size = soon, slice_size
        self.replicas: Final[dict[bytes, dict[int, Partition]]] = {}
        """All replicas on this broker, by topic id."""
        self._led: Final = LedPartitions()
        self.by_name: Final = self._led.by_name
        self.by_id: Final = self._led.by_id
        """The partitions that this broker leads, by topic id."""
        self.companions: Final = self._led.companions
        """Companion logs (queue state or delayed messages) of led partitions, by `Topic.companion` and partition."""
        self.broker_epoch = NO_EPOCH
        """Broker epoch of the current registration. Leadership gained in an earlier registration does not count."""
        self.on_append: Callable[[Partition], None] | None = None
        self.on_durable: Callable[[Partition], None] | None = None
        self.on_follow: Callable[[Topic, Partition], None] | None = None
        """Callback before a partition's role is applied: installs the filter that hides its delayed messages."""
        self.on_progress: Callable[[], None] | None = None
        """Callback for changes after `apply` has returned, every NOTIFY_STEPS time slices and after the last."""
        self.decompresses_batches = False
        """Whether batches of any led topic must be decompressed before they are appended (see log/admission.py)."""
        self._image = ClusterImage()
        self._broker_configs: Mapping[str, Mapping[str, str]] | None = None
        """Broker settings of the last image; None if the next image is applied to all partitions."""
        self._pending: Final = PendingPartitions()
        self._changed: dict[TopicIdPartition, None] = {}  # ordered, unlike a set
        self._to_remove: deque[Partition] = deque()
        """Closed partitions whose logs are to be removed."""
        self._opened: deque[Opened] = deque()
        """Opened logs that do not belong to a partition yet."""
        self._postponed: dict[TopicIdPartition, None] = {}
        """New partitions that could not be created for now, as on a full disk."""
        self._decompressed_topics: set[bytes] = set()
        self._companion_settings: tuple[LogSettings, LogSettings] | None = None
        self._steps = 0
        self._is_stepping = self._is_scheduled = self._is_closing = False
        self._logs = ReplicaLogs(
            disk=disk, clock=clock, boot_id=boot_id, run=run, on_opened=self._on_opened, on_removed=self._on_removed
        )

    # -- finding

    def __iter__(self) -> Iterator[Partition]:
        for table in list(self.replicas.values()):
            yield from list(table.values())

    def with_companions(self) -> Iterator[Partition]:
        """Yields all logs on this broker: those of the replicas and their companion logs (queue state, delays)."""
        for partition in self:
            yield from partition.with_companion

    def find(self, topic: str, partition: int) -> Partition | None:
        """Returns a partition by topic name if this broker leads it, or None."""
        table = self.by_name.get(topic)
        return table.get(partition) if table else None

    def replica(self, tp: TopicIdPartition) -> Partition | None:
        """Returns a partition if this broker leads or follows it, or None."""
        return self.replicas.get(tp.topic_id, {}).get(tp.partition)

    # -- following the image

    def apply(self, image: ClusterImage) -> None:
        """Updates replicas to a metadata image. Returns after one time slice; `when_settled` waits for the last."""
        if self._is_closing:
            return
        before, self._image = self._image.topics, image
        changed = image.changed_topics(before)
        for topic_id in (each for each in changed if each not in image.topics):
            self._close_topic(topic_id)
        is_reset = image.broker_configs is not self._broker_configs
        self._broker_configs = image.broker_configs
        for topic_id in image.topics if is_reset else changed:
            if topic_id in image.topics:
                self._note_changes(image.topics[topic_id], None if is_reset else before.get(topic_id))
        self._step()

    def register(self, broker_epoch: int) -> None:
        """Adopts a new broker registration: this broker leads no partition until elected under this registration."""
        self.broker_epoch = broker_epoch
        self._broker_configs = None

    def _note_changes(self, topic: Topic, before: Topic | None) -> None:
        """Queues the partitions of a topic that have changed since the last image."""
        held, states = self.replicas.get(topic.topic_id, {}), topic.partitions
        if before is None or (before.version, before.companion) != (topic.version, topic.companion):
            node = self.node_id
            changed = [number for number, state in states.items() if number in held or node in state.replicas]
        else:
            known = before.partitions
            changed = [number for number, state in states.items() if state is not known.get(number)]
        self._pending.mark(topic.topic_id, changed)
        self._pending.mark(topic.topic_id, [number for number in held if number not in states])
        if may_decompress(self._settings_of(topic)):
            self._decompressed_topics.add(topic.topic_id)
        else:
            self._decompressed_topics.discard(topic.topic_id)

    def _step(self) -> None:
        """Updates queued partitions to the metadata image, for one time slice; without a scheduler, all of them."""
        self._is_stepping = True
        try:
            while self._do_slice():
                if self._soon is not None:
                    if not self._is_scheduled:
                        self._soon(self._on_scheduled)
                    self._is_scheduled = True
                    break
        finally:
            self._is_stepping = False
        self.decompresses_batches = any(topic_id in self.by_id for topic_id in self._decompressed_topics)
        self._pending.notify_settled()

    def _do_slice(self) -> bool:
        """Updates a limited number of partitions. Returns whether more partitions are queued."""
        for _ in range(self._slice_size):
            if self._opened:
                self._admit(*self._opened.popleft())
            elif self._pending:
                self._evaluate(self._pending.pop())
            elif self._to_remove:
                self._remove(self._to_remove.popleft())
            else:
                break
        self._logs.dispatch()
        return bool(self._opened or self._pending or self._to_remove)

    def _on_scheduled(self) -> None:
        self._is_scheduled = False
        self._continue()

    def _continue(self) -> None:
        """Runs one time slice outside of `apply`: updates queued partitions to the metadata image."""
        if self._is_stepping or self._is_closing:
            return  # the running step continues the work
        self._steps += 1
        self._step()
        if self.on_progress is not None and (self._steps % NOTIFY_STEPS == 0 or not self._is_scheduled):
            self.on_progress()

    def _evaluate(self, tp: TopicIdPartition) -> None:
        """Updates one partition to the newest metadata image."""
        self._changed[tp] = None
        topic = self._image.topics.get(tp.topic_id)
        state = topic.partitions.get(tp.partition) if topic is not None else None
        partition = self.replica(tp)
        if topic is None or state is None or self.node_id not in state.replicas:
            if partition is not None:
                self._close(partition, "its replica was moved to another broker")
        elif partition is None:
            self._open(topic, tp, state)
            return
        else:
            is_whole = self._update_companion(topic, partition, state)
            self._apply_state(topic, partition, state)
            if not is_whole:
                return
        self._pending.settle(tp)

    def take_changed(self) -> list[TopicIdPartition]:
        """Returns the replicas that were opened, closed or updated since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    def when_settled(self, topic_id: bytes | None, then: Callable[[], None]) -> None:
        """Calls `then` once, maybe immediately, when a topic's partitions (None: all) match the metadata image."""
        self._pending.when_settled(topic_id, then)

    @property
    def is_incomplete(self) -> bool:
        """Whether there are new partitions that could not be created for now, as on a full disk."""
        return bool(self._postponed)

    def retry(self) -> None:
        """Tries again to create the new partitions that could not be created before, as on a full disk."""
        postponed, self._postponed = self._postponed, {}
        for tp in postponed:
            self._pending.mark(tp.topic_id, [tp.partition])
        self._continue()

    # -- opening

    def _open(self, topic: Topic, tp: TopicIdPartition, state: PartitionState) -> None:
        """Requests that the logs of a replica are opened, unless a job is already opening or removing them."""
        specs = [self._spec(topic, tp.partition, state, log_id) for log_id in log_ids(topic)]
        if not any(self._logs.is_busy(spec.path) for spec in specs):
            self._logs.open(Replica(tp, specs))

    def _spec(self, topic: Topic, number: int, state: PartitionState, log_id: bytes) -> LogSpec:
        name, settings = TopicPartition(topic.name, number), self._settings_of(topic)
        return LogSpec(
            log_id=log_id,
            path=LogFolder.path(name, log_id),
            name=name,
            settings=settings if log_id == topic.topic_id else self._for_companion(settings),
            first_offset=state.reserved_from,
            in_sync=self.node_id in state.isr,
        )

    def _for_companion(self, settings: LogSettings) -> LogSettings:
        """Returns a topic's settings for its companion logs (queue state or delays); caches the last result."""
        if self._companion_settings is None or self._companion_settings[0] is not settings:
            self._companion_settings = settings, settings.for_companion()
        return self._companion_settings[1]

    def _on_opened(self, opened: list[Opened]) -> None:
        self._opened.extend(opened)
        self._continue()

    def _admit(self, replica: Replica, logs: list[OpenedLog]) -> None:
        """Creates a Partition for each opened log of a replica; deletes logs that this broker must no longer have."""
        tp = replica.tp
        topic = self._image.topics.get(tp.topic_id)
        state = topic.partitions.get(tp.partition) if topic is not None else None
        is_wanted = topic is not None and state is not None and self.node_id in state.replicas
        for spec, found in zip(replica.specs, logs, strict=True):
            if found.is_postponed and is_wanted:
                self._postponed[tp] = None
                self._pending.settle(tp)
                return
            known = self.replica(tp)
            if is_wanted and known is None and spec.log_id == tp.topic_id:
                known = self._new_partition(tp, spec, found, None)
                self.replicas.setdefault(tp.topic_id, {})[tp.partition] = known
            elif topic and is_wanted and known and known.companion is None and spec.log_id == topic.companion:
                known.take_companion(companion := self._new_partition(tp, spec, found, known))
                if not companion.is_online:
                    known.go_offline(f"its companion log is offline: {companion.offline_reason}")
            else:
                self._logs.remove(tp, spec.path, found.log)
        self._pending.mark(tp.topic_id, [tp.partition])

    def _new_partition(
        self, tp: TopicIdPartition, spec: LogSpec, found: OpenedLog, beside: Partition | None
    ) -> Partition:
        log = found.log
        partition = Partition(
            topic_id=spec.log_id,
            name=spec.name,
            leader_epoch=-1,
            log=log,
            high_watermark=log.start_offset if log is not None else 0,  # known once it leads or follows
            companion_of=beside,
        )
        partition.is_leader = False  # records count as committed only once the role is known
        if log is None:
            logger.error("partition_offline partition=%s reason=%r", spec.name, found.reason)
            partition.offline_reason = found.reason
        elif spec.settings.storage is Storage.DISK:
            log.io = IoQueue(self._run)
        partition.on_append = self.on_append or partition.on_append
        partition.on_durable = self.on_durable or partition.on_durable
        partition.on_returned = partial(self._requeue, tp)
        return partition

    def _update_companion(self, topic: Topic, partition: Partition, state: PartitionState) -> bool:
        """Requests that the companion log (queue state or delayed messages) with the id `topic.companion` is
        opened; deletes one with another id. Returns False if the companion log is still to be opened."""
        companion = partition.companion
        if companion is not None and companion.topic_id != topic.companion:
            self._led.remove_companion(companion)
            partition.drop_companion()
            companion.go_offline("the topic's companion logs were replaced or removed")
            self._remove(companion)
        if not topic.companion or partition.companion is not None or not partition.is_online:
            return True
        spec = self._spec(topic, partition.name.partition, state, topic.companion)
        if not self._logs.is_busy(spec.path):
            self._logs.open(Replica(partition.tp, [spec]))
        return False

    def _requeue(self, tp: TopicIdPartition) -> None:
        """Queues a partition again that was not updated to the metadata image because a disk job changed its log."""
        if not self._is_closing:
            self._pending.mark(tp.topic_id, [tp.partition])
            self._continue()

    # -- leading and following

    def _apply_state(self, topic: Topic, partition: Partition, state: PartitionState) -> None:
        if any(one.is_lent for one in partition.with_companion):
            return  # queued again when the thread is done with its log
        settings = self._settings_of(topic)
        if self.on_follow is not None:
            self.on_follow(topic, partition)
        for one in partition.with_companion:
            one.configure(settings if one is partition else self._for_companion(settings))
        leads = state.is_led_by(self.node_id, self.broker_epoch)
        if partition.is_online:
            if settings.storage is Storage.MEMORY:
                for one in partition.with_companion:
                    one.log.offset_limit = state.reserved_to
            if leads:
                partition.lead(state, self.node_id, self._lag_max_ms(), self._clock.steady_ms())
            else:
                partition.become_follower(state, self.node_id)
        partition.leader_epoch = state.leader_epoch
        if leads:
            self._led.add(topic, partition)
        else:
            self._led.remove(partition)

    # -- closing

    def _close_topic(self, topic_id: bytes) -> None:
        """Takes the replicas of a deleted topic offline at once; their files are removed in time slices."""
        self._pending.forget(topic_id)
        self._decompressed_topics.discard(topic_id)
        table = self.replicas.pop(topic_id, {})
        if table:
            self._led.remove_topic(next(iter(table.values())))
        for partition in table.values():
            partition.go_offline("the topic was deleted")
            self._changed[partition.tp] = None
        self._to_remove.extend(table.values())

    def _close(self, partition: Partition, reason: str) -> None:
        """Takes a replica offline permanently and removes its logs."""
        self._led.remove(partition)
        table = self.replicas[partition.topic_id]
        del table[partition.name.partition]
        if not table:
            del self.replicas[partition.topic_id]
        partition.go_offline(reason)
        self._remove(partition)

    def _remove(self, partition: Partition) -> None:
        """Removes the logs of a closed partition: its own and its companion log (queue state or delayed messages)."""
        for one in partition.with_companion:
            self._logs.remove(one.tp, LogFolder.path(one.name, one.topic_id), one.held)
            one.with_companion, one.held = (), None  # no cycles: frozen objects are not garbage collected

    def _on_removed(self, tps: Sequence[TopicIdPartition]) -> None:
        for tp in tps:
            if tp.topic_id in self._image.topics:  # its replica may have been added again meanwhile
                self._pending.mark(tp.topic_id, [tp.partition])
        self._continue()

    def remove_strays(self, image: ClusterImage, then: Callable[[Outcome], None] = ignore_outcome) -> None:
        """Removes the logs of partitions that were deleted or moved elsewhere while this broker was down."""
        known = (
            path
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if self.node_id in state.replicas
            for path in paths_of(topic, number)
        )
        self._run(lambda: self._logs.remove_strays(known), then)

    def close(self, then: Callable[[bool], None] = lambda is_clean: None) -> None:
        """Syncs and closes all logs, also logs being opened; calls `then` with False if a log could not be closed."""
        self._is_closing = True
        self._pending.clear()
        logs = [found.log for _, opened in self._opened for found in opened if found.log is not None]
        self._opened.clear()
        for partition in self.with_companions():
            log = partition.held
            if log is not None and (partition.is_online or partition.is_lent):
                logs.append(log)
            elif log is not None:
                log.io.stop(log.abandon)
        for partition in self:
            partition.go_offline("the broker is shutting down")
        self._logs.close(logs, then)
