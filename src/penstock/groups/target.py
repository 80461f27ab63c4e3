"""The target of a consumer group: who is to have which partitions once all have reconciled (KIP-848). Pure.

Where a group is small it is worked out at once. Where it is large that takes seconds: then it is done a few
milliseconds at a time, and members go on with the last target meanwhile.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.cluster.image import ClusterImage
from penstock.foundation.steps import Steps, run_steps
from penstock.groups import consumer_records
from penstock.groups.assignors import ASSIGNORS, MEMBERS_STEP, Shares, Subscriber
from penstock.groups.changes import Change
from penstock.groups.consumer_members import Member, TopicIdPartition
from penstock.groups.consumer_state import GroupState
from penstock.groups.settings import UNIFORM

MEMBERS_AT_ONCE: Final = 2000
COST_AT_ONCE: Final = 4000
"""What is worked out at once costs about so many microseconds, and has so many members at most."""
STEPS_AT_ONCE: Final = 3
PLACES_AT_ONCE: Final = 2000
"""Partitions, and members, of targets that are persisted together."""
PAUSE_MS: Final = 1
RETRY_MS: Final = 1000
"""Before the next piece, and after pieces that could not be persisted."""
ROUNDS_AT_ONCE: Final = 3
"""The first round persists, the second finds that it did. After more, something keeps it from being persisted."""


def preferred_assignor(members: Iterable[Member], known: Sequence[str]) -> str:
    """The one that most members ask for; the first of those that are known, if none does or several do."""
    votes = Counter(member.assignor for member in members)
    return max(known, key=lambda name: votes[name], default=UNIFORM)


def topic_ids(names: Iterable[str], image: ClusterImage) -> frozenset[bytes]:
    """Of the topics that are there."""
    found = (image.shown_by_name.get(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)


def is_large(state: GroupState, image: ClusterImage) -> bool:
    """Whether it takes too long to work out the target at once."""
    if len(state.members) > MEMBERS_AT_ONCE:
        return True
    topics = [image.shown_by_name.get(name) for name in state.subscribed()]
    places = sum(len(topic.partitions) for topic in topics if topic is not None)
    wanted = [state.topics_of(member) for member in state.members.values()]
    are_alike = all(names is wanted[0] or names == wanted[0] for names in wanted)
    cost = places // 2 + len(wanted) if are_alike else 2 * places + sum(map(len, wanted))
    return cost > COST_AT_ONCE


def new_target(
    group_id: str, state: GroupState, image: ClusterImage, assignors: Sequence[str], now_ms: int
) -> Iterator[Change]:
    """Work out the target for the group's epoch: what differs from the last one, and its epoch."""
    for member_id, share in run_steps(_shares(state, image, assignors)).items():
        if _differs(state, member_id, share):
            yield consumer_records.target(group_id, member_id, share)
    yield consumer_records.target_epoch(group_id, state.epoch, now_ms)


def _differs(state: GroupState, member_id: str, share: frozenset[TopicIdPartition]) -> bool:
    known = state.targets.get(member_id)
    return known is not share and known != share


def _shares(state: GroupState, image: ClusterImage, assignors: Sequence[str]) -> Steps[Shares]:
    """What each member is to have. `state` must not change meanwhile."""
    wanted: dict[frozenset[str], frozenset[bytes]] = {}  # most members subscribe to the same
    subscribers = []
    nothing = frozenset[TopicIdPartition]()
    for member in state.members.values():
        names = state.topics_of(member)
        topics = wanted.get(names)
        if topics is None:
            topics = wanted[names] = topic_ids(names, image)
            hash(topics)  # which is remembered: later, those of all members would be worked out in one step
            yield
        held = state.targets.get(member.member_id, nothing)
        subscribers.append(Subscriber(member.member_id, member.instance_id, topics, held))
        if not len(subscribers) % MEMBERS_STEP:
            yield
    partitions = {}
    for topic_id in topic_ids(state.subscribed(), image):
        partitions[topic_id] = sorted(image.shown[topic_id].partitions)
        yield
    assign = ASSIGNORS[preferred_assignor(state.members.values(), assignors)]
    return (yield from assign(subscribers, partitions))


