"""Members of a share group (KIP-932): subscription, epoch and assigned partitions."""

from functools import partial
from typing import Final, NamedTuple

from penstock.foundation.ids import TopicIdPartition
from penstock.groups.consumer.members import JOINING

NOTHING_ASSIGNED: Final[frozenset[TopicIdPartition]] = frozenset()


class ShareMember(NamedTuple):
    """One member. Metadata fields come first, then the current assignment: each is persisted in its own record."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    """The last epoch, which the member may still use if the response with the current epoch was lost."""
    assigned: frozenset[TopicIdPartition] = NOTHING_ASSIGNED

    def with_metadata_of(self, other: "ShareMember") -> "ShareMember":
        """Returns this member's current assignment combined with the metadata of `other`."""
        return _new_member((*other[:_ASSIGNMENT_FROM], *self[_ASSIGNMENT_FROM:]))

    def with_assignment_of(self, other: "ShareMember") -> "ShareMember":
        """Returns this member's metadata combined with the current assignment and epoch of `other`."""
        return _new_member((*self[:_ASSIGNMENT_FROM], *other[_ASSIGNMENT_FROM:]))


_ASSIGNMENT_FROM: Final = ShareMember._fields.index("epoch")
_new_member: Final = partial(tuple.__new__, ShareMember)
