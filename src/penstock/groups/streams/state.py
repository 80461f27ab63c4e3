"""The persisted state of a streams group; it is changed only by applying records."""

from typing import Any

from penstock.groups.modern.state import ModernState
from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.records import StreamsGroupTopologyValue, StreamsRecords
from penstock.groups.streams.tasks import Role, Task
from penstock.groups.streams.topology import source_topics


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
        self.holders: dict[Task, frozenset[str]] = {}
        """Ids of the members that hold each task or are revoking it, by task; at most one for an active task."""

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
        keeps_tasks = member.epoch == self.target_epoch
        for role in Role:
            for member_id in self.holders.get(task.as_role(role), ()):
                if member_id == member.member_id:
                    if keeps_tasks and role is not task.role:
                        return False
                    continue
                is_processed = task.role is Role.ACTIVE and role is Role.ACTIVE
                if is_processed or self.members[member_id].process_id == member.process_id:
                    return False
        return True

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
        if old is not None:
            if new is None or old.assigned is not new.assigned or old.revoking is not new.revoking:
                for task in (*old.assigned, *old.revoking):
                    self._hold(task, self.holders.get(task, frozenset()) - {old.member_id})
            self.members.pop(old.member_id, None)
        if new is not None:
            for task in (*new.assigned, *new.revoking):
                self._hold(task, self.holders.get(task, frozenset()) | {new.member_id})
            self.members[new.member_id] = new

    def _hold(self, task: Task, member_ids: frozenset[str]) -> None:
        if member_ids:
            self.holders[task] = member_ids
        else:
            self.holders.pop(task, None)
