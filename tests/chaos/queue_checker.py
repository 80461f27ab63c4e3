"""Finds anomalies in a history of senders and workers of queues. Pure.

All times are of one clock: when a client began a call, and when it had the answer. What the queue has decided, it has
decided in between, and an anomaly is only what no moment in between explains.

- lost: sent and acknowledged, or delivered once, and neither deleted nor a dead letter
- phantom: delivered, though it was never sent
- doubled: one message under two ids, or one dead letter twice
- risen: delivered again after its delete was acknowledged
- stolen: a delete was acknowledged, though the message was delivered to another worker since
- both-ways: a dead letter, though it was deleted in time
- two-holders: delivered again while it was in flight
- miscounted: a receive count that came twice, or went down
- short-life: a dead letter that was not delivered often enough, or does not say where it comes from
- out-of-order: a message of a group was delivered before the one ahead of it was finished
- split-group: a message of a group was delivered while others of it were in flight at another worker
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, pairwise
from typing import Final

from .checker import Anomaly, Outcome, count

__all__ = ["DeadLetter", "Delivery", "Move", "QueueHistory", "Send", "Settlement", "Verdict", "check", "count"]

TOLERANCE_S: Final = 0.3
"""How far clocks of brokers may be apart that were set by the same one at different times."""


class Verdict(StrEnum):
    """What a worker says of a message that it has."""

    DELETE = "delete"
    CHANGE = "change"
    """It wants it for longer, or no longer."""
    REJECT = "reject"
    """It becomes a dead letter at once: only share consumers can ask for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One message that was sent. A send is repeated with the same deduplication id until it is answered."""

    queue: str
    value: str
    began_s: float
    ended_s: float
    outcome: Outcome
    message_id: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message in the answer to one receive."""

    key: str
    """No other delivery has it."""
    call: str
    """The receive: others of the same answer have it too, in the order of the history."""
    queue: str
    value: str
    began_s: float
    ended_s: float
    count: int
    hold_s: float = 0.0
    """For how long it is in flight at the worker; 0 if that is not known."""
    message_id: str = ""
    """Empty if the worker did not learn it."""
    group: str = ""
    sequence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a worker said of a delivery, and whether that was taken. FAIL: it was refused."""

    key: str
    verdict: Verdict
    began_s: float
    ended_s: float = math.inf
    outcome: Outcome = Outcome.INFO
    hold_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What lies in a dead-letter queue in the end, and what it says of itself."""

    queue: str
    """Where it was sent to."""
    value: str
    message_id: str
    count: int
    source: str
    """The queue that it says it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A task that moved dead letters back: they have a new life, and their counts begin again."""

    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHistory:
    """All that is known in the end."""

    sends: Sequence[Send] = ()
    deliveries: Sequence[Delivery] = ()
    settlements: Sequence[Settlement] = ()
    dead: Sequence[DeadLetter] = ()
    moves: Sequence[Move] = ()
    max_receives: Mapping[str, int] | None = None
    """By queue, after how many deliveries a message is dead; for those not named, never."""


def check(history: QueueHistory) -> list[Anomaly]:
    """All anomalies of a history."""
    return list(_Analysis(history).anomalies())


class _Life:
    """Everything about one message."""

    def __init__(self) -> None:
        self.send: Send | None = None
        self.deliveries: list[Delivery] = []
        self.settlements: list[tuple[Delivery, Settlement]] = []
        self.dead: list[DeadLetter] = []

    def finishing(self) -> Iterator[tuple[Delivery, Settlement]]:
        """Deletes that have happened, or may have."""
        for delivery, settlement in self.settlements:
            if settlement.verdict is Verdict.DELETE and settlement.outcome is not Outcome.FAIL:
                yield delivery, settlement

    @property
    def was_rejected(self) -> bool:
        return any(settlement.verdict is Verdict.REJECT for _, settlement in self.settlements)


