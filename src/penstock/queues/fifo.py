"""Decides which messages of a FIFO queue a holder acquires. Pure.

Within a message group each message waits until all earlier ones are finished, dead, or in the same response. So no
message after one in flight is delivered; one that is visible again is delivered at once, even if later ones are in
flight. Messages that have to wait become ranges of one message each, in the chain of their group (delivery_state.py).

As on AWS, a response has as many messages of one group as possible before any of another group.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.queues.acquisition import DEAD_LETTERS_MAX, fresh_of
from penstock.queues.commands import Acquire, Acquired, Fresh
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.draft import Draft
from penstock.queues.records import DeliveryRange
from penstock.queues.settings import DELAY_STEP_MS

WINDOW_MIN: Final = 32
WINDOW_FACTOR: Final = 4
"""Fresh messages that are searched for more of the same group, as a multiple of the number wanted."""


def window_of(want: int) -> int:
    """Returns how many fresh messages are searched for one receive, if some of the first can be delivered."""
    return max(WINDOW_MIN, want * WINDOW_FACTOR) if want > 1 else 1


def acquire_fifo(draft: Draft, delivery: DeliveryState, command: Acquire, now_ms: int) -> tuple[Acquired, ...]:
    """Acquires messages. `delivery` must have advanced to now. Returns none if too many are in flight."""
    if command.repeat:
        again = _repeat(draft, delivery, command, now_ms)
        if again:
            return again
    want = min(command.max_messages, command.settings.in_flight_max - delivery.in_flight)
    if want <= 0:
        return ()
    acquisition = _FifoAcquisition(draft, delivery, command, now_ms, want)
    acquisition.take()
    return tuple(acquisition.taken)


def _repeat(draft: Draft, delivery: DeliveryState, command: Acquire, now_ms: int) -> tuple[Acquired, ...]:
    """Delivers again what the holder has in flight: the response before may have been lost. Counts no delivery.

    Leaves out messages after one of their group that the holder has released: that one has to come first. (AWS: all
    of them, if none was modified.)
    """
    due_ms = now_ms + command.visibility_ms
    again: dict[str, list[Acquired]] = {}
    for first in delivery.held_by(command.holder):
        _, last, count, _, holder, received_ms, group, _ = delivery.ranges[first]
        assert group is not None
        repeated = again.setdefault(group, [])
        if delivery.chains[group].offsets[len(repeated)] == first:
            draft.put(delivery, DeliveryRange(first, last, count, due_ms, holder, received_ms, group))
            repeated.append(Acquired(first, last, count, received_ms, due_ms, is_repeat=True))
    return tuple(one for repeated in again.values() for one in repeated)


class _FifoAcquisition:
    """The messages that one holder acquires by one decision."""

    def __init__(self, draft: Draft, delivery: DeliveryState, command: Acquire, now_ms: int, want: int) -> None:
        self._draft = draft
        self._delivery = delivery
        self._command = command
        self._now_ms = now_ms
        self._due_ms = now_ms + command.visibility_ms
        self._want = want
        self._bytes_left = command.max_bytes
        self._dead = 0
        self.taken: list[Acquired] = []
        """Group by group, each in order."""
        self._chosen: set[int] = set()
        """Offsets of the fresh messages among them."""

    def take(self) -> None:
        """Acquires messages group by group: first groups with messages below the end, by their first message."""
        delivery, command = self._delivery, self._command
        fresh = fresh_of(delivery, command)
        processed = (fresh or ())[: max(0, command.settings.lookahead_max - len(delivery.ranges))]
        near = _by_group(processed[: window_of(self._want)])
        for first in delivery.ready:
            if self._want <= 0:
                break
            group = delivery.ranges[first].group
            assert group is not None
            if self._take_chain(delivery.chains[group].offsets):
                self._choose(near.get(group, ()))
        self._choose_groups(near)
        if not self._chosen and self._want > 0:
            self._choose_groups(_by_group(processed))
        if fresh is not None:
            self._put_waiting(fresh, list(processed))

    def _take_chain(self, offsets: Sequence[int]) -> bool:
        """Acquires messages from the front of a group. Returns whether none is left."""
        delivery, settings = self._delivery, self._command.settings
        for offset in offsets:
            delivery_range = delivery.ranges[offset]
            if delivery.is_timed(offset):
                return False  # in flight or delayed: later messages wait for it
            if settings.max_deliveries and delivery_range.count >= settings.max_deliveries:
                if self._dead >= DEAD_LETTERS_MAX:
                    return False
                self._draft.send_to_dead_letters(delivery, delivery_range, settings)
                self._dead += 1
                continue
            if self._want <= 0:
                return False
            self._hold(
                offset,
                delivery_range.count + 1,
                delivery_range.first_received_ms or self._now_ms,
                delivery_range.group,
            )
        return True

    def _choose_groups(self, groups: dict[str, list[Fresh]]) -> None:
        """Acquires fresh messages of groups without unfinished messages below the end."""
        for group, messages in groups.items():
            if self._want <= 0:
                return
            if group not in self._delivery.chains:
                self._choose(messages)

    def _choose(self, messages: Iterable[Fresh]) -> None:
        """Acquires fresh messages of one group in order, up to the first that is delayed."""
        for one in messages:
            if one.due_ms > self._now_ms or self._want <= 0:
                return
            self._bytes_left -= one.size
            if self._bytes_left < 0 and self.taken:
                self._want = 0
                return
            self._chosen.add(one.offset)
            self._hold(one.offset, 1, self._now_ms, one.group)

    def _put_waiting(self, fresh: Sequence[Fresh], processed: list[Fresh]) -> None:
        """Makes ranges of the fresh messages up to the last one acquired; of all if none is."""
        delivery, command, chosen = self._delivery, self._command, self._chosen
        if chosen:
            while processed[-1].offset not in chosen:
                processed.pop()
        elif self._want <= 0 or self._is_early(processed):
            processed = []
        for one in processed:
            if one.offset not in chosen:
                due_ms = -(-one.due_ms // DELAY_STEP_MS) * DELAY_STEP_MS if one.due_ms > self._now_ms else 0
                self._draft.put(delivery, DeliveryRange(one.offset, one.offset, 0, due_ms, "", 0, one.group))
        end = processed[-1].offset + 1 if processed else delivery.end
        if len(processed) == len(fresh):
            end = max(end, command.fresh_end)
        if end != delivery.end:
            self._draft.position(delivery, end)

    def _is_early(self, fresh: Sequence[Fresh]) -> bool:
        """Whether all of these are delayed and the log ends after them: then they need no state yet."""
        return not self._command.has_more and all(one.due_ms > self._now_ms for one in fresh)

    def _hold(self, offset: int, count: int, received_ms: int, group: str | None) -> None:
        delivery_range = DeliveryRange(offset, offset, count, self._due_ms, self._command.holder, received_ms, group)
        self._draft.put(self._delivery, delivery_range)
        self.taken.append(Acquired(offset, offset, count, received_ms, self._due_ms))
        self._want -= 1


def _by_group(fresh: Iterable[Fresh]) -> dict[str, list[Fresh]]:
    """Groups messages by message group, in order of the first message of each."""
    groups: dict[str, list[Fresh]] = {}
    for one in fresh:
        groups.setdefault(one.group, []).append(one)
    return groups
