"""Members of a streams group: one for each thread of each instance of the application (KIP-1071)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.groups.modern.members import JOINING, LEAVING, NOTHING_HELD, CurrentAssignment, MemberState
from penstock.groups.streams.records import (
    CurrentTaskIds,
    EndpointValue,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)
from penstock.groups.streams.tasks import Role, Task

HeldTasks = Mapping[Task, int]
"""Tasks that a member holds, each with the target epoch in which it was assigned."""


class Endpoint(NamedTuple):
    """Host and port at which an application instance serves interactive queries."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """One member of a streams group; see ModernMember in modern/members.py."""

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
    """Tasks no longer assigned to the member, which it holds until it reports that it has revoked them."""

    @property
    def current_assignment(self) -> CurrentAssignment[Task]:
        return CurrentAssignment(self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def must_revoke(self) -> bool:
        """Whether the member has to revoke tasks within its rebalance timeout."""
        return self.state is MemberState.UNREVOKED_PARTITIONS and self.epoch > JOINING

    def without_assignment(self) -> "StreamsMember":
        return self._replace(epoch=LEAVING, assigned=NOTHING_HELD, revoking=NOTHING_HELD)

    # -- records

    def metadata_record(self) -> StreamsGroupMemberMetadataValue:
        endpoint = self.user_endpoint
        return StreamsGroupMemberMetadataValue(
            instance_id=None,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=EndpointValue(host=endpoint.host, port=endpoint.port) if endpoint else None,
            client_tags=[KeyValue(key=key, value=value) for key, value in self.client_tags],
        )

    def with_metadata_record(self, value: StreamsGroupMemberMetadataValue) -> "StreamsMember":
        endpoint = value.user_endpoint
        return self._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=Endpoint(endpoint.host, endpoint.port) if endpoint else None,
            client_tags=tuple((entry.key, entry.value) for entry in value.client_tags),
        )

    def assignment_record(self) -> StreamsGroupCurrentMemberAssignmentValue:
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=_write_held(Role.ACTIVE, self.assigned),
            standby_tasks=_write_held(Role.STANDBY, self.assigned),
            warmup_tasks=(),
            active_tasks_pending_revocation=_write_held(Role.ACTIVE, self.revoking),
            standby_tasks_pending_revocation=_write_held(Role.STANDBY, self.revoking),
            warmup_tasks_pending_revocation=(),
        )

    def with_assignment_record(self, value: StreamsGroupCurrentMemberAssignmentValue) -> "StreamsMember":
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_read_held(value.active_tasks, value.standby_tasks, value.member_epoch),
            revoking=_read_held(
                value.active_tasks_pending_revocation, value.standby_tasks_pending_revocation, value.member_epoch
            ),
        )


def _write_held(role: Role, held: HeldTasks) -> list[CurrentTaskIds]:
    epochs: dict[str, dict[int, int]] = {}
    for (each, subtopology_id, number), epoch in held.items():
        if each is role:
            epochs.setdefault(subtopology_id, {})[number] = epoch
    return [
        CurrentTaskIds(
            subtopology_id=subtopology_id,
            partitions=sorted(found),
            assignment_epochs=[found[number] for number in sorted(found)],
        )
        for subtopology_id, found in sorted(epochs.items())
    ]


def _read_held(active: Iterable[CurrentTaskIds], standby: Iterable[CurrentTaskIds], member_epoch: int) -> HeldTasks:
    """Decodes tasks with the epoch of each; standby tasks have no epochs in records and get `member_epoch`."""
    held: dict[Task, int] = {}
    for role, ids in ((Role.ACTIVE, active), (Role.STANDBY, standby)):
        for entry in ids:
            epochs = entry.assignment_epochs
            if epochs is None or len(epochs) != len(entry.partitions):
                epochs = [max(member_epoch, 0)] * len(entry.partitions)
            for number, epoch in zip(entry.partitions, epochs, strict=True):
                held[Task(role, entry.subtopology_id, number)] = epoch
    return held
