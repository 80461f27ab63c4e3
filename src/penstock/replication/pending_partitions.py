"""Queue of partitions that do not match the metadata image yet, and callbacks for when they do. Pure."""

from collections import deque
from collections.abc import Callable, Iterable

from penstock.foundation.ids import TopicIdPartition


class PendingPartitions:
    """A queue of partitions to update to the metadata image. A partition is pending until its update has ended, even
    if it is not queued because its log is being opened."""

    def __init__(self) -> None:
        self._queue: deque[TopicIdPartition] = deque()
        self._queued: set[TopicIdPartition] = set()
        self._pending: dict[bytes, set[int]] = {}
        """Indexes of pending partitions, by topic id."""
        self._waiters: list[tuple[bytes | None, Callable[[], None]]] = []

    def __bool__(self) -> bool:
        """Whether a partition is queued."""
        return bool(self._queue)

    def mark(self, topic_id: bytes, numbers: Iterable[int]) -> None:
        """Queues these partitions of a topic to be updated to the metadata image; they are pending until `settle`."""
        for number in numbers:
            tp = TopicIdPartition(topic_id, number)
            if tp not in self._queued:
                self._queued.add(tp)
                self._queue.append(tp)
                self._pending.setdefault(topic_id, set()).add(number)

    def pop(self) -> TopicIdPartition:
        """Removes and returns the next queued partition, which stays pending until `settle`."""
        tp = self._queue.popleft()
        self._queued.discard(tp)
        return tp

    def settle(self, tp: TopicIdPartition) -> None:
        """Marks a partition as no longer pending: its update has ended or is postponed. No effect if queued again."""
        numbers = self._pending.get(tp.topic_id)
        if numbers is not None and tp not in self._queued:
            numbers.discard(tp.partition)
            if not numbers:
                del self._pending[tp.topic_id]

    def forget(self, topic_id: bytes) -> None:
        """Removes a deleted topic: its partitions are no longer pending."""
        self._pending.pop(topic_id, None)

    def clear(self) -> None:
        self._queue.clear()
        self._queued.clear()
        self._pending.clear()

    def when_settled(self, topic_id: bytes | None, then: Callable[[], None]) -> None:
        """Calls `then` once, maybe immediately, when no partition of the topic (None: of any topic) is pending."""
        self._waiters.append((topic_id, then))
        self.notify_settled()

    def notify_settled(self) -> None:
        """Calls the callbacks of `when_settled` whose partitions are no longer pending."""
        waiters, self._waiters = self._waiters, []
        for topic_id, then in waiters:
            if self._pending if topic_id is None else topic_id in self._pending:
                self._waiters.append((topic_id, then))
            else:
                then()
