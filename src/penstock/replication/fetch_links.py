"""Partitions that this broker follows, grouped by leader, updated from the metadata image. Does no network I/O."""

from typing import Final, NamedTuple

from penstock.cluster.image import NO_LEADER, ClusterImage
from penstock.foundation.ids import TopicIdPartition
from penstock.replication.fetch_link import FetchLink
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from penstock.replication.throttle import Throttle


class _Followed(NamedTuple):
    """A partition that this broker follows, with its leader."""

    leader: int
    partitions: tuple[Partition, ...]
    """The partition and its companion log, if any."""


class FetchLinks:
    """A FetchLink for each broker that leads a partition with a replica on this broker."""

    def __init__(
        self,
        *,
        node_id: int,
        partitions: Partitions,
        uses_sessions: bool = True,
        throttle: Throttle | None = None,
    ) -> None:
        """`uses_sessions`: whether to use incremental fetch sessions (KIP-227). `throttle`: limits the fetches of
        replicas that are not in the ISR (KIP-73); None: no limit."""
        self._node_id = node_id
        self._partitions = partitions
        self._uses_sessions = uses_sessions
        self.throttle = throttle or Throttle()
        self.by_leader: Final[dict[int, FetchLink]] = {}
        """Fetch links by the leader's node id: one per leader of followed partitions, even if it is offline."""
        self._followed: Final[dict[TopicIdPartition, _Followed]] = {}

    def apply(self, image: ClusterImage) -> set[int]:
        """Updates which partitions are fetched from which leader; returns the affected leaders' node ids. Call it
        after `Partitions.apply`: a replica fetches only after it has applied the leader epoch of `image`."""
        changed: set[int] = set()
        for tp in self._partitions.take_changed():
            before, now = self._followed.get(tp), self._to_follow(tp, image)
            if before is not None and before != now:
                self._drop(tp, before)
                changed.add(before.leader)
            if now is not None:
                self._put(tp, now, image)
                changed.add(now.leader)
        for node in changed:
            if node in self.by_leader and self.by_leader[node].is_idle:
                del self.by_leader[node]
        return changed

    def _to_follow(self, tp: TopicIdPartition, image: ClusterImage) -> _Followed | None:
        partition, state = self._partitions.replica(tp), image.state(tp)
        if partition is None or partition.following is None or state is None:
            return None
        is_current = state.leader_epoch == partition.leader_epoch
        return _Followed(state.leader, partition.with_companion) if is_current and state.leader != NO_LEADER else None

    def _put(self, tp: TopicIdPartition, followed: _Followed, image: ClusterImage) -> None:
        link = self.by_leader.get(followed.leader)
        if link is None:
            link = FetchLink(self._node_id, uses_sessions=self._uses_sessions, throttle=self.throttle)
            self.by_leader[followed.leader] = link
        state = image.state(tp)
        is_lagging = state is not None and self._node_id not in state.isr
        self._followed[tp] = followed
        for one in followed.partitions:
            link.put(one, is_lagging)

    def _drop(self, tp: TopicIdPartition, followed: _Followed) -> None:
        del self._followed[tp]
        for one in followed.partitions:
            self.by_leader[followed.leader].drop(one)
