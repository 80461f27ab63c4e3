"""Leading a partition: which followers keep up, and what is committed therefore. Pure.

A partition may have more than one log (a companion beside its own): a follower is in sync when it is in all of them.
Safety rests on compare-and-set: while the outcome of a change of the ISR is not known, whoever may be in it counts.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.cluster.image import PartitionState

UNKNOWN: Final = -1
"""The end of a log that its follower has not told in this epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedIsr:
    """The ISR that a leader wants. It holds once it is written on the condition of `version`."""

    isr: tuple[int, ...]
    version: int
    joining: Mapping[int, int]
    """Those that are added, and the broker epochs in which they were seen: a condition too."""


class Progress:
    """How far a follower has come in one log."""

    __slots__ = ("asked_ms", "caught_up_ms", "end", "leader_end", "start")

    def __init__(self, caught_up_ms: int) -> None:
        self.end = UNKNOWN
        self.start = 0
        self.caught_up_ms = caught_up_ms
        """When it last had all that the leader had."""
        self.asked_ms = caught_up_ms
        self.leader_end = UNKNOWN
        """What the leader had when it last asked."""

    def note(self, offset: int, leader_end: int, now_ms: int) -> None:
        """It asks from an offset on: so it has everything before that."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif self.leader_end >= 0 and offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.asked_ms)
        self.end = offset
        self.asked_ms = now_ms
        self.leader_end = leader_end


class Track:
    """One log of the partition: where it ends, how far it is committed, and how far its followers are."""

    __slots__ = ("end", "epoch_start", "followers", "high_watermark")

    def __init__(self, *, end: int, epoch_start: int, high_watermark: int) -> None:
        self.end = end
        """Of what the leader has, as safe as the topic wants it."""
        self.epoch_start: Final = epoch_start
        """Where the leader's epoch begins. Until that much is committed, nobody knows how much is (KIP-207)."""
        self.high_watermark = min(high_watermark, epoch_start)
        self.followers: dict[int, Progress] = {}

    @property
    def is_settled(self) -> bool:
        return self.high_watermark >= self.epoch_start


