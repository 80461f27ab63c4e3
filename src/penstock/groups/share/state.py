"""What a share group remembers. All of it stands in records, and `apply` is the only place that changes it."""

from typing import Any

from penstock.groups import records
from penstock.groups.consumer.members import LEAVING, TopicIdPartition
from penstock.groups.share.members import NOTHING_ASSIGNED, ShareMember
from penstock.groups.share.records import NOWHERE, read_current, read_delivering, read_metadata, read_target


class ShareState:
    """One share group, as its records say."""

    def __init__(self) -> None:
        self.epoch = 0
        """Counts the changes of membership, of subscriptions and of topics."""
        self.metadata_hash = 0
        self.target_epoch = 0
        """The group epoch that the target was worked out for."""
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self.delivering = NOWHERE
        self.is_dead = False
        self._subscribed: frozenset[str] | None = None
        """Worked out when it is asked for."""

    def copy(self) -> "ShareState":
        """Another one that can be changed; members and targets are values and shared."""
        made = ShareState()
        made.epoch, made.metadata_hash, made.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        made.members, made.targets = dict(self.members), dict(self.targets)
        made.delivering, made.is_dead = self.delivering, self.is_dead
        made._subscribed = self._subscribed
        return made

    @property
    def name(self) -> str:
        """The group's state, as Kafka's tools show it."""
        if self.is_dead:
            return "Dead"
        return "Stable" if self.members else "Empty"

    def subscribed(self) -> frozenset[str]:
        """The names that any member subscribes to."""
        if self._subscribed is None:
            self._subscribed = frozenset().union(*(member.topic_names for member in self.members.values()))
        return self._subscribed

    def apply(self, kind: int, key: Any, value: Any | None) -> None:
        """A record holds from now on. What a compacted log has lost is not missed: any order will do."""
        match kind:
            case records.SHARE_GROUP_METADATA:
                self.is_dead = value is None
                self.epoch = value.epoch if value else 0
                self.metadata_hash = value.metadata_hash if value else 0
            case records.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA:
                self.target_epoch = value.assignment_epoch if value else 0
            case records.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER:
                if value is None:
                    self.targets.pop(key.member_id, None)
                else:
                    self.targets[key.member_id] = read_target(value)
            case records.SHARE_GROUP_MEMBER_METADATA:
                self._subscribed = None
                if value is None:
                    self.members.pop(key.member_id, None)
                else:
                    self.members[key.member_id] = read_metadata(self._member(key.member_id), value)
            case records.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT:
                if value is not None:
                    self.members[key.member_id] = read_current(self._member(key.member_id), value)
                elif key.member_id in self.members:
                    member = self.members[key.member_id]
                    self.members[key.member_id] = member._replace(epoch=LEAVING, assigned=NOTHING_ASSIGNED)
            case records.SHARE_GROUP_STATE_PARTITION_METADATA:
                self.delivering = read_delivering(value)

    def _member(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id=member_id)
