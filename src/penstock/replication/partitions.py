"""All replicas on this broker: opened, changed and closed as the image says, led or followed.

An image is followed step by step. What has changed is noted; then each partition is brought in line with the newest
image, a slice of them at a time, and logs are opened and removed on threads (replica_logs.py). Until its log is open,
a partition is not found, and requests for it are answered with an error that clients retry. A topic that was deleted
is not found, and its partitions are offline, as soon as `apply` returns.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.cluster.image import NO_EPOCH, ClusterImage, PartitionState, Place, Topic
from penstock.foundation.clock import Clock
from penstock.foundation.ids import TopicPartition
from penstock.log.admission import may_open
from penstock.log.disk import Disk
from penstock.log.folder import LogFolder
from penstock.log.io_queue import IoQueue, Outcome, Runner, nothing_follows, run_inline
from penstock.log.settings import LogSettings, Storage
from penstock.replication.led_partitions import LedPartitions
from penstock.replication.partition import Partition
from penstock.replication.pending_partitions import PendingPlaces
from penstock.replication.replica_logs import LogSpec, Opened, OpenedLog, Replica, ReplicaLogs, log_ids, paths_of

logger = logging.getLogger(__name__)

SLICE: Final = 100
"""Partitions that are looked at before the event loop gets to do something else: at most about 10 ms."""
TELL_STEPS: Final = 10
"""Others that follow the image are told after so many slices, and after the last."""


class Partitions:
    """Finds a partition by its topic's name or id. Owned by the event loop's thread."""

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
        """`run`: does what waits for the disk, on threads. `soon`: has a step done after whatever else there is to
        do. Without it `apply` does all steps that do not wait for a thread."""
        self.node_id: Final = node_id
        self._clock = clock
        self._settings_of = settings_of
        self._lag_max_ms = lag_max_ms
        self._run = run
        self._soon, self._slice_size = soon, slice_size
        self.replicas: Final[dict[bytes, dict[int, Partition]]] = {}
        """All that this broker has, by topic id."""
        self._led: Final = LedPartitions()
        self.by_name: Final = self._led.by_name
        self.by_id: Final = self._led.by_id
        """Those that it leads."""
        self.companions: Final = self._led.companions
        """Of those that it leads, by their own ids: for brokers that follow, and for nobody else."""
        self.broker_epoch = NO_EPOCH
        """Of this broker's registration: it leads what it was elected for in this one, not in an earlier life."""
        self.on_append: Callable[[Partition], None] | None = None
        self.on_durable: Callable[[Partition], None] | None = None
        self.on_follow: Callable[[Topic, Partition], None] | None = None
        """Called before a partition leads or follows: what readers may not see of it must be hidden then."""
        self.on_progress: Callable[[], None] | None = None
        """Called after steps that were done outside of `apply`: there may be other replicas, or other leaders."""
        self.open_batches = False
        """Whether any topic's batches must be opened before they are appended (see log/admission.py)."""
        self._image = ClusterImage()
        self._seen: dict[bytes, Topic] = {}
        self._broker_configs: Mapping[str, Mapping[str, str]] | None = None
        self._pending: Final = PendingPlaces()
        self._changed: set[Place] = set()
        self._gone: deque[Partition] = deque()
        """Partitions that were closed, and whose logs are to be removed."""
        self._opened: deque[Opened] = deque()
        """Logs that are open and belong to no partition yet."""
        self._put_off: set[Place] = set()
        """New partitions that a full disk kept from being made."""
        self._opens_batches: set[bytes] = set()
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

    def tracks(self) -> Iterator[Partition]:
        """All logs: those of the replicas, and their companions."""
        for partition in self:
            yield from partition.tracks

    def find(self, topic: str, partition: int) -> Partition | None:
        """A partition that this broker leads."""
        table = self.by_name.get(topic)
        return table.get(partition) if table else None

    def replica(self, place: Place) -> Partition | None:
        """A partition that this broker leads or follows."""
        return self.replicas.get(place.topic_id, {}).get(place.number)

    # -- following the image

    def apply(self, image: ClusterImage) -> None:
        """Follow the image: close what is gone, open what is new, lead and follow, and tell of new settings.

        Returns after the first slice; `when_settled` tells of the last.
        """
        if self._is_closing:
            return
        self._image = image
        self._pending.forget(known for known in self._seen if known not in image.topics)
        for topic_id in [known for known in self.replicas if known not in image.topics]:
            self._close_topic(topic_id)
        is_reset = image.broker_configs is not self._broker_configs
        self._broker_configs = image.broker_configs
        for topic_id, topic in image.topics.items():
            before = self._seen.get(topic_id)
            if before is not topic or is_reset:
                self._note_changes(topic, None if is_reset else before)
        self._opens_batches.intersection_update(image.topics)
        self._seen = dict(image.topics)
        self._step()

    def register(self, broker_epoch: int) -> None:
        """This broker is registered anew: what it led until now, it leads no more until it is elected again."""
        self.broker_epoch = broker_epoch
        self._seen = {}

    def _note_changes(self, topic: Topic, before: Topic | None) -> None:
        """Note which partitions of a topic are not what they were when it was last looked at."""
        held, states = self.replicas.get(topic.topic_id, {}), topic.partitions
        if before is None or (before.version, before.companion) != (topic.version, topic.companion):
            node = self.node_id
            changed = [number for number, state in states.items() if number in held or node in state.replicas]
        else:
            known = before.partitions
            changed = [number for number, state in states.items() if state is not known.get(number)]
        self._pending.mark(topic.topic_id, changed)
        self._pending.mark(topic.topic_id, [number for number in held if number not in states])
        if may_open(self._settings_of(topic)):
            self._opens_batches.add(topic.topic_id)
        else:
            self._opens_batches.discard(topic.topic_id)

    def _step(self) -> None:
        """Do a slice of what is to be done, or all of it where there is nothing else to do."""
        self._is_stepping = True
        try:
            while self._do_slice():
                if self._soon is not None:
                    if not self._is_scheduled:
                        self._soon(self._on_time)
                    self._is_scheduled = True
                    break
        finally:
            self._is_stepping = False
        self.open_batches = any(topic_id in self.by_id for topic_id in self._opens_batches)
        self._pending.tell_settled()

    def _do_slice(self) -> bool:
        """Look at so many partitions; whether there is more to do."""
        for _ in range(self._slice_size):
            if self._opened:
                self._admit(*self._opened.popleft())
            elif self._pending:
                self._evaluate(self._pending.pop())
            elif self._gone:
                self._remove(self._gone.popleft())
            else:
                break
        self._logs.dispatch()
        return bool(self._opened or self._pending or self._gone)

    def _on_time(self) -> None:
        self._is_scheduled = False
        self._step_again()

    def _step_again(self) -> None:
        """Go on outside of `apply`."""
        if self._is_stepping or self._is_closing:
            return  # the running step continues the work
        self._steps += 1
        self._step()
        if self.on_progress is not None and (self._steps % TELL_STEPS == 0 or not self._is_scheduled):
            self.on_progress()

    def _evaluate(self, place: Place) -> None:
        """Bring one partition in line with the newest image."""
        self._changed.add(place)
        topic = self._image.topics.get(place.topic_id)
        state = topic.partitions.get(place.number) if topic is not None else None
        partition = self.replica(place)
        if topic is None or state is None or self.node_id not in state.replicas:
            if partition is not None:
                self._close(partition, "its replica was moved to another broker")
        elif partition is None:
            self._open(topic, place, state)
            return
        else:
            is_whole = self._keep_companion(topic, partition, state)
            self._follow(topic, partition, state)
            if not is_whole:
                return
        self._pending.settle(place)

    def take_changed(self) -> set[Place]:
        """Where replicas were opened, closed or given another state since this was last called."""
        changed, self._changed = self._changed, set()
        return changed

    def when_settled(self, topic_id: bytes | None, then: Callable[[], None]) -> None:
        """Call once, maybe now, when a topic's partitions are as the image says, or all. Not for a full disk."""
        self._pending.when_settled(topic_id, then)

    @property
    def is_incomplete(self) -> bool:
        """Whether a full disk kept new partitions from being made."""
        return bool(self._put_off)

    def retry(self) -> None:
        """Try again to make them."""
        put_off, self._put_off = self._put_off, set()
        for place in put_off:
            self._pending.mark(place.topic_id, [place.number])
        self._step_again()

    # -- opening

    def _open(self, topic: Topic, place: Place, state: PartitionState) -> None:
        """Have the logs of a replica opened. If that is under way, or one is being removed, it is looked at later."""
        specs = [self._spec(topic, place.number, state, log_id) for log_id in log_ids(topic)]
        if not any(self._logs.is_busy(spec.path) for spec in specs):
            self._logs.open(Replica(place, specs))

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
        """As LogSettings.for_companion, remembered: partitions of one topic follow each other."""
        if self._companion_settings is None or self._companion_settings[0] is not settings:
            self._companion_settings = settings, settings.for_companion()
        return self._companion_settings[1]

    def _on_opened(self, opened: list[Opened]) -> None:
        self._opened.extend(opened)
        self._step_again()

    def _admit(self, replica: Replica, logs: list[OpenedLog]) -> None:
        """Logs are open: make a partition of them, or companions, where they are still wanted."""
        place = replica.place
        topic = self._image.topics.get(place.topic_id)
        state = topic.partitions.get(place.number) if topic is not None else None
        is_wanted = topic is not None and state is not None and self.node_id in state.replicas
        for spec, found in zip(replica.specs, logs, strict=True):
            if found.is_put_off and is_wanted:
                self._put_off.add(place)
                self._pending.settle(place)
                return
            known = self.replica(place)
            if is_wanted and known is None and spec.log_id == place.topic_id:
                known = self._new_partition(place, spec, found, None)
                self.replicas.setdefault(place.topic_id, {})[place.number] = known
            elif topic and is_wanted and known and known.companion is None and spec.log_id == topic.companion:
                known.take_companion(companion := self._new_partition(place, spec, found, known))
                if not companion.is_online:
                    known.go_offline(f"its companion is offline: {companion.offline_reason}")
            else:
                self._logs.remove(place, spec.path, found.log)
        self._pending.mark(place.topic_id, [place.number])

    def _new_partition(self, place: Place, spec: LogSpec, found: OpenedLog, beside: Partition | None) -> Partition:
        log = found.log
        partition = Partition(
            topic_id=spec.log_id,
            name=spec.name,
            leader_epoch=-1,
            log=log,
            high_watermark=log.start_offset if log is not None else 0,  # how far it is committed, roles will tell
            companion_of=beside,
        )
        partition.is_leader = False  # what it has is not committed before its role is known
        if log is None:
            logger.error("partition_offline partition=%s reason=%r", spec.name, found.reason)
            partition.offline_reason = found.reason
        elif spec.settings.storage is Storage.DISK:
            log.io = IoQueue(self._run)
        partition.on_append = self.on_append or partition.on_append
        partition.on_durable = self.on_durable or partition.on_durable
        partition.on_returned = partial(self._look_again, place)
        return partition

    def _keep_companion(self, topic: Topic, partition: Partition, state: PartitionState) -> bool:
        """Remove a companion that the topic has no more, and have that opened which it has; false: it is not yet."""
        companion = partition.companion
        if companion is not None and companion.topic_id != topic.companion:
            self._led.remove_companion(companion)
            partition.drop_companion()
            companion.go_offline("the topic has other companion logs now, or none")
            self._remove(companion)
        if not topic.companion or partition.companion is not None or not partition.is_online:
            return True
        spec = self._spec(topic, partition.name.partition, state, topic.companion)
        if not self._logs.is_busy(spec.path):
            self._logs.open(Replica(partition.place, [spec]))
        return False

    def _look_again(self, place: Place) -> None:
        """What was under way with a partition has ended: the image may be another one by now."""
        if not self._is_closing:
            self._pending.mark(place.topic_id, [place.number])
            self._step_again()

    # -- leading and following

    def _follow(self, topic: Topic, partition: Partition, state: PartitionState) -> None:
        if any(track.is_lent for track in partition.tracks):
            return  # it is looked at again when a thread is done with its log
        settings = self._settings_of(topic)
        if self.on_follow is not None:
            self.on_follow(topic, partition)
        for track in partition.tracks:
            track.configure(settings if track is partition else self._for_companion(settings))
        leads = state.is_led_by(self.node_id, self.broker_epoch)
        if partition.is_online:
            if settings.storage is Storage.MEMORY:
                for track in partition.tracks:
                    track.log.offset_limit = state.reserved_to
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
        """A topic was deleted. Nobody finds it from now on, nor writes to it; its files go a slice at a time."""
        table = self.replicas.pop(topic_id)
        self._led.remove_topic(next(iter(table.values())))
        for partition in table.values():
            partition.go_offline("the topic was deleted")
            self._changed.add(partition.place)
        self._gone.extend(table.values())

    def _close(self, partition: Partition, reason: str) -> None:
        """Close a replica for good, and have removed what it has."""
        self._led.remove(partition)
        table = self.replicas[partition.topic_id]
        del table[partition.name.partition]
        if not table:
            del self.replicas[partition.topic_id]
        partition.go_offline(reason)
        self._remove(partition)

    def _remove(self, partition: Partition) -> None:
        """Have the logs removed of a partition that is offline for good, and of its companion."""
        for track in partition.tracks:
            self._logs.remove(track.place, LogFolder.path(track.name, track.topic_id), track.held)
            track.tracks, track.held = (), None  # no cycles: the garbage collector does not look at what is frozen

    def _on_removed(self, places: Sequence[Place]) -> None:
        for place in places:
            if place.topic_id in self._image.topics:  # it may have come back meanwhile
                self._pending.mark(place.topic_id, [place.number])
        self._step_again()

    def remove_strays(self, image: ClusterImage, then: Callable[[Outcome], None] = nothing_follows) -> None:
        """Remove the logs of topics that were deleted, or moved away, while this broker was not there."""
        known = (
            path
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if self.node_id in state.replicas
            for path in paths_of(topic, number)
        )
        self._run(lambda: self._logs.remove_strays(known), then)

    def close(self, then: Callable[[bool], None] = lambda is_well: None) -> None:
        """Sync and close every log; `then` gets whether all could be. What is being opened is closed, too."""
        self._is_closing = True
        self._pending.clear()
        logs = [found.log for _, opened in self._opened for found in opened if found.log is not None]
        self._opened.clear()
        for track in self.tracks():
            log = track.held
            if log is not None and (track.is_online or track.is_lent):
                logs.append(log)
            elif log is not None:
                log.io.stop(log.abandon)
        for partition in self:
            partition.go_offline("the broker is shutting down")
        self._logs.close(logs, then)
