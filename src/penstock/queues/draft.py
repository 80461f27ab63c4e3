"""A decision in the making: what is to be persisted, and which messages set out. Pure; the state is left as it is."""

from typing import Any

from penstock.client.partitioner import partition_of_key
from penstock.foundation.decision import StateRecord
from penstock.queues.commands import Destination
from penstock.queues.delivery import Delivery
from penstock.queues.moving import Moves, carry, given_up, numbered
from penstock.queues.records import (
    KEY_ERRORS,
    NO_SEQUENCE,
    Move,
    Parcel,
    Route,
    parcel_gone,
    parcel_record,
    position_record,
    producer_record,
    route_record,
)
from penstock.queues.settings import DeadLetter, DeliverySettings


class Draft:
    """Collects one decision."""

    __slots__ = ("_moves", "_set_out", "effects", "records")

    def __init__(self, moves: Moves) -> None:
        self.records: list[StateRecord] = []
        self.effects: list[Any] = []
        self._moves = moves
        self._set_out: set[Destination] | None = None
        """Where to something sets out by this decision."""

    def put(self, delivery: Delivery, parcel: Parcel) -> None:
        self.records.append(parcel_record(delivery.prefix, delivery.name, parcel))

    def drop(self, delivery: Delivery, first: int) -> None:
        self.records.append(parcel_gone(delivery.prefix, delivery.name, first))

    def position(self, delivery: Delivery, end: int) -> None:
        self.records.append(position_record(delivery.key, delivery.name, end))

    # -- moving away

    def bury(self, delivery: Delivery, parcel: Parcel, settings: DeliverySettings) -> None:
        """A parcel that is dead goes to the dead letters; without any, it is finished."""
        if settings.dead_letter is None:
            self.drop(delivery, parcel.first)
        else:
            self.move(delivery, parcel, destination_of(parcel, settings.dead_letter))

    def move(self, delivery: Delivery, parcel: Parcel, destination: Destination) -> None:
        """A parcel goes elsewhere: at once if the way is free, else in its turn. Nobody holds it any more."""
        parcel = Parcel(
            parcel.first,
            parcel.last,
            parcel.count,
            0,
            "",
            parcel.first_received_ms,
            parcel.group,
            Move(destination),
        )
        moves = self._moves
        is_free = destination not in moves.under_way and moves.next_to(destination) is None
        if is_free and moves.producer_id is not None and not (self._set_out and destination in self._set_out):
            self.set_out(delivery, parcel)
        else:
            self.put(delivery, parcel)

    def set_out(self, delivery: Delivery, parcel: Parcel) -> None:
        """The first message of a parcel gets its number and goes; the rest waits. There must be a producer."""
        wanted, producer_id = parcel.move, self._moves.producer_id
        assert wanted is not None
        assert producer_id is not None
        destination = wanted.destination
        move, route = numbered(destination, producer_id, self._moves.routes.get(destination))
        first, last, count, due_ms, holder, received_ms, group, _ = parcel
        leaving = Parcel(first, first, count, due_ms, holder, received_ms, group, move)
        self.put(delivery, leaving)
        if last > first:
            self.put(delivery, parcel.part(first + 1, last))
        self.records.append(route_record(destination, route))
        self.effects.append(carry(delivery.name, leaving))
        if self._set_out is None:
            self._set_out = set()
        self._set_out.add(destination)

    def give_up(self, parcel: Parcel) -> None:
        """If a parcel that is to be dropped is under way: its number may or may not have been used."""
        if parcel.move is None or parcel.move.sequence == NO_SEQUENCE:
            return
        destination, producer_id, epoch, sequence = parcel.move
        route = given_up(Route(producer_id, epoch, sequence))
        if route is not None:
            self.records.append(route_record(destination, route))
        elif self._moves.producer_id == producer_id:
            self.records.append(producer_record(None))


def destination_of(parcel: Parcel, dead_letter: DeadLetter) -> Destination:
    """Where a dead message goes: with the others of its message group, and else wherever, but always the same."""
    if parcel.group is None:
        return Destination(dead_letter.topic_id, parcel.first % dead_letter.partitions)
    key = parcel.group.encode(errors=KEY_ERRORS)
    return Destination(dead_letter.topic_id, partition_of_key(key, dead_letter.partitions))
