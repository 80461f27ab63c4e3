"""What this broker follows, by leader, in step with the image. Costs by what has changed. Pure but for the logs."""

from typing import Final, NamedTuple

from penstock.cluster.image import NO_LEADER, ClusterImage, Place
from penstock.replication.fetch_link import Link
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.throttle import Throttle


class _Followed(NamedTuple):
    """A partition that is followed."""

    leader: int
    tracks: tuple[Partition, ...]


class Links:
    """A link to each broker that leads something this one has a replica of."""

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        uses_sessions: bool = True,
        throttle: Throttle | None = None,
    ) -> None:
        """`throttle`: of what this broker fetches while it lags."""
        self._node_id = node_id
        self._partitions = partitions
        self._uses_sessions = uses_sessions
        self.throttle = throttle or Throttle()
        self.by_leader: Final[dict[int, Link]] = {}
        """There is none to a broker that leads nothing of what this one has. A leader may be an offline broker."""
        self._followed: Final[dict[Place, _Followed]] = {}

    def apply(self, image: ClusterImage) -> set[int]:
        """Call it after the partitions have got on with the image. Returns the leaders whose links have changed.

        A partition that has not been told yet who leads it now is followed when it has.
        """
        changed: set[int] = set()
        for place in self._partitions.take_changed():
            before, now = self._followed.get(place), self._to_follow(place, image)
            if before is not None and before != now:
                self._drop(place, before)
                changed.add(before.leader)
            if now is not None:
                self._put(place, now, image)
                changed.add(now.leader)
        for node in changed:
            if node in self.by_leader and self.by_leader[node].is_idle:
                del self.by_leader[node]
        return changed

    def _to_follow(self, place: Place, image: ClusterImage) -> _Followed | None:
        partition, state = self._partitions.replica(place), image.state(place)
        if partition is None or partition.following is None or state is None:
            return None
        is_current = state.leader_epoch == partition.leader_epoch
        return _Followed(state.leader, partition.tracks) if is_current and state.leader != NO_LEADER else None

    def _put(self, place: Place, followed: _Followed, image: ClusterImage) -> None:
        link = self.by_leader.get(followed.leader)
        if link is None:
            link = Link(self._node_id, uses_sessions=self._uses_sessions, throttle=self.throttle)
            self.by_leader[followed.leader] = link
        state = image.state(place)
        is_lagging = state is not None and self._node_id not in state.isr
        self._followed[place] = followed
        for track in followed.tracks:
            link.put(track, is_lagging)

    def _drop(self, place: Place, followed: _Followed) -> None:
        del self._followed[place]
        for track in followed.tracks:
            self.by_leader[followed.leader].drop(track)
