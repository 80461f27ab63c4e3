"""Members of a share group (KIP-932): subscription, epoch and assigned partitions."""

from functools import partial
from typing import Final, NamedTuple

from penstock.foundation.ids import TopicIdPartition
from penstock.groups.consumer.members import JOINING

NOTHING_ASSIGNED: Final[frozenset[TopicIdPartition]] = frozenset()


class ShareMember(NamedTuple):
    """One member. The metadata comes first, then the current assignment: they are persisted in separate records."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    """An epoch that it may still use, in case the response with the newest one was lost."""
    assigned: frozenset[TopicIdPartition] = NOTHING_ASSIGNED

    def with_metadata_of(self, other: "ShareMember") -> "ShareMember":
        """Returns the member with the metadata of another one."""
        return _new_member((*other[:_ASSIGNMENT_FROM], *self[_ASSIGNMENT_FROM:]))

    def with_assignment_of(self, other: "ShareMember") -> "ShareMember":
        """Returns the member with the current assignment and epoch of another one."""
        return _new_member((*self[:_ASSIGNMENT_FROM], *other[_ASSIGNMENT_FROM:]))


_ASSIGNMENT_FROM: Final = ShareMember._fields.index("epoch")
_new_member: Final = partial(tuple.__new__, ShareMember)
