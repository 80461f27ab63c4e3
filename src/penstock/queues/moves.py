"""Moves of messages to other partitions: dead letters and move tasks. Pure.

A message is moved exactly once without a transaction, because each step is persisted and can be repeated:

1. persist the destination: from now on the message is not delivered;
2. persist the producer id, epoch and sequence of its copy;
3. append the copy with these, and retry until it succeeds: the destination's log drops duplicates;
4. finish the message in this partition.

To each destination, one message at a time is moved, so that the destination still remembers the sequence when the
append is retried. The copy of an abandoned move may or may not have been written, so the next move uses a new
epoch.
"""

from collections.abc import Iterator

from penstock.foundation.decision import ProducerKey
from penstock.log.producers import sequence_after
from penstock.queues.commands import CopyMessage, Destination
from penstock.queues.records import EPOCH_MAX, NO_SEQUENCE, DeliveryRange, DeliveryRangeKey, Move, Route


class Moves:
    """Pending and started moves of messages from one partition to others. Changes only when records are applied."""

    def __init__(self) -> None:
        self.producer_id: int | None = None
        self.routes: dict[Destination, Route] = {}
        self.in_progress: dict[Destination, DeliveryRangeKey] = {}
        self._pending: dict[Destination, dict[DeliveryRangeKey, None]] = {}
        """Moves that have not started, in order, by destination."""

    def next_to(self, destination: Destination) -> DeliveryRangeKey | None:
        """Returns the first move to a destination that is pending, that is, not started yet; None if there is
        none."""
        return next(iter(self._pending.get(destination, ())), None)

    @property
    def can_start(self) -> bool:
        """Whether a pending move can start: to each destination, only one move is in progress at a time."""
        return bool(self._pending) and any(destination not in self.in_progress for destination in self._pending)

    @property
    def idle_destinations(self) -> list[Destination]:
        return [destination for destination in self._pending if destination not in self.in_progress]

    def in_order(self) -> Iterator[DeliveryRangeKey]:
        """Yields all moves: first those in progress, then pending ones by destination, each in starting order."""
        yield from self.in_progress.values()
        for pending in self._pending.values():
            yield from pending

    def enter(self, key: DeliveryRangeKey, move: Move) -> None:
        if move.sequence == NO_SEQUENCE:
            self._pending.setdefault(move.destination, {})[key] = None
        else:
            self.in_progress[move.destination] = key

    def leave(self, key: DeliveryRangeKey, move: Move) -> None:
        if move.sequence != NO_SEQUENCE:
            if self.in_progress.get(move.destination) == key:
                del self.in_progress[move.destination]
            return
        pending = self._pending[move.destination]
        del pending[key]
        if not pending:
            del self._pending[move.destination]


def next_move(destination: Destination, producer_id: int, route: Route | None) -> tuple[Move, Route]:
    """Returns a move whose copy has the producer id, epoch and sequence of `route`, and the Route after that move.
    If `route` is None or of another producer id, starts with `producer_id`, epoch 0 and sequence 0."""
    if route is None or route.producer_id != producer_id:
        route = Route(producer_id, 0, 0)
    move = Move(destination, *route)
    return move, Route(producer_id, route.epoch, sequence_after(route.sequence))


def after_abandoned(route: Route) -> Route | None:
    """Returns the Route after a move with `route` was abandoned: the next producer epoch, or None if none is left."""
    return Route(route.producer_id, route.epoch + 1, 0) if route.epoch < EPOCH_MAX else None


def copy_effect(group: str, delivery_range: DeliveryRange) -> CopyMessage:
    """Returns the effect that copies the message of a move that has started."""
    move = delivery_range.move
    assert move is not None
    return CopyMessage(
        group=group,
        offset=delivery_range.first,
        count=delivery_range.count,
        first_received_ms=delivery_range.first_received_ms,
        destination=move.destination,
        producer=ProducerKey(move.producer_id, move.epoch),
        sequence=move.sequence,
    )
