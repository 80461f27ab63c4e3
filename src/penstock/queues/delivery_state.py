"""The delivery state of one share group on one partition: delivery ranges, and indexes over them. Pure.

Durable state is the delivery ranges and the end offset (`end`), from which on no message was delivered yet. The
indexes are derived from these and from the time. A delivery range is in one of four states:

timed     in flight (with a holder) or delayed (without one), until its due time
ready     available: it can be acquired
chained   one message of a FIFO queue, waiting for earlier messages of its message group
moving    being moved to another partition, and not delivered any more
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from sortedcontainers import SortedList

from penstock.foundation.timers import Timers
from penstock.queues.commands import Counts
from penstock.queues.records import DeliveryRange, position_key, range_prefix

NOT_READY = -1


class Chain:
    """The unfinished messages of one message group, in order, without those being moved to another partition."""

    __slots__ = ("held", "offsets", "ready_at")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.held = 0
        """Number of messages in flight."""
        self.ready_at = NOT_READY
        """Offset of the first message if it can be delivered, else NOT_READY."""


class DeliveryState:
    """Delivery state of a share group on a partition. Changes only by `put`, `drop`, `advance` and setting `end`."""

    def __init__(self, name: str, end: int = 0) -> None:
        self.name = name
        self.prefix = range_prefix(name)
        self.key = position_key(name)
        self.end = end
        """The end offset: the first offset that was never delivered. All messages from here on are available."""
        self.ranges: dict[int, DeliveryRange] = {}
        """Delivery ranges by first offset."""
        self.chains: dict[str, Chain] = {}
        """Unfinished messages by message group (FIFO queues)."""
        self.ready: Any = SortedList()
        """First offsets of the available delivery ranges; of a message group, at most its first message."""
        self.in_flight = 0
        self._available = 0
        self._delayed = 0
        self._moving = 0
        self._now_ms = 0
        self._firsts: Any = SortedList()
        self._timers: Timers[int] = Timers()
        self._held_by: dict[str, set[int]] = {}
        """Offsets in flight, by the consumer that holds them. FIFO queues only."""

    # -- queries

    @property
    def start(self) -> int:
        """The offset below which all messages are finished."""
        return min(self._firsts[0], self.end) if self.ranges else self.end

    @property
    def ready_at_ms(self) -> int | None:
        """When (ms) the next message below `end` becomes available: 0 if one is available now, None if none will be.

        In a FIFO queue, a message that is due may still wait for an earlier message of its message group.
        """
        return 0 if self.ready else self._timers.next_ms

    def counts(self, now_ms: int) -> Counts:
        """Counts messages below `end` by state; messages that wait for their message group count as available."""
        self.advance(now_ms)
        return Counts(self._available, self.in_flight, self._delayed, self._moving)

    def find(self, offset: int) -> DeliveryRange | None:
        """Returns the delivery range with this offset; None if the message is finished, or was never delivered."""
        delivery_range = self.ranges.get(offset)
        if delivery_range is None:
            for first in self._firsts.irange(None, offset, reverse=True):
                before = self.ranges[first]
                return before if before.last >= offset else None
        return delivery_range

    def between(self, first: int, last: int) -> Iterator[DeliveryRange]:
        """Yields the delivery ranges that overlap with the offsets from `first` to `last`, in order."""
        delivery_range = self.find(first)
        if delivery_range is not None and delivery_range.first < first:
            yield delivery_range
        for at in self._firsts.irange(first, last):
            yield self.ranges[at]

    def is_timed(self, first: int) -> bool:
        """Whether the delivery range that starts at `first` is in flight or delayed, that is, waits for a point in
        time."""
        return first in self._timers

    def held_by(self, holder: str) -> list[int]:
        """Returns the offsets that a consumer has in flight, in order. FIFO queues only."""
        return sorted(self._held_by.get(holder, ()))

    # -- changes

    def advance(self, now_ms: int) -> None:
        """Expires visibility timeouts and delays due by `now_ms`. Ignores a time before that of the last call."""
        if now_ms <= self._now_ms:
            return
        self._now_ms = now_ms
        while (first := self._timers.take(now_ms)) is not None:
            delivery_range = self.ranges[first]
            self._untime(delivery_range)
            self._available += delivery_range.size
            if delivery_range.group is None:
                self.ready.add(first)
            else:
                self._refresh(delivery_range.group)

    def set_clock_back(self, by_ms: int) -> None:
        """Adds `by_ms`, if it is negative, to the time of the last `advance`, which would ignore earlier times.
        Messages that are available stay available."""
        if by_ms < 0:
            self._now_ms += by_ms

    def put(self, delivery_range: DeliveryRange) -> None:
        """Adds a delivery range, or replaces the range with the same first offset."""
        first = delivery_range.first
        before = self.ranges.get(first)
        if before is None:
            self._firsts.add(first)
        else:
            self._leave(before)
        self.ranges[first] = delivery_range
        self._enter(delivery_range)

    def drop(self, first: int) -> None:
        """Removes the delivery range that starts at `first`, if there is one."""
        delivery_range = self.ranges.pop(first, None)
        if delivery_range is not None:
            self._firsts.remove(first)
            self._leave(delivery_range)

    # -- indexes

    def _enter(self, delivery_range: DeliveryRange) -> None:
        first, last, _, due_ms, holder, _, group, move = delivery_range
        size = last - first + 1
        if move is not None:
            self._moving += size
            return
        is_timed = due_ms > self._now_ms
        if is_timed:
            self._timers.set(first, due_ms)
            if holder:
                self.in_flight += size
            else:
                self._delayed += size
        else:
            self._available += size
        if group is None:
            if not is_timed:
                self.ready.add(first)
            return
        chain = self.chains.get(group)
        if chain is None:
            chain = self.chains[group] = Chain()
        insort(chain.offsets, first)
        if is_timed and holder:
            chain.held += 1
            self._held_by.setdefault(holder, set()).add(first)
        self._refresh(group)

    def _leave(self, delivery_range: DeliveryRange) -> None:
        first, group = delivery_range.first, delivery_range.group
        if delivery_range.move is not None:
            self._moving -= delivery_range.size
            return
        if first in self._timers:
            self._timers.cancel(first)
            self._untime(delivery_range)
        else:
            self._available -= delivery_range.size
            if group is None:
                self.ready.remove(first)
        if group is not None:
            chain = self.chains[group]
            del chain.offsets[bisect_left(chain.offsets, first)]
            self._refresh(group)

    def _untime(self, delivery_range: DeliveryRange) -> None:
        """Subtracts a delivery range, whose timeout has expired or is cancelled, from the number of in-flight or
        delayed messages."""
        if not delivery_range.holder:
            self._delayed -= delivery_range.size
            return
        self.in_flight -= delivery_range.size
        if delivery_range.group is not None:
            self.chains[delivery_range.group].held -= 1
            held = self._held_by[delivery_range.holder]
            held.remove(delivery_range.first)
            if not held:
                del self._held_by[delivery_range.holder]

    def _refresh(self, group: str) -> None:
        """Updates in `ready` whether the first message of a message group is available. It is, unless it is in flight
        or delayed."""
        chain = self.chains[group]
        at = NOT_READY
        if chain.offsets and chain.offsets[0] not in self._timers:
            at = chain.offsets[0]
        if at != chain.ready_at:
            if chain.ready_at != NOT_READY:
                self.ready.remove(chain.ready_at)
            if at != NOT_READY:
                self.ready.add(at)
            chain.ready_at = at
        if not chain.offsets:
            del self.chains[group]
