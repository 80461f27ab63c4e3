"""How a member gets from what it holds to what it should hold, one heartbeat at a time (KIP-848).

First it gives up what it should not have; then it enters the newest epoch; then it gets what it should have, as far
as the former owners have let go. That order is what keeps a partition in one pair of hands.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from penstock.groups.consumer_errors import FencedMemberEpoch
from penstock.groups.consumer_members import Held, Member, MemberState, TopicIdPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Where a member is to go, and what is known about its way there."""

    epoch: int
    """Of the target."""
    target: frozenset[TopicIdPartition]
    topics: Collection[bytes]
    """That the member subscribes to now: what lies outside is not for it, whatever the target says."""
    is_free: Callable[[TopicIdPartition], bool]
    """Whether no other member holds a partition."""
    owned: Collection[TopicIdPartition] | None
    """What the member says that it owns; None if it says nothing."""
    subscription_changed: bool = False

    def has_let_go(self, revoking: Held) -> bool:
        """Whether the member says that it owns none of these any more."""
        return self.owned is not None and not any(place in revoking for place in self.owned)


def reconcile(member: Member, course: Course) -> Member:
    """The member one step further on its course; the same one if there is nothing to do, or something to wait for."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != course.epoch:
                return _advance(member, member.epoch, course)
            return _narrow(member, course) if course.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if course.has_let_go(member.revoking):
                return _advance(member, member.epoch, course)
            return _narrow(member, course) if course.subscription_changed else member
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, member.epoch, course)
        case MemberState.UNKNOWN:
            if course.owned is None or course.owned:
                raise FencedMemberEpoch(
                    f"member {member.member_id} is in a state that this broker does not know; "
                    "it has to give up its partitions and join again"
                )
            return _advance(member, course.epoch, course)


def _narrow(member: Member, course: Course) -> Member:
    """Take away what the member no longer subscribes to, before there is a new target."""
    kept = {place: epoch for place, epoch in member.assigned.items() if place.topic_id in course.topics}
    if len(kept) == len(member.assigned):
        return member
    taken = {place: epoch for place, epoch in member.assigned.items() if place not in kept}
    revoking = {**member.revoking, **taken}
    if course.has_let_go(revoking):
        return _at(member, member.epoch, assigned=kept)
    return _at(member, member.epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)


def _advance(member: Member, epoch: int, course: Course) -> Member:
    target = {place for place in course.target if place.topic_id in course.topics}
    kept = {place: since for place, since in member.assigned.items() if place in target}
    revoking = {place: since for place, since in member.assigned.items() if place not in target}
    if revoking and not course.has_let_go(revoking):
        return _at(member, epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    added = {place: course.epoch for place in target if place not in kept and course.is_free(place)}
    is_complete = len(kept) + len(added) == len(target)
    return _at(
        member,
        course.epoch,
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        assigned={**kept, **added},
        revoking={},
    )


def _at(
    member: Member,
    epoch: int,
    *,
    assigned: Held,
    revoking: Held | None = None,
    state: MemberState | None = None,
) -> Member:
    moved = member._replace(
        epoch=epoch,
        state=member.state if state is None else state,
        assigned=assigned,
        revoking=member.revoking if revoking is None else revoking,
    )
    # The epoch that it comes from becomes the previous one, even if it is the same one: a request from before it that
    # is still on its way says nothing about the partitions that the member got since.
    return member if moved == member else moved._replace(previous_epoch=member.epoch)
