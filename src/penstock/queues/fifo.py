"""Who gets which messages of a FIFO queue: decided, not done. Pure.

A message group is in one pair of hands: while any of its messages is in flight, nobody gets another. Within a group
each message waits for all before it, until they are done, dead or in the same hands. Messages that were looked at and
must wait become parcels, each on its own, and are found again through the chain of their group (delivery.py).

As AWS does, as many as possible of one group are given before any of another: the others are left to other workers.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from penstock.queues.acquiring import BURIED_MAX, fresh_of
from penstock.queues.commands import UNKNOWN, Acquire, Acquired, Fresh
from penstock.queues.delivery import Delivery
from penstock.queues.draft import Draft
from penstock.queues.records import Parcel
from penstock.queues.settings import DELAY_STEP_MS

WINDOW_MIN: Final = 32
WINDOW_FACTOR: Final = 4
"""Fresh messages among which more of the same group are looked for, as a multiple of how many are wanted."""


def acquire_fifo(draft: Draft, delivery: Delivery, command: Acquire, now_ms: int) -> tuple[Acquired, ...]:
    """Decide who gets what. `delivery` has advanced to now. With too many in flight: nothing, and no error."""
    if command.repeat:
        again = _repeat(draft, delivery, command, now_ms)
        if again:
            return again
    want = min(command.max_messages, command.settings.in_flight_max - delivery.in_flight)
    if want <= 0:
        return ()
    hands = _FifoHands(draft, delivery, command, now_ms, want)
    if delivery.ready:
        hands.take_ready()
    if command.fresh or command.fresh_end != UNKNOWN:
        hands.take_fresh()
    return tuple(hands.taken)


def _repeat(draft: Draft, delivery: Delivery, command: Acquire, now_ms: int) -> tuple[Acquired, ...]:
    """What the holder has, once more: it was sent, but may not have arrived. It is the same delivery still.

    Except what is behind a message of its group that the holder has let go: that one comes before it now. (AWS: all
    of them, if none was modified.)
    """
    due_ms = now_ms + command.visibility_ms
    again = []
    repeated: Counter[str] = Counter()
    for first in delivery.held_by(command.holder):
        _, last, count, _, holder, received_ms, group, _ = delivery.parcels[first]
        assert group is not None
        if delivery.chains[group].offsets[repeated[group]] == first:
            repeated[group] += 1
            draft.put(delivery, Parcel(first, last, count, due_ms, holder, received_ms, group))
            again.append(Acquired(first, last, count, received_ms, due_ms))
    return tuple(again)


class _FifoHands:
    """What one holder gets by one decision."""

    def __init__(self, draft: Draft, delivery: Delivery, command: Acquire, now_ms: int, want: int) -> None:
        self._draft = draft
        self._delivery = delivery
        self._command = command
        self._now_ms = now_ms
        self._due_ms = now_ms + command.visibility_ms
        self._want = want
        self._buried = 0
        self.taken: list[Acquired] = []
        self._emptied: set[str] = set()
        """Message groups of which all that was below the end is in these hands, or dead, by this decision."""

    def take_ready(self) -> None:
        """Go through the message groups that are open, by their first message, and through each in order."""
        delivery = self._delivery
        for first in delivery.ready:
            if self._want <= 0:
                return
            group = delivery.parcels[first].group
            assert group is not None
            if self._take_chain(delivery.chains[group].offsets):
                self._emptied.add(group)

    def _take_chain(self, offsets: Sequence[int]) -> bool:
        """Take from the front of a group; whether nothing is left of it."""
        delivery, settings = self._delivery, self._command.settings
        for offset in offsets:
            parcel = delivery.parcels[offset]
            if delivery.is_timed(offset):
                return False  # not due, and those behind it wait for it
            if settings.max_deliveries and parcel.count >= settings.max_deliveries:
                if self._buried >= BURIED_MAX:
                    return False
                self._draft.bury(delivery, parcel, settings)
                self._buried += 1
                continue
            if self._want <= 0:
                return False
            self._hold(offset, parcel.count + 1, parcel.first_received_ms or self._now_ms, parcel.group)
        return True

    def take_fresh(self) -> None:
        fresh = fresh_of(self._delivery, self._command)
        if fresh is None:
            return
        delivery, command = self._delivery, self._command
        looked = list(fresh[: max(0, command.settings.lookahead_max - len(delivery.parcels))])
        window = max(WINDOW_MIN, self._want * WINDOW_FACTOR)
        chosen = self._choose(looked[:window]) or self._choose(looked)
        # What is looked at: all up to the last one that is chosen. If none is, all: nobody can have any of it yet.
        if chosen:
            while looked[-1].offset not in chosen:
                looked.pop()
        elif self._want <= 0 or self._is_early(looked):
            looked = []
        for one in looked:
            if one.offset in chosen:
                self._hold(one.offset, 1, self._now_ms, one.group)
            else:
                due_ms = -(-one.due_ms // DELAY_STEP_MS) * DELAY_STEP_MS if one.due_ms > self._now_ms else 0
                self._draft.put(delivery, Parcel(one.offset, one.offset, 0, due_ms, "", 0, one.group))
        end = looked[-1].offset + 1 if looked else delivery.end
        if len(looked) == len(fresh):
            end = max(end, command.fresh_end)
        if end != delivery.end:
            self._draft.position(delivery, end)

    def _is_early(self, fresh: Sequence[Fresh]) -> bool:
        """Whether none of these is due, and nothing behind them is either: then they need not be looked at yet."""
        return not self._command.looks_on and all(one.due_ms > self._now_ms for one in fresh)

    def _choose(self, fresh: Sequence[Fresh]) -> set[int]:
        """Which fresh messages are given: group by group, each in order as far as it is due."""
        groups: dict[str, list[Fresh]] = {}
        for one in fresh:
            groups.setdefault(one.group, []).append(one)
        chosen: set[int] = set()
        want, bytes_left = self._want, self._command.max_bytes
        for group, messages in groups.items():
            if group in self._delivery.chains and group not in self._emptied:
                continue
            for one in messages:
                if one.due_ms > self._now_ms:
                    break
                bytes_left -= one.size
                if want <= 0 or (bytes_left < 0 and (chosen or self.taken)):
                    return chosen
                chosen.add(one.offset)
                want -= 1
        return chosen

    def _hold(self, offset: int, count: int, received_ms: int, group: str | None) -> None:
        parcel = Parcel(offset, offset, count, self._due_ms, self._command.holder, received_ms, group)
        self._draft.put(self._delivery, parcel)
        self.taken.append(Acquired(offset, offset, count, received_ms, self._due_ms))
        self._want -= 1
