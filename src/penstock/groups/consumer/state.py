"""What a consumer group remembers. All of it stands in records, and `apply` is the only place that changes it."""

from typing import Any

from penstock.groups import records
from penstock.groups.consumer.members import LEAVING, NOTHING_HELD, Member, TopicIdPartition
from penstock.groups.consumer.records import read_current, read_metadata, read_target


class GroupState:
    """One consumer group, as its records say."""

    def __init__(self) -> None:
        self.epoch = 0
        """Counts the changes of membership, of subscriptions and of topics."""
        self.metadata_hash = 0
        self.target_epoch = 0
        """The group epoch that the target was worked out for."""
        self.members: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        """Ids of static members, by their instance ids."""
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        """Who holds a partition, be it to give it up: nobody else gets it before."""
        self.regexes: dict[str, frozenset[str]] = {}
        """The topics that each expression has matched."""
        self.is_dead = False
        self._subscribed: frozenset[str] | None = None
        """Worked out when it is asked for."""

    def copy(self) -> "GroupState":
        """Another one that can be changed; members and targets are values and shared."""
        made = GroupState()
        made.epoch, made.metadata_hash, made.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        made.members, made.by_instance = dict(self.members), dict(self.by_instance)
        made.targets, made.owners = dict(self.targets), dict(self.owners)
        made.regexes, made.is_dead = dict(self.regexes), self.is_dead
        made._subscribed = self.subscribed()  # it is asked for after most changes, and few change it
        return made

    # -- what follows from it

    @property
    def name(self) -> str:
        """The group's state, as Kafka's tools show it."""
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
        """The names that a member subscribes to, its expression resolved."""
        if not member.topic_regex:
            return member.topic_names
        if not member.topic_names:
            return self.regexes.get(member.topic_regex, frozenset())
        return member.topic_names | self.regexes.get(member.topic_regex, frozenset())

    def subscribed(self) -> frozenset[str]:
        """The names that any member subscribes to."""
        if self._subscribed is None:
            by_name = (member.topic_names for member in self.members.values())
            by_regex = (self.regexes.get(text, frozenset()) for text in self.expressions())
            self._subscribed = frozenset().union(*by_name, *by_regex)
        return self._subscribed

    def expressions(self) -> set[str]:
        """The regular expressions that any member subscribes by."""
        return {member.topic_regex for member in self.members.values() if member.topic_regex}

    # -- changing it

    def apply(self, kind: int, key: Any, value: Any | None) -> None:
        """A record holds from now on. What a compacted log has lost is not missed: any order will do."""
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
        """A member in the place of what it was, and with it all that is found by it."""
        self._note_subscription(old, new)
        if old is not None:
            for held in (old.assigned, old.revoking):
                for place in held:
                    if self.owners.get(place) == old.member_id:
                        del self.owners[place]
            if old.instance_id is not None and self.by_instance.get(old.instance_id) == old.member_id:
                del self.by_instance[old.instance_id]
            self.members.pop(old.member_id, None)
        if new is not None:
            for held in (new.assigned, new.revoking):
                for place in held:
                    self.owners[place] = new.member_id
            if new.instance_id is not None:
                self.by_instance[new.instance_id] = new.member_id
            self.members[new.member_id] = new

    def _note_subscription(self, old: Member | None, new: Member | None) -> None:
        """What all subscribe to together stays as it is if one comes who wants no more than that."""
        known = self._subscribed
        before = self.members.get(old.member_id) if old is not None else None
        if known is None or (before is None and new is None):
            return
        if before is not None and new is not None and before.subscription == new.subscription:
            return
        if before is not None or new is None or new.topic_regex or not new.topic_names <= known:
            self._subscribed = None