class _Analysis:
    """A history, looked at from all sides."""

    def __init__(self, history: QueueHistory) -> None:
        self._history = history
        self._lives: dict[tuple[str, str], _Life] = defaultdict(_Life)
        self._said: dict[str, list[Settlement]] = defaultdict(list)
        by_key = {delivery.key: delivery for delivery in history.deliveries}
        for send in history.sends:
            self._lives[send.queue, send.value].send = send
        for delivery in history.deliveries:
            self._lives[delivery.queue, delivery.value].deliveries.append(delivery)
        for settlement in history.settlements:
            delivery = by_key[settlement.key]
            self._said[settlement.key].append(settlement)
            self._lives[delivery.queue, delivery.value].settlements.append((delivery, settlement))
        for letter in history.dead:
            self._lives[letter.queue, letter.value].dead.append(letter)

    def anomalies(self) -> Iterator[Anomaly]:
        for (queue, value), life in self._lives.items():
            for name, what in self._of_life(queue, life):
                yield Anomaly(name=name, key=queue, what=f"{value}: {what}")
        yield from self._out_of_order()
        yield from self._split_groups()

    def _of_life(self, queue: str, life: _Life) -> Iterator[tuple[str, str]]:
        yield from _lost(life)
        yield from _doubled(life)
        yield from self._risen(queue, life)
        yield from self._stolen(queue, life)
        yield from self._both_ways(life)
        yield from self._bad_pairs(life)
        yield from self._short_life(queue, life)

    # -- what follows from calls

    def _held_until_s(self, delivery: Delivery) -> float:
        """Until when it is surely its worker's, unless that has deleted it."""
        until_s = delivery.began_s + delivery.hold_s
        for said in self._said[delivery.key]:
            if said.verdict is Verdict.DELETE:
                continue
            wanted_s = said.began_s + said.hold_s
            # One that was refused may have been done by an attempt before, whose answer was lost between brokers.
            until_s = wanted_s if said.outcome is Outcome.OK else min(until_s, wanted_s)
        return until_s - TOLERANCE_S

    def _may_have_moved(self, one: Delivery, other: Delivery) -> bool:
        """Whether a move task ran at any time between: then counts say nothing of which was first."""
        first_s, last_s = min(one.began_s, other.began_s), max(one.ended_s, other.ended_s)
        return any(move.began_s < last_s and move.ended_s > first_s for move in self._history.moves)

    def _may_die(self, queue: str, life: _Life) -> bool:
        """Whether it has, or may have, been a dead letter at any time: the answer to its last receive may be lost."""
        limit = (self._history.max_receives or {}).get(queue, math.inf)
        return bool(life.dead) or life.was_rejected or any(each.count >= limit - 1 for each in life.deliveries)

    # -- one message

    def _deleted(self, queue: str, life: _Life) -> Iterator[tuple[Delivery, Settlement]]:
        """Deletes that have surely happened: a late one of what has died meanwhile is answered with a yes, too."""
        for delivery, settlement in life.finishing():
            is_sure = self._is_in_time(delivery, settlement) or not self._may_die(queue, life)
            if settlement.outcome is Outcome.OK and is_sure:
                yield delivery, settlement

    def _is_in_time(self, delivery: Delivery, settlement: Settlement) -> bool:
        return settlement.ended_s < self._held_until_s(delivery)

    def _risen(self, queue: str, life: _Life) -> Iterator[tuple[str, str]]:
        for by, settlement in self._deleted(queue, life):
            for delivery in life.deliveries:
                if delivery.began_s > settlement.ended_s:
                    late_s = delivery.began_s - settlement.ended_s
                    yield "risen", f"asked for by {delivery.key} {late_s:.2f} s after {by.key} had deleted it"

    def _stolen(self, queue: str, life: _Life) -> Iterator[tuple[str, str]]:
        """A late delete of what another one has deleted is answered with a yes."""
        for delivery, settlement in self._deleted(queue, life):
            others = (said for by, said in life.finishing() if by is not delivery)
            is_late = not self._is_in_time(delivery, settlement)
            if is_late and any(said.began_s < settlement.ended_s for said in others):
                continue
            for other in life.deliveries:
                if other.count > delivery.count and not self._may_have_moved(delivery, other):
                    yield "stolen", f"deleted as delivery {delivery.count}, and {other.key} has {other.count}"

    def _both_ways(self, life: _Life) -> Iterator[tuple[str, str]]:
        for delivery, settlement in life.finishing():
            is_sure = settlement.outcome is Outcome.OK and self._is_in_time(delivery, settlement)
            if life.dead and is_sure:
                yield "both-ways", f"deleted by {delivery.key}, and a dead letter"

    def _bad_pairs(self, life: _Life) -> Iterator[tuple[str, str]]:
        for one, other in combinations(sorted(life.deliveries, key=lambda each: each.count), 2):
            if self._may_have_moved(one, other):
                continue
            if one.count == other.count:
                yield "miscounted", f"{one.key} and {other.key} are both delivery {one.count}"
            elif one.began_s > other.ended_s:
                yield "miscounted", f"{one.key} is delivery {one.count}, after {other.key}, which is {other.count}"
            elif other.ended_s < self._held_until_s(one):
                early_s = self._held_until_s(one) - other.ended_s
                yield "two-holders", f"{other.key} has it {early_s:.2f} s before the time of {one.key} is up"

    def _short_life(self, queue: str, life: _Life) -> Iterator[tuple[str, str]]:
        limit = (self._history.max_receives or {}).get(queue, 0)
        for letter in life.dead:
            if letter.source != queue:
                yield "short-life", f"says that it comes from {letter.source!r}"
            if letter.count < limit and not life.was_rejected:
                yield "short-life", f"died after {letter.count} of {limit} deliveries"

    # -- message groups

    def _groups(self) -> dict[tuple[str, str], list[Send]]:
        found: dict[tuple[str, str], list[Send]] = defaultdict(list)
        for send in self._history.sends:
            if send.group:
                found[send.queue, send.group].append(send)
        return found

    def _out_of_order(self) -> Iterator[Anomaly]:
        calls: dict[tuple[str, str, str], Delivery] = {}
        for delivery in self._history.deliveries:
            calls.setdefault((delivery.call, delivery.queue, delivery.value), delivery)
        places = {id(delivery): place for place, delivery in enumerate(self._history.deliveries)}
        for (queue, group), sends in self._groups().items():
            sequences = [self._sequence(queue, send.value) for send in sends]
            if any(one >= other for one, other in pairwise(each for each in sequences if each)):
                yield Anomaly(name="out-of-order", key=queue, what=f"sequence numbers of group {group} do not grow")
            there = [send for send in sends if self._lives[queue, send.value].deliveries]
            for before, send in pairwise(there):
                done = [said.began_s for _, said in self._lives[queue, before.value].finishing()]
                first_s = min(done, default=math.inf)
                for delivery in self._lives[queue, send.value].deliveries:
                    together = calls.get((delivery.call, queue, before.value))
                    is_behind = together is not None and places[id(together)] < places[id(delivery)]
                    if not is_behind and first_s > delivery.ended_s:
                        what = f"{send.value} came to {delivery.key} before {before.value} was finished"
                        yield Anomaly(name="out-of-order", key=queue, what=what)

    def _sequence(self, queue: str, value: str) -> str:
        return next((each.sequence for each in self._lives[queue, value].deliveries), "")

    def _split_groups(self) -> Iterator[Anomaly]:
        groups: dict[tuple[str, str], list[Delivery]] = defaultdict(list)
        for delivery in self._history.deliveries:
            if delivery.group:
                groups[delivery.queue, delivery.group].append(delivery)
        for (queue, group), deliveries in groups.items():
            deliveries.sort(key=lambda each: each.ended_s)
            ends = [each.ended_s for each in deliveries]
            for held in deliveries:
                done = [said.began_s for said in self._said[held.key] if said.verdict is Verdict.DELETE]
                until_s = min([self._held_until_s(held), *done])
                for other in deliveries[bisect_right(ends, held.ended_s) : bisect_right(ends, until_s)]:
                    if other.call != held.call and other.began_s >= held.ended_s:
                        what = f"{other.value} of {group} came to {other.key} while {held.key} had {held.value}"
                        yield Anomaly(name="split-group", key=queue, what=what)


def _lost(life: _Life) -> Iterator[tuple[str, str]]:
    was_there = bool(life.deliveries) or (life.send is not None and life.send.outcome is Outcome.OK)
    if life.send is None:
        yield "phantom", f"{len(life.deliveries)} deliveries, {len(life.dead)} dead letters"
    if was_there and not life.dead and not any(True for _ in life.finishing()):
        yield "lost", f"delivered {len(life.deliveries)} times, and never finished"


def _doubled(life: _Life) -> Iterator[tuple[str, str]]:
    ids = {each.message_id for each in (*life.deliveries, *life.dead)} | {life.send.message_id if life.send else ""}
    if len(ids - {""}) > 1:
        yield "doubled", f"its ids are {sorted(ids - {''})}"
    if len(life.dead) > 1:
        yield "doubled", f"a dead letter {len(life.dead)} times"
