"""The delivery state machine of one partition, for all share groups and queues on it. Pure.

Its records are in the partition's companion log, an internal log. All records of a command are written as one batch
(for exceptions see positions.py), so that a message is always in exactly one state. When a visibility timeout or
delay expires, nothing is written: due times are in the records.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.foundation.decision import Decision, Reply, StateRecord, Ticket
from penstock.foundation.errors import InvalidRequest
from penstock.queues import positions
from penstock.queues.acknowledgement import acknowledge, release_holder
from penstock.queues.acquisition import acquire
from penstock.queues.claims import claim
from penstock.queues.commands import (
    Acknowledge,
    Acquire,
    Acquired,
    Claim,
    Claimed,
    DeleteGroup,
    Destination,
    MoveDone,
    MoveFailed,
    NeedProducer,
    Purge,
    ReleaseHolder,
    Reschedule,
    SetPosition,
    SetProducer,
    Trimmed,
)
from penstock.queues.deadlines import reschedule
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.draft import Draft
from penstock.queues.errors import AlreadyFinished, DamagedState, TooManyGroups
from penstock.queues.fifo import acquire_fifo
from penstock.queues.moves import Moves, copy_effect
from penstock.queues.records import (
    DELIVERY_RANGE,
    NOWHERE,
    POSITION,
    PRODUCER,
    ROUTE,
    DeliveryRange,
    position_record,
    producer_record,
    purge_mark,
    purge_record,
    range_record,
    read_position,
    read_producer,
    read_range,
    read_route,
    route_record,
)
from penstock.queues.settings import GROUPS_MAX

RETRY_MS: Final = 1000
"""Interval, in milliseconds, at which requests for a producer id and pending moves are retried."""
HOLDER_CHARS_MAX: Final = 1024
"""Maximum length of a consumer's name, in characters; each record of a range in flight contains the name."""


