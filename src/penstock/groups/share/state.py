"""The persisted state of a share group; it is changed only by applying records."""

from typing import Any

from penstock.foundation.ids import TopicIdPartition
from penstock.groups.modern.state import ModernState
from penstock.groups.share.members import ShareMember
from penstock.groups.share.records import NO_TOPICS, DeliveryTopics, ShareRecords


class ShareState(ModernState[ShareMember, TopicIdPartition]):
    """The persisted state of one share group."""

    records = ShareRecords

    def __init__(self) -> None:
        super().__init__()
        self.delivery_topics = NO_TOPICS
        self._subscribed: frozenset[str] | None = None
        """The cached result of `subscribed`; None if it has to be computed."""

    @property
    def name(self) -> str:
        return super().name if self.is_dead or not self.members else "Stable"

    def subscribed(self) -> frozenset[str]:
        if self._subscribed is None:
            self._subscribed = frozenset().union(*(member.topic_names for member in self.members.values()))
        return self._subscribed

    def apply(self, kind: int, key: Any, value: Any | None) -> None:
        if kind != ShareRecords.delivery_kind:
            super().apply(kind, key, value)
        elif value is None:
            self.delivery_topics = NO_TOPICS
        else:
            is_decoded = isinstance(value, DeliveryTopics)
            self.delivery_topics = value if is_decoded else DeliveryTopics.from_record(value)

    def new_member(self, member_id: str) -> ShareMember:
        return ShareMember(member_id=member_id)

    def _put(self, old: ShareMember | None, new: ShareMember | None) -> None:
        if old is None or new is None or old.topic_names is not new.topic_names:
            self._subscribed = None
        if new is not None:
            self.members[new.member_id] = new
        elif old is not None:
            del self.members[old.member_id]
