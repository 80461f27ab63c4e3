"""Tasks: what the members of a streams group are assigned in place of partitions.

A subtopology has as many tasks as the largest of its source topics has partitions. The active task processes the
partitions of that number; a standby task, at a member of another process, keeps a copy of its state.
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
        """The task of the same state in another role."""
        return Task(role, self.subtopology_id, self.partition)


Tasks = frozenset[Task]
NO_TASKS: Tasks = frozenset()


class TaskIds(Protocol):
    """How requests, responses and records write tasks of one role."""

    @property
    def subtopology_id(self) -> str: ...

    @property
    def partitions(self) -> Array[int]: ...


def tasks_of(role: Role, ids: Iterable[TaskIds]) -> Tasks:
    return frozenset(Task(role, entry.subtopology_id, number) for entry in ids for number in entry.partitions)


def by_subtopology(role: Role, tasks: Iterable[Task]) -> Mapping[str, list[int]]:
    """The partitions of the tasks of one role, in order, by subtopologies in order."""
    table: dict[str, list[int]] = {}
    for _, subtopology_id, number in sorted(task for task in tasks if task.role is role):
        table.setdefault(subtopology_id, []).append(number)
    return table
