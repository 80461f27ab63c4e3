"""Builds the records of a consumer group in `__consumer_offsets` (KIP-848)."""

from collections.abc import Iterable
from typing import ClassVar

from penstock.groups import records
from penstock.groups.consumer.members import Member
from penstock.groups.modern.records import Change, PartitionRecords
from penstock.groups.records import GroupKey, MemberKey, RegularExpressionKey


class ConsumerRecords(PartitionRecords[Member]):
    group_kind = records.CONSUMER_GROUP_METADATA
    member_kind = records.CONSUMER_GROUP_MEMBER_METADATA
    target_epoch_kind = records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA
    target_kind = records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
    current_kind = records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT
    regex_kind = records.CONSUMER_GROUP_REGULAR_EXPRESSION
    kinds: ClassVar = {
        group_kind: (GroupKey, records.ConsumerGroupMetadataValue),
        member_kind: (MemberKey, records.ConsumerGroupMemberMetadataValue),
        target_epoch_kind: (GroupKey, records.ConsumerGroupTargetAssignmentMetadataValue),
        target_kind: (MemberKey, records.ConsumerGroupTargetAssignmentMemberValue),
        current_kind: (MemberKey, records.ConsumerGroupCurrentMemberAssignmentValue),
        regex_kind: (RegularExpressionKey, records.ConsumerGroupRegularExpressionValue),
    }

    def regex(self, text: str, topics: Iterable[str], version: int, at_ms: int) -> Change:
        value = records.ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=at_ms)
        return Change(self.regex_kind, self._regex_key(text), value)

    def regex_tombstone(self, text: str) -> Change:
        return Change(self.regex_kind, self._regex_key(text), None)

    def _regex_key(self, text: str) -> RegularExpressionKey:
        return RegularExpressionKey(group=self._group_id, regular_expression=text)
