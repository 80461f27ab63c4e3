"""The persisted state of a streams group; it is changed only by applying records."""

from collections.abc import Set
from typing import Any, Final

from penstock.groups.modern.state import ModernState
from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.records import StreamsGroupTopologyValue, StreamsRecords
from penstock.groups.streams.tasks import NO_TASKS, Role, Task, TaskId
from penstock.groups.streams.topology import source_topics

NO_MEMBERS: Final[frozenset[str]] = frozenset()


class StreamsState(ModernState[StreamsMember, Task]):
    """The persisted state of one streams group."""

    records = StreamsRecords

    def __init__(self) -> None:
        super().__init__()
        self.validated_topology_epoch = -1
        """Epoch of the topology if all of its topics exist with the partition counts it needs, else -1."""
        self.assignment_configs: tuple[tuple[str, str], ...] = ()
        """Names and values of the settings that the target assignment depends on."""
        self.topology: StreamsGroupTopologyValue | None = None
        self.readers: dict[str, list[str]] = {}
        """Ids of the subtopologies that read from each topic, by topic name."""
        self.owners: dict[TaskId, str] = {}
        """Id of the member that holds each active task, either as assigned or as not yet revoked."""
        self.standbys: dict[TaskId, frozenset[str]] = {}
        """Ids of the members that hold standby tasks of each task, either as assigned or as not yet revoked."""

    # -- queries

    @property
    def name(self) -> str:
        is_ready = self.topology is not None and self.topology.epoch == self.validated_topology_epoch
        return super().name if self.is_dead or not self.members or is_ready else "NotReady"

    def subscribed(self) -> frozenset[str]:
        return frozenset(self.readers if self.members else ())

    def is_free(self, task: Task, member: StreamsMember) -> bool:
        """Returns whether `member` may get `task` now. No other member of its process may hold the task in any
        role. If `task` is active, no other member of the group may hold it as active. If `member` is already in
        the target epoch, it must not hold the task in the other role (active or standby)."""
        task_id = task.subtopology_id, task.partition
        owner, standbys = self.owners.get(task_id), self.standbys.get(task_id, NO_MEMBERS)
        if owner is None and not standbys:
            return True
        if member.epoch == self.target_epoch:
            in_other_role = standbys if task.role is Role.ACTIVE else {owner}
            if member.member_id in in_other_role:
                return False
        others = (standbys if owner is None else standbys | {owner}) - {member.member_id}
        if task.role is Role.ACTIVE and owner in others:
            return False
        return all(self.members[other].process_id != member.process_id for other in others)

    # -- changes

    def apply(self, kind: int, key: Any, value: Any | None) -> None:
        super().apply(kind, key, value)
        if kind == StreamsRecords.group_kind:
            self.validated_topology_epoch = value.validated_topology_epoch if value else -1
            configs = (value.last_assignment_configs or ()) if value else ()
            self.assignment_configs = tuple((entry.key, entry.value) for entry in configs)
        elif kind == StreamsRecords.topology_kind:
            self.topology, self.readers = value, {}
            for one in value.subtopologies if value else ():
                for name in source_topics(one):
                    self.readers.setdefault(name, []).append(one.subtopology_id)

    def new_member(self, member_id: str) -> StreamsMember:
        return StreamsMember(member_id=member_id)

    def _put(self, old: StreamsMember | None, new: StreamsMember | None) -> None:
        if old is None or new is None or old.assigned is not new.assigned or old.revoking is not new.revoking:
            self._update_holders(old, new)
        if old is not None:
            self.members.pop(old.member_id, None)
        if new is not None:
            self.members[new.member_id] = new

    def _update_holders(self, old: StreamsMember | None, new: StreamsMember | None) -> None:
        before, after = _held(old), _held(new)
        if old is not None:
            for role, subtopology_id, number in before - after:
                task_id = subtopology_id, number
                if role is Role.STANDBY:
                    rest = self.standbys.pop(task_id, NO_MEMBERS) - {old.member_id}
                    if rest:
                        self.standbys[task_id] = rest
                elif self.owners.get(task_id) == old.member_id:
                    del self.owners[task_id]
        if new is not None:
            for role, subtopology_id, number in after - before:
                task_id = subtopology_id, number
                if role is Role.STANDBY:
                    self.standbys[task_id] = self.standbys.get(task_id, NO_MEMBERS) | {new.member_id}
                else:
                    self.owners[task_id] = new.member_id


def _held(member: StreamsMember | None) -> Set[Task]:
    return member.assigned.keys() | member.revoking.keys() if member is not None else NO_TASKS
