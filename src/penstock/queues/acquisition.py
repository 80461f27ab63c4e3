"""Decides which messages of a standard queue or a share group a consumer acquires. Pure.

Messages that became available again come first, by offset, then messages that were never delivered ("fresh"). For
FIFO queues see fifo.py.
"""

from collections.abc import Sequence
from typing import Final

from penstock.queues.commands import UNKNOWN, Acquire, Acquired, Claim, Fresh
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.draft import Draft
from penstock.queues.errors import OverLimit
from penstock.queues.records import DeliveryRange
from penstock.queues.settings import DELAY_STEP_MS

DEAD_LETTERS_MAX: Final = 200
"""Maximum number of delivery ranges (consecutive messages in one state) that one Acquire sends to the dead-letter
queue, so that its records stay below 1 MiB."""


def acquire(draft: Draft, delivery: DeliveryState, command: Acquire, now_ms: int) -> tuple[Acquired, ...]:
    """Acquires messages for a consumer. The caller must have expired visibility timeouts with
    `delivery.advance(now_ms)`. Raises OverLimit if too many messages are in flight."""
    room = command.settings.in_flight_max - delivery.in_flight
    if room <= 0:
        raise OverLimit(
            f"{delivery.in_flight} messages of {delivery.name!r} are in flight here, at most"
            f" {command.settings.in_flight_max}; delete the messages that are processed"
        )
    if command.max_messages == 1 and not delivery.ready:
        single = _take_one(draft, delivery, command, now_ms)
        if single is not None:
            return (single,)
    acquisition = _Acquisition(draft, delivery, command, now_ms, room)
    if delivery.ready:
        acquisition.take_ready()
    if command.fresh or command.fresh_end != UNKNOWN:
        acquisition.take_fresh()
    return acquisition.close()


def _take_one(draft: Draft, delivery: DeliveryState, command: Acquire, now_ms: int) -> Acquired | None:
    """Tries the fast path of most receives, in which the next never-delivered message is acquired. Returns None, and
    changes nothing, if the fast path is not possible."""
    fresh = fresh_of(delivery, command)
    if not fresh or fresh[0].due_ms > now_ms:
        return None
    is_only = len(fresh) == 1 and fresh[0].run == 1
    if command.whole_ranges and not is_only:
        return None
    offset = fresh[0].offset
    due_ms = now_ms + command.visibility_ms
    draft.position(delivery, max(offset + 1, command.fresh_end) if is_only else offset + 1)
    draft.put(delivery, DeliveryRange(offset, offset, 1, due_ms, command.holder, now_ms))
    return Acquired(offset, offset, 1, now_ms, due_ms)


