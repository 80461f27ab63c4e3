"""Messages on their way to other partitions: dead letters, and what move tasks take away. Pure.

A message is moved exactly once without a transaction, because each step is persisted and can be repeated:

1. it is persisted where it goes: from now on it is delivered no more;
2. it is persisted under which producer, epoch and sequence its copy will be written there;
3. the copy is appended with these, as often as it takes: the destination's log drops what it has already;
4. it is finished here.

There is one message at a time under way from this partition to each other, so that the destination still remembers
its sequence when it is repeated. A move that is given up leaves a number behind that may or may not have been used;
therefore the next one begins another epoch.
"""

from collections.abc import Iterator

from penstock.foundation.decision import ProducerKey
from penstock.log.producers import sequence_after
from penstock.queues.commands import Carry, Destination
from penstock.queues.records import EPOCH_MAX, NO_SEQUENCE, Move, Parcel, ParcelKey, Route


class Moves:
    """Of all groups of one partition. Changes only by records."""

    def __init__(self) -> None:
        self.producer_id: int | None = None
        self.routes: dict[Destination, Route] = {}
        self.under_way: dict[Destination, ParcelKey] = {}
        self._wanted: dict[Destination, dict[ParcelKey, None]] = {}
        """What has not set out, in the order in which that was decided."""

    def next_to(self, destination: Destination) -> ParcelKey | None:
        """What sets out next."""
        return next(iter(self._wanted.get(destination, ())), None)

    @property
    def is_idle_somewhere(self) -> bool:
        """Whether something waits though nothing is under way before it."""
        return bool(self._wanted) and any(destination not in self.under_way for destination in self._wanted)

    @property
    def idle(self) -> list[Destination]:
        return [destination for destination in self._wanted if destination not in self.under_way]

    def in_turn(self) -> Iterator[ParcelKey]:
        """All that is moved: what is under way, then what waits, in its order."""
        yield from self.under_way.values()
        for wanted in self._wanted.values():
            yield from wanted

    def enter(self, key: ParcelKey, move: Move) -> None:
        if move.sequence == NO_SEQUENCE:
            self._wanted.setdefault(move.destination, {})[key] = None
        else:
            self.under_way[move.destination] = key

    def leave(self, key: ParcelKey, move: Move) -> None:
        if move.sequence != NO_SEQUENCE:
            if self.under_way.get(move.destination) == key:
                del self.under_way[move.destination]
            return
        wanted = self._wanted[move.destination]
        del wanted[key]
        if not wanted:
            del self._wanted[move.destination]


def numbered(destination: Destination, producer_id: int, route: Route | None) -> tuple[Move, Route]:
    """The next move to a destination, and how the one after it will be numbered."""
    if route is None or route.producer_id != producer_id:
        route = Route(producer_id, 0, 0)
    move = Move(destination, *route)
    return move, Route(producer_id, route.epoch, sequence_after(route.sequence))


def given_up(route: Route) -> Route | None:
    """What holds after a move was given up; None: the producer has no epoch left."""
    return Route(route.producer_id, route.epoch + 1, 0) if route.epoch < EPOCH_MAX else None


def carry(group: str, parcel: Parcel) -> Carry:
    """The effect that carries out a move that is under way."""
    move = parcel.move
    assert move is not None
    return Carry(
        group=group,
        offset=parcel.first,
        count=parcel.count,
        first_received_ms=parcel.first_received_ms,
        destination=move.destination,
        producer=ProducerKey(move.producer_id, move.epoch),
        sequence=move.sequence,
    )
