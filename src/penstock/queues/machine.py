"""The delivery state of one partition: that of every share group, and so of every queue, on it. Pure.

It runs in the partition's companion log; see foundation/decision.py. What is acquired, settled or moved by one
decision is one batch, so that a message is never in two states or in none. Time alone changes nothing that is
persisted: a message whose deadline has passed is available because it has.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.foundation.decision import Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import InvalidRequest
from penstock.queues import positions
from penstock.queues.acquiring import acquire
from penstock.queues.claiming import claim
from penstock.queues.commands import (
    Acquire,
    Acquired,
    Claim,
    Claimed,
    Destination,
    Forget,
    GiveBack,
    MoveDone,
    MoveFailed,
    NeedProducer,
    Purge,
    Reschedule,
    SetPosition,
    SetProducer,
    Settle,
    Trimmed,
)
from penstock.queues.delivery import Delivery
from penstock.queues.draft import Draft
from penstock.queues.errors import AlreadyFinished, DamagedState, TooManyGroups
from penstock.queues.fifo import acquire_fifo
from penstock.queues.moving import Moves, carry
from penstock.queues.records import (
    NOWHERE,
    PARCEL,
    POSITION,
    PRODUCER,
    ROUTE,
    Parcel,
    parcel_record,
    position_record,
    producer_record,
    purge_mark,
    purge_record,
    read_parcel,
    read_position,
    read_producer,
    read_route,
    route_record,
)
from penstock.queues.rescheduling import reschedule
from penstock.queues.settings import GROUPS_MAX
from penstock.queues.settling import give_back, settle

AGAIN_MS: Final = 1000
"""After what time something is asked for, or tried, again."""
HOLDER_CHARS_MAX: Final = 1024
"""Of a holder's name, which is in every record of what it holds."""


