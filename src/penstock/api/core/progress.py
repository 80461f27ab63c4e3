"""How far a subscription has come: what was handed over, what of it is finished, what of that is committed.

An offset may be committed when everything before it is finished. Messages may be finished in any order. There is no
IO in here, and no time; only a lock that those who share a Progress hold while they use it.
"""

import threading
from collections.abc import Iterable, Mapping

from penstock.foundation.ids import TopicPartition

Offsets = Mapping[TopicPartition, int]


class Track:
    """One partition, for as long as it is ours. When it comes back later, that is another Track.

    >>> track = Track(TopicPartition("orders", 0))
    >>> track.hand_over(7); track.hand_over(8); track.finish(8); track.watermark
    7
    """

    __slots__ = ("_asked", "_committed", "_next", "_unfinished", "is_ours", "place")

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.is_ours = True
        self._unfinished: dict[int, None] = {}  # in order: offsets only grow
        self._next: int | None = None
        self._asked: int | None = None
        self._committed: int | None = None

    @property
    def watermark(self) -> int | None:
        """Everything before this offset is finished; None if nothing was handed over yet."""
        return next(iter(self._unfinished), self._next)

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    def hand_over(self, offset: int) -> None:
        """Somebody works on this message now. One that is handed over again was unfinished all the time."""
        self._unfinished[offset] = None
        self._next = max(offset + 1, self._next or 0)

    def finish(self, offset: int) -> None:
        self._unfinished.pop(offset, None)

    def skip(self, offset: int) -> None:
        """Nobody is to see this message."""
        self._next = max(offset + 1, self._next or 0)

    def hand_back(self) -> None:
        """Whatever was handed over and is not committed was not: it comes again."""
        self._unfinished.clear()
        self._next = self._asked = self._committed

    def due(self, even_if_asked: bool = False) -> int | None:
        """The offset to commit: not one that is committed, nor one that was asked for and may be soon."""
        mark = self.watermark
        return None if mark == (self._committed if even_if_asked else self._asked) else mark

    def ask(self) -> None:
        """What was due has been asked for."""
        self._asked = self.watermark

    def settle(self, offset: int, is_done: bool) -> None:
        """A commit of this offset has succeeded, or has to be asked for again."""
        if is_done:
            self._committed = offset
        elif self._asked == offset:
            self._asked = self._committed


class Progress:
    """All the partitions that are ours."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._tracks: dict[TopicPartition, Track] = {}

    def gain(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._tracks[place] = Track(place)

    def lose(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            track = self._tracks.pop(place, None)
            if track is not None:
                track.is_ours = False

    def track(self, place: TopicPartition) -> Track | None:
        return self._tracks.get(place)

    @property
    def unfinished(self) -> int:
        return sum(track.unfinished for track in self._tracks.values())

    def due(
        self, places: Iterable[TopicPartition] | None = None, *, even_if_asked: bool = False
    ) -> dict[TopicPartition, int]:
        """What is to be committed now, of all partitions or of some."""
        found = {}
        for place in self._tracks if places is None else places:
            track = self._tracks.get(place)
            offset = None if track is None else track.due(even_if_asked)
            if offset is not None:
                found[place] = offset
        return found

    def ask(self, offsets: Offsets) -> None:
        """These commits are under way."""
        for place in offsets:
            self._tracks[place].ask()

    def settle(self, place: TopicPartition, offset: int, is_done: bool) -> None:
        """What became of one of them; the partition may be gone by now."""
        track = self._tracks.get(place)
        if track is not None:
            track.settle(offset, is_done)

    def hand_back(self) -> None:
        for track in self._tracks.values():
            track.hand_back()
