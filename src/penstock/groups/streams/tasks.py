"""Tasks of a streams group: the unit of assignment instead of partitions (KIP-1071).

A subtopology has as many tasks as the largest of its source topics has partitions. The active task processes the
partitions of that number; a standby task, on a member of another process, keeps a copy of its state.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from penstock.wire.schema import Array


class Role(IntEnum):
    ACTIVE = 0
    STANDBY = 1


class Task(NamedTuple):
    role: Role
    subtopology_id: str
    partition: int

    def as_role(self, role: Role) -> "Task":
        """Returns the task with the same state in another role."""
        return Task(role, self.subtopology_id, self.partition)


Tasks = frozenset[Task]
NO_TASKS: Tasks = frozenset()


class TaskIds(Protocol):
    """The tasks of one role in requests, responses and records."""

    @property
    def subtopology_id(self) -> str: ...

    @property
    def partitions(self) -> Array[int]: ...


def tasks_of(role: Role, ids: Iterable[TaskIds]) -> Tasks:
    return frozenset(Task(role, entry.subtopology_id, number) for entry in ids for number in entry.partitions)


def by_subtopology(role: Role, tasks: Iterable[Task]) -> Mapping[str, list[int]]:
    """Groups the partitions of the tasks of one role by subtopology, both sorted."""
    table: dict[str, list[int]] = {}
    for _, subtopology_id, number in sorted(task for task in tasks if task.role is role):
        table.setdefault(subtopology_id, []).append(number)
    return table
