"""Members of a consumer group (KIP-848): subscription, epoch, assigned partitions, partitions to revoke."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.foundation.ids import TopicIdPartition
from penstock.groups.modern.members import JOINING, LEAVING, NOTHING_HELD, CurrentAssignment, MemberState, by_topic
from penstock.groups.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)

Held = Mapping[TopicIdPartition, int]
"""Partitions that a member holds, each with the target epoch in which it was assigned (KIP-1251)."""


class Member(NamedTuple):
    """One member of a consumer group; see ModernMember in modern/members.py."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    """Regular expression that the member subscribes to; empty if it subscribes by topic names only."""
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Metadata of a member that uses the classic protocol; None if it uses the consumer protocol."""
    epoch: int = JOINING
    previous_epoch: int = JOINING
    """Member epoch before the current one; accepted in requests, since the member may have missed a response."""
    state: MemberState = MemberState.STABLE
    assigned: Held = NOTHING_HELD
    revoking: Held = NOTHING_HELD
    """Partitions no longer assigned to the member, which it holds until it reports that it has revoked them."""

    @property
    def current_assignment(self) -> CurrentAssignment[TopicIdPartition]:
        return CurrentAssignment(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        """The topic names and the regular expression that the member subscribes to."""
        return self.topic_names, self.topic_regex

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def must_revoke(self) -> bool:
        """Whether the member has to revoke partitions within its rebalance timeout."""
        return self.state is MemberState.UNREVOKED_PARTITIONS and self.epoch > JOINING and self.classic is None

    def without_assignment(self) -> "Member":
        return self._replace(epoch=LEAVING, assigned=NOTHING_HELD, revoking=NOTHING_HELD)

    # -- records

    def metadata_record(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def with_metadata_record(self, value: ConsumerGroupMemberMetadataValue) -> "Member":
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def assignment_record(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_write_held(self.assigned),
            partitions_pending_revocation=_write_held(self.revoking),
        )

    def with_assignment_record(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "Member":
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_read_held(value.assigned_partitions, value.member_epoch),
            revoking=_read_held(value.partitions_pending_revocation, value.member_epoch),
        )


def _write_held(held: Held) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[held[TopicIdPartition(topic_id, number)] for number in numbers],
        )
        for topic_id, numbers in by_topic(held).items()
    ]


def _read_held(topics: Sequence[CurrentTopicPartitions], member_epoch: int) -> Held:
    """Decodes partitions with their epochs; uses `member_epoch` if a record (before KIP-1251) has no epochs."""
    held: dict[TopicIdPartition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        for number, epoch in zip(topic.partitions, epochs, strict=True):
            held[TopicIdPartition(topic.topic_id, number)] = epoch
    return held
