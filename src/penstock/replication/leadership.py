"""The leader's view of a partition: follower progress, high watermark, and when to shrink or expand the ISR. Pure.

A partition may have a companion log (a second log, for queue state or delayed messages); a follower is in sync if it
is in sync in both logs. While the outcome of an ISR change is unknown, the high watermark waits for every replica of
the old and of the proposed ISR.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.cluster.image import PartitionState

UNKNOWN: Final = -1
"""Placeholder for the log end offset of a follower that has not fetched in this leader epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedIsr:
    """A new ISR, to be written to the store on the condition that the partition state still has `version`."""

    isr: tuple[int, ...]
    version: int
    joining: Mapping[int, int]
    """Broker epochs of the replicas that join the ISR, by node id; these registrations must still exist."""


class Progress:
    """Replication progress of a follower in one log."""

    __slots__ = ("asked_ms", "caught_up_ms", "end", "leader_end", "start")

    def __init__(self, caught_up_ms: int) -> None:
        self.end = UNKNOWN
        self.start = 0
        self.caught_up_ms = caught_up_ms
        """Time when the follower last had all records of the leader."""
        self.asked_ms = caught_up_ms
        self.leader_end = UNKNOWN
        """The leader's log end offset at the follower's last fetch."""

    def note(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Records a fetch: the follower has all records before its fetch offset."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif self.leader_end >= 0 and offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.asked_ms)
        self.end = offset
        self.asked_ms = now_ms
        self.leader_end = leader_end


class LedLog:
    """Replication state of one log of the partition: end offset, high watermark, and progress of the followers."""

    __slots__ = ("end", "epoch_start", "followers", "high_watermark")

    def __init__(self, *, end: int, epoch_start: int, high_watermark: int) -> None:
        self.end = end
        """The leader's log end offset; with `flush=group`, its fsynced end offset."""
        self.epoch_start: Final = epoch_start
        """First offset of the leader epoch. A high watermark below it may be outdated (KIP-207)."""
        self.high_watermark = min(high_watermark, epoch_start)
        self.followers: dict[int, Progress] = {}

    @property
    def is_settled(self) -> bool:
        return self.high_watermark >= self.epoch_start


class Leadership:
    """State of a partition's leader in one leader epoch."""

    def __init__(
        self,
        *,
        node_id: int,
        state: PartitionState,
        logs: Iterable[LedLog],
        lag_max_ms: int,
        now_ms: int,
    ) -> None:
        self._node_id = node_id
        self.lag_max_ms = lag_max_ms
        self.logs: Final = list(logs)
        """The partition's log and, if any, its companion log (second log: queue state or delayed messages)."""
        self._epochs: dict[int, int] = {}
        """Broker epochs of the followers, as of their last fetch."""
        self._proposed: set[int] = set()
        """Replicas of the proposed ISR; empty unless an ISR change was proposed whose outcome is unknown."""
        self._is_asking = False
        self._lost_version = UNKNOWN
        """Version of the outdated partition state on which a rejected ISR change was based: no other change is
        proposed until `state` is newer."""
        self.state = state
        self.follow(state, now_ms)

    # -- the state in the store

    def follow(self, state: PartitionState, now_ms: int) -> None:
        """Adopts a new partition state of the same leader epoch, and tracks its followers in each log of `logs` (the
        partition's and, if any, its companion log). Call it also after a log was added to `logs`."""
        if state.version != self.state.version:
            self._proposed.clear()
        self.state = state
        for log in self.logs:
            for node in state.replicas:
                if node != self._node_id and node not in log.followers:
                    # A member of the ISR gets the whole lag time, as if it had been in sync just now.
                    log.followers[node] = Progress(now_ms if node in state.isr else now_ms - self.lag_max_ms - 1)
            for node in [known for known in log.followers if known not in state.replicas]:
                del log.followers[node]
        self._epochs = {node: epoch for node, epoch in self._epochs.items() if node in state.replicas}
        for log in self.logs:
            self._advance(log)

    # -- appends and fetches

    def appended(self, index: int, end: int) -> bool:
        """Advances the leader's end offset of log `index` (0: the partition's, 1: its companion log); returns
        whether the high watermark has advanced. Ignores a lower `end`: a sync may complete after a later append."""
        log = self.logs[index]
        log.end = max(log.end, end)
        return self._advance(log)

    def fetched(
        self, node: int, broker_epoch: int, index: int, offset: int, now_ms: int, start_offset: int = 0
    ) -> bool:
        """Records that a follower fetched log `index` (0: the partition's, 1: its companion log) at `offset`;
        returns whether the high watermark has advanced. `start_offset`: the follower's log start offset."""
        log = self.logs[index]
        if node not in log.followers or broker_epoch < self._epochs.get(node, UNKNOWN):
            return False
        if self._epochs.get(node, broker_epoch) != broker_epoch:
            self._forget(node)  # it was restarted, and may have lost records
        self._epochs[node] = broker_epoch
        log.followers[node].note(offset, log.end, now_ms)
        log.followers[node].start = start_offset
        return self._advance(log)

    def _forget(self, node: int) -> None:
        for log in self.logs:
            log.followers[node] = Progress(log.followers[node].caught_up_ms)

    def _advance(self, log: LedLog) -> bool:
        """Advances the high watermark to the smallest log end offset in the maximal ISR; returns whether it moved."""
        mark = log.end
        for node in self.maximal_isr:
            if node != self._node_id:
                progress = log.followers.get(node)
                mark = min(mark, progress.end if progress is not None else UNKNOWN)
        if mark <= log.high_watermark:
            return False
        log.high_watermark = mark
        return True

    @property
    def maximal_isr(self) -> set[int]:
        return self._proposed.union(self.state.isr)

    def nearest(self, offset: int, nodes: Container[int]) -> int | None:
        """Returns the in-sync replica in `nodes` with the most records from `offset` on, or None (KIP-392)."""
        followers = self.logs[0].followers
        able = [
            node
            for node in self.state.isr
            if node in nodes and node in followers and followers[node].start <= offset <= followers[node].end
        ]
        return max(able, key=lambda node: followers[node].end, default=None)

    # -- the ISR

    def propose_isr(self, now_ms: int, brokers: Mapping[int, int]) -> ProposedIsr | None:
        """Returns the ISR to propose; None if no change is due. `brokers`: epochs, by node id, of the registered
        brokers that are not shutting down."""
        if self._is_asking or self._lost_version == self.state.version or self._is_steady(now_ms, brokers):
            return None
        current = self.state.isr
        joining = {
            node: self._epochs[node]
            for node in self.state.replicas
            if node not in current and self._may_join(node, brokers)
        }
        isr = tuple(
            node
            for node in self.state.replicas
            if node in joining
            or (node in current and (node == self._node_id or not self._is_behind(node, now_ms, brokers)))
        )
        if set(isr) == set(current):
            return None
        return ProposedIsr(isr=isr, version=self.state.version, joining=joining)

    def _is_steady(self, now_ms: int, brokers: Mapping[int, int]) -> bool:
        """Fast path of `propose_isr`: whether all replicas are in the ISR, registered and not lagging."""
        state = self.state
        if len(state.isr) != len(state.replicas) or not all(node in brokers for node in state.isr):
            return False
        longest_ms = self.lag_max_ms
        for log in self.logs:
            end = log.end
            for progress in log.followers.values():
                if progress.end < end and now_ms - progress.caught_up_ms > longest_ms:
                    return False
        return True

    def _may_join(self, node: int, brokers: Mapping[int, int]) -> bool:
        """Whether a replica can join the ISR: it has reached the high watermark and the start of the leader epoch."""
        if node not in self._epochs or brokers.get(node) != self._epochs[node]:
            return False
        return all(log.followers[node].end >= max(log.high_watermark, log.epoch_start) for log in self.logs)

    def _is_behind(self, node: int, now_ms: int, brokers: Mapping[int, int]) -> bool:
        """Whether an ISR member must leave: it lags, or it is not in `brokers` and has stopped fetching."""
        for log in self.logs:
            progress = log.followers.get(node)
            if progress is None:
                continue
            if progress.end < log.end and now_ms - progress.caught_up_ms > self.lag_max_ms:
                return True
            if node not in brokers and now_ms - progress.asked_ms > self.lag_max_ms:
                return True
        return False

    def isr_proposed(self, proposed: ProposedIsr) -> None:
        """Records that a proposed ISR is being written: from now on the high watermark waits for its replicas too."""
        self._is_asking = True
        self._proposed.update(proposed.isr)

    def isr_decided(self, proposed: ProposedIsr, *, is_outdated: bool) -> None:
        """Records that the write of a proposed ISR has ended. A new ISR takes effect only when the metadata image
        contains it. `is_outdated`: whether the write failed because the partition state had changed."""
        self._is_asking = False
        if is_outdated:
            self._lost_version = proposed.version