class QueueMachine:
    """Decides who gets which messages, and what becomes of them."""

    keeps_wall_time: Final = True
    """Its deadlines are times of the wall clock."""

    def __init__(self) -> None:
        self._deliveries: dict[str, Delivery] = {}
        self._moves = Moves()
        self._loaded_ms: int | None = None
        """Set until what was under way when this place took over has been taken up."""
        self._again_ms = 0
        self._deciders: Final[dict[type, Callable[[Draft, Any, int], Any]]] = {
            Acquire: self._acquire,
            Claim: self._claim,
            Settle: self._settle,
            GiveBack: self._give_back,
            MoveDone: self._move_done,
            MoveFailed: self._move_failed,
            SetProducer: self._set_producer,
            SetPosition: self._set_position,
            Purge: self._purge,
            Trimmed: self._trim,
            Forget: self._forget,
            Reschedule: self._reschedule,
        }

    # -- asked without the log

    def group(self, name: str) -> Delivery | None:
        """What is known of a group. Only to be looked at; call its `advance` or `counts` for what is due by now."""
        return self._deliveries.get(name)

    @property
    def groups(self) -> list[str]:
        return list(self._deliveries)

    @property
    def start(self) -> int | None:
        """Everything below is done for all groups; None if there is none."""
        return min((delivery.start for delivery in self._deliveries.values()), default=None)

    def purged_to(self, name: str) -> int:
        """The deduplication ids of a group's messages below this offset are forgotten."""
        route = self._moves.routes.get(purge_mark(name))
        return 0 if route is None else route.producer_id

    def purges(self) -> dict[Destination, int]:
        """The same for all groups that were purged, by their marks."""
        routes = self._moves.routes.items()
        return {mark: route.producer_id for mark, route in routes if mark.partition == NOWHERE}

    def summary(self) -> Iterator[StateRecord]:
        """Records that say all that is known: with these appended, a log that is not compacted can be trimmed."""
        if self._moves.producer_id is not None:
            yield producer_record(self._moves.producer_id)
        for destination, route in self._moves.routes.items():
            yield route_record(destination, route)
        for delivery in self._deliveries.values():
            yield position_record(delivery.key, delivery.name, delivery.end)
        # In the order in which they were decided on: what is to be moved keeps its turn.
        for delivery in self._deliveries.values():
            for parcel in delivery.parcels.values():
                if parcel.move is None:
                    yield parcel_record(delivery.prefix, delivery.name, parcel)
        for key in self._moves.in_turn():
            delivery = self._deliveries[key.group]
            yield parcel_record(delivery.prefix, delivery.name, delivery.parcels[key.first])

    # -- deciding

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        decider = self._deciders.get(type(command))
        if decider is None:
            raise InvalidRequest(f"delivery state takes no {type(command).__name__}")
        draft = Draft(self._moves)
        value = decider(draft, command, now_ms)
        return Decision(
            persist=tuple(draft.records),
            replies=(Reply(ticket, value),),
            effects=tuple(draft.effects),
            is_whole=type(command) not in _IN_PARTS,
            # "It is done already" means that it is gone for good: an old leader may only not know of it yet.
            must_lead=not draft.records and type(command) in _TOLD_BY_LEADERS,
        )

    def _acquire(self, draft: Draft, command: Acquire, now_ms: int) -> tuple[Acquired, ...]:
        check_holder(command.holder)
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            if not command.fresh and command.fresh_from < 0:
                return ()
            delivery = self._begin(draft, command)
        else:
            delivery.advance(now_ms)
        if command.settings.is_fifo:
            return acquire_fifo(draft, delivery, command, now_ms)
        return acquire(draft, delivery, command, now_ms)

    def _claim(self, draft: Draft, command: Claim, now_ms: int) -> Claimed:
        check_holder(command.holder)
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            if not command.fresh and command.fresh_from < 0:
                return Claimed((), -1)
            delivery = self._begin(draft, command)
        else:
            delivery.advance(now_ms)
        return claim(draft, delivery, command, now_ms)

    def _begin(self, draft: Draft, command: Acquire | Claim) -> Delivery:
        """A group that nothing is known of begins where fresh messages were read."""
        self._check_room()
        delivery = Delivery(command.group, command.fresh_from if command.fresh_from >= 0 else command.fresh[0].offset)
        draft.position(delivery, delivery.end)
        return delivery

    def _settle(self, draft: Draft, command: Settle, now_ms: int) -> tuple[Any, ...]:
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            return (AlreadyFinished(f"nothing of {command.group!r} was delivered here"),) * len(command.items)
        return settle(draft, delivery, command, now_ms)

    def _give_back(self, draft: Draft, command: GiveBack, now_ms: int) -> int:
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            return 0
        return give_back(draft, delivery, command, now_ms)

    # -- the group as a whole

    def _set_position(self, draft: Draft, command: SetPosition, now_ms: int) -> None:
        if command.end < 0:
            raise InvalidRequest(f"a group cannot begin at offset {command.end}")
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            self._check_room()
            delivery = Delivery(command.group)
        self._again_ms = now_ms  # others may set out now
        if command.end < self.purged_to(command.group):
            draft.records.append(purge_record(command.group, command.end))  # other messages get these offsets
        positions.set_position(draft, delivery, command.end)

    def _purge(self, draft: Draft, command: Purge, now_ms: int) -> None:
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            self._check_room()
            delivery = Delivery(command.group, command.end)
            draft.position(delivery, command.end)
        positions.purge(draft, delivery, command.end)
        if command.forgets_ids and command.end > self.purged_to(command.group):
            # Last: if only a part is persisted, no id is forgotten of a message that is still there.
            draft.records.append(purge_record(command.group, command.end))

    def _trim(self, draft: Draft, command: Trimmed, now_ms: int) -> None:
        delivery = self._deliveries.get(command.group)
        if delivery is not None:
            self._again_ms = now_ms
            positions.trim(draft, delivery, command.start)

    def _forget(self, draft: Draft, command: Forget, now_ms: int) -> None:
        delivery = self._deliveries.get(command.group)
        if delivery is not None:
            self._again_ms = now_ms
            if self.purged_to(command.group):
                draft.records.append(purge_record(command.group, None))
            positions.forget(draft, delivery)

    def _reschedule(self, draft: Draft, command: Reschedule, now_ms: int) -> Reschedule | None:
        return reschedule(draft, self._deliveries, command, now_ms)

    def _check_room(self) -> None:
        if len(self._deliveries) >= GROUPS_MAX:
            raise TooManyGroups(
                f"{len(self._deliveries)} groups share this partition, at most {GROUPS_MAX}; delete those not needed"
            )

    # -- moving away

    def _moving(self, command: MoveDone | MoveFailed) -> tuple[Delivery, Parcel] | None:
        """What a command about a move means, if that is under way still."""
        delivery = self._deliveries.get(command.group)
        parcel = None if delivery is None else delivery.parcels.get(command.offset)
        meant = (command.destination, *command.producer, command.sequence)
        if delivery is None or parcel is None or parcel.move != meant:
            return None
        return delivery, parcel

    def _move_done(self, draft: Draft, command: MoveDone, now_ms: int) -> None:
        """It is finished here, and the next one sets out."""
        found = self._moving(command)
        if found is None:
            return
        draft.drop(found[0], command.offset)
        key = self._moves.next_to(command.destination)
        if key is not None and self._moves.producer_id is not None:
            delivery = self._deliveries[key.group]
            draft.set_out(delivery, delivery.parcels[key.first])

    def _move_failed(self, draft: Draft, command: MoveFailed, now_ms: int) -> None:
        """It stays here, as if its last holder had let it go."""
        found = self._moving(command)
        if found is None:
            return
        self._again_ms = now_ms
        delivery, (first, last, count, _, _, received_ms, group, _) = found
        draft.give_up(found[1])
        draft.put(delivery, Parcel(first, last, count, command.due_ms, "", received_ms, group))

    def _set_producer(self, draft: Draft, command: SetProducer, now_ms: int) -> None:
        if self._moves.producer_id is None:
            self._again_ms = now_ms
            draft.records.append(producer_record(command.producer_id))

    # -- waking

    @property
    def wake_at_ms(self) -> int | None:
        if self._loaded_ms is not None:
            return self._loaded_ms
        return self._again_ms if self._moves.is_idle_somewhere else None

    def wake(self, now_ms: int) -> Decision:
        if self._loaded_ms is not None:
            return self._resume()
        self._again_ms = now_ms + AGAIN_MS
        draft = Draft(self._moves)
        for destination in self._moves.idle:
            if self._moves.producer_id is None:
                return Decision(effects=(NeedProducer(),))
            key = self._moves.next_to(destination)
            if key is not None:
                delivery = self._deliveries[key.group]
                draft.set_out(delivery, delivery.parcels[key.first])
        return Decision(persist=tuple(draft.records), effects=tuple(draft.effects), is_whole=True)

    def _resume(self) -> Decision:
        """Nobody knows how far the one before came. Apart from all else, so that it cannot fail to be persisted."""
        self._loaded_ms = None
        under_way = self._moves.under_way.values()
        return Decision(
            effects=tuple(carry(key.group, self._deliveries[key.group].parcels[key.first]) for key in under_way)
        )

    # -- applying

    def apply(self, record: StateRecord, producer_id: int) -> None:
        kind = record.key[0] if record.key else 0
        if kind == PARCEL:
            self._apply_parcel(record)
        elif kind == POSITION:
            name, end = read_position(record)
            if end is None:
                self._deliveries.pop(name, None)
            else:
                self._delivery_of(name).end = end
        elif kind == ROUTE:
            destination, route = read_route(record)
            if route is None:
                self._moves.routes.pop(destination, None)
            else:
                self._moves.routes[destination] = route
        elif kind == PRODUCER:
            self._moves.producer_id = read_producer(record)
        else:
            raise DamagedState(
                f"delivery state {record.key.hex()} is of kind {kind}, which this broker does not know"
            )

    def _apply_parcel(self, record: StateRecord) -> None:
        key, parcel = read_parcel(record)
        if parcel is None:
            delivery = self._deliveries.get(key.group)
            if delivery is None:
                return
            before = delivery.parcels.get(key.first)
            delivery.drop(key.first)
        else:
            delivery = self._delivery_of(key.group)
            before = delivery.parcels.get(key.first)
            delivery.put(parcel)
        if before is not None and before.move is not None:
            self._moves.leave(key, before.move)
        if parcel is not None and parcel.move is not None:
            self._moves.enter(key, parcel.move)

    def _delivery_of(self, name: str) -> Delivery:
        delivery = self._deliveries.get(name)
        if delivery is None:
            delivery = self._deliveries[name] = Delivery(name)
        return delivery

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Nothing here is part of a transaction."""

    def loaded(self, now_ms: int) -> None:
        self._loaded_ms = now_ms
        self._again_ms = now_ms


_IN_PARTS: Final = frozenset((SetPosition, Purge, Trimmed, Forget))
"""Commands whose decisions may be larger than a batch, and hold in part; see positions.py."""
_TOLD_BY_LEADERS: Final = frozenset((Settle, SetPosition, Purge, Forget))
"""Commands that change nothing only if nothing is left to be changed: who has been replaced cannot know that."""


def check_holder(holder: str) -> None:
    """Raises InvalidRequest."""
    if not 0 < len(holder) <= HOLDER_CHARS_MAX:
        raise InvalidRequest(f"a holder's name has {len(holder)} characters, expected 1 to {HOLDER_CHARS_MAX}")