class _Acquisition:
    """Selects the messages that one Acquire command gives to a consumer."""

    __slots__ = ("_command", "_delivery", "_draft", "_due_ms", "_now_ms", "_room", "_taken", "_want")

    def __init__(self, draft: Draft, delivery: DeliveryState, command: Acquire, now_ms: int, room: int) -> None:
        self._draft = draft
        self._delivery = delivery
        self._command = command
        self._now_ms = now_ms
        self._due_ms = now_ms + command.visibility_ms
        self._room = room
        self._want = min(command.max_messages, room)
        """Number of messages still to acquire. With `whole_ranges`, the last range taken may exceed it."""
        self._taken: list[DeliveryRange] = []

    def take_ready(self) -> None:
        delivery, draft, settings = self._delivery, self._draft, self._command.settings
        limit = settings.max_deliveries
        dead = 0
        for first in delivery.ready:
            if self._want <= 0 or dead >= DEAD_LETTERS_MAX:
                return
            delivery_range = delivery.ranges[first]
            if limit and delivery_range.count >= limit:
                draft.send_to_dead_letters(delivery, delivery_range, settings)
                dead += 1
                continue
            size = min(delivery_range.size, self._room if self._command.whole_ranges else self._want)
            last = first + size - 1
            if self._hold(first, last, delivery_range.count + 1, delivery_range.first_received_ms or self._now_ms):
                draft.drop(delivery, first)  # it is part of the range before it now
            if last < delivery_range.last:
                draft.put(delivery, delivery_range.part(last + 1, delivery_range.last))

    def take_fresh(self) -> None:
        """Acquires never-delivered messages that are due. Delayed messages before them get delivery ranges, so that
        they are found when they are due."""
        delivery, command, now_ms = self._delivery, self._command, self._now_ms
        fresh = fresh_of(delivery, command)
        if fresh is None:
            return
        end, bytes_left, is_first = delivery.end, command.max_bytes, not self._taken
        want = self._room if command.whole_ranges and self._want > 0 else self._want
        early: list[Fresh] = []
        for one in fresh:
            if one.due_ms > now_ms:
                early.append(one)
                continue
            count = min(one.run, want)
            if one.size * count > bytes_left:
                count = min(count, max(bytes_left // one.size, 1 if is_first else 0))
            if count <= 0:
                break
            if early:
                set_aside(self._draft, delivery, early)
                early = []
            self._hold(one.offset, one.offset + count - 1, 1, now_ms)
            end = one.offset + count
            bytes_left -= one.size * count
            want -= count
            is_first = False
            if count < one.run:
                break
        else:
            if early and command.has_more:
                set_aside(self._draft, delivery, early)
                end = early[-1].offset + 1
                early = []
            if not early:
                end = max(end, command.fresh_end)
        if end != delivery.end:
            self._draft.position(delivery, end)

    def _hold(self, first: int, last: int, count: int, received_ms: int) -> bool:
        """Acquires the messages `first` to `last`. Returns whether they became part of the delivery range that was
        acquired just before."""
        size = last - first + 1
        self._want -= size
        self._room -= size
        taken = self._taken
        if taken:
            before = taken[-1]
            if before.last + 1 == first and before.count == count and before.first_received_ms == received_ms:
                taken[-1] = before.part(before.first, last)
                return True
        taken.append(DeliveryRange(first, last, count, self._due_ms, self._command.holder, received_ms))
        return False

    def close(self) -> tuple[Acquired, ...]:
        draft, delivery = self._draft, self._delivery
        for delivery_range in self._taken:
            draft.put(delivery, delivery_range)
        return tuple(
            Acquired(one.first, one.last, one.count, one.first_received_ms, one.due_ms) for one in self._taken
        )


def fresh_of(delivery: DeliveryState, command: Acquire | Claim) -> Sequence[Fresh] | None:
    """Returns those messages in `command.fresh` that the share group has never delivered, at its end offset and
    above. Returns None if none of them may be delivered now: messages between the end offset and `command.fresh_from`
    are missing, or the group has too many delivery ranges."""
    if command.fresh_from > delivery.end or len(delivery.ranges) >= command.settings.ranges_max:
        return None
    fresh, end = command.fresh, delivery.end
    if fresh and fresh[0].offset < end:
        return [_from(one, end) for one in fresh if one.offset + one.run > end]
    return fresh


def _from(fresh: Fresh, end: int) -> Fresh:
    """Returns the part of a run of messages at or above the offset `end`."""
    passed = end - fresh.offset
    return fresh._replace(offset=end, run=fresh.run - passed) if passed > 0 else fresh


def set_aside(draft: Draft, delivery: DeliveryState, early: Sequence[Fresh]) -> None:
    """Puts delayed messages into delivery ranges: one range for consecutive messages with the same due time."""
    first = last = -1
    due_ms = 0
    for one in early:
        # Rounded up, so that messages of one second form one range.
        step_ms = -(-one.due_ms // DELAY_STEP_MS) * DELAY_STEP_MS
        if one.offset == last + 1 and step_ms == due_ms:
            last = one.offset
            continue
        if first >= 0:
            draft.put(delivery, DeliveryRange(first, last, 0, due_ms))
        first = last = one.offset
        due_ms = step_ms
    draft.put(delivery, DeliveryRange(first, last, 0, due_ms))
