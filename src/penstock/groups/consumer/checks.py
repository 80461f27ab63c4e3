"""Validates member ids, epochs and group size in requests to a consumer group. Pure."""

from collections.abc import Callable, Collection
from typing import Final

from penstock.foundation.ids import TopicIdPartition
from penstock.groups.consumer.members import JOINING, Member
from penstock.groups.consumer.state import GroupState
from penstock.groups.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMemberId,
)
from penstock.groups.settings import GroupSettings


class MemberChecks:
    """Base class of a consumer group: its members, and the validation of their requests."""

    def __init__(self, group_id: str, settings: Callable[[], GroupSettings]) -> None:
        self.group_id: Final = group_id
        self._settings = settings
        self.state: Final = GroupState()
        """The persisted state of the group. Read-only: only `ConsumerGroup.apply_record` changes it."""

    @property
    def settings(self) -> GroupSettings:
        return self._settings()

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    def check_commit(
        self,
        member_id: str,
        epoch: int,
        instance_id: str | None = None,
        partitions: Collection[tuple[bytes, int]] | None = None,
    ) -> None:
        """Raises UnknownMemberId, StaleMemberEpoch or IllegalGeneration unless the member may commit offsets.

        With an older epoch, a member may commit partitions (`partitions`, by topic id) that it was assigned by then
        and still holds (KIP-1251). So may classic members: a cooperative member that is closed while it rejoins
        commits in the last generation it has received. The instance id is not checked, as in Kafka.
        """
        if epoch < JOINING and self.is_empty:
            return  # an administrator or a standalone consumer
        member = self.member(member_id)
        if epoch == member.epoch:
            return
        if epoch > member.epoch or partitions is None:
            raise self._stale(member, f"member {member_id} is in epoch {member.epoch}, not {epoch}")
        for topic_id, number in partitions:
            tp = TopicIdPartition(topic_id, number)
            since = member.assigned.get(tp, member.revoking.get(tp))
            if since is None or epoch < since:
                raise self._stale(member, f"member {member_id} did not have partition {number} in epoch {epoch}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises UnknownMemberId or StaleMemberEpoch unless the member may fetch committed offsets."""
        if member_id is None and epoch < JOINING:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise self._stale(member, f"member {member_id} is in epoch {member.epoch}, not {epoch}")

    def member(self, member_id: str) -> Member:
        """Returns a member by id. Raises UnknownMemberId."""
        member = self.state.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id!r} is not a member of group {self.group_id!r}; it has to join")
        return member

    @staticmethod
    def _stale(member: Member, why: str) -> StaleMemberEpoch | IllegalGeneration:
        return StaleMemberEpoch(why) if member.classic is None else IllegalGeneration(why)

    def check_size(self, member_id: str, static_member: Member | None) -> None:
        """Raises GroupMaxSizeReached for a new member of a full group, unless it replaces `static_member`."""
        size_max = self.settings.consumer_size_max
        if static_member is None and member_id not in self.state.members and len(self.state.members) >= size_max:
            raise GroupMaxSizeReached(f"group {self.group_id!r} has {size_max} members, which is its limit")

    def static_member(self, instance_id: str | None) -> Member | None:
        """Returns the member with this group.instance.id; None if there is no such member."""
        holder_id = self.state.by_instance.get(instance_id) if instance_id is not None else None
        return self.state.members[holder_id] if holder_id is not None else None

    def check_static_member(self, member_id: str, instance_id: str) -> Member:
        """Returns the static member (KIP-345). Raises UnknownMemberId, or FencedInstanceId if `member_id` differs."""
        static_member = self.static_member(instance_id)
        if static_member is None:
            raise UnknownMemberId(f"group {self.group_id!r} has no member with instance id {instance_id!r}")
        if static_member.member_id != member_id:
            raise FencedInstanceId(f"instance id {instance_id!r} belongs to member {static_member.member_id} now")
        return static_member