class Piece(NamedTuple):
    """Changes that are to be persisted, and when to go on."""

    changes: tuple[Change, ...]
    again_ms: int


class _Written(NamedTuple):
    """A target that is being persisted."""

    shares: Shares
    by_instance: Mapping[str, str]
    """Static members, as they were called when it was worked out: they may be back under other ids."""

    def share_of(self, member: Member, state: GroupState) -> frozenset[TopicIdPartition] | None:
        """None if it has come since."""
        share = self.shares.get(member.member_id)
        former = self.by_instance.get(member.instance_id or "")
        if share is None and former is not None and former not in state.members:
            return self.shares.get(former)
        return share


class Targeting:
    """Works out the targets of a large group, one after the other. What it remembers need not survive.

    Members that come and go meanwhile do not keep a target from being finished: else one who joins again and again
    could. Whoever has come since is in the next one. A target is persisted in rounds: first all members' targets are
    narrowed to what they keep, then they are widened, so that no partition is ever in two of them.
    """

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._epoch = 0
        """Of the target that is being worked out."""
        self._work: Steps[Shares] | None = None
        self._written: _Written | None = None
        self._by_instance: Mapping[str, str] = {}
        self._is_widening = False
        self._round: tuple[str, ...] = ()
        """The members whose targets are looked at in this round, and those that are left."""
        self._left: Iterator[str] = iter(())
        self._is_clean = True
        """Whether all that were looked at so far were persisted before."""
        self._rounds = 0

    def go_on(self, state: GroupState, image: ClusterImage, assignors: Sequence[str], now_ms: int) -> Piece | None:
        """Do a piece of what is left to do; None if there is nothing."""
        if self._epoch <= state.target_epoch:  # there is a newer one: all have left, or the group has become small
            self._work = self._written = None
        if self._written is not None:
            return self._persist(self._written, state, now_ms)
        if self._work is None:
            if not state.members or state.epoch <= state.target_epoch:
                return None
            self._epoch, self._by_instance = state.epoch, dict(state.by_instance)
            self._work = _shares(state.copy(), image, assignors)
        try:
            for _ in range(STEPS_AT_ONCE):
                next(self._work)
        except StopIteration as end:
            self._work = None
            self._written = _Written(end.value, self._by_instance)
            self._is_widening, self._rounds = False, 0
            self._begin_round(state)
        return Piece((), now_ms + PAUSE_MS)

    def _begin_round(self, state: GroupState) -> None:
        self._round = tuple(state.members)
        self._left, self._is_clean = iter(self._round), True
        self._rounds += 1

    def _persist(self, written: _Written, state: GroupState, now_ms: int) -> Piece:
        """Some members' targets; when all of them are known to be persisted, the epoch."""
        changes: list[Change] = []
        count = 0
        for member_id in self._left:
            target = self._next_target(written, state, member_id)
            if target is not None:
                self._is_clean = False
                changes.append(consumer_records.target(self._group_id, member_id, target))
                count += len(target)
            count += 1
            if count >= PLACES_AT_ONCE:
                return Piece(tuple(changes), now_ms + PAUSE_MS)
        has_seen_all = not (state.members.keys() & state.targets.keys()) - set(self._round)
        if not self._is_clean or not has_seen_all:
            pause_ms = PAUSE_MS if self._rounds < ROUNDS_AT_ONCE else RETRY_MS
            self._begin_round(state)
            return Piece(tuple(changes), now_ms + pause_ms)
        if not self._is_widening:
            self._is_widening, self._rounds = True, 0
            self._begin_round(state)
        else:
            self._written = None
            changes.append(consumer_records.target_epoch(self._group_id, self._epoch, now_ms))
        return Piece(tuple(changes), now_ms + PAUSE_MS)

    def _next_target(
        self, written: _Written, state: GroupState, member_id: str
    ) -> frozenset[TopicIdPartition] | None:
        """What a member's target must become in this round; None if it is that already."""
        member, known = state.members.get(member_id), state.targets.get(member_id)
        share = written.share_of(member, state) if member is not None else None
        if share is None or known is share:
            return None
        if self._is_widening:
            return share if known != share else None
        return known & share if known is not None and not known <= share else None
