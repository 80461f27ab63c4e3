"""The delivery state of one group on one partition: its parcels, and how to find those that matter. Pure.

Durable is what the records say: `end` and the parcels. All else here is an index over them, and follows from them and
the time. A parcel is in one of four places:

in the timers    it is in flight (it has a holder) or delayed (it has none), until its time comes
ready            anybody may acquire it now
in its chain     it is one message of a FIFO queue, and waits for those before it in its message group
moving           it is on its way to another partition, and is delivered no more
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

from sortedcontainers import SortedList

from penstock.foundation.timers import Timers
from penstock.queues.commands import Counts
from penstock.queues.records import Parcel, parcel_prefix, position_key

NOT_READY = -1


class Chain:
    """The messages of one message group that are not finished, and not on their way elsewhere, in order."""

    __slots__ = ("held", "offsets", "ready_at")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.held = 0
        """How many are in flight."""
        self.ready_at = NOT_READY
        """Its first message, if that may be delivered."""


class Delivery:
    """Changes by `put`, `drop` and `end` alone, and by the time that is told to `advance`."""

    def __init__(self, name: str, end: int = 0) -> None:
        self.name = name
        self.prefix = parcel_prefix(name)
        self.key = position_key(name)
        self.end = end
        """The next offset that was never looked at: from here on all is waiting."""
        self.parcels: dict[int, Parcel] = {}
        """By their first offset."""
        self.chains: dict[str, Chain] = {}
        """By message group."""
        self.ready: Any = SortedList()
        """First offsets of what may be acquired now; of a message group only its first."""
        self.in_flight = 0
        self._available = 0
        self._delayed = 0
        self._moving = 0
        self._now_ms = 0
        self._firsts: Any = SortedList()
        self._timers: Timers[int] = Timers()
        self._held_by: dict[str, set[int]] = {}
        """Of FIFO queues: what each holder has in flight."""

    # -- asked

    @property
    def start(self) -> int:
        """Everything below is done."""
        return min(self._firsts[0], self.end) if self.parcels else self.end

    @property
    def ready_at_ms(self) -> int | None:
        """When to look again for what is below the end: 0 if something is ready, None if nothing will be by itself.

        In a FIFO queue it may turn out that a message that is due waits for one before it.
        """
        return 0 if self.ready else self._timers.next_ms

    def counts(self, now_ms: int) -> Counts:
        """How many messages below the end are in which state. Those of a closed message group are available."""
        self.advance(now_ms)
        return Counts(self._available, self.in_flight, self._delayed, self._moving)

    def find(self, offset: int) -> Parcel | None:
        """The parcel that an offset is in; None: it is done, or was never looked at."""
        parcel = self.parcels.get(offset)
        if parcel is None:
            for first in self._firsts.irange(None, offset, reverse=True):
                before = self.parcels[first]
                return before if before.last >= offset else None
        return parcel

    def between(self, first: int, last: int) -> Iterator[Parcel]:
        """All parcels that have any of these offsets, in order."""
        parcel = self.find(first)
        if parcel is not None and parcel.first < first:
            yield parcel
        for at in self._firsts.irange(first, last):
            yield self.parcels[at]

    def is_timed(self, first: int) -> bool:
        """Whether a parcel's time is still to come."""
        return first in self._timers

    def held_by(self, holder: str) -> list[int]:
        """What a holder has in flight, in order. FIFO queues only."""
        return sorted(self._held_by.get(holder, ()))

    # -- told

    def advance(self, now_ms: int) -> None:
        """Whatever was due by now is available. Time does not go back."""
        if now_ms <= self._now_ms:
            return  # what was due by then is available already
        self._now_ms = now_ms
        while (first := self._timers.take(now_ms)) is not None:
            parcel = self.parcels[first]
            self._untime(parcel)
            self._available += parcel.size
            if parcel.group is None:
                self.ready.add(first)
            else:
                self._refresh(parcel.group)

    def set_clock_back(self, by_ms: int) -> None:
        """The machine's time goes on from an earlier one (`by_ms` is negative); what was due stays available."""
        if by_ms < 0:
            self._now_ms += by_ms

    def put(self, parcel: Parcel) -> None:
        """A parcel begins, or has another fate."""
        first = parcel.first
        before = self.parcels.get(first)
        if before is None:
            self._firsts.add(first)
        else:
            self._leave(before)
        self.parcels[first] = parcel
        self._enter(parcel)

    def drop(self, first: int) -> None:
        """A parcel is finished, or begins elsewhere."""
        parcel = self.parcels.pop(first, None)
        if parcel is not None:
            self._firsts.remove(first)
            self._leave(parcel)

    # -- indexes

    def _enter(self, parcel: Parcel) -> None:
        first, last, _, due_ms, holder, _, group, move = parcel
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

    def _leave(self, parcel: Parcel) -> None:
        first, group = parcel.first, parcel.group
        if parcel.move is not None:
            self._moving -= parcel.size
            return
        if first in self._timers:
            self._timers.cancel(first)
            self._untime(parcel)
        else:
            self._available -= parcel.size
            if group is None:
                self.ready.remove(first)
        if group is not None:
            chain = self.chains[group]
            del chain.offsets[bisect_left(chain.offsets, first)]
            self._refresh(group)

    def _untime(self, parcel: Parcel) -> None:
        """It waits for its time no more."""
        if not parcel.holder:
            self._delayed -= parcel.size
            return
        self.in_flight -= parcel.size
        if parcel.group is not None:
            self.chains[parcel.group].held -= 1
            held = self._held_by[parcel.holder]
            held.remove(parcel.first)
            if not held:
                del self._held_by[parcel.holder]

    def _refresh(self, group: str) -> None:
        """Keep it ready exactly if its first message is neither in flight nor delayed."""
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
