"""Base class of consumer and streams groups, whose members revoke partitions and commit offsets. Pure.

A member adopts its target assignment in steps: see reconciliation.py. In share groups, members do not revoke
partitions, since several members read the same partition.
"""

from abc import abstractmethod
from collections.abc import Collection
from typing import Any, Final, Protocol, TypeVar

from penstock.foundation.errors import PenstockError
from penstock.groups.errors import StaleMemberEpoch
from penstock.groups.group import SESSION
from penstock.groups.modern.group import ModernGroup
from penstock.groups.modern.members import JOINING, CurrentAssignment, ModernMember, P, with_assignment
from penstock.groups.modern.reconciliation import ReconciliationContext, reconcile
from penstock.groups.modern.state import Draft, S

REBALANCE: Final = "rebalance"
"""Kind of the timer for the rebalance timeout of a member that has to revoke partitions."""


class ReconcilingMember(ModernMember, Protocol):
    """Protocol class for members that have to revoke partitions before other members get these partitions."""

    @property
    def rebalance_timeout_ms(self) -> int: ...

    @property
    def must_revoke(self) -> bool:
        """Whether the member has to revoke partitions within its rebalance timeout."""

    @property
    def current_assignment(self) -> CurrentAssignment[Any]: ...


R = TypeVar("R", bound=ReconcilingMember)


class ReconcilingGroup(ModernGroup[R, P, S]):
    """Base class of a consumer or streams group."""

    def apply_record(self, kind: int, key: Any, value: Any | None) -> None:
        super().apply_record(kind, key, value)
        if kind == self.records.current_kind:
            member = self.state.members.get(key.member_id)
            if member is None or not member.must_revoke:
                self.cancel_timer(REBALANCE, key.member_id)

    def loaded(self, now_ms: int) -> None:
        for member in self.state.members.values():
            self.schedule_session_timeout(member, now_ms)
            if member.must_revoke:
                self._schedule_rebalance_timeout(member, now_ms)

    def _schedule_rebalance_timeout(self, member: R, now_ms: int) -> None:
        self.set_timer(REBALANCE, now_ms + member.rebalance_timeout_ms, member.member_id)

    def _has_expired(self, member: R, kind: str) -> bool:
        return kind == SESSION or (kind == REBALANCE and member.must_revoke)

    def _reconcile(self, draft: Draft[S], member: R, context: ReconciliationContext[P], now_ms: int) -> R:
        """Returns the member after one step of reconciliation with its target assignment."""
        before = member.current_assignment
        current = reconcile(before, context)
        if current is before:
            return member
        after = with_assignment(member, current)
        draft.put(self.records.current_assignment(after))
        if after.must_revoke:
            self._schedule_rebalance_timeout(after, now_ms)
        return after

    # -- offsets

    def check_commit(self, member_id: str, epoch: int, partitions: Collection[tuple[bytes, int]]) -> None:
        """Raises UnknownMemberId, StaleMemberEpoch or IllegalGeneration unless the member may commit offsets of
        `partitions` (pairs of topic id and partition index).

        With an older epoch, a member may commit partitions that it still holds and that were assigned to it in that
        epoch or before (KIP-1251). This includes classic members: a cooperative member that is closed while it
        rejoins commits in the last generation that it has received. The instance id is not checked, as in Kafka.
        """
        if epoch < JOINING and self.is_empty:
            return  # an administrator or a standalone consumer
        member = self.member(member_id)
        if epoch == member.epoch:
            return
        if epoch > member.epoch:
            raise self._stale(member, f"member {member_id} is in epoch {member.epoch}, not {epoch}")
        for topic_id, number in partitions:
            since = self._held_since(member, topic_id, number)
            if since is None or epoch < since:
                raise self._stale(member, f"member {member_id} did not have partition {number} in epoch {epoch}")

    @abstractmethod
    def _held_since(self, member: R, topic_id: bytes, number: int) -> int | None:
        """Returns the epoch in which a partition was assigned to the member; None if the member does not hold it."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises UnknownMemberId, StaleMemberEpoch or IllegalGeneration unless the member may fetch offsets."""
        if member_id is None and epoch < JOINING:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise self._stale(member, f"member {member_id} is in epoch {member.epoch}, not {epoch}")

    def _stale(self, member: R, why: str) -> PenstockError:
        return StaleMemberEpoch(why)

    def is_modern_member(self, member_id: str) -> bool:
        """Whether the member exists and does not use the classic protocol."""
        return member_id in self.state.members
