"""The persisted state of a share group; it is changed only by applying records."""

from typing import Any

from penstock.foundation.ids import TopicIdPartition
from penstock.groups import records
from penstock.groups.consumer.members import LEAVING
from penstock.groups.share.members import NOTHING_ASSIGNED, ShareMember
from penstock.groups.share.records import NO_TOPICS, read_current, read_delivery_topics, read_metadata, read_target


class ShareState:
    """The persisted state of one share group."""

    def __init__(self) -> None:
        self.epoch = 0
        """The group epoch, incremented when members, subscriptions or topics change."""
        self.metadata_hash = 0
        self.target_epoch = 0
        """The group epoch for which the target assignment was computed."""
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self.delivery_topics = NO_TOPICS
        self.is_dead = False
        self._subscribed: frozenset[str] | None = None
        """The cached result of `subscribed`; None if it has to be computed."""

    def copy(self) -> "ShareState":
        """Returns a copy that can be changed; it shares members and targets, which are immutable."""
        copied = ShareState()
        copied.epoch, copied.metadata_hash, copied.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        copied.members, copied.targets = dict(self.members), dict(self.targets)
        copied.delivery_topics, copied.is_dead = self.delivery_topics, self.is_dead
        copied._subscribed = self._subscribed
        return copied

    @property
    def name(self) -> str:
        """The name of the group state, as Kafka's tools show it."""
        if self.is_dead:
            return "Dead"
        return "Stable" if self.members else "Empty"

    def subscribed(self) -> frozenset[str]:
        """Returns the topic names that any member subscribes to."""
        if self._subscribed is None:
            self._subscribed = frozenset().union(*(member.topic_names for member in self.members.values()))
        return self._subscribed

    def apply(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record. Records may arrive in any order, and compaction may have removed some of them."""
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
                self.delivery_topics = read_delivery_topics(value)

    def _member(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id=member_id)
