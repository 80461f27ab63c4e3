"""Decides which messages of a FIFO queue a consumer acquires. Pure.

A message waits until all earlier messages of its message group are finished, dead, or in the same response. So
messages behind an in-flight message are not delivered; a message that is visible again is delivered at once, even if
later messages are in flight. Each waiting message becomes a delivery range, in the Chain of its message group.

As on AWS, a response has as many messages of one message group as possible before any of another message group.
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
"""Number of never-delivered messages to examine for each message that a consumer requests; see `window_of`."""


def window_of(want: int) -> int:
    """Returns the number of never-delivered messages to examine first when a consumer requests `want` messages. If
    `want` is above 1, the number is larger than `want`, because the response should have as many messages of one
    message group as possible."""
    return max(WINDOW_MIN, want * WINDOW_FACTOR) if want > 1 else 1


def acquire_fifo(draft: Draft, delivery: DeliveryState, command: Acquire, now_ms: int) -> tuple[Acquired, ...]:
    """Acquires messages for a consumer. The caller must have expired visibility timeouts with
    `delivery.advance(now_ms)`. Returns () if too many messages are in flight."""
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
    """Redelivers the consumer's in-flight messages, in case the last response was lost; does not count a delivery.

    Leaves out messages behind a released message of their message group, which must be delivered first. (AWS
    redelivers all messages, if none was modified.)
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
    """Selects the messages of a FIFO queue that one Acquire command gives to a consumer."""

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
        """Messages acquired so far: one message group after another, each in order."""
        self._chosen: set[int] = set()
        """Offsets of the never-delivered messages in `taken`."""

    def take(self) -> None:
        """Acquires messages, one message group after another: first groups with available delivery ranges, in
        offset order; then groups whose unfinished messages are all in `command.fresh` (never delivered)."""
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
        """Acquires messages from the front of a message group. Returns whether all were acquired or dead-lettered."""
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
        """Acquires messages of `groups` (never delivered), except message groups with earlier unfinished messages."""
        for group, messages in groups.items():
            if self._want <= 0:
                return
            if group not in self._delivery.chains:
                self._choose(messages)

    def _choose(self, messages: Iterable[Fresh]) -> None:
        """Acquires never-delivered messages of one message group in order, up to the first delayed message."""
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
        """Creates delivery ranges for examined never-delivered messages (`processed`, a part of `fresh`) that were
        not acquired, and moves the share group's end offset past them.

        This is done for the messages before the last acquired one, which would be skipped otherwise. If none was
        acquired, it is done for all, so that the next receive can search further; but not if the request was full
        before, or if all are delayed and can be read again later (`_is_early`).
        """
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
        """Returns whether all messages in `fresh` are delayed and no later message can be due. Then no delivery state
        is stored for them: the share group's end offset stays, and a later receive reads them again."""
        return not self._command.has_more and all(one.due_ms > self._now_ms for one in fresh)

    def _hold(self, offset: int, count: int, received_ms: int, group: str | None) -> None:
        delivery_range = DeliveryRange(offset, offset, count, self._due_ms, self._command.holder, received_ms, group)
        self._draft.put(self._delivery, delivery_range)
        self.taken.append(Acquired(offset, offset, count, received_ms, self._due_ms))
        self._want -= 1


def _by_group(fresh: Iterable[Fresh]) -> dict[str, list[Fresh]]:
    """Returns the messages by message group; the groups are ordered by their first messages."""
    groups: dict[str, list[Fresh]] = {}
    for one in fresh:
        groups.setdefault(one.group, []).append(one)
    return groups
