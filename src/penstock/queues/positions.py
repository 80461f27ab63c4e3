"""Purges, trims, repositions or deletes the delivery state of a whole share group. Pure.

The records of such a command may need several batches, and a later batch may fail; then the command can be repeated.
If a delivery range is shortened, the record with its remaining part and the record that drops the range come first,
so that both are in the same batch.
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
    """Sets the share group's end offset: messages from `end` on become available, messages below it are finished.

    The end offset is written last: else, after a crash, messages with a range above it would be available twice.
    """
    _clear(draft, delivery, list(delivery.ranges.values()), None)
    draft.position(delivery, end)


def forget(draft: Draft, delivery: DeliveryState) -> None:
    """Deletes all state of a share group. Its end offset comes last: until then, the command can be repeated."""
    _clear(draft, delivery, list(delivery.ranges.values()), None)
    draft.records.append(position_record(delivery.key, delivery.name, None))


def _clear(draft: Draft, delivery: DeliveryState, ranges: list[DeliveryRange], start: int | None) -> None:
    """Drops these delivery ranges. If `start` is not None, the part of a range at or above that offset remains."""
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
