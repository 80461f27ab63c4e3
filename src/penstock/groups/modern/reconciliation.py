"""Reconciliation of members with their target assignment, one heartbeat at a time (KIP-848, KIP-1071).

A member first revokes partitions that are not in its target, then enters the newest epoch, then gets those partitions
(or tasks) of its target that their former owners have released. So a partition never has two owners.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic

from penstock.groups.errors import FencedMemberEpoch
from penstock.groups.modern.members import CurrentAssignment, MemberState, P


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationContext(Generic[P]):
    """Input of `reconcile` besides the current assignment: a member's target and the partitions it reports."""

    epoch: int
    """The target epoch, which the member is to enter."""
    target: Collection[P]
    """The member's target assignment, without topics that the member no longer subscribes to."""
    is_free: Callable[[P], bool]
    """Function that returns whether no other member holds the partition."""
    owned: Collection[P] | None
    """The partitions that the member reports as owned; None if the request does not contain them."""
    is_unsubscribed: Callable[[P], bool] | None = None
    """Function that returns whether the new subscription excludes a partition; None without a new subscription."""

    def has_revoked(self, revoking: Mapping[P, int]) -> bool:
        """Whether the member has reported the partitions that it owns, and none of `revoking` is among them."""
        return self.owned is not None and not any(item in revoking for item in self.owned)


def reconcile(current: CurrentAssignment[P], context: ReconciliationContext[P]) -> CurrentAssignment[P]:
    """Returns the member's next current assignment; the same object if nothing changes or the member has to wait."""
    match current.state:
        case MemberState.STABLE:
            if current.epoch != context.epoch:
                return _advance(current, current.epoch, context)
            return _revoke_unsubscribed(current, context)
        case MemberState.UNREVOKED_PARTITIONS:
            if context.has_revoked(current.revoking):
                return _advance(current, current.epoch, context)
            return _revoke_unsubscribed(current, context)
        case MemberState.UNRELEASED_PARTITIONS:
            narrowed = _revoke_unsubscribed(current, context) if current.epoch == context.epoch else current
            return _advance(current, current.epoch, context) if narrowed is current else narrowed
        case MemberState.UNKNOWN:
            if context.owned is None or context.owned:
                raise FencedMemberEpoch(
                    "the member is in a state that this broker does not support; "
                    "it has to give up its partitions and join again"
                )
            return _advance(current, context.epoch, context)


def _revoke_unsubscribed(current: CurrentAssignment[P], context: ReconciliationContext[P]) -> CurrentAssignment[P]:
    """Returns the assignment without partitions that the member no longer subscribes to; it has to revoke them."""
    if context.is_unsubscribed is None:
        return current
    dropped = {item: since for item, since in current.assigned.items() if context.is_unsubscribed(item)}
    if not dropped:
        return current
    kept = {item: since for item, since in current.assigned.items() if item not in dropped}
    revoking = {**current.revoking, **dropped}
    if context.has_revoked(revoking):
        return _moved(current, current._replace(assigned=kept))
    state = MemberState.UNREVOKED_PARTITIONS
    return _moved(current, current._replace(state=state, assigned=kept, revoking=revoking))


def _advance(current: CurrentAssignment[P], epoch: int, context: ReconciliationContext[P]) -> CurrentAssignment[P]:
    target = set(context.target)
    if current.epoch == context.epoch:
        # The target of the next epoch may be partly written. A member keeps its partitions within an epoch: a delayed
        # copy of an earlier request could report that they are revoked, and the epoch would not fence the member.
        target.update(current.assigned)
    kept = {item: since for item, since in current.assigned.items() if item in target}
    revoking = {item: since for item, since in current.assigned.items() if item not in target}
    if revoking and not context.has_revoked(revoking):
        state = MemberState.UNREVOKED_PARTITIONS
        return _moved(current, current._replace(epoch=epoch, state=state, assigned=kept, revoking=revoking))
    added = {item: context.epoch for item in target if item not in kept and context.is_free(item)}
    is_complete = len(kept) + len(added) == len(target)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return _moved(
        current,
        current._replace(epoch=context.epoch, state=state, assigned={**kept, **added}, revoking={}),
    )


def _moved(current: CurrentAssignment[P], changed: CurrentAssignment[P]) -> CurrentAssignment[P]:
    # The current epoch becomes the previous one even if it does not change: a delayed request from before it must not
    # count for partitions that were assigned since.
    return current if changed == current else changed._replace(previous_epoch=current.epoch)
