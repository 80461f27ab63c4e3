"""Builds and reads the records of a share group in `__consumer_offsets` (KIP-932)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

from penstock.groups import records
from penstock.groups.modern.records import Change, PartitionRecords
from penstock.groups.records import (
    GroupKey,
    MemberKey,
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from penstock.groups.share.members import ShareMember


class DeliveryTopics(NamedTuple):
    """The topics in which a share group has delivery state (which messages are in flight or acknowledged), and the
    topics where that state is being deleted."""

    topics: Mapping[bytes, tuple[str, int]]
    """Name and number of partitions of each topic with delivery state, by topic id."""
    deleting: Mapping[bytes, str]

    def to_record(self) -> ShareGroupStatePartitionMetadataValue:
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=(),
            initialized_topics=[
                TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=range(count))
                for topic_id, (name, count) in sorted(self.topics.items())
            ],
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in sorted(self.deleting.items())
            ],
        )

    @classmethod
    def from_record(cls, value: ShareGroupStatePartitionMetadataValue) -> "DeliveryTopics":
        # A topic that another broker was initializing has delivery state as soon as a member fetches from it.
        found = [*value.initializing_topics, *value.initialized_topics]
        return cls(
            {topic.topic_id: (topic.topic_name, len(topic.partitions)) for topic in found},
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )


NO_TOPICS: Final = DeliveryTopics({}, {})


class ShareRecords(PartitionRecords[ShareMember]):
    group_kind = records.SHARE_GROUP_METADATA
    member_kind = records.SHARE_GROUP_MEMBER_METADATA
    target_epoch_kind = records.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA
    target_kind = records.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER
    current_kind = records.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT
    delivery_kind = records.SHARE_GROUP_STATE_PARTITION_METADATA
    kinds: ClassVar = {
        group_kind: (GroupKey, records.ShareGroupMetadataValue),
        member_kind: (MemberKey, records.ShareGroupMemberMetadataValue),
        target_epoch_kind: (GroupKey, records.ShareGroupTargetAssignmentMetadataValue),
        target_kind: (MemberKey, records.ShareGroupTargetAssignmentMemberValue),
        current_kind: (MemberKey, records.ShareGroupCurrentMemberAssignmentValue),
        delivery_kind: (GroupKey, ShareGroupStatePartitionMetadataValue),
    }

    def delivery_topics(self, value: DeliveryTopics) -> Change:
        return Change(self.delivery_kind, GroupKey(group=self._group_id), value)

    def encode(self, kind: int, value: Any) -> Any:
        return value.to_record() if kind == self.delivery_kind else super().encode(kind, value)
