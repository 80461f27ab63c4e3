"""Members of a streams group: one for each thread of each instance of the application (KIP-1071)."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.groups.consumer.members import JOINING, CurrentAssignment, MemberState
from penstock.groups.streams.tasks import Task

HeldTasks = Mapping[Task, int]
"""Tasks that a member holds, each with the target epoch in which it was assigned."""
NOTHING_HELD: Final[HeldTasks] = MappingProxyType({})


class Endpoint(NamedTuple):
    """Host and port at which an application instance serves interactive queries."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """One member. Metadata fields come first, then the current assignment: each is persisted in its own record."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """Id of the process that the member belongs to. Members of one process share a state directory: no two of them
    can hold the same task, not even in different roles."""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    revoking: HeldTasks = NOTHING_HELD
    """Tasks no longer assigned, but held until the member reports that it has revoked them."""

    def with_metadata_of(self, other: "StreamsMember") -> "StreamsMember":
        """Returns this member's current assignment combined with the metadata of `other`."""
        return _new_member((*other[:_ASSIGNMENT_FROM], *self[_ASSIGNMENT_FROM:]))

    def with_assignment_of(self, other: "StreamsMember") -> "StreamsMember":
        """Returns this member's metadata combined with the current assignment and epoch of `other`."""
        return _new_member((*self[:_ASSIGNMENT_FROM], *other[_ASSIGNMENT_FROM:]))

    @property
    def current_assignment(self) -> CurrentAssignment[Task]:
        return CurrentAssignment(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def with_assignment(self, current_assignment: CurrentAssignment[Task]) -> "StreamsMember":
        return _new_member((*self[:_ASSIGNMENT_FROM], *current_assignment))

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def must_revoke(self) -> bool:
        """Whether the member has to revoke tasks within its rebalance timeout."""
        return self.state is MemberState.UNREVOKED_PARTITIONS and self.epoch > JOINING


_ASSIGNMENT_FROM: Final = StreamsMember._fields.index("epoch")
_new_member: Final = partial(tuple.__new__, StreamsMember)
