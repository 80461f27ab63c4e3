"""Moves a member of a consumer or streams group from what it holds to what it should hold, one heartbeat at a time
(KIP-848, KIP-1071).

First it gives up what it should not have; then it enters the newest epoch; then it gets what it should have, as far
as the former owners have let go. That order is what keeps a partition with one member.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic

from penstock.groups.consumer.errors import FencedMemberEpoch
from penstock.groups.consumer.members import MemberState, P, Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Course(Generic[P]):
    """Where a member is to go, and what is known about its way there."""

    epoch: int
    """Of the target."""
    target: Collection[P]
    """What it should hold, as far as it still subscribes to it."""
    is_free: Callable[[P], bool]
    """Whether no other member holds a partition."""
    owned: Collection[P] | None
    """What the member says that it owns; None if it says nothing."""
    is_dropped: Callable[[P], bool] | None = None
    """Set if the member has just changed its subscription: whether a partition lies outside the new one."""

    def has_let_go(self, revoking: Mapping[P, int]) -> bool:
        """Whether the member says that it owns none of these any more."""
        return self.owned is not None and not any(place in revoking for place in self.owned)


def reconcile(standing: Standing[P], course: Course[P]) -> Standing[P]:
    """Takes the next step; returns the same object if there is nothing to do, or something to wait for."""
    match standing.state:
        case MemberState.STABLE:
            if standing.epoch != course.epoch:
                return _advance(standing, standing.epoch, course)
            return _narrow(standing, course)
        case MemberState.UNREVOKED_PARTITIONS:
            if course.has_let_go(standing.revoking):
                return _advance(standing, standing.epoch, course)
            return _narrow(standing, course)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(standing, standing.epoch, course)
        case MemberState.UNKNOWN:
            if course.owned is None or course.owned:
                raise FencedMemberEpoch(
                    "the member is in a state that this broker does not know; "
                    "it has to give up what it holds and join again"
                )
            return _advance(standing, course.epoch, course)


def _narrow(standing: Standing[P], course: Course[P]) -> Standing[P]:
    """Take away what the member no longer subscribes to, before there is a new target."""
    if course.is_dropped is None:
        return standing
    taken = {place: since for place, since in standing.assigned.items() if course.is_dropped(place)}
    if not taken:
        return standing
    kept = {place: since for place, since in standing.assigned.items() if place not in taken}
    revoking = {**standing.revoking, **taken}
    if course.has_let_go(revoking):
        return _at(standing, standing._replace(assigned=kept))
    state = MemberState.UNREVOKED_PARTITIONS
    return _at(standing, standing._replace(state=state, assigned=kept, revoking=revoking))


def _advance(standing: Standing[P], epoch: int, course: Course[P]) -> Standing[P]:
    target = set(course.target)
    kept = {place: since for place, since in standing.assigned.items() if place in target}
    revoking = {place: since for place, since in standing.assigned.items() if place not in target}
    if revoking and not course.has_let_go(revoking):
        state = MemberState.UNREVOKED_PARTITIONS
        return _at(standing, standing._replace(epoch=epoch, state=state, assigned=kept, revoking=revoking))
    added = {place: course.epoch for place in target if place not in kept and course.is_free(place)}
    is_complete = len(kept) + len(added) == len(target)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return _at(
        standing,
        standing._replace(epoch=course.epoch, state=state, assigned={**kept, **added}, revoking={}),
    )


def _at(standing: Standing[P], moved: Standing[P]) -> Standing[P]:
    # The epoch that it comes from becomes the previous one, even if it is the same one: a request from before it that
    # is still on its way says nothing about the partitions that the member got since.
    return standing if moved == standing else moved._replace(previous_epoch=standing.epoch)
