"""Index of the partitions that this broker leads, by topic name and topic id, for requests."""

from typing import Final, TypeVar

from penstock.cluster.image import Topic
from penstock.replication.partition import Partition

K = TypeVar("K")


class LedPartitions:
    """Partitions led by this broker, by topic name and by topic id; and their companion logs (second logs, for
    queue state or delayed messages), by the id of these logs, `Topic.companion`."""

    def __init__(self) -> None:
        self.by_name: Final[dict[str, dict[int, Partition]]] = {}
        self.by_id: Final[dict[bytes, dict[int, Partition]]] = {}
        self.companions: Final[dict[bytes, dict[int, Partition]]] = {}

    def add(self, topic: Topic, partition: Partition) -> None:
        number = partition.name.partition
        self.by_id.setdefault(topic.topic_id, {})[number] = partition
        self.by_name.setdefault(topic.name, {})[number] = partition
        if partition.companion is not None:
            self.companions.setdefault(topic.companion, {})[number] = partition.companion

    def remove(self, partition: Partition) -> None:
        """Removes a partition; does nothing if the index does not contain it."""
        _remove_from(self.by_id, partition.topic_id, partition)
        _remove_from(self.by_name, partition.name.topic, partition)
        if partition.companion is not None:
            self.remove_companion(partition.companion)

    def remove_companion(self, companion: Partition) -> None:
        _remove_from(self.companions, companion.topic_id, companion)

    def remove_topic(self, partition: Partition) -> None:
        """Removes all partitions of the topic that this partition belongs to."""
        self.by_id.pop(partition.topic_id, None)
        name = partition.name.topic
        led = self.by_name.get(name)
        if led is not None and next(iter(led.values())).topic_id == partition.topic_id:
            del self.by_name[name]
        if partition.companion is not None:
            self.companions.pop(partition.companion.topic_id, None)


def _remove_from(tables: dict[K, dict[int, Partition]], key: K, partition: Partition) -> None:
    """Removes a partition from its table, and the table itself if it becomes empty."""
    table = tables.get(key)
    if table is not None and table.get(partition.name.partition) is partition:
        del table[partition.name.partition]
        if not table:
            del tables[key]
