"""Decides on claims: a consumer acquires messages that it has chosen by offset. Pure.

A redrive reads a dead-letter topic and claims the messages that match its filter. Other messages keep their delivery
counts and receipts. Messages before a claimed message that were never delivered become available delivery ranges.

A claim counts as a delivery, unless it is undone (AckType.UNDO).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.queues.acknowledgement import RangeEdits
from penstock.queues.acquisition import fresh_of
from penstock.queues.commands import Acquired, Claim, Claimed, Fresh
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.draft import Draft
from penstock.queues.records import DeliveryRange
from penstock.queues.settings import DELAY_STEP_MS

CLAIMED_MAX: Final = 500
"""Maximum number of delivery ranges that one Claim changes, so that its record batch stays below 1 MiB."""


def claim(draft: Draft, delivery: DeliveryState, command: Claim, now_ms: int) -> Claimed:
    """Acquires the available messages at the offsets `command.ranges`. The caller must have expired visibility
    timeouts with `delivery.advance(now_ms)`."""
    if not command.ranges:
        return Claimed((), delivery.end - 1)
    acquisition = _Claims(draft, delivery, command, now_ms)
    reached = acquisition.take_known()
    if reached >= delivery.end - 1 and command.ranges[-1][1] >= delivery.end:
        reached = acquisition.take_fresh()
    return Claimed(tuple(acquisition.taken), reached)


class _Claims:
    """Selects the messages that one Claim command gives to a consumer."""

    def __init__(self, draft: Draft, delivery: DeliveryState, command: Claim, now_ms: int) -> None:
        self._draft = draft
        self._delivery = delivery
        self._command = command
        self._now_ms = now_ms
        self._due_ms = now_ms + command.visibility_ms
        self._room = command.settings.in_flight_max - delivery.in_flight
        self._open_groups: dict[str, bool] = {}
        """By message group: whether no other consumer has messages of the message group in flight."""
        self.taken: list[Acquired] = []

    # -- below the group's end

    def take_known(self) -> int:
        """Claims messages below the share group's end offset (first offset never delivered). Returns the last offset
        processed."""
        delivery = self._delivery
        edits = RangeEdits(delivery)
        reached = delivery.end - 1
        for at, (base, piece, part) in enumerate(self._wanted_of(edits)):
            if at >= CLAIMED_MAX:
                reached = part.first - 1
                break
            held = self._held(part)
            if held is not None:
                edits.cut(base, piece, piece.part(held.first, held.last), held)
        edits.close(self._draft)
        return reached

    def _wanted_of(self, edits: RangeEdits) -> Iterator[tuple[int, DeliveryRange, DeliveryRange]]:
        """Yields the parts of delivery ranges that the command claims. Each item is the first offset of the whole
        range, the piece of it that contains the part (`edits` may have split the range), and the part."""
        for first, last in self._command.ranges:
            for base, piece in edits.pieces(first, last):
                yield base, piece, piece.part(max(piece.first, first), min(piece.last, last))

    def _held(self, part: DeliveryRange) -> DeliveryRange | None:
        """Acquires `part`, up to the in-flight limit, and returns it as a range in flight. Returns None if the
        limit is reached or `part` is not available to the consumer."""
        first, last, count, due_ms, holder, received_ms, group, move = part
        is_ours = holder == self._command.holder
        if move is not None or (due_ms > self._now_ms and not is_ours):
            return None
        if group is not None and not self._is_open(group):
            return None
        if not (is_ours and due_ms > self._now_ms):  # messages in flight are counted already
            last = min(last, first + self._room - 1)
            if last < first:
                return None
            self._room -= last - first + 1
        if not is_ours:
            count, received_ms = count + 1, received_ms or self._now_ms
        held = DeliveryRange(first, last, count, self._due_ms, self._command.holder, received_ms, group)
        self.taken.append(Acquired(first, last, count, received_ms, self._due_ms))
        return held

    def _is_open(self, group: str) -> bool:
        """Whether no other consumer has messages of this message group in flight."""
        known = self._open_groups.get(group)
        if known is None:
            chain = self._delivery.chains.get(group)
            ranges = self._delivery.ranges
            known = self._open_groups[group] = (
                chain is None
                or not chain.held
                or all(
                    ranges[at].holder == self._command.holder
                    for at in chain.offsets
                    if ranges[at].holder and ranges[at].due_ms > self._now_ms
                )
            )
        return known

    # -- at the group's end and above

    def take_fresh(self) -> int:
        """Claims never-delivered messages; unclaimed messages before the last claimed message become available.

        Returns the last offset processed.
        """
        delivery, command = self._delivery, self._command
        found = fresh_of(delivery, command)
        if found is None:
            return delivery.end - 1
        fresh = [single for one in found for single in _singles(one)]
        starts = [first for first, _ in command.ranges]
        wanted_to = command.ranges[-1][1]
        is_fifo = command.settings.is_fifo
        processed = [one for one in fresh if one.offset <= wanted_to]
        if is_fifo:
            processed = processed[: max(0, command.settings.lookahead_max - len(delivery.ranges))]
        left: DeliveryRange | None = None
        for one in processed:
            at = bisect_right(starts, one.offset) - 1
            is_wanted = at >= 0 and one.offset <= command.ranges[at][1]
            delivery_range = self._fresh_range(one, is_wanted, is_fifo)
            left = self._keep(left, delivery_range)
        if left is not None:
            self._draft.put(delivery, left)
        end = self._end(processed, fresh)
        if end != delivery.end:
            self._draft.position(delivery, end)
        return end - 1

    def _fresh_range(self, one: Fresh, is_wanted: bool, is_fifo: bool) -> DeliveryRange:
        """Returns the range of a never-delivered message: delayed if its due time is in the future; else in flight
        if `is_wanted` and it can be acquired; else available. `is_fifo`: whether to set its message group."""
        due_ms = -(-one.due_ms // DELAY_STEP_MS) * DELAY_STEP_MS if one.due_ms > self._now_ms else 0
        delivery_range = DeliveryRange(one.offset, one.offset, 0, due_ms, "", 0, one.group if is_fifo else None)
        if not is_wanted:
            return delivery_range
        return self._held(delivery_range) or delivery_range

    def _keep(self, left: DeliveryRange | None, delivery_range: DeliveryRange) -> DeliveryRange:
        """Joins the delivery ranges `left` and `delivery_range`, which follows it, if they are adjacent and in the
        same state, and returns the result. Otherwise persists `left` (adds it to the draft) and returns
        `delivery_range`."""
        if left is None:
            return delivery_range
        if delivery_range.group is None and left.last + 1 == delivery_range.first and left.is_like(delivery_range):
            return left.part(left.first, delivery_range.last)
        self._draft.put(self._delivery, left)
        return delivery_range

    def _end(self, processed: Sequence[Fresh], fresh: Sequence[Fresh]) -> int:
        """Returns the share group's new end offset (first offset never delivered): the offset after the last
        message in `processed`; unchanged if there is none. If all messages read from the log (`fresh`) are
        processed, returns at least `command.fresh_end`, the offset up to which the log was read."""
        end = processed[-1].offset + 1 if processed else self._delivery.end
        return max(end, self._command.fresh_end) if len(processed) == len(fresh) else end


def _singles(fresh: Fresh) -> Iterator[Fresh]:
    """Splits a run of messages into single messages."""
    if fresh.run == 1:
        yield fresh
        return
    for offset in range(fresh.offset, fresh.offset + fresh.run):
        yield fresh._replace(offset=offset, run=1)
