"""What becomes of messages that someone holds: decided, not done. Pure.

An item may speak of a part of a parcel, or of several; items of one command may speak of parts of the same parcel.
So each parcel that is spoken of is cut into pieces, and what is left of it is persisted at the end.
"""

from collections.abc import Sequence
from typing import Final

from penstock.foundation.errors import InvalidRequest, PenstockError
from penstock.queues.commands import GiveBack, Item, Settle, Verdict
from penstock.queues.delivery import Delivery
from penstock.queues.draft import Draft, destination_of
from penstock.queues.errors import AlreadyFinished, NeverReceived, NotHeld, NotInFlight
from penstock.queues.records import Move, Parcel

GIVEN_BACK_MAX: Final = 500
"""Parcels that one decision lets go: it is one batch, and logs take those of up to 1 MiB."""
_ONLY_IN_FLIGHT: Final = frozenset((Verdict.RELEASE, Verdict.REJECT, Verdict.RENEW, Verdict.DELETE))
_FINISHED: Final = frozenset((Verdict.DONE, Verdict.DELETE))


def settle(draft: Draft, delivery: Delivery, command: Settle, now_ms: int) -> tuple[PenstockError | None, ...]:
    """Decide each item on its own."""
    items = command.items
    done = _done_together(items)
    if done is not None:  # what was received together is one parcel, and is finished together, mostly
        parcel = delivery.parcels.get(done.first)
        if parcel is not None and parcel.last == done.last and _refusal(parcel, done, now_ms) is None:
            draft.drop(delivery, parcel.first)
            return (None,) * len(items)
    table = Table(delivery)
    errors = tuple(_settle_one(table, command, item, now_ms) for item in items)
    table.close(draft)
    return errors


def _done_together(items: Sequence[Item]) -> Item | None:
    """All items as one, if one holder has finished what they speak of, and they follow on one another."""
    if not items:
        return None
    first, holder, verdict = items[0].first, items[0].holder, items[0].verdict
    if verdict not in _FINISHED:
        return None
    end = first
    for item in items:
        if item.first != end or item.last < end or item.holder != holder or item.verdict is not verdict:
            return None
        end = item.last + 1
    return Item(first, end - 1, holder, verdict)


def give_back(draft: Draft, delivery: Delivery, command: GiveBack, now_ms: int) -> int:
    """Let go of what a holder has in flight, at most so much that it is one batch; how many messages.

    Goes through all parcels: whoever is gone is gone once.
    """
    verdict = Verdict.UNDO if command.is_undone else Verdict.RELEASE
    table = Table(delivery)
    count = parcels = 0
    for parcel in delivery.between(0, delivery.end):
        if parcel.holder == command.holder and parcel.due_ms > now_ms and parcel.move is None:
            table.replace(parcel.first, _after(parcel, verdict, 0))
            count += parcel.size
            parcels += 1
            if parcels >= GIVEN_BACK_MAX:
                break
    table.close(draft)
    return count


def _settle_one(table: "Table", command: Settle, item: Item, now_ms: int) -> PenstockError | None:
    if item.last < item.first:
        return InvalidRequest(f"offsets {item.first} to {item.last}: the last one is before the first")
    pieces = table.pieces(item.first, item.last)
    if not pieces:
        return AlreadyFinished(f"message {item.first} of {command.group!r} is finished, or was never delivered")
    for _, piece in pieces:
        error = _refusal(piece, item, now_ms)
        if error is not None:
            return error
    for base, piece in pieces:
        part = piece.part(max(piece.first, item.first), min(piece.last, item.last))
        table.cut(base, piece, part, _verdict(part, command, item))
    return None


def _refusal(piece: Parcel, item: Item, now_ms: int) -> PenstockError | None:
    """Why an item does not count, if it does not."""
    if piece.move is not None:
        return AlreadyFinished(f"message {item.first} is being moved to another queue")
    if item.verdict is Verdict.CHANGE:  # earlier holders are not persisted, so any holder counts
        return None if piece.count else NeverReceived(f"message {item.first} was never received")
    if piece.holder != item.holder or not piece.holder:
        return NotHeld(f"message {item.first} went to someone else: this receipt is out of date")
    # The acquisition lock of KIP-932 and the visibility timeout of a FIFO queue end for good.
    if piece.due_ms <= now_ms and item.verdict in _ONLY_IN_FLIGHT:
        return NotInFlight(f"the time for message {item.first} was up {now_ms - piece.due_ms} ms ago")
    return None


