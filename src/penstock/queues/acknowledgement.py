"""Decides on acknowledgements: finish, release, reject, renew, move. Pure.

Delivery state is stored as delivery ranges: consecutive messages in one state. An acknowledgement may cover only a
part of a delivery range, or several ranges; several acknowledgements of one command may cover parts of the same
range. So ranges are first split in memory (RangeEdits), and only the result is persisted.
"""

from collections.abc import Sequence
from typing import Final

from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.queues.commands import Acknowledge, Acknowledgement, AckType, ReleaseHolder
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.draft import Draft, destination_of
from penstock.queues.errors import AlreadyFinished, NeverReceived, NotHeld, NotInFlight
from penstock.queues.records import DeliveryRange, Move

RELEASED_MAX: Final = 500
"""Maximum number of delivery ranges (consecutive messages in one state) that one ReleaseHolder command releases, so
that its record batch stays below 1 MiB."""
_ONLY_IN_FLIGHT: Final = frozenset((AckType.RELEASE, AckType.REJECT, AckType.RENEW, AckType.DELETE))
_FINISHED: Final = frozenset((AckType.DONE, AckType.DELETE))


def acknowledge(
    draft: Draft, delivery: DeliveryState, command: Acknowledge, now_ms: int
) -> tuple[PenstockError | None, ...]:
    """Applies each acknowledgement of the command independently of the others. Returns None or an error for each."""
    items = command.items
    done = _done_together(items)
    if done is not None:  # messages that were received together are one range, and mostly finished together
        delivery_range = delivery.ranges.get(done.first)
        if (
            delivery_range is not None
            and delivery_range.last == done.last
            and _refusal(delivery_range, done, now_ms) is None
        ):
            draft.drop(delivery, delivery_range.first)
            return (None,) * len(items)
    edits = RangeEdits(delivery)
    errors = tuple(_acknowledge_one(edits, command, item, now_ms) for item in items)
    edits.close(draft)
    return errors


def _done_together(items: Sequence[Acknowledgement]) -> Acknowledgement | None:
    """Returns all acknowledgements as one if they finish consecutive messages held by one consumer, else None."""
    if not items:
        return None
    first, holder, ack_type = items[0].first, items[0].holder, items[0].ack_type
    if ack_type not in _FINISHED:
        return None
    end = first
    for item in items:
        if item.first != end or item.last < end or item.holder != holder or item.ack_type is not ack_type:
            return None
        end = item.last + 1
    return Acknowledgement(first, end - 1, holder, ack_type)


def release_holder(draft: Draft, delivery: DeliveryState, command: ReleaseHolder, now_ms: int) -> int:
    """Releases the messages that a consumer has in flight: those of at most RELEASED_MAX delivery ranges (consecutive
    messages in one state). Returns the number of messages released.

    Scans all ranges, which is acceptable because a consumer leaves only once.
    """
    ack_type = AckType.UNDO if command.is_undone else AckType.RELEASE
    edits = RangeEdits(delivery)
    count = ranges = 0
    for delivery_range in delivery.between(0, delivery.end):
        if delivery_range.holder == command.holder and delivery_range.due_ms > now_ms and delivery_range.move is None:
            edits.replace(delivery_range.first, _released(delivery_range, ack_type, 0))
            count += delivery_range.size
            ranges += 1
            if ranges >= RELEASED_MAX:
                break
    edits.close(draft)
    return count


def _acknowledge_one(
    edits: "RangeEdits", command: Acknowledge, item: Acknowledgement, now_ms: int
) -> PenstockError | None:
    if item.last < item.first:
        return InvalidRequest(f"offsets {item.first} to {item.last}: the last one is before the first")
    pieces = edits.pieces(item.first, item.last)
    if not pieces:
        return AlreadyFinished(f"message {item.first} of {command.group!r} is finished, or was never delivered")
    for _, piece in pieces:
        error = _refusal(piece, item, now_ms)
        if error is not None:
            return error
    for base, piece in pieces:
        part = piece.part(max(piece.first, item.first), min(piece.last, item.last))
        edits.cut(base, piece, part, _acknowledged(part, command, item))
    return None


def _refusal(piece: DeliveryRange, item: Acknowledgement, now_ms: int) -> PenstockError | None:
    """Returns the error with which the acknowledgement `item` is refused for a part of a delivery range; None if it
    is allowed."""
    if piece.move is not None:
        return AlreadyFinished(f"message {item.first} is being moved to another queue")
    if item.ack_type is AckType.CHANGE:  # earlier holders are not persisted, so any holder is accepted
        return None if piece.count else NeverReceived(f"message {item.first} was never received")
    if piece.holder != item.holder or not piece.holder:
        return NotHeld(f"message {item.first} was delivered to another consumer: this receipt is out of date")
    # Of share groups (the acquisition lock of KIP-932) and FIFO queues, receipts expire with the deadline.
    if piece.due_ms <= now_ms and item.ack_type in _ONLY_IN_FLIGHT:
        return NotInFlight(f"the deadline of message {item.first} passed {now_ms - piece.due_ms} ms ago")
    return None


