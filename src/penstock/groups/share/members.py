"""Members of a share group (KIP-932): subscription, epoch and assigned partitions."""

from typing import Final, NamedTuple

from penstock.foundation.ids import TopicIdPartition
from penstock.groups.modern.members import JOINING, LEAVING, MemberState
from penstock.groups.modern.records import read_partitions, write_partitions
from penstock.groups.records import ShareGroupCurrentMemberAssignmentValue, ShareGroupMemberMetadataValue

NOTHING_ASSIGNED: Final[frozenset[TopicIdPartition]] = frozenset()


class ShareMember(NamedTuple):
    """One member of a share group; see ModernMember in modern/members.py."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    """Member epoch before the current one; accepted in requests, since the member may have missed a response."""
    assigned: frozenset[TopicIdPartition] = NOTHING_ASSIGNED

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.epoch == epoch

    def without_assignment(self) -> "ShareMember":
        return self._replace(epoch=LEAVING, assigned=NOTHING_ASSIGNED)

    # -- records

    def metadata_record(self) -> ShareGroupMemberMetadataValue:
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topic_names),
        )

    def with_metadata_record(self, value: ShareGroupMemberMetadataValue) -> "ShareMember":
        return self._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
        )

    def assignment_record(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=MemberState.STABLE,  # nothing has to be revoked first
            assigned_partitions=write_partitions(self.assigned),
        )

    def with_assignment_record(self, value: ShareGroupCurrentMemberAssignmentValue) -> "ShareMember":
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=read_partitions(value.assigned_partitions),
        )