def _verdict(part: Parcel, command: Settle, item: Item) -> Parcel | None:
    """What becomes of a piece; None: it is finished."""
    if item.verdict in _FINISHED:
        return None
    if item.verdict is Verdict.CHANGE:
        return part._replace(due_ms=item.due_ms, holder=part.holder or item.holder)
    if item.verdict is Verdict.REJECT:
        dead_letter = command.settings.dead_letter
        return None if dead_letter is None else _leaving(part, Move(destination_of(part, dead_letter)))
    if item.verdict is Verdict.MOVE:
        if item.destination is None:
            raise InvalidRequest(f"message {item.first} is to be moved, but nobody says where to")
        return _leaving(part, Move(item.destination))
    return _after(part, item.verdict, item.due_ms)


def _leaving(part: Parcel, move: Move) -> Parcel:
    return Parcel(part.first, part.last, part.count, 0, "", part.first_received_ms, part.group, move)


def _after(part: Parcel, verdict: Verdict, due_ms: int) -> Parcel:
    """A piece that someone has let go, or holds for longer."""
    first, last, count, _, holder, received_ms, group, _ = part
    if verdict is Verdict.RENEW:
        return Parcel(first, last, count, due_ms, holder, received_ms, group)
    if verdict is Verdict.RELEASE:
        return Parcel(first, last, count, due_ms, "", received_ms, group)
    count -= 1
    return Parcel(first, last, count, 0, "", received_ms if count else 0, group)


class Table:
    """Parcels, and the pieces that they are cut into, until `close` has the draft persist them."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._cut: dict[int, list[Parcel]] = {}
        """By the first offset of a parcel that was cut, what is left of it, in order."""

    def pieces(self, first: int, last: int) -> list[tuple[int, Parcel]]:
        """All that lies between two offsets, with the parcel that each was a part of."""
        return [
            (base.first, piece)
            for base in self._delivery.between(first, last)
            for piece in self._cut.get(base.first, (base,))
            if piece.first <= last and piece.last >= first
        ]

    def cut(self, base: int, piece: Parcel, part: Parcel, after: Parcel | None) -> None:
        """A part of a piece has another fate; None: it is finished."""
        pieces = self._cut.setdefault(base, [self._delivery.parcels[base]])
        at = pieces.index(piece)
        left = [piece.part(piece.first, part.first - 1)] if piece.first < part.first else []
        right = [piece.part(part.last + 1, piece.last)] if part.last < piece.last else []
        pieces[at : at + 1] = [*left, *(() if after is None else (after,)), *right]

    def replace(self, base: int, after: Parcel) -> None:
        """The whole of a parcel has another fate."""
        self._cut[base] = [after]

    def close(self, draft: Draft) -> None:
        """Persist what differs from before: neighbours of one fate as one, those that go elsewhere on their way."""
        parcels = self._delivery.parcels
        gone = set(self._cut)
        kept: list[Parcel] = []
        for base in sorted(self._cut):
            for piece in self._cut[base]:
                self._join(kept, piece, gone)
        for first in sorted(gone.difference(piece.first for piece in kept)):
            draft.drop(self._delivery, first)
        for piece in kept:
            if parcels.get(piece.first) == piece:
                continue
            if piece.move is None:
                draft.put(self._delivery, piece)
            else:
                draft.move(self._delivery, piece, piece.move.destination)

    def _join(self, kept: list[Parcel], piece: Parcel, gone: set[int]) -> None:
        """Add a piece to those that are kept, as one with its neighbours if they have the same fate."""
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
            after = self._delivery.parcels.get(piece.last + 1)
            if after is not None and after.first not in self._cut and after.is_like(piece):
                gone.add(after.first)
                piece = piece.part(piece.first, after.last)
        kept.append(piece)