class Leadership:
    """One leader epoch of a partition on its leader."""

    def __init__(
        self,
        *,
        node_id: int,
        state: PartitionState,
        tracks: Iterable[Track],
        lag_max_ms: int,
        now_ms: int,
    ) -> None:
        self._node_id = node_id
        self.lag_max_ms = lag_max_ms
        self.tracks: Final = list(tracks)
        self._epochs: dict[int, int] = {}
        """The broker epoch that each follower was last seen in."""
        self._proposed: set[int] = set()
        """Who may be in the ISR by a write on `state.version` whose outcome is not known."""
        self._is_asking = False
        self._lost_version = UNKNOWN
        """Somebody else has changed the state of this version: the image is about to show how."""
        self.state = state
        self.follow(state, now_ms)

    # -- its logs

    def add_track(self, track: Track) -> None:
        """The partition has got a companion. Call `follow` then: members of the ISR have some time to show it."""
        self.tracks.append(track)

    def drop_track(self) -> None:
        """It has it no more."""
        self.tracks.pop()

    # -- what the image says

    def follow(self, state: PartitionState, now_ms: int) -> None:
        """The state that the store has now, in the same leader epoch."""
        if state.version != self.state.version:
            self._proposed.clear()
        self.state = state
        for track in self.tracks:
            for node in state.replicas:
                if node != self._node_id and node not in track.followers:
                    # A member of the ISR has as long to show itself as if it had just been in sync.
                    track.followers[node] = Progress(now_ms if node in state.isr else now_ms - self.lag_max_ms - 1)
            for node in [known for known in track.followers if known not in state.replicas]:
                del track.followers[node]
        self._epochs = {node: epoch for node, epoch in self._epochs.items() if node in state.replicas}
        self._advance_all()

    # -- what happens

    def appended(self, track: int, end: int) -> bool:
        """The leader has everything below an offset; whether more is committed now. A sync that began before the last
        append ends after it, and takes nothing back."""
        one = self.tracks[track]
        one.end = max(one.end, end)
        return self._advance(one)

    def fetched(
        self, node: int, broker_epoch: int, track: int, offset: int, now_ms: int, start_offset: int = 0
    ) -> bool:
        """A follower, whose log begins at an offset, asks from another on; whether more is committed now."""
        if node not in self.tracks[track].followers or broker_epoch < self._epochs.get(node, UNKNOWN):
            return False
        if self._epochs.get(node, broker_epoch) != broker_epoch:
            self._forget(node)  # it has been restarted, and may have less than before
        self._epochs[node] = broker_epoch
        one = self.tracks[track]
        one.followers[node].note(offset, one.end, now_ms)
        one.followers[node].start = start_offset
        return self._advance(one)

    def _forget(self, node: int) -> None:
        for track in self.tracks:
            track.followers[node] = Progress(track.followers[node].caught_up_ms)

    def _advance_all(self) -> None:
        for track in self.tracks:
            self._advance(track)

    def _advance(self, track: Track) -> bool:
        """Committed is what all have who are in the ISR, or may be."""
        mark = track.end
        for node in self.maximal_isr:
            if node != self._node_id:
                progress = track.followers.get(node)
                mark = min(mark, progress.end if progress is not None else UNKNOWN)
        if mark <= track.high_watermark:
            return False
        track.high_watermark = mark
        return True

    @property
    def maximal_isr(self) -> set[int]:
        return self._proposed.union(self.state.isr)

    def nearest(self, offset: int, nodes: Container[int]) -> int | None:
        """Of these brokers, the one in sync that has most of what lies from an offset on (KIP-392)."""
        followers = self.tracks[0].followers
        able = [
            node
            for node in self.state.isr
            if node in nodes and node in followers and followers[node].start <= offset <= followers[node].end
        ]
        return max(able, key=lambda node: followers[node].end, default=None)

    # -- the ISR

    def propose_isr(self, now_ms: int, brokers: Mapping[int, int]) -> ProposedIsr | None:
        """How the ISR should change, if it should. `brokers`: the brokers that are registered, and their epochs."""
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
        """Whether it can be seen at a glance that the ISR is as it should be: nearly always."""
        state = self.state
        if len(state.isr) != len(state.replicas) or not all(node in brokers for node in state.isr):
            return False
        longest_ms = self.lag_max_ms
        for track in self.tracks:
            end = track.end
            for progress in track.followers.values():
                if progress.end < end and now_ms - progress.caught_up_ms > longest_ms:
                    return False
        return True

    def _may_join(self, node: int, brokers: Mapping[int, int]) -> bool:
        """It has everything that is committed, and everything from before this epoch that may be."""
        if node not in self._epochs or brokers.get(node) != self._epochs[node]:
            return False
        return all(track.followers[node].end >= max(track.high_watermark, track.epoch_start) for track in self.tracks)

    def _is_behind(self, node: int, now_ms: int, brokers: Mapping[int, int]) -> bool:
        """Whether a member of the ISR lags, or is an offline broker: where nothing is written it would never lag."""
        for track in self.tracks:
            progress = track.followers.get(node)
            if progress is None:
                continue
            if progress.end < track.end and now_ms - progress.caught_up_ms > self.lag_max_ms:
                return True
            if node not in brokers and now_ms - progress.asked_ms > self.lag_max_ms:
                return True
        return False

    def isr_proposed(self, proposed: ProposedIsr) -> None:
        """Counts the replicas that a proposed ISR adds: the store may write it at any time."""
        self._is_asking = True
        self._proposed.update(proposed.isr)

    def isr_decided(self, proposed: ProposedIsr, *, is_outdated: bool) -> None:
        """Ends a proposal, whether it was written or not: only the image tells.

        `is_outdated`: the state of the partition has changed meanwhile (not that a joining broker is gone).
        """
        self._is_asking = False
        if is_outdated:
            self._lost_version = proposed.version