class QueueMachine:
    """Decides on deliveries, acknowledgements, claims (deliveries by offset), moves to other partitions, and
    positions of all share groups and queues of a partition."""

    keeps_wall_time: Final = True
    """Tells the state machine runtime to pass wall-clock times as `now_ms`, because the ends of visibility timeouts
    and delays are stored as wall-clock times."""

    def __init__(self) -> None:
        self._deliveries: dict[str, DeliveryState] = {}
        self._moves = Moves()
        self._loaded_ms: int | None = None
        """When the state was loaded; None once the moves in progress at that time have been resumed."""
        self._retry_at_ms = 0
        self._deciders: Final[dict[type, Callable[[Draft, Any, int], Any]]] = {
            Acquire: self._acquire,
            Claim: self._claim,
            Acknowledge: self._acknowledge,
            ReleaseHolder: self._release_holder,
            MoveDone: self._move_done,
            MoveFailed: self._move_failed,
            SetProducer: self._set_producer,
            SetPosition: self._set_position,
            Purge: self._purge,
            Trimmed: self._trim,
            DeleteGroup: self._forget,
            Reschedule: self._reschedule,
        }

    # -- queries

    def group(self, name: str) -> DeliveryState | None:
        """Returns the delivery state of a share group, for reading only; None if there is none. Call the state's
        `advance` or `counts` first: they expire visibility timeouts and delays that are due."""
        return self._deliveries.get(name)

    @property
    def groups(self) -> list[str]:
        return list(self._deliveries)

    @property
    def start(self) -> int | None:
        """The offset below which all messages are finished for all share groups; None without share groups."""
        return min((delivery.start for delivery in self._deliveries.values()), default=None)

    def purged_to(self, name: str) -> int:
        """Returns the offset below which a queue's messages and deduplication ids were purged; 0 if never purged."""
        route = self._moves.routes.get(purge_mark(name))
        return 0 if route is None else route.producer_id

    def purges(self) -> dict[Destination, int]:
        """Returns the offset below which each queue was purged (see `purged_to`). The keys are `purge_mark(name)`,
        made of a hash of the queue's name."""
        routes = self._moves.routes.items()
        return {mark: route.producer_id for mark, route in routes if mark.partition == NOWHERE}

    def summary(self) -> Iterator[StateRecord]:
        """Yields records of the whole state: once these are appended, earlier records of the log can be trimmed."""
        if self._moves.producer_id is not None:
            yield producer_record(self._moves.producer_id)
        for destination, route in self._moves.routes.items():
            yield route_record(destination, route)
        for delivery in self._deliveries.values():
            yield position_record(delivery.key, delivery.name, delivery.end)
        # Pending moves keep their order.
        for delivery in self._deliveries.values():
            for delivery_range in delivery.ranges.values():
                if delivery_range.move is None:
                    yield range_record(delivery.prefix, delivery.name, delivery_range)
        for key in self._moves.in_order():
            delivery = self._deliveries[key.group]
            yield range_record(delivery.prefix, delivery.name, delivery.ranges[key.first])

    # -- deciding

    def decide(self, ticket: Ticket, command: Any, now_ms: int) -> Decision:
        decider = self._deciders.get(type(command))
        if decider is None:
            raise InvalidRequest(f"{type(command).__name__} is not a command of the delivery state machine")
        draft = Draft(self._moves)
        value = decider(draft, command, now_ms)
        return Decision(
            persist=tuple(draft.records),
            replies=(Reply(ticket, value),),
            effects=tuple(draft.effects),
            is_atomic=type(command) not in _IN_PARTS,
            # "Already finished" must be the answer of the current leader: a deposed one may miss the latest state.
            must_lead=not draft.records and type(command) in _CONFIRMED_BY_LEADER,
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

    def _begin(self, draft: Draft, command: Acquire | Claim) -> DeliveryState:
        """Creates the delivery state of a share group. Its first offset is `command.fresh_from` or, if that is
        UNKNOWN, `command.fresh[0].offset`."""
        self._check_group_limit()
        delivery = DeliveryState(
            command.group, command.fresh_from if command.fresh_from >= 0 else command.fresh[0].offset
        )
        draft.position(delivery, delivery.end)
        return delivery

    def _acknowledge(self, draft: Draft, command: Acknowledge, now_ms: int) -> tuple[Any, ...]:
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            return (AlreadyFinished(f"nothing of {command.group!r} was delivered here"),) * len(command.items)
        return acknowledge(draft, delivery, command, now_ms)

    def _release_holder(self, draft: Draft, command: ReleaseHolder, now_ms: int) -> int:
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            return 0
        return release_holder(draft, delivery, command, now_ms)

    # -- whole groups

    def _set_position(self, draft: Draft, command: SetPosition, now_ms: int) -> None:
        if command.end < 0:
            raise InvalidRequest(f"a group cannot begin at offset {command.end}")
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            self._check_group_limit()
            delivery = DeliveryState(command.group)
        self._retry_at_ms = now_ms  # other moves may start now
        if command.end < self.purged_to(command.group):
            # Other messages will have these offsets.
            draft.records.append(purge_record(command.group, command.end))
        positions.set_position(draft, delivery, command.end)

    def _purge(self, draft: Draft, command: Purge, now_ms: int) -> None:
        delivery = self._deliveries.get(command.group)
        if delivery is None:
            self._check_group_limit()
            delivery = DeliveryState(command.group, command.end)
            draft.position(delivery, command.end)
        positions.purge(draft, delivery, command.end)
        if command.forgets_ids and command.end > self.purged_to(command.group):
            # Last: if only a part is persisted, the ids of messages that still exist stay in use.
            draft.records.append(purge_record(command.group, command.end))

    def _trim(self, draft: Draft, command: Trimmed, now_ms: int) -> None:
        delivery = self._deliveries.get(command.group)
        if delivery is not None:
            self._retry_at_ms = now_ms
            positions.trim(draft, delivery, command.start)

    def _forget(self, draft: Draft, command: DeleteGroup, now_ms: int) -> None:
        delivery = self._deliveries.get(command.group)
        if delivery is not None:
            self._retry_at_ms = now_ms
            if self.purged_to(command.group):
                draft.records.append(purge_record(command.group, None))
            positions.forget(draft, delivery)

    def _reschedule(self, draft: Draft, command: Reschedule, now_ms: int) -> Reschedule | None:
        return reschedule(draft, self._deliveries, command, now_ms)

    def _check_group_limit(self) -> None:
        if len(self._deliveries) >= GROUPS_MAX:
            raise TooManyGroups(
                f"{len(self._deliveries)} groups share this partition, at most {GROUPS_MAX}; delete those not needed"
            )

    # -- moving messages to other partitions

    def _moving(self, command: MoveDone | MoveFailed) -> tuple[DeliveryState, DeliveryRange] | None:
        """Returns the share group's state and the delivery range of the message that `command` reports on; None if
        its move is not in progress any more."""
        delivery = self._deliveries.get(command.group)
        delivery_range = None if delivery is None else delivery.ranges.get(command.offset)
        meant = (command.destination, *command.producer, command.sequence)
        if delivery is None or delivery_range is None or delivery_range.move != meant:
            return None
        return delivery, delivery_range

    def _move_done(self, draft: Draft, command: MoveDone, now_ms: int) -> None:
        """Finishes the moved message in this partition and starts the next move to the same destination."""
        found = self._moving(command)
        if found is None:
            return
        draft.drop(found[0], command.offset)
        key = self._moves.next_to(command.destination)
        if key is not None and self._moves.producer_id is not None:
            delivery = self._deliveries[key.group]
            draft.start_move(delivery, delivery.ranges[key.first])

    def _move_failed(self, draft: Draft, command: MoveFailed, now_ms: int) -> None:
        """Makes the message available again at the command's due time."""
        found = self._moving(command)
        if found is None:
            return
        self._retry_at_ms = now_ms
        delivery, (first, last, count, _, _, received_ms, group, _) = found
        draft.abandon_move(found[1])
        draft.put(delivery, DeliveryRange(first, last, count, command.due_ms, "", received_ms, group))

    def _set_producer(self, draft: Draft, command: SetProducer, now_ms: int) -> None:
        if self._moves.producer_id is None:
            self._retry_at_ms = now_ms
            draft.records.append(producer_record(command.producer_id))

    # -- waking

    @property
    def wake_at_ms(self) -> int | None:
        if self._loaded_ms is not None:
            return self._loaded_ms
        return self._retry_at_ms if self._moves.can_start else None

    def wake(self, now_ms: int) -> Decision:
        if self._loaded_ms is not None:
            return self._resume()
        self._retry_at_ms = now_ms + RETRY_MS
        draft = Draft(self._moves)
        for destination in self._moves.idle_destinations:
            if self._moves.producer_id is None:
                return Decision(effects=(NeedProducer(),))
            key = self._moves.next_to(destination)
            if key is not None:
                delivery = self._deliveries[key.group]
                draft.start_move(delivery, delivery.ranges[key.first])
        return Decision(persist=tuple(draft.records), effects=tuple(draft.effects), is_atomic=True)

    def _resume(self) -> Decision:
        """Returns the effects that write the copies of messages being moved to other partitions, because the
        previous leader may not have written them. Persists nothing."""
        self._loaded_ms = None
        moving = self._moves.in_progress.values()
        return Decision(
            effects=tuple(copy_effect(key.group, self._deliveries[key.group].ranges[key.first]) for key in moving)
        )

    # -- applying

    def apply(self, record: StateRecord, producer_id: int) -> None:
        kind = record.key[0] if record.key else 0
        if kind == DELIVERY_RANGE:
            self._apply_range(record)
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

    def _apply_range(self, record: StateRecord) -> None:
        key, delivery_range = read_range(record)
        if delivery_range is None:
            delivery = self._deliveries.get(key.group)
            if delivery is None:
                return
            before = delivery.ranges.get(key.first)
            delivery.drop(key.first)
        else:
            delivery = self._delivery_of(key.group)
            before = delivery.ranges.get(key.first)
            delivery.put(delivery_range)
        if before is not None and before.move is not None:
            self._moves.leave(key, before.move)
        if delivery_range is not None and delivery_range.move is not None:
            self._moves.enter(key, delivery_range.move)

    def _delivery_of(self, name: str) -> DeliveryState:
        delivery = self._deliveries.get(name)
        if delivery is None:
            delivery = self._deliveries[name] = DeliveryState(name)
        return delivery

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Does nothing: delivery state is not written in transactions."""

    def loaded(self, now_ms: int) -> None:
        self._loaded_ms = now_ms
        self._retry_at_ms = now_ms


_IN_PARTS: Final = frozenset((SetPosition, Purge, Trimmed, DeleteGroup))
"""Commands whose records may exceed one batch and may be persisted only in part; see positions.py."""
_CONFIRMED_BY_LEADER: Final = frozenset((Acknowledge, SetPosition, Purge, DeleteGroup))
"""Commands that, if they change nothing, are answered only once this broker is confirmed to be still the leader."""


def check_holder(holder: str) -> None:
    """Raises InvalidRequest if the name of a consumer, which holds messages in flight, is empty or too long."""
    if not 0 < len(holder) <= HOLDER_CHARS_MAX:
        raise InvalidRequest(f"a holder's name has {len(holder)} characters, expected 1 to {HOLDER_CHARS_MAX}")
