"""The persisted state of a consumer group; it is changed only by applying records."""

from typing import Any

from penstock.foundation.ids import TopicIdPartition
from penstock.groups import records
from penstock.groups.consumer.members import LEAVING, NOTHING_HELD, Member
from penstock.groups.consumer.records import read_current, read_metadata, read_target


class GroupState:
    """The persisted state of one consumer group."""

    def __init__(self) -> None:
        self.epoch = 0
        """The group epoch, incremented when members, subscriptions or topics change."""
        self.metadata_hash = 0
        self.target_epoch = 0
        """The group epoch for which the target assignment was computed."""
        self.members: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        """Member ids of static members by instance id."""
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        """Member id by partition it holds. While a member revokes a partition, no other member gets it."""
        self.regexes: dict[str, frozenset[str]] = {}
        """The topic names that match each regular expression."""
        self.is_dead = False
        self._subscribed: frozenset[str] | None = None
        """The cached result of `subscribed`; None if it has to be computed."""

    def copy(self) -> "GroupState":
        """Returns a copy that can be changed; it shares members and targets, which are immutable."""
        copied = GroupState()
        copied.epoch, copied.metadata_hash, copied.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        copied.members, copied.by_instance = dict(self.members), dict(self.by_instance)
        copied.targets, copied.owners = dict(self.targets), dict(self.owners)
        copied.regexes, copied.is_dead = dict(self.regexes), self.is_dead
        copied._subscribed = self.subscribed()  # needed after most changes, and few change it
        return copied

    # -- queries

    @property
    def name(self) -> str:
        """The name of the group state, as Kafka's tools show it."""
        if self.is_dead:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def topics_of(self, member: Member) -> frozenset[str]:
        """Returns the topic names that a member subscribes to, including the matches of its regular expression."""
        if not member.topic_regex:
            return member.topic_names
        if not member.topic_names:
            return self.regexes.get(member.topic_regex, frozenset())
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def subscribed(self) -> frozenset[str]:
        """Returns the topic names that any member subscribes to."""
        if self._subscribed is None:
            by_name = (member.topic_names for member in self.members.values())
            by_regex = (self.regexes.get(text, frozenset()) for text in self.expressions())
            self._subscribed = frozenset().union(*by_name, *by_regex)
        return self._subscribed

    def expressions(self) -> set[str]:
        """Returns the regular expressions in the subscriptions of all members."""
        return {member.topic_regex for member in self.members.values() if member.topic_regex}

    # -- changes

    def apply(self, kind: int, key: Any, value: Any | None) -> None:
        """Applies a record. Records may arrive in any order, and compaction may have removed some of them."""
        match kind:
            case records.CONSUMER_GROUP_METADATA:
                self.is_dead = value is None
                self.epoch = value.epoch if value else 0
                self.metadata_hash = value.metadata_hash if value else 0
            case records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA:
                self.target_epoch = value.assignment_epoch if value else 0
            case records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER:
                if value is None:
                    self.targets.pop(key.member_id, None)
                else:
                    self.targets[key.member_id] = read_target(value)
            case records.CONSUMER_GROUP_MEMBER_METADATA:
                if value is None:
                    self._put(self.members.get(key.member_id), None)
                else:
                    member = self._member(key.member_id)
                    self._put(member, read_metadata(member, value))
            case records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
                if value is not None:
                    member = self._member(key.member_id)
                    self._put(member, read_current(member, value))
                elif key.member_id in self.members:
                    member = self.members[key.member_id]
                    gone = member._replace(epoch=LEAVING, assigned=NOTHING_HELD, revoking=NOTHING_HELD)
                    self._put(member, gone)
            case records.CONSUMER_GROUP_REGULAR_EXPRESSION:
                self._subscribed = None
                if value is None:
                    self.regexes.pop(key.regular_expression, None)
                else:
                    self.regexes[key.regular_expression] = frozenset(value.topics)

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id=member_id)

    def _put(self, old: Member | None, new: Member | None) -> None:
        """Replaces member `old` with `new` (None: no member) and updates all indexes."""
        self._note_subscription(old, new)
        if old is not None:
            for held in (old.assigned, old.revoking):
                for tp in held:
                    if self.owners.get(tp) == old.member_id:
                        del self.owners[tp]
            if old.instance_id is not None and self.by_instance.get(old.instance_id) == old.member_id:
                del self.by_instance[old.instance_id]
            self.members.pop(old.member_id, None)
        if new is not None:
            for held in (new.assigned, new.revoking):
                for tp in held:
                    self.owners[tp] = new.member_id
            if new.instance_id is not None:
                self.by_instance[new.instance_id] = new.member_id
            self.members[new.member_id] = new

    def _note_subscription(self, old: Member | None, new: Member | None) -> None:
        """Clears the cached `_subscribed`, unless `new` is a new member that adds no topics, or keeps its topics."""
        known = self._subscribed
        before = self.members.get(old.member_id) if old is not None else None
        if known is None or (before is None and new is None):
            return
        if before is not None and new is not None and before.subscription == new.subscription:
            return
        if before is not None or new is None or new.topic_regex or not new.topic_names <= known:
            self._subscribed = None
