"""Computes the target assignment of large consumer, share and streams groups, a few milliseconds at a time. Pure.

That may take seconds. Until it is done, members keep the assignment of the last target.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from penstock.foundation.steps import Steps
from penstock.groups.changes import Change
from penstock.groups.consumer.members import P

STEPS_AT_ONCE: Final = 3
PLACES_AT_ONCE: Final = 2000
"""Partitions, and members, of targets that are persisted together."""
SOON_MS: Final = 200
"""The heartbeat interval of members while the group's target is being computed."""
PAUSE_MS: Final = 1
RETRY_MS: Final = 1000
"""Before the next piece, and after pieces that could not be persisted."""
ROUNDS_AT_ONCE: Final = 3
"""The first round persists, the second finds that it did. After more, something keeps it from being persisted."""


Shares = dict[str, frozenset[P]]
"""What each member is to have."""
Q = TypeVar("Q", bound=NamedTuple, contravariant=True)


class Targeted(Protocol[P]):
    """What a group remembers, as far as it matters here."""

    epoch: int
    target_epoch: int
    members: dict[str, Any]
    targets: dict[str, frozenset[P]]


class Records(Protocol[Q]):
    """Makes the records of a kind of groups: see consumer/records.py and share/records.py."""

    def target(self, group_id: str, member_id: str, places: frozenset[Q], /) -> Change: ...

    def target_epoch(self, group_id: str, epoch: int, at_ms: int, /) -> Change: ...


class Piece(NamedTuple):
    """Changes that are to be persisted, and when to go on."""

    changes: tuple[Change, ...]
    again_ms: int


class Targeting(Generic[P]):
    """Computes the target assignments of a large group, one after the other. Its state is not persisted: a new
    coordinator starts again.

    A target is finished even if members join or leave meanwhile, or a member that rejoins in a loop would delay it
    forever. Members that have joined since get partitions with the next target.

    A target is persisted in rounds: first partitions are removed from members' targets, then they are added to
    others, so that a consumer group's targets never have a partition in common. A round is repeated until it finds
    nothing to write, since a write may fail.
    """

    def __init__(self, group_id: str, records: Records[P], work_out: Callable[[], Steps[Shares[P]]]) -> None:
        """`work_out`: starts to compute the assignment of each member, for the group as it is at that time."""
        self._group_id = group_id
        self._records = records
        self._work_out = work_out
        self._epoch = 0
        """The group epoch of the target that is being computed."""
        self._work: Steps[Shares[P]] | None = None
        self._shares: Shares[P] | None = None
        """The target, while it is being persisted."""
        self._by_instance: Mapping[str, str] = {}
        """Static members, as they were called when it was begun: they may be back under other ids."""
        self._is_widening = False
        self._round: tuple[str, ...] = ()
        """The members whose targets are looked at in this round, and those that are left."""
        self._left: Iterator[str] = iter(())
        self._is_clean = True
        """Whether all that were looked at so far were persisted before."""
        self._rounds = 0

    def go_on(self, state: Targeted[P], by_instance: Mapping[str, str], now_ms: int) -> Piece | None:
        """Do the next piece of work; None if there is none. `by_instance`: member ids of static members."""
        if self._epoch <= state.target_epoch:  # there is a newer one: all have left, or the group has become small
            self._work = self._shares = None
        if self._shares is not None:
            return self._persist(self._shares, state, now_ms)
        if self._work is None:
            if not state.members or state.epoch <= state.target_epoch:
                return None
            self._epoch, self._by_instance, self._work = state.epoch, dict(by_instance), self._work_out()
        try:
            for _ in range(STEPS_AT_ONCE):
                next(self._work)
        except StopIteration as end:
            self._work, self._shares = None, end.value
            self._is_widening, self._rounds = False, 0
            self._begin_round(state)
        return Piece((), now_ms + PAUSE_MS)

    def _begin_round(self, state: Targeted[P]) -> None:
        self._round = tuple(state.members)
        self._left, self._is_clean = iter(self._round), True
        self._rounds += 1

    def _persist(self, shares: Shares[P], state: Targeted[P], now_ms: int) -> Piece:
        """Some members' targets; when all of them are known to be persisted, the epoch."""
        changes: list[Change] = []
        count = 0
        for member_id in self._left:
            target = self._next_target(shares, state, member_id)
            if target is not None:
                self._is_clean = False
                changes.append(self._records.target(self._group_id, member_id, target))
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
            self._shares = None
            changes.append(self._records.target_epoch(self._group_id, self._epoch, now_ms))
        return Piece(tuple(changes), now_ms + PAUSE_MS)

    def _next_target(self, shares: Shares[P], state: Targeted[P], member_id: str) -> frozenset[P] | None:
        """What a member's target must become in this round; None if it is that already."""
        share, known = self._share_of(shares, state, member_id), state.targets.get(member_id)
        if share is None or known is share:
            return None
        if self._is_widening:
            return share if known != share else None
        return known & share if known is not None and not known <= share else None

    def _share_of(self, shares: Shares[P], state: Targeted[P], member_id: str) -> frozenset[P] | None:
        """None if the member has come since, or is gone."""
        if member_id not in state.members:
            return None
        share = shares.get(member_id)
        if share is None and self._by_instance:
            former = self._by_instance.get(state.members[member_id].instance_id or "")
            if former is not None and former not in state.members:
                return shares.get(former)
        return share
