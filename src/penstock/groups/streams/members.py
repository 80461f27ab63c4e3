"""Members of a streams group: one for each thread of each instance of the application (KIP-1071)."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.groups.consumer.members import JOINING, MemberState, Standing
from penstock.groups.streams.tasks import Task

HeldTasks = Mapping[Task, int]
"""Tasks that a member holds, and the epoch of the target that gave each to it."""
NOTHING_HELD: Final[HeldTasks] = MappingProxyType({})


class Endpoint(NamedTuple):
    """Where an instance answers interactive queries, as the application says."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """One member. What it says about itself comes first, then what it holds: the two are kept in records of their
    own."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """The instance that it belongs to. Members of one process share a state directory, so that two of them cannot
    hold the same task, not even in different roles."""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    revoking: HeldTasks = NOTHING_HELD
    """No longer assigned, and the member's own until it says that it gave them up."""

    def saying(self, other: "StreamsMember") -> "StreamsMember":
        """The member with what another one says about itself."""
        return _new_member((*other[:_HOLDS_FROM], *self[_HOLDS_FROM:]))

    def holding(self, other: "StreamsMember") -> "StreamsMember":
        """The member with what another one holds, and its epoch."""
        return _new_member((*self[:_HOLDS_FROM], *other[_HOLDS_FROM:]))

    @property
    def standing(self) -> Standing[Task]:
        return Standing(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def at(self, standing: Standing[Task]) -> "StreamsMember":
        return _new_member((*self[:_HOLDS_FROM], *standing))

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def must_revoke(self) -> bool:
        """Whether the rebalance timeout runs."""
        return self.state is MemberState.UNREVOKED_PARTITIONS and self.epoch > JOINING


_HOLDS_FROM: Final = StreamsMember._fields.index("epoch")
_new_member: Final = partial(tuple.__new__, StreamsMember)
