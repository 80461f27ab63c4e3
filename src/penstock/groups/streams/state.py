"""The persisted state of a streams group; it is changed only by applying records."""

from typing import Any

from penstock.groups.consumer.members import LEAVING
from penstock.groups.streams import records
from penstock.groups.streams.members import NOTHING_HELD, StreamsMember
from penstock.groups.streams.records import StreamsGroupTopologyValue, read_current, read_metadata, read_target
from penstock.groups.streams.tasks import Role, Task, Tasks


class StreamsState:
    """The persisted state of one streams group."""

    def __init__(self) -> None:
        self.epoch = 0
        """The group epoch, incremented when members, topology, topics or assignment settings change."""
        self.metadata_hash = 0
        self.validated_topology_epoch = -1
        """Epoch of the topology if all its topics exist with the right partitions, else -1."""
        self.assignment_configs: tuple[tuple[str, str], ...] = ()
        """Names and values of the settings that the target assignment depends on."""
        self.target_epoch = 0
        """The group epoch for which the target assignment was computed."""
        self.topology: StreamsGroupTopologyValue | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, Tasks] = {}
        self.holders: dict[Task, frozenset[str]] = {}
        """Ids of the members that hold each task or are revoking it. An active task has at most one."""
        self.is_dead = False

    def copy(self) -> "StreamsState":
        """Returns a copy that can be changed; it shares members and targets, which are immutable."""
        copied = StreamsState()
        copied.epoch, copied.metadata_hash = self.epoch, self.metadata_hash
        copied.validated_topology_epoch = self.validated_topology_epoch
        copied.assignment_configs, copied.target_epoch = self.assignment_configs, self.target_epoch
        copied.topology, copied.is_dead = self.topology, self.is_dead
        copied.members, copied.targets, copied.holders = dict(self.members), dict(self.targets), dict(self.holders)
        return copied

    # -- queries

    @property
    def name(self) -> str:
        """The name of the group state, as Kafka's tools show it."""
        if self.is_dead:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def is_free(self, task: Task, member: StreamsMember) -> bool:
        """Whether a member may get a task: no other member runs it, and no member of its process has its state.

        The member's own tasks count only within an epoch, in which it keeps them: see `reconcile`.
        """
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
        """Applies a record. Records may arrive in any order, and compaction may have removed some of them."""
        match kind:
            case records.STREAMS_GROUP_METADATA:
                self.is_dead = value is None
                self.epoch = value.epoch if value else 0
                self.metadata_hash = value.metadata_hash if value else 0
                self.validated_topology_epoch = value.validated_topology_epoch if value else -1
                configs = (value.last_assignment_configs or ()) if value else ()
                self.assignment_configs = tuple((entry.key, entry.value) for entry in configs)
            case records.STREAMS_GROUP_TOPOLOGY:
                self.topology = value
            case records.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA:
                self.target_epoch = value.assignment_epoch if value else 0
            case records.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER:
                if value is None:
                    self.targets.pop(key.member_id, None)
                else:
                    self.targets[key.member_id] = read_target(value)
            case records.STREAMS_GROUP_MEMBER_METADATA:
                if value is None:
                    self._put(self.members.get(key.member_id), None)
                else:
                    member = self._member(key.member_id)
                    self._put(member, read_metadata(member, value))
            case records.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT:
                if value is not None:
                    member = self._member(key.member_id)
                    self._put(member, read_current(member, value))
                elif key.member_id in self.members:
                    member = self.members[key.member_id]
                    self._put(member, member._replace(epoch=LEAVING, assigned=NOTHING_HELD, revoking=NOTHING_HELD))

    def _member(self, member_id: str) -> StreamsMember:
        return self.members.get(member_id) or StreamsMember(member_id=member_id)

    def _put(self, old: StreamsMember | None, new: StreamsMember | None) -> None:
        """Replaces member `old` with `new` (None: no member) and updates all indexes."""
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
