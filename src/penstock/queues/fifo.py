"""Who gets which messages of a FIFO queue: decided, not done. Pure.

Within a message group each message waits for all before it, until they are done, dead or in the same answer. So no
message behind one in flight is delivered; one that has become visible again is delivered at once, though others
behind it are in flight. Messages that were looked at and must wait become parcels, each on its own, and are found
again through the chain of their group (delivery.py).

As AWS does, as many as possible of one group are given before any of another: the others are left to other workers.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.queues.acquiring import BURIED_MAX, fresh_of
from penstock.queues.commands import Acquire, Acquired, Fresh
from penstock.queues.delivery import Delivery
from penstock.queues.draft import Draft
from penstock.queues.records import Parcel
from penstock.queues.settings import DELAY_STEP_MS

WINDOW_MIN: Final = 32
WINDOW_FACTOR: Final = 4
"""Fresh messages among which more of the same group are looked for, as a multiple of how many are wanted."""


def window_of(want: int) -> int:
    """How many fresh messages are looked at for one receive, if some of the first can be given."""
    return max(WINDOW_MIN, want * WINDOW_FACTOR) if want > 1 else 1


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
    hands.take()
    return tuple(hands.taken)


def _repeat(draft: Draft, delivery: Delivery, command: Acquire, now_ms: int) -> tuple[Acquired, ...]:
    """What the holder has, once more: it was sent, but may not have arrived. It is the same delivery still.

    Except what is behind a message of its group that the holder has let go: that one comes before it now. (AWS: all
    of them, if none was modified.)
    """
    due_ms = now_ms + command.visibility_ms
    again: dict[str, list[Acquired]] = {}
    for first in delivery.held_by(command.holder):
        _, last, count, _, holder, received_ms, group, _ = delivery.parcels[first]
        assert group is not None
        repeated = again.setdefault(group, [])
        if delivery.chains[group].offsets[len(repeated)] == first:
            draft.put(delivery, Parcel(first, last, count, due_ms, holder, received_ms, group))
            repeated.append(Acquired(first, last, count, received_ms, due_ms, is_repeat=True))
    return tuple(one for repeated in again.values() for one in repeated)


class _FifoHands:
    """What one holder gets by one decision."""

    def __init__(self, draft: Draft, delivery: Delivery, command: Acquire, now_ms: int, want: int) -> None:
        self._draft = draft
        self._delivery = delivery
        self._command = command
        self._now_ms = now_ms
        self._due_ms = now_ms + command.visibility_ms
        self._want = want
        self._bytes_left = command.max_bytes
        self._buried = 0
        self.taken: list[Acquired] = []
        """Group by group, each in order."""
        self._chosen: set[int] = set()
        """Those of them that are fresh."""

    def take(self) -> None:
        """Takes messages group by group: first groups with messages below the end, by their first one."""
        delivery, command = self._delivery, self._command
        fresh = fresh_of(delivery, command)
        looked = (fresh or ())[: max(0, command.settings.lookahead_max - len(delivery.parcels))]
        near = _by_group(looked[: window_of(self._want)])
        for first in delivery.ready:
            if self._want <= 0:
                break
            group = delivery.parcels[first].group
            assert group is not None
            if self._take_chain(delivery.chains[group].offsets):
                self._choose(near.get(group, ()))
        self._choose_groups(near)
        if not self._chosen and self._want > 0:
            self._choose_groups(_by_group(looked))
        if fresh is not None:
            self._look(fresh, list(looked))

    def _take_chain(self, offsets: Sequence[int]) -> bool:
        """Take from the front of a group; whether nothing is left of it."""
        delivery, settings = self._delivery, self._command.settings
        for offset in offsets:
            parcel = delivery.parcels[offset]
            if delivery.is_timed(offset):
                return False  # in flight or not due, and those behind it wait for it
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

    def _choose_groups(self, groups: dict[str, list[Fresh]]) -> None:
        """Takes fresh messages of groups that have no unfinished message below the end."""
        for group, messages in groups.items():
            if self._want <= 0:
                return
            if group not in self._delivery.chains:
                self._choose(messages)

    def _choose(self, messages: Iterable[Fresh]) -> None:
        """Takes fresh messages of one group in order, as far as they are due."""
        for one in messages:
            if one.due_ms > self._now_ms or self._want <= 0:
                return
            self._bytes_left -= one.size
            if self._bytes_left < 0 and self.taken:
                self._want = 0
                return
            self._chosen.add(one.offset)
            self._hold(one.offset, 1, self._now_ms, one.group)

    def _look(self, fresh: Sequence[Fresh], looked: list[Fresh]) -> None:
        """Sets aside the fresh messages up to the last that is delivered; all of them if none is."""
        delivery, command, chosen = self._delivery, self._command, self._chosen
        if chosen:
            while looked[-1].offset not in chosen:
                looked.pop()
        elif self._want <= 0 or self._is_early(looked):
            looked = []
        for one in looked:
            if one.offset not in chosen:
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

    def _hold(self, offset: int, count: int, received_ms: int, group: str | None) -> None:
        parcel = Parcel(offset, offset, count, self._due_ms, self._command.holder, received_ms, group)
        self._draft.put(self._delivery, parcel)
        self.taken.append(Acquired(offset, offset, count, received_ms, self._due_ms))
        self._want -= 1


def _by_group(fresh: Iterable[Fresh]) -> dict[str, list[Fresh]]:
    """Messages by their group, in order; the groups by their first message."""
    groups: dict[str, list[Fresh]] = {}
    for one in fresh:
        groups.setdefault(one.group, []).append(one)
    return groups
