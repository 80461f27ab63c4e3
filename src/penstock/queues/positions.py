"""Where a group is, changed as a whole: purged, trimmed, set back, forgotten. Decided, not done. Pure.

Such a decision may be larger than a batch, and is then persisted in several, of which the last ones may fail. So what
belongs together is close together at its start (a parcel that is cut), and to decide it once more finishes it.
"""

from penstock.queues.delivery import Delivery
from penstock.queues.draft import Draft
from penstock.queues.records import NO_SEQUENCE, Parcel, position_record


def purge(draft: Draft, delivery: Delivery, end: int) -> None:
    """All below is done, but what is on its way elsewhere goes there."""
    if end > delivery.end:
        draft.position(delivery, end)
    _clear(draft, delivery, [parcel for parcel in delivery.between(0, end - 1) if parcel.move is None], end)


def trim(draft: Draft, delivery: Delivery, start: int) -> None:
    """The log has lost all below, also what is on its way elsewhere: whether its copy arrived or not."""
    if start > delivery.end:
        draft.position(delivery, start)
    _clear(draft, delivery, list(delivery.between(0, start - 1)), start)


def set_position(draft: Draft, delivery: Delivery, end: int) -> None:
    """All from here on is waiting, all below is done, whatever was before.

    The position goes last: it must not be below a parcel, whose messages would be waiting and in it at once.
    """
    _clear(draft, delivery, list(delivery.parcels.values()), None)
    draft.position(delivery, end)


def forget(draft: Draft, delivery: Delivery) -> None:
    """Nothing is left; the position goes last, so that to forget can be tried again."""
    _clear(draft, delivery, list(delivery.parcels.values()), None)
    draft.records.append(position_record(delivery.key, delivery.name, None))


def _clear(draft: Draft, delivery: Delivery, parcels: list[Parcel], start: int | None) -> None:
    """Drop parcels; of one that reaches beyond `start`, the rest is kept."""
    for parcel in parcels:
        if start is not None and parcel.last >= start:
            draft.put(delivery, parcel.part(start, parcel.last))
            draft.drop(delivery, parcel.first)
    for parcel in parcels:
        if parcel.move is not None and parcel.move.sequence != NO_SEQUENCE:
            draft.give_up(parcel)
            draft.drop(delivery, parcel.first)
    for parcel in parcels:
        is_cut = start is not None and parcel.last >= start
        if not is_cut and (parcel.move is None or parcel.move.sequence == NO_SEQUENCE):
            draft.drop(delivery, parcel.first)
