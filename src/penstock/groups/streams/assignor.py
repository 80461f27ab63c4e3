"""Kafka's sticky assignor for streams groups: which member gets which tasks (KIP-1071). Pure.

Members get about equal numbers of tasks. As far as loads stay balanced, a task stays with its member, or moves to a
member that has a standby of the task. The members (threads) of one process share its load, and a process has a task
either as active or as standby, never both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from penstock.foundation.steps import Steps
from penstock.groups.streams.tasks import Role, Task, Tasks

STICKY: Final = "sticky"
STEP: Final = 200
"""Number of tasks assigned between two yields of a generator, about a millisecond of work."""

Assignments = dict[str, Tasks]
"""The tasks of each member, by member id."""
State = tuple[str, int]
"""Identifies the state that an active task and its standby tasks share: subtopology id and partition index."""


class Worker(NamedTuple):
    """A member of a streams group, as input of the assignor."""

    member_id: str
    process_id: str
    held: Tasks = frozenset()
    """The member's tasks in the last target assignment."""


@dataclass(slots=True)
class _Member:
    worker: Worker
    process: "_Process"
    tasks: list[Task] = field(default_factory=list)

    @property
    def load(self) -> int:
        return len(self.tasks)


@dataclass(slots=True)
class _Process:
    process_id: str
    members: list[_Member] = field(default_factory=list)
    states: set[State] = field(default_factory=set)
    """Subtopology id and partition index of every task that the members of the process have, active or standby."""

    @property
    def load(self) -> float:
        return len(self.states) / len(self.members)

    def least_loaded(self) -> _Member:
        return min(self.members, key=lambda member: (member.load, member.worker.member_id))


def _by_load(member: _Member) -> tuple[float, int, str]:
    return member.process.load, member.load, member.worker.member_id


class _Quota:
    """Maximum number of tasks per member for a balanced load. Each time a member reaches it, the maximum is computed
    again from the tasks and members that remain."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.each = -(-tasks // members)

    def filled(self, load: int) -> None:
        if load == self.each and self._members:
            self._tasks -= load
            self._members -= 1
            self.each = -(-self._tasks // self._members) if self._members else 0


def assign_sticky(
    workers: Iterable[Worker], task_counts: Mapping[str, int], stateful: frozenset[str], standbys: int
) -> Steps[Assignments]:
    """Assigns all tasks; a generator. Stateful tasks get `standbys` standby tasks each, if processes suffice."""
    sticky = _Sticky(workers)
    if not sticky.members:
        return {}
    active = [(name, number) for name, count in task_counts.items() for number in range(count)]
    copied = [state for state in active if state[0] in stateful] if standbys else []
    yield from sticky.assign_active(active, _Quota(len(active) + len(copied) * standbys, len(sticky.members)))
    if copied:
        yield from sticky.assign_standby(copied, standbys)
    return {member_id: frozenset(member.tasks) for member_id, member in sticky.members.items()}


class _Sticky:
    def __init__(self, workers: Iterable[Worker]) -> None:
        self.members: dict[str, _Member] = {}
        self._processes: dict[str, _Process] = {}
        self._was_active: dict[State, _Member] = {}
        self._was_standby: dict[State, list[_Member]] = {}
        self._total = _Quota(0, 1)
        for worker in sorted(workers, key=lambda worker: worker.member_id):
            process = self._processes.setdefault(worker.process_id, _Process(worker.process_id))
            member = self.members[worker.member_id] = _Member(worker, process)
            process.members.append(member)
            for task in worker.held:
                state = (task.subtopology_id, task.partition)
                if task.role is Role.ACTIVE:
                    self._was_active[state] = member
                else:
                    self._was_standby.setdefault(state, []).append(member)

    def assign_active(self, states: list[State], total: _Quota) -> Steps[None]:
        """Assigns each task to its last member, else to one that had a standby, else to the least loaded process."""
        quota, self._total = _Quota(len(states), len(self.members)), total
        left: list[State] = []
        for count, state in enumerate(sorted(states, key=lambda state: (state[1], state[0])), 1):
            if not count % STEP:
                yield
            member = self._was_active.get(state)
            if member is None or member.load >= quota.each:
                left.append(state)
            else:
                quota.filled(self._give(member, Role.ACTIVE, state))
        fresh: list[State] = []
        for count, state in enumerate(left, 1):
            if not count % STEP:
                yield
            member = min(self._was_standby.get(state, ()), key=_by_load, default=None)
            if member is None or member.load >= quota.each:
                fresh.append(state)
            else:
                quota.filled(self._give(member, Role.ACTIVE, state))
        yield from self._spread(sorted(fresh), Role.ACTIVE)

    def assign_standby(self, states: list[State], standbys: int) -> Steps[None]:
        """Assigns `standbys` standby tasks for each of `states` (subtopology id and partition index of a stateful
        active task): first to members that had the active or a standby task before, then to the least loaded
        processes."""
        left: list[State] = []
        order = sorted(states, key=lambda state: (state[1], state[0]), reverse=True)
        for count, state in enumerate(order, 1):
            if not count % STEP:
                yield
            known = sorted(self._was_standby.get(state, ()), key=_by_load)
            if state in self._was_active:
                known.insert(0, self._was_active[state])
            given = 0
            for member in known:
                if given < standbys and state not in member.process.states and member.load < self._total.each:
                    self._give(member, Role.STANDBY, state)
                    given += 1
            left += [state] * (standbys - given)
        yield from self._spread(sorted(left, reverse=True), Role.STANDBY)

    def _spread(self, states: Iterable[State], role: Role) -> Steps[None]:
        """Assigns a task of the given role (active or standby) for each of `states` (subtopology id and partition
        index) to the least loaded process that has no task for the same `states` entry yet. Assigns none if there is
        no such process."""
        heap = [(process.load, process.process_id) for process in self._processes.values()]
        heapify(heap)
        for count, state in enumerate(states, 1):
            if not count % STEP:
                yield
            passed = []
            while heap:
                entry = heappop(heap)
                process = self._processes[entry[1]]
                if state not in process.states:
                    self._give(process.least_loaded(), role, state)
                    passed.append((process.load, process.process_id))
                    break
                passed.append(entry)
            for entry in passed:
                heappush(heap, entry)

    def _give(self, member: _Member, role: Role, state: State) -> int:
        """Assigns to `member` the task of subtopology and partition `state`, as active or standby (`role`). Returns
        the number of tasks that the member has then."""
        member.tasks.append(Task(role, *state))
        member.process.states.add(state)
        self._total.filled(member.load)
        return member.load
