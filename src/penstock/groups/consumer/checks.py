"""Whether a member may do what it asks for: what a consumer group checks before it decides anything. Pure."""

from collections.abc import Callable, Collection
from typing import Final

from penstock.groups.consumer.errors import StaleMemberEpoch
from penstock.groups.consumer.members import JOINING, Member, TopicIdPartition
from penstock.groups.consumer.state import GroupState
from penstock.groups.errors import FencedInstanceId, GroupMaxSizeReached, IllegalGeneration, UnknownMemberId
from penstock.groups.settings import GroupSettings


class MemberChecks:
    """The members of a group, found by their ids."""

    def __init__(self, group_id: str, settings: Callable[[], GroupSettings]) -> None:
        self.group_id: Final = group_id
        self._settings = settings
        self.state: Final = GroupState()
        """To be read; only `ConsumerGroup.apply_record` changes it."""

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

        A member may commit in an older epoch what it was given by then and still has (KIP-1251): that can only be
        told if it is known which partitions, by topic id, it commits. So may a classic member: a cooperative one that
        is closed while it joins again commits in the generation that it knows. The instance id is not looked at, as
        Kafka's is not: the member id and the epoch say more.
        """
        if epoch < JOINING and self.is_empty:
            return  # a tool, or a consumer that assigns its partitions itself
        member = self.member(member_id)
        if epoch == member.epoch:
            return
        if epoch > member.epoch or partitions is None:
            raise self._stale(member, f"member {member_id} is in epoch {member.epoch}, not {epoch}")
        for topic_id, number in partitions:
            place = TopicIdPartition(topic_id, number)
            since = member.assigned.get(place, member.revoking.get(place))
            if since is None or epoch < since:
                raise self._stale(member, f"partition {number} was not with member {member_id} in epoch {epoch}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raises UnknownMemberId or StaleMemberEpoch unless the member may fetch committed offsets."""
        if member_id is None and epoch < JOINING:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise self._stale(member, f"member {member_id} is in epoch {member.epoch}, not {epoch}")

    def member(self, member_id: str) -> Member:
        """Raises UnknownMemberId."""
        member = self.state.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id!r} is no member of group {self.group_id!r}; it has to join")
        return member

    @staticmethod
    def _stale(member: Member, why: str) -> StaleMemberEpoch | IllegalGeneration:
        return StaleMemberEpoch(why) if member.classic is None else IllegalGeneration(why)

    def check_room(self, member_id: str, holder: Member | None) -> None:
        """Raises GroupMaxSizeReached for a new member of a full group, unless it replaces the static `holder`."""
        size_max = self.settings.consumer_size_max
        if holder is None and member_id not in self.state.members and len(self.state.members) >= size_max:
            raise GroupMaxSizeReached(f"group {self.group_id!r} has {size_max} members, which is its limit")

    def holder(self, instance_id: str | None) -> Member | None:
        """The member that has this instance id."""
        holder_id = self.state.by_instance.get(instance_id) if instance_id is not None else None
        return self.state.members[holder_id] if holder_id is not None else None

    def check_holder(self, member_id: str, instance_id: str) -> Member:
        """A static member that is there already and goes on under its own id (KIP-345)."""
        holder = self.holder(instance_id)
        if holder is None:
            raise UnknownMemberId(f"group {self.group_id!r} has no member with instance id {instance_id!r}")
        if holder.member_id != member_id:
            raise FencedInstanceId(f"instance id {instance_id!r} is with member {holder.member_id} now")
        return holder
