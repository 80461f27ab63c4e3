"""The persisted state of a consumer group; it is changed only by applying records."""

from typing import Any

from penstock.foundation.ids import TopicIdPartition
from penstock.groups.consumer.members import Member
from penstock.groups.consumer.records import ConsumerRecords
from penstock.groups.modern.state import ModernState


class ConsumerState(ModernState[Member, TopicIdPartition]):
    """The persisted state of one consumer group."""

    records = ConsumerRecords

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[TopicIdPartition, str] = {}
        """Id of the member that holds each partition, either as assigned or as not yet revoked."""
        self.regexes: dict[str, frozenset[str]] = {}
        """The names of the topics that match each regular expression of the subscriptions."""
        self._subscribed: frozenset[str] | None = None
        """The cached result of `subscribed`; None if it has to be computed."""

    def copy(self) -> "ConsumerState":
        self.subscribed()  # cached for the copy, too: needed after most changes, and few change it
        return super().copy()

    # -- queries

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
        if kind != ConsumerRecords.regex_kind:
            super().apply(kind, key, value)
            return
        self._subscribed = None
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = frozenset(value.topics)

    def new_member(self, member_id: str) -> Member:
        return Member(member_id=member_id)

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
        """Clears the cached `_subscribed` if replacing `old` with `new` may change the subscribed topics."""
        known = self._subscribed
        before = self.members.get(old.member_id) if old is not None else None
        if known is None or (before is None and new is None):
            return
        if before is not None and new is not None and before.subscription == new.subscription:
            return
        if before is not None or new is None or new.topic_regex or not new.topic_names <= known:
            self._subscribed = None
