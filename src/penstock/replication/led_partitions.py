"""The partitions that this broker leads, as requests find them."""

from typing import Final, TypeVar

from penstock.cluster.image import Topic
from penstock.replication.partition import Partition

K = TypeVar("K")


class LedPartitions:
    """By their topic's name and by its id; companions by their own."""

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
        """Nothing happens if it is not there."""
        _take_out(self.by_id, partition.topic_id, partition)
        _take_out(self.by_name, partition.name.topic, partition)
        if partition.companion is not None:
            self.remove_companion(partition.companion)

    def remove_companion(self, companion: Partition) -> None:
        _take_out(self.companions, companion.topic_id, companion)

    def remove_topic(self, partition: Partition) -> None:
        """Remove all partitions of a topic at once, this one and others."""
        self.by_id.pop(partition.topic_id, None)
        name = partition.name.topic
        led = self.by_name.get(name)
        if led is not None and next(iter(led.values())).topic_id == partition.topic_id:
            del self.by_name[name]
        if partition.companion is not None:
            self.companions.pop(partition.companion.topic_id, None)


def _take_out(tables: dict[K, dict[int, Partition]], key: K, partition: Partition) -> None:
    """Out of a table, and the table too if it was the last in it."""
    table = tables.get(key)
    if table is not None and table.get(partition.name.partition) is partition:
        del table[partition.name.partition]
        if not table:
            del tables[key]
