"""All partitions of this broker: opened, changed and closed as the image says."""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.foundation.clock import Clock
from penstock.foundation.errors import StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.admission import may_open
from penstock.log.disk import Disk
from penstock.log.folder import LogFolder
from penstock.log.log import Log
from penstock.log.memory import MemoryDisk
from penstock.log.recovery import open_log
from penstock.log.settings import LogSettings, Storage
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)


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
    ) -> None:
        self._node_id = node_id
        self._folder = LogFolder(disk)
        self._clock = clock
        self._boot_id = boot_id
        self._settings_of = settings_of
        self.by_name: Final[dict[str, dict[int, Partition]]] = {}
        self.by_id: Final[dict[bytes, dict[int, Partition]]] = {}
        self.on_append: Callable[[Partition], None] | None = None
        self.open_batches = False
        """Whether any topic's batches must be opened before they are appended (see log/admission.py)."""
        self.is_incomplete = False
        """Whether a full disk kept new partitions from being made: apply the image again to try again."""

    def __iter__(self) -> Iterator[Partition]:
        for table in list(self.by_id.values()):
            yield from list(table.values())

    def find(self, topic: str, partition: int) -> Partition | None:
        table = self.by_name.get(topic)
        return table.get(partition) if table else None

    def apply(self, image: ClusterImage) -> None:
        """Follow the image: close what is gone, open what is new, and tell the rest of new settings."""
        for topic_id in [known for known in self.by_id if known not in image.topics]:
            self._remove(topic_id)
        wanted = [
            (topic, number, state)
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if state.leader == self._node_id and number not in self.by_id.get(topic.topic_id, {})
        ]
        self.is_incomplete = False
        self._open_all(wanted)
        for topic_id, table in self.by_id.items():
            self._follow(image.topics[topic_id], table)
        self.open_batches = any(may_open(self._settings_of(image.topics[topic_id])) for topic_id in self.by_id)

    def remove_strays(self, image: ClusterImage) -> None:
        """Remove the logs of topics that were deleted while this broker was away."""
        known = [
            self._path(topic, number)
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
            if self._node_id in state.replicas
        ]
        strays = self._folder.strays(known)
        if strays:
            logger.info("removed_stray_logs count=%d", len(strays))
            self._remove_logs(strays)

    @staticmethod
    def _path(topic: Topic, number: int) -> str:
        return LogFolder.path(TopicPartition(topic.name, number), topic.topic_id)

    def _open_all(self, wanted: list[tuple[Topic, int, PartitionState]]) -> None:
        paths = {(topic.topic_id, number): self._path(topic, number) for topic, number, _ in wanted}
        lost = {path for path in paths.values() if self._folder.is_lost(path)}
        settings = {topic.topic_id: self._settings_of(topic) for topic, _, _ in wanted}
        on_disk = {topic_id for topic_id, found in settings.items() if found.storage is Storage.DISK}
        fresh = {key for key, path in paths.items() if key[0] in on_disk and not self._folder.is_made(path)}
        try:
            self._folder.make(paths[key] for key in fresh)
        except StorageError as error:
            self._put_off(fresh, str(error))
            wanted = [entry for entry in wanted if (entry[0].topic_id, entry[1]) not in fresh]
        for topic, number, state in wanted:
            key = topic.topic_id, number
            partition = self._open(topic, number, state, settings[topic.topic_id], paths[key] in lost)
            if key in fresh and not partition.is_online:
                self._remove_logs([paths[key]])
                self._put_off({key}, partition.offline_reason)
                continue
            self.by_id.setdefault(topic.topic_id, {})[number] = partition
            self.by_name.setdefault(topic.name, {})[number] = partition

    def _put_off(self, fresh: set[tuple[bytes, int]], reason: str) -> None:
        self.is_incomplete = True
        logger.warning("partitions_not_made count=%d reason=%r", len(fresh), reason)

    def _open(self, topic: Topic, number: int, state: PartitionState, settings: LogSettings, lost: bool) -> Partition:
        name = TopicPartition(topic.name, number)
        log: Log | None = None
        reason = ""
        if lost:
            reason = "its folder is gone; bring it back, or delete the topic"
        else:
            try:
                log = self._open_log(topic, name, state, settings)
            except StorageError as error:
                reason = str(error)
        partition = Partition(topic_id=topic.topic_id, name=name, leader_epoch=state.leader_epoch, log=log)
        if log is None:
            logger.error("partition_offline partition=%s reason=%r", name, reason)
            partition.offline_reason = reason
        if self.on_append is not None:
            partition.on_append = self.on_append
        return partition

    def _open_log(self, topic: Topic, name: TopicPartition, state: PartitionState, settings: LogSettings) -> Log:
        path = LogFolder.path(name, topic.topic_id)
        in_memory = settings.storage is Storage.MEMORY
        recovered = open_log(
            MemoryDisk() if in_memory else self._folder.disk,
            path,
            settings,
            boot_id=self._boot_id,
            now_ms=self._clock.now_ms(),
            first_offset=state.reserved_from,
        )
        if in_memory:
            recovered.log.offset_limit = state.reserved_to
        if recovered.cut_bytes:
            logger.warning("log_tail_cut partition=%s bytes=%d", name, recovered.cut_bytes)
        try:
            recovered.log.note_epoch(state.leader_epoch, recovered.log.end_offset)
        except StorageError:
            recovered.log.abandon()
            raise
        return recovered.log

    def _follow(self, topic: Topic, table: dict[int, Partition]) -> None:
        settings = self._settings_of(topic)
        for number, partition in table.items():
            state = topic.partitions[number]
            partition.follow(settings, state.leader_epoch)
            if partition.is_online and settings.storage is Storage.MEMORY:
                partition.log.offset_limit = state.reserved_to

    def _remove(self, topic_id: bytes) -> None:
        table = self.by_id.pop(topic_id)
        paths = []
        for partition in table.values():
            self.by_name.pop(partition.name.topic, None)
            if partition.is_online:
                log = partition.log
                partition.go_offline("the topic was deleted")
                log.abandon()
            paths.append(LogFolder.path(partition.name, topic_id))
        self._remove_logs(paths)

    def _remove_logs(self, paths: list[str]) -> None:
        try:
            self._folder.remove(paths)
        except StorageError as error:  # the next start finds and removes what is left
            logger.warning("logs_not_removed count=%d reason=%r", len(paths), str(error))

    def close(self) -> None:
        """Sync and close every log; one that cannot be synced is no reason to let the others down."""
        for partition in self:
            if partition.is_online:
                log = partition.log
                partition.go_offline("the broker is shutting down")
                try:
                    log.close()
                except StorageError as error:
                    logger.error("log_not_closed partition=%s reason=%r", partition.name, str(error))
                    log.abandon()
