"""Purges, trims, repositions or deletes the delivery state of a whole share group. Pure.

The records of such a decision may exceed one batch, and later batches may fail. So records that belong together (of
one split range) come first, which puts them in the same batch, and repeating the command completes it.
"""

from penstock.queues.delivery_state import DeliveryState
from penstock.queues.draft import Draft
from penstock.queues.records import NO_SEQUENCE, DeliveryRange, position_record


def purge(draft: Draft, delivery: DeliveryState, end: int) -> None:
    """Finishes all messages below `end` except messages that are being moved to another partition."""
    if end > delivery.end:
        draft.position(delivery, end)
    _clear(
        draft,
        delivery,
        [delivery_range for delivery_range in delivery.between(0, end - 1) if delivery_range.move is None],
        end,
    )


def trim(draft: Draft, delivery: DeliveryState, start: int) -> None:
    """Drops all delivery ranges below the log start offset, including ranges that are being moved."""
    if start > delivery.end:
        draft.position(delivery, start)
    _clear(draft, delivery, list(delivery.between(0, start - 1)), start)


def set_position(draft: Draft, delivery: DeliveryState, end: int) -> None:
    """Makes messages from `end` on available, and finishes messages below it.

    The position's record comes last: a position below an existing range would make its messages available twice.
    """
    _clear(draft, delivery, list(delivery.ranges.values()), None)
    draft.position(delivery, end)


def forget(draft: Draft, delivery: DeliveryState) -> None:
    """Deletes all state of a share group. The position is deleted last, so that the command can be repeated."""
    _clear(draft, delivery, list(delivery.ranges.values()), None)
    draft.records.append(position_record(delivery.key, delivery.name, None))


def _clear(draft: Draft, delivery: DeliveryState, ranges: list[DeliveryRange], start: int | None) -> None:
    """Drops these delivery ranges, except the part of a range at or above `start`; if that is None, keeps nothing."""
    for delivery_range in ranges:
        if start is not None and delivery_range.last >= start:
            draft.put(delivery, delivery_range.part(start, delivery_range.last))
            draft.drop(delivery, delivery_range.first)
    for delivery_range in ranges:
        if delivery_range.move is not None and delivery_range.move.sequence != NO_SEQUENCE:
            draft.abandon_move(delivery_range)
            draft.drop(delivery, delivery_range.first)
    for delivery_range in ranges:
        is_cut = start is not None and delivery_range.last >= start
        if not is_cut and (delivery_range.move is None or delivery_range.move.sequence == NO_SEQUENCE):
            draft.drop(delivery, delivery_range.first)