def _acknowledged(part: DeliveryRange, command: Acknowledge, item: Acknowledgement) -> DeliveryRange | None:
    """Returns the new state of an acknowledged part of a delivery range; None if its messages are finished."""
    if item.ack_type in _FINISHED:
        return None
    if item.ack_type is AckType.CHANGE:
        return part._replace(due_ms=item.due_ms, holder=part.holder or item.holder)
    if item.ack_type is AckType.REJECT:
        dead_letter = command.settings.dead_letter
        return None if dead_letter is None else _moved(part, Move(destination_of(part, dead_letter)))
    if item.ack_type is AckType.MOVE:
        if item.destination is None:
            raise InvalidRequest(f"message {item.first} is to be moved, but has no destination")
        return _moved(part, Move(item.destination))
    return _released(part, item.ack_type, item.due_ms)


def _moved(part: DeliveryRange, move: Move) -> DeliveryRange:
    return DeliveryRange(part.first, part.last, part.count, 0, "", part.first_received_ms, part.group, move)


def _released(part: DeliveryRange, ack_type: AckType, due_ms: int) -> DeliveryRange:
    """Returns a delivery range after RELEASE (available from `due_ms` on), RENEW (in flight until `due_ms`) or
    UNDO (available at once, with one delivery less; `due_ms` is ignored)."""
    first, last, count, _, holder, received_ms, group, _ = part
    if ack_type is AckType.RENEW:
        return DeliveryRange(first, last, count, due_ms, holder, received_ms, group)
    if ack_type is AckType.RELEASE:
        return DeliveryRange(first, last, count, due_ms, "", received_ms, group)
    count -= 1
    return DeliveryRange(first, last, count, 0, "", received_ms if count else 0, group)


class RangeEdits:
    """Changes of delivery ranges that are not persisted yet, and may split a range into parts. `close` adds the
    records of these changes to a Draft, the decision under construction."""

    def __init__(self, delivery: DeliveryState) -> None:
        self._delivery = delivery
        self._cut: dict[int, list[DeliveryRange]] = {}
        """The parts that each changed range is split into, in order, by the range's first offset."""

    def pieces(self, first: int, last: int) -> list[tuple[int, DeliveryRange]]:
        """Returns the parts of delivery ranges that overlap with the offsets `first` to `last` (inclusive), each with
        the first offset of its whole range. A range that is not split is one part."""
        return [
            (base.first, piece)
            for base in self._delivery.between(first, last)
            for piece in self._cut.get(base.first, (base,))
            if piece.first <= last and piece.last >= first
        ]

    def cut(self, base: int, piece: DeliveryRange, part: DeliveryRange, after: DeliveryRange | None) -> None:
        """Splits `piece`: replaces its sub-range `part` with `after`, or removes `part` if `after` is None.
        `base`: first offset of the range that `piece` belongs to, as returned by `pieces`."""
        pieces = self._cut.setdefault(base, [self._delivery.ranges[base]])
        at = pieces.index(piece)
        left = [piece.part(piece.first, part.first - 1)] if piece.first < part.first else []
        right = [piece.part(part.last + 1, piece.last)] if part.last < piece.last else []
        pieces[at : at + 1] = [*left, *(() if after is None else (after,)), *right]

    def replace(self, base: int, after: DeliveryRange) -> None:
        """Replaces the whole range that starts at `base`."""
        self._cut[base] = [after]

    def close(self, draft: Draft) -> None:
        """Adds the changes to `draft` (the decision under construction), with adjacent ranges in the same state
        joined. A changed range whose `move` is set is moved to its destination, for example to the dead-letter
        queue."""
        ranges = self._delivery.ranges
        gone = set(self._cut)
        kept: list[DeliveryRange] = []
        for base in sorted(self._cut):
            for piece in self._cut[base]:
                self._join(kept, piece, gone)
        for first in sorted(gone.difference(piece.first for piece in kept)):
            draft.drop(self._delivery, first)
        for piece in kept:
            if ranges.get(piece.first) == piece:
                continue
            if piece.move is None:
                draft.put(self._delivery, piece)
            else:
                draft.move(self._delivery, piece, piece.move.destination)

    def _join(self, kept: list[DeliveryRange], piece: DeliveryRange, gone: set[int]) -> None:
        """Appends `piece` to `kept`, the ranges to persist, joined with adjacent ranges in the same state. Adds the
        first offset of a range that becomes part of another one to `gone`."""
        if piece.group is None:
            before = kept[-1] if kept else None
            if before is None or before.last + 1 != piece.first:
                before = self._delivery.find(piece.first - 1)
                if before is not None and (before.first in self._cut or not before.is_like(piece)):
                    before = None
                if before is not None:
                    kept.append(before)
            if before is not None and before.is_like(piece):
                piece = piece.part(before.first, piece.last)
                kept.pop()
            after = self._delivery.ranges.get(piece.last + 1)
            if after is not None and after.first not in self._cut and after.is_like(piece):
                gone.add(after.first)
                piece = piece.part(piece.first, after.last)
        kept.append(piece)
