"""All replicas on this broker: opened, changed and closed as the image says, led or followed."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from penstock.cluster.image import NO_EPOCH, ClusterImage, PartitionState, Topic
from penstock.foundation.clock import Clock
from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.admission import may_open
from penstock.log.disk import Disk
from penstock.log.folder import LogFolder
from penstock.log.io_queue import IoQueue, Runner, run_inline
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.log.recovery import open_log
from penstock.log.settings import LogSettings, Storage
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

K = TypeVar("K")


class _Wanted(NamedTuple):
    """A log that should be open: a replica's own, or a companion beside one."""

    topic: Topic
    number: int
    state: PartitionState
    beside: Partition | None = None

    @property
    def log_id(self) -> bytes:
        return self.topic.topic_id if self.beside is None else self.topic.companion

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.number)

    @property
    def path(self) -> str:
        return LogFolder.path(self.name, self.log_id)


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
    ) -> None:
        """`run`: does what waits for the disk, on threads."""
        self._node_id = node_id
        self._folder = LogFolder(disk)
        self._clock = clock
        self._boot_id = boot_id
        self._settings_of = settings_of
        self._lag_max_ms = lag_max_ms
        self._run = run
        self.replicas: Final[dict[bytes, dict[int, Partition]]] = {}
        """All that this broker has, by topic id."""
        self.by_name: Final[dict[str, dict[int, Partition]]] = {}
        self.by_id: Final[dict[bytes, dict[int, Partition]]] = {}
        """Those that it leads."""
        self.companions: Final[dict[bytes, dict[int, Partition]]] = {}
        """Of those that it leads, by their own ids: for brokers that follow, and for nobody else."""
        self.broker_epoch = NO_EPOCH
        """Of this broker's registration: it leads what it was elected for in this one, not in an earlier life."""
        self._seen: dict[bytes, Topic] = {}
        self._broker_configs: Mapping[str, Mapping[str, str]] | None = None
        self.on_append: Callable[[Partition], None] | None = None
        self.on_kept: Callable[[Partition], None] | None = None
        self.open_batches = False
        """Whether any topic's batches must be opened before they are appended (see log/admission.py)."""
        self.is_incomplete = False
        """Whether a full disk kept new partitions from being made: apply the image again to try again."""

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

    def apply(self, image: ClusterImage) -> None:
        """Follow the image: close what is gone, open what is new, lead and follow, and tell of new settings."""
        for topic_id in [known for known in self.replicas if known not in image.topics]:
            self._close(list(self.replicas[topic_id].values()), "the topic was deleted")
        changed = self._changed(image)
        self.is_incomplete = False
        for topic in changed:
            gone = [
                partition
                for number, partition in self.replicas.get(topic.topic_id, {}).items()
                if number not in topic.partitions or self._node_id not in topic.partitions[number].replicas
            ]
            self._close(gone, "its replica was moved to another broker")
        self._open_all(
            [
                _Wanted(topic, number, state)
                for topic in changed
                for number, state in topic.partitions.items()
                if self._node_id in state.replicas and number not in self.replicas.get(topic.topic_id, {})
            ]
        )
        self._open_all(list(self._missing_companions(changed)))
        for topic in changed:
            self._follow(topic)
        self._seen = {} if self.is_incomplete else dict(image.topics)
        self.open_batches = any(may_open(self._settings_of(image.topics[topic_id])) for topic_id in self.by_id)

    def register(self, broker_epoch: int) -> None:
        """This broker is registered anew: what it led until now, it leads no more until it is elected again."""
        self.broker_epoch = broker_epoch
        self._seen = {}

    def _changed(self, image: ClusterImage) -> list[Topic]:
        """The topics that are not what they were when they were last looked at."""
        if image.broker_configs is not self._broker_configs:
            self._broker_configs = image.broker_configs
            return list(image.topics.values())
        return [topic for topic_id, topic in image.topics.items() if self._seen.get(topic_id) is not topic]

    def remove_strays(self, image: ClusterImage) -> None:
        """Remove the logs of topics that were deleted, or moved away, while this broker was not there."""
        known = [
            path
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if self._node_id in state.replicas
            for path in paths_of(topic, number)
        ]
        strays = self._folder.strays(known)
        if strays:
            logger.info("removed_stray_logs count=%d", len(strays))
            self._remove_logs(strays)

    # -- opening

    def _missing_companions(self, topics: Iterable[Topic]) -> Iterator[_Wanted]:
        """Companions that topics have now; those that they have no more are removed."""
        for topic in topics:
            for number, partition in self.replicas.get(topic.topic_id, {}).items():
                companion = partition.companion
                if companion is not None and companion.topic_id != topic.companion:
                    _take_out(self.companions, companion.topic_id, companion)
                    partition.drop_companion()
                    self._remove([companion], "the topic has other companion logs now, or none")
                if topic.companion and partition.is_online and partition.companion is None:
                    yield _Wanted(topic, number, topic.partitions[number], partition)

    def _open_all(self, wanted: list[_Wanted]) -> None:
        lost = {each.path for each in wanted if self._folder.is_lost(each.path)}
        # What others are in sync with, and this broker is not any more, begins anew and is fetched from them. Also
        # where power was lost while it was removed: without its first segments, what is left looks trimmed.
        found = lost | {each.path for each in wanted if self._folder.is_left(each.path)}
        anew = {each.path for each in wanted if each.path in found and self._node_id not in each.state.isr}
        if anew:
            logger.warning("replicas_begin_anew count=%d", len(anew))
            self._remove_logs(sorted(anew))
            lost -= anew
        settings = {each.log_id: self._log_settings(each) for each in wanted}
        on_disk = {log_id for log_id, found in settings.items() if found.storage is Storage.DISK}
        fresh = {each.path for each in wanted if each.log_id in on_disk and not self._folder.is_made(each.path)}
        try:
            self._folder.make(fresh)
        except StorageError as error:
            self._put_off(len(fresh), str(error))
            wanted = [each for each in wanted if each.path not in fresh]
        for each in wanted:
            partition = self._open(each, settings[each.log_id], each.path in lost)
            if each.path in fresh and not partition.is_online:
                self._remove_logs([each.path])
                self._put_off(1, partition.offline_reason)
            elif each.beside is None:
                self.replicas.setdefault(each.topic.topic_id, {})[each.number] = partition
            else:
                each.beside.take_companion(partition)
                if not partition.is_online:
                    each.beside.go_offline(f"its companion is offline: {partition.offline_reason}")

    def _log_settings(self, wanted: _Wanted) -> LogSettings:
        settings = self._settings_of(wanted.topic)
        return settings if wanted.beside is None else settings.for_companion()

    def _put_off(self, count: int, reason: str) -> None:
        self.is_incomplete = True
        logger.warning("partitions_not_made count=%d reason=%r", count, reason)

    def _open(self, wanted: _Wanted, settings: LogSettings, lost: bool) -> Partition:
        log: Log | None = None
        reason = ""
        if lost:
            reason = "its folder is gone; bring it back, or delete the topic"
        else:
            try:
                log = self._open_log(wanted, settings)
            except StorageError as error:
                reason = str(error)
        partition = Partition(
            topic_id=wanted.log_id,
            name=wanted.name,
            leader_epoch=-1,
            log=log,
            high_watermark=log.start_offset if log is not None else 0,  # how far it is committed, roles will tell
            companion_of=wanted.beside,
        )
        if log is None:
            logger.error("partition_offline partition=%s reason=%r", wanted.name, reason)
            partition.offline_reason = reason
        elif settings.storage is Storage.DISK:
            log.io = IoQueue(self._run)
        partition.on_returned = partial(self._on_returned, wanted.topic.topic_id)
        if self.on_append is not None:
            partition.on_append = self.on_append
        if self.on_kept is not None:
            partition.on_kept = self.on_kept
        return partition

    def _open_log(self, wanted: _Wanted, settings: LogSettings) -> Log:
        in_memory = settings.storage is Storage.MEMORY
        recovered = open_log(
            MemoryDisk() if in_memory else self._folder.disk,
            wanted.path,
            settings,
            boot_id=self._boot_id,
            now_ms=self._clock.now_ms(),
            first_offset=wanted.state.reserved_from,
        )
        if recovered.cut_bytes:
            logger.warning("log_tail_cut partition=%s bytes=%d", wanted.name, recovered.cut_bytes)
        return recovered.log

    # -- leading and following

    def _on_returned(self, topic_id: bytes) -> None:
        """A log that was lent is back: its replica may have been elected meanwhile."""
        topic = self._seen.get(topic_id)
        if topic is not None and topic_id in self.replicas:
            self._follow(topic)

    def _follow(self, topic: Topic) -> None:
        settings = self._settings_of(topic)
        now_ms = self._clock.steady_ms()
        for number, partition in self.replicas.get(topic.topic_id, {}).items():
            state = topic.partitions[number]
            if any(track.is_lent for track in partition.tracks):
                continue
            for track in partition.tracks:
                track.configure(settings if track is partition else settings.for_companion())
            leads = state.leader == self._node_id and state.leader_broker_epoch == self.broker_epoch
            if partition.is_online:
                if settings.storage is Storage.MEMORY:
                    for track in partition.tracks:
                        track.log.offset_limit = state.reserved_to
                if leads:
                    partition.lead(state, self._node_id, self._lag_max_ms(), now_ms)
                else:
                    partition.stand_by(state, self._node_id)
            partition.leader_epoch = state.leader_epoch
            if leads:
                self.by_id.setdefault(topic.topic_id, {})[number] = partition
                self.by_name.setdefault(topic.name, {})[number] = partition
                if partition.companion is not None:
                    self.companions.setdefault(topic.companion, {})[number] = partition.companion
            else:
                self._unlead(partition)

    def _unlead(self, partition: Partition) -> None:
        _take_out(self.by_id, partition.topic_id, partition)
        _take_out(self.by_name, partition.name.topic, partition)
        if partition.companion is not None:
            _take_out(self.companions, partition.companion.topic_id, partition.companion)

    # -- closing

    def _close(self, gone: Iterable[Partition], reason: str) -> None:
        """Close replicas for good, and remove what they have."""
        tracks: list[Partition] = []
        for partition in gone:
            self._unlead(partition)
            table = self.replicas[partition.topic_id]
            del table[partition.name.partition]
            if not table:
                del self.replicas[partition.topic_id]
            tracks += partition.tracks
        self._remove(tracks, reason)

    def _remove(self, tracks: Sequence[Partition], reason: str) -> None:
        for track in tracks:
            track.go_offline(reason)
            if track.held is not None:
                track.held.io.stop(track.held.abandon)
        if tracks:
            self._remove_logs([LogFolder.path(track.name, track.topic_id) for track in tracks])

    def _remove_logs(self, paths: list[str]) -> None:
        try:
            self._folder.remove(paths)
        except StorageError as error:  # the next start finds and removes what is left
            logger.warning("logs_not_removed count=%d reason=%r", len(paths), str(error))

    def close(self) -> bool:
        """Sync and close every log; whether all could be. One that cannot is no reason to let the others down."""
        is_well = True
        logs = [(track, track.log) for track in self.tracks() if track.is_online]
        for partition, log in logs:
            partition.go_offline("the broker is shutting down")
            log.io.stop(lambda: None)
            try:
                log.close()
            except StorageError as error:
                logger.error("log_not_closed partition=%s reason=%r", partition.name, str(error))
                log.abandon()
                is_well = False
        return is_well


def paths_of(topic: Topic, number: int) -> Iterator[str]:
    """Where the logs of a replica lie: its own, and its companion's if it has one."""
    name = TopicPartition(topic.name, number)
    yield LogFolder.path(name, topic.topic_id)
    if topic.companion:
        yield LogFolder.path(name, topic.companion)


def _take_out(tables: dict[K, dict[int, Partition]], key: K, partition: Partition) -> None:
    """Out of a table, and the table too if it was the last in it."""
    table = tables.get(key)
    if table is not None and table.get(partition.name.partition) is partition:
        del table[partition.name.partition]
        if not table:
            del tables[key]
