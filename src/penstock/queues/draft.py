"""Collects the results of one decision: records to persist, and messages to move to other partitions. Pure.

Messages are moved to dead-letter queues, and by move tasks (redrives). The delivery state changes only when the
records are applied.
"""

from typing import Any

from penstock.client.partitioner import partition_of_key
from penstock.foundation.decision import StateRecord
from penstock.queues.commands import Destination
from penstock.queues.delivery_state import DeliveryState
from penstock.queues.moves import Moves, after_abandoned, copy_effect, next_move
from penstock.queues.records import (
    KEY_ERRORS,
    NO_SEQUENCE,
    DeliveryRange,
    Move,
    Route,
    position_record,
    producer_record,
    range_record,
    range_tombstone,
    route_record,
)
from penstock.queues.settings import DeadLetter, DeliverySettings


class Draft:
    """Collects the records and effects of one decision of the delivery state machine."""

    __slots__ = ("_moves", "_started", "effects", "records")

    def __init__(self, moves: Moves) -> None:
        self.records: list[StateRecord] = []
        self.effects: list[Any] = []
        self._moves = moves
        self._started: set[Destination] | None = None
        """Destinations to which this decision starts to move messages; None if it has started no move yet."""

    def put(self, delivery: DeliveryState, delivery_range: DeliveryRange) -> None:
        self.records.append(range_record(delivery.prefix, delivery.name, delivery_range))

    def drop(self, delivery: DeliveryState, first: int) -> None:
        self.records.append(range_tombstone(delivery.prefix, delivery.name, first))

    def position(self, delivery: DeliveryState, end: int) -> None:
        self.records.append(position_record(delivery.key, delivery.name, end))

    # -- moving messages to other partitions

    def send_to_dead_letters(
        self, delivery: DeliveryState, delivery_range: DeliveryRange, settings: DeliverySettings
    ) -> None:
        """Sends the messages of a range, which have reached max_deliveries, to the dead-letter queue; discards them
        if no such queue is set."""
        if settings.dead_letter is None:
            self.drop(delivery, delivery_range.first)
        else:
            self.move(delivery, delivery_range, destination_of(delivery_range, settings.dead_letter))

    def move(self, delivery: DeliveryState, delivery_range: DeliveryRange, destination: Destination) -> None:
        """Moves the messages of a range to a partition. The move starts now if a producer id is reserved and no other
        move to that partition is pending; otherwise in order, when those before it are done."""
        delivery_range = DeliveryRange(
            delivery_range.first,
            delivery_range.last,
            delivery_range.count,
            0,
            "",
            delivery_range.first_received_ms,
            delivery_range.group,
            Move(destination),
        )
        moves = self._moves
        is_free = destination not in moves.in_progress and moves.next_to(destination) is None
        if is_free and moves.producer_id is not None and not (self._started and destination in self._started):
            self.start_move(delivery, delivery_range)
        else:
            self.put(delivery, delivery_range)

    def start_move(self, delivery: DeliveryState, delivery_range: DeliveryRange) -> None:
        """Starts to move a range's first message to its destination; the others follow later. The caller must ensure
        that a producer id for the copies is reserved (SetProducer)."""
        wanted, producer_id = delivery_range.move, self._moves.producer_id
        assert wanted is not None
        assert producer_id is not None
        destination = wanted.destination
        move, route = next_move(destination, producer_id, self._moves.routes.get(destination))
        first, last, count, due_ms, holder, received_ms, group, _ = delivery_range
        leaving = DeliveryRange(first, first, count, due_ms, holder, received_ms, group, move)
        self.put(delivery, leaving)
        if last > first:
            self.put(delivery, delivery_range.part(first + 1, last))
        self.records.append(route_record(destination, route))
        self.effects.append(copy_effect(delivery.name, leaving))
        if self._started is None:
            self._started = set()
        self._started.add(destination)

    def abandon_move(self, delivery_range: DeliveryRange) -> None:
        """Gives up the move of `delivery_range`. Its copy may or may not have been written, so the next move to
        the same destination uses a new producer epoch. Does nothing if the move was not started."""
        if delivery_range.move is None or delivery_range.move.sequence == NO_SEQUENCE:
            return
        destination, producer_id, epoch, sequence = delivery_range.move
        route = after_abandoned(Route(producer_id, epoch, sequence))
        if route is not None:
            self.records.append(route_record(destination, route))
        elif self._moves.producer_id == producer_id:
            self.records.append(producer_record(None))


def destination_of(delivery_range: DeliveryRange, dead_letter: DeadLetter) -> Destination:
    """Returns the dead-letter partition of a message: by message group, or by offset if there is no message group."""
    if delivery_range.group is None:
        return Destination(dead_letter.topic_id, delivery_range.first % dead_letter.partitions)
    key = delivery_range.group.encode(errors=KEY_ERRORS)
    return Destination(dead_letter.topic_id, partition_of_key(key, dead_letter.partitions))
