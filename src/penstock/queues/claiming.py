"""Messages that are taken in hand by their offsets, because somebody has examined them. Decided, not done. Pure.

Whoever works off a queue gets what comes next; whoever mends dead letters has read the topic, and wants some of its
messages and none of the others. Those others stay as they are: nobody has received them. What lies before a message
that is claimed, and was never looked at, is looked at now, and is available.

A claim counts as a delivery, and as none once it is undone (Verdict.UNDO).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from penstock.queues.acquiring import fresh_of
from penstock.queues.commands import Acquired, Claim, Claimed, Fresh
from penstock.queues.delivery import Delivery
from penstock.queues.draft import Draft
from penstock.queues.records import Parcel
from penstock.queues.settings import DELAY_STEP_MS
from penstock.queues.settling import Table

CLAIMED_MAX: Final = 500
"""Parcels that one decision takes from: it is one batch, and logs take those of up to 1 MiB."""


def claim(draft: Draft, delivery: Delivery, command: Claim, now_ms: int) -> Claimed:
    """Decide what of the wanted messages the holder gets. `delivery` has advanced to now."""
    if not command.ranges:
        return Claimed((), delivery.end - 1)
    hands = _Claims(draft, delivery, command, now_ms)
    reached = hands.take_known()
    if reached >= delivery.end - 1 and command.ranges[-1][1] >= delivery.end:
        reached = hands.take_fresh()
    return Claimed(tuple(hands.taken), reached)


class _Claims:
    """What one holder gets by one decision."""

    def __init__(self, draft: Draft, delivery: Delivery, command: Claim, now_ms: int) -> None:
        self._draft = draft
        self._delivery = delivery
        self._command = command
        self._now_ms = now_ms
        self._due_ms = now_ms + command.visibility_ms
        self._room = command.settings.in_flight_max - delivery.in_flight
        self._ours: dict[str, bool] = {}
        """By message group, whether nobody else has it in hand."""
        self.taken: list[Acquired] = []

    # -- what was looked at before

    def take_known(self) -> int:
        """Claim what lies below the end; up to where that is done."""
        delivery = self._delivery
        table = Table(delivery)
        reached = delivery.end - 1
        for at, (base, piece, part) in enumerate(self._wanted_of(table)):
            if at >= CLAIMED_MAX:
                reached = part.first - 1
                break
            held = self._held(part)
            if held is not None:
                table.cut(base, piece, piece.part(held.first, held.last), held)
        table.close(self._draft)
        return reached

    def _wanted_of(self, table: Table) -> Iterator[tuple[int, Parcel, Parcel]]:
        """What is wanted of each parcel, with the piece that it is a part of; pieces may be cut in between."""
        for first, last in self._command.ranges:
            for base, piece in table.pieces(first, last):
                yield base, piece, piece.part(max(piece.first, first), min(piece.last, last))

    def _held(self, part: Parcel) -> Parcel | None:
        """A piece in the holder's hands, or as much of it as there is room for; None if it cannot have it."""
        first, last, count, due_ms, holder, received_ms, group, move = part
        is_ours = holder == self._command.holder
        if move is not None or (due_ms > self._now_ms and not is_ours):
            return None
        if group is not None and not self._is_open(group):
            return None
        if not (is_ours and due_ms > self._now_ms):  # what is in flight has its room already
            last = min(last, first + self._room - 1)
            if last < first:
                return None
            self._room -= last - first + 1
        if not is_ours:
            count, received_ms = count + 1, received_ms or self._now_ms
        held = Parcel(first, last, count, self._due_ms, self._command.holder, received_ms, group)
        self.taken.append(Acquired(first, last, count, received_ms, self._due_ms))
        return held

    def _is_open(self, group: str) -> bool:
        """Whether nobody else has messages of a message group in flight."""
        known = self._ours.get(group)
        if known is None:
            chain = self._delivery.chains.get(group)
            parcels = self._delivery.parcels
            known = self._ours[group] = (
                chain is None
                or not chain.held
                or all(
                    parcels[at].holder == self._command.holder
                    for at in chain.offsets
                    if parcels[at].holder and parcels[at].due_ms > self._now_ms
                )
            )
        return known

    # -- what nobody has looked at

    def take_fresh(self) -> int:
        """Look at messages up to the last that is wanted, and claim those that are; up to where that is done."""
        delivery, command = self._delivery, self._command
        found = fresh_of(delivery, command)
        if found is None:
            return delivery.end - 1
        fresh = [single for one in found for single in _singles(one)]
        starts = [first for first, _ in command.ranges]
        wanted_to = command.ranges[-1][1]
        is_fifo = command.settings.is_fifo
        looked = [one for one in fresh if one.offset <= wanted_to]
        if is_fifo:
            looked = looked[: max(0, command.settings.lookahead_max - len(delivery.parcels))]
        left: Parcel | None = None
        for one in looked:
            at = bisect_right(starts, one.offset) - 1
            is_wanted = at >= 0 and one.offset <= command.ranges[at][1]
            parcel = self._look(one, is_wanted, is_fifo)
            left = self._keep(left, parcel)
        if left is not None:
            self._draft.put(delivery, left)
        end = self._end(looked, fresh)
        if end != delivery.end:
            self._draft.position(delivery, end)
        return end - 1

    def _look(self, one: Fresh, is_wanted: bool, is_fifo: bool) -> Parcel:
        """One message that nobody knew, as it is from now on."""
        due_ms = -(-one.due_ms // DELAY_STEP_MS) * DELAY_STEP_MS if one.due_ms > self._now_ms else 0
        parcel = Parcel(one.offset, one.offset, 0, due_ms, "", 0, one.group if is_fifo else None)
        if not is_wanted:
            return parcel
        return self._held(parcel) or parcel

    def _keep(self, left: Parcel | None, parcel: Parcel) -> Parcel:
        """Neighbours of one fate are one parcel; the one before is persisted when another begins."""
        if left is None:
            return parcel
        if parcel.group is None and left.last + 1 == parcel.first and left.is_like(parcel):
            return left.part(left.first, parcel.last)
        self._draft.put(self._delivery, left)
        return parcel

    def _end(self, looked: Sequence[Fresh], fresh: Sequence[Fresh]) -> int:
        """The group's end: behind what was looked at, and behind what is no message if that was all."""
        end = looked[-1].offset + 1 if looked else self._delivery.end
        return max(end, self._command.fresh_end) if len(looked) == len(fresh) else end


def _singles(fresh: Fresh) -> Iterator[Fresh]:
    """Messages one by one: of a run, some may be wanted and others not."""
    if fresh.run == 1:
        yield fresh
        return
    for offset in range(fresh.offset, fresh.offset + fresh.run):
        yield fresh._replace(offset=offset, run=1)
