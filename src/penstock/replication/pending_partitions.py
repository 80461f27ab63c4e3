"""Partitions that are not as the image says yet, and who waits until they are. Pure."""

from collections import deque
from collections.abc import Callable, Iterable

from penstock.cluster.image import Place


class PendingPlaces:
    """A queue of partitions to look at. One that is being opened is not in it, but still pending."""

    def __init__(self) -> None:
        self._queue: deque[Place] = deque()
        self._queued: set[Place] = set()
        self._pending: dict[bytes, set[int]] = {}
        """The numbers of pending partitions, by topic."""
        self._waiters: list[tuple[bytes | None, Callable[[], None]]] = []

    def __bool__(self) -> bool:
        """Whether there is a partition to look at."""
        return bool(self._queue)

    def mark(self, topic_id: bytes, numbers: Iterable[int]) -> None:
        """These partitions are to be looked at."""
        for number in numbers:
            place = Place(topic_id, number)
            if place not in self._queued:
                self._queued.add(place)
                self._queue.append(place)
                self._pending.setdefault(topic_id, set()).add(number)

    def pop(self) -> Place:
        """The next partition to look at: it is pending until `settle`."""
        place = self._queue.popleft()
        self._queued.discard(place)
        return place

    def settle(self, place: Place) -> None:
        """A partition is as the image says, or as near to it as it can be for now."""
        numbers = self._pending.get(place.topic_id)
        if numbers is not None and place not in self._queued:
            numbers.discard(place.number)
            if not numbers:
                del self._pending[place.topic_id]

    def forget(self, topic_ids: Iterable[bytes]) -> None:
        """These topics are gone."""
        for topic_id in topic_ids:
            self._pending.pop(topic_id, None)

    def clear(self) -> None:
        self._queue.clear()
        self._queued.clear()
        self._pending.clear()

    def when_settled(self, topic_id: bytes | None, then: Callable[[], None]) -> None:
        """Call once, maybe now, when no partition of a topic is pending, or none at all."""
        self._waiters.append((topic_id, then))
        self.tell_settled()

    def tell_settled(self) -> None:
        """Call those who have waited long enough."""
        waiters, self._waiters = self._waiters, []
        for topic_id, then in waiters:
            if self._pending if topic_id is None else topic_id in self._pending:
                self._waiters.append((topic_id, then))
            else:
                then()
