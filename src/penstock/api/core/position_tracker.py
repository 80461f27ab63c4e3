"""Position tracker of a subscription: delivered, finished and committed offsets of each partition.

An offset may be committed when all messages before it are finished; messages may be finished in any order. No I/O and
no clock; callers of a PositionTracker must hold its `lock`.
"""

import threading
from collections.abc import Iterable, Mapping

from penstock.foundation.ids import TopicPartition

Offsets = Mapping[TopicPartition, int]


class PartitionPosition:
    """The position in one partition during one assignment. A later assignment creates a new PartitionPosition.

    >>> position = PartitionPosition(TopicPartition("orders", 0))
    >>> position.deliver(7); position.deliver(8); position.finish(8); position.watermark
    7
    """

    __slots__ = ("_committed", "_next", "_requested", "_unfinished", "is_assigned", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.is_assigned = True
        self._unfinished: dict[int, None] = {}  # in order: offsets only grow
        self._next: int | None = None
        self._requested: int | None = None
        self._committed: int | None = None

    @property
    def watermark(self) -> int | None:
        """The offset before which all messages are finished; None before the first delivery."""
        return next(iter(self._unfinished), self._next)

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    def deliver(self, offset: int) -> None:
        """Marks a message as delivered and unfinished. A retried message is still marked from its first delivery."""
        self._unfinished[offset] = None
        self._next = max(offset + 1, self._next or 0)

    def finish(self, offset: int) -> None:
        self._unfinished.pop(offset, None)

    def skip(self, offset: int) -> None:
        """Marks a message as finished without delivering it."""
        self._next = max(offset + 1, self._next or 0)

    def rewind(self) -> None:
        """Rewinds to the committed offset: delivered messages that are not committed will be delivered again."""
        self._unfinished.clear()
        self._next = self._requested = self._committed

    def due(self, even_if_requested: bool = False) -> int | None:
        """Returns the offset to commit; None if it is already committed. While its commit is in flight, returns
        None unless `even_if_requested`."""
        mark = self.watermark
        return None if mark == (self._committed if even_if_requested else self._requested) else mark

    def mark_requested(self) -> None:
        """Marks the commit of `watermark`, the offset before which all messages are finished, as in flight."""
        self._requested = self.watermark

    def record_commit(self, offset: int, is_committed: bool) -> None:
        """Records the result of a commit; after a failure, the offset is due for commit again."""
        if is_committed:
            self._committed = offset
        elif self._requested == offset:
            self._requested = self._committed


class PositionTracker:
    """The positions in all partitions that are assigned to a subscription."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._positions: dict[TopicPartition, PartitionPosition] = {}

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self._positions[tp] = PartitionPosition(tp)

    def unassign(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            position = self._positions.pop(tp, None)
            if position is not None:
                position.is_assigned = False

    def position(self, tp: TopicPartition) -> PartitionPosition | None:
        return self._positions.get(tp)

    @property
    def unfinished(self) -> int:
        return sum(position.unfinished for position in self._positions.values())

    def due(
        self, tps: Iterable[TopicPartition] | None = None, *, even_if_requested: bool = False
    ) -> dict[TopicPartition, int]:
        """Returns offsets to commit in `tps` (None: all). `even_if_requested`: includes offsets being committed."""
        found = {}
        for tp in self._positions if tps is None else tps:
            position = self._positions.get(tp)
            offset = None if position is None else position.due(even_if_requested)
            if offset is not None:
                found[tp] = offset
        return found

    def mark_requested(self, offsets: Offsets) -> None:
        """Marks the commits of these offsets as in flight."""
        for tp in offsets:
            self._positions[tp].mark_requested()

    def record_commit(self, tp: TopicPartition, offset: int, is_committed: bool) -> None:
        """Records the result of a commit; ignored if the partition is no longer assigned."""
        position = self._positions.get(tp)
        if position is not None:
            position.record_commit(offset, is_committed)

    def rewind(self) -> None:
        for position in self._positions.values():
            position.rewind()
