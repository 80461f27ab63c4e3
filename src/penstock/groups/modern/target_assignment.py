"""Computes target assignments of large consumer, share and streams groups in time slices. Pure.

The computation may take seconds. Until it ends, members keep the last target assignment.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple

from penstock.foundation.steps import Steps
from penstock.groups.group import RETRY_MS
from penstock.groups.modern.members import P
from penstock.groups.modern.records import Change, GroupRecords
from penstock.groups.modern.state import ModernState

STEPS_AT_ONCE: Final = 3
PARTITIONS_AT_ONCE: Final = 2000
"""Approximate number of members plus partitions that a time slice handles when it persists targets."""
SHORT_INTERVAL_MS: Final = 200
"""Heartbeat interval of members, in milliseconds, while the group's target is being computed."""
PAUSE_MS: Final = 1
"""Pause, in ms, between two time slices of the computation of a target assignment; see also ROUNDS_AT_ONCE."""
ROUNDS_AT_ONCE: Final = 3
"""Number of rounds (passes over all members that persist targets) with pauses of PAUSE_MS. If more rounds are needed,
writes probably fail: the pause before each of them is RETRY_MS."""


Assignments = dict[str, frozenset[P]]
"""The target assignment of each member, by member id."""


class SliceResult(NamedTuple):
    """Result of one time slice: changes to persist, and the time at which to run the next slice."""

    changes: tuple[Change, ...]
    next_ms: int


class TargetComputation(Generic[P]):
    """Computes the target assignments of a large group, one after the other. This object is not persisted: a new
    coordinator restarts the computation.

    A computation is completed even if members join or leave before it ends; otherwise a member that keeps rejoining
    would delay it forever. Members that join after its start get partitions only with the next target.

    A target is persisted in rounds over all members. First, rounds remove partitions from the members' last targets;
    then, rounds add partitions, so that the targets of a consumer group never overlap. A round is repeated until it
    finds no difference to write, since a write may fail.
    """

    def __init__(self, records: GroupRecords[Any, P], start_assignor: Callable[[], Steps[Assignments[P]]]) -> None:
        """`start_assignor` returns a generator that computes the assignment of each current member."""
        self._records = records
        self._start_assignor = start_assignor
        self._epoch = 0
        """The group epoch for which the target is being computed."""
        self._steps: Steps[Assignments[P]] | None = None
        self._assignments: Assignments[P] | None = None
        """The computed target while it is being persisted, else None."""
        self._by_instance: Mapping[str, str] = {}
        """Ids of static members at the start of the computation, by instance id; a member may have another id now."""
        self._is_widening = False
        self._round: tuple[str, ...] = ()
        """Ids of all members when the current round (a pass over all members that persists targets) began."""
        self._left: Iterator[str] = iter(())
        self._is_clean = True
        """False if the current round found a target to write: another round must follow, see TargetComputation."""
        self._rounds = 0

    def run_slice(self, state: ModernState[Any, P], now_ms: int) -> SliceResult | None:
        """Runs the next time slice; returns None if there is no work."""
        if self._epoch <= state.target_epoch:  # superseded: all members left, or the group is small now
            self._steps = self._assignments = None
        if self._assignments is not None:
            return self._persist(self._assignments, state, now_ms)
        if self._steps is None:
            if not state.members or state.epoch <= state.target_epoch:
                return None
            self._epoch, self._by_instance, self._steps = state.epoch, dict(state.by_instance), self._start_assignor()
        try:
            for _ in range(STEPS_AT_ONCE):
                next(self._steps)
        except StopIteration as end:
            self._steps, self._assignments = None, end.value
            self._is_widening, self._rounds = False, 0
            self._begin_round(state)
        return SliceResult((), now_ms + PAUSE_MS)

    def _begin_round(self, state: ModernState[Any, P]) -> None:
        self._round = tuple(state.members)
        self._left, self._is_clean = iter(self._round), True
        self._rounds += 1

    def _persist(self, assignments: Assignments[P], state: ModernState[Any, P], now_ms: int) -> SliceResult:
        """Returns the next changes to persist: targets of members or, once all are persisted, the target epoch."""
        changes: list[Change] = []
        count = 0
        for member_id in self._left:
            target = self._next_target(assignments, state, member_id)
            if target is not None:
                self._is_clean = False
                changes.append(self._records.target(member_id, target))
                count += len(target)
            count += 1
            if count >= PARTITIONS_AT_ONCE:
                return SliceResult(tuple(changes), now_ms + PAUSE_MS)
        has_seen_all = not (state.members.keys() & state.targets.keys()) - set(self._round)
        if not self._is_clean or not has_seen_all:
            pause_ms = PAUSE_MS if self._rounds < ROUNDS_AT_ONCE else RETRY_MS
            self._begin_round(state)
            return SliceResult(tuple(changes), now_ms + pause_ms)
        if not self._is_widening:
            self._is_widening, self._rounds = True, 0
            self._begin_round(state)
        else:
            self._assignments = None
            changes.append(self._records.target_epoch(self._epoch, now_ms))
        return SliceResult(tuple(changes), now_ms + PAUSE_MS)

    def _next_target(
        self, assignments: Assignments[P], state: ModernState[Any, P], member_id: str
    ) -> frozenset[P] | None:
        """Returns the target to persist for a member in this round (a pass over all members, which first removes
        partitions and later adds them); None if the member needs no change."""
        assignment, known = self._assignment_of(assignments, state, member_id), state.targets.get(member_id)
        if assignment is None or known is assignment:
            return None
        if self._is_widening:
            return assignment if known != assignment else None
        return known & assignment if known is not None and not known <= assignment else None

    def _assignment_of(
        self, assignments: Assignments[P], state: ModernState[Any, P], member_id: str
    ) -> frozenset[P] | None:
        """Returns the computed assignment; None if the member has left, or joined after the computation began."""
        if member_id not in state.members:
            return None
        assignment = assignments.get(member_id)
        if assignment is None and self._by_instance:
            former = self._by_instance.get(state.members[member_id].instance_id or "")
            if former is not None and former not in state.members:
                return assignments.get(former)
        return assignment
