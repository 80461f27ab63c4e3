"""Members of a share group (KIP-932): what they ask for, and what they are to fetch from."""

from functools import partial
from typing import Final, NamedTuple

from penstock.groups.consumer.members import JOINING, TopicIdPartition

NOTHING_ASSIGNED: Final[frozenset[TopicIdPartition]] = frozenset()


class ShareMember(NamedTuple):
    """One member. What it says about itself comes first, then what it has: each is kept in a record of its own."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    """The epoch that it may still speak of, if the response that told it the newest was lost."""
    assigned: frozenset[TopicIdPartition] = NOTHING_ASSIGNED

    def saying(self, other: "ShareMember") -> "ShareMember":
        """The member with what another one says about itself."""
        return _new_member((*other[:_HAS_FROM], *self[_HAS_FROM:]))

    def having(self, other: "ShareMember") -> "ShareMember":
        """The member with what another one has, and how far that one has come."""
        return _new_member((*self[:_HAS_FROM], *other[_HAS_FROM:]))


_HAS_FROM: Final = ShareMember._fields.index("epoch")
_new_member: Final = partial(tuple.__new__, ShareMember)
