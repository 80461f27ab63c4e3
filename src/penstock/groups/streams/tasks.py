"""Tasks of a streams group, which are assigned to members in place of partitions (KIP-1071).

A subtopology has as many tasks as its largest source topic has partitions. The active task with index n processes
partition n of each source topic; a standby task, in another process, keeps a copy of the active task's state.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from penstock.wire.schema import Array

TaskId = tuple[str, int]
"""Subtopology id and partition index, which the active task and its standby tasks have in common."""


class Role(IntEnum):
    ACTIVE = 0
    STANDBY = 1


class Task(NamedTuple):
    role: Role
    subtopology_id: str
    partition: int


Tasks = frozenset[Task]
NO_TASKS: Tasks = frozenset()


class TaskIds(Protocol):
    """The typing.Protocol of messages that list tasks of one subtopology, in requests, responses and records."""

    @property
    def subtopology_id(self) -> str: ...

    @property
    def partitions(self) -> Array[int]: ...


def tasks_of(role: Role, ids: Iterable[TaskIds]) -> Tasks:
    return frozenset(Task(role, entry.subtopology_id, number) for entry in ids for number in entry.partitions)


def by_subtopology(role: Role, tasks: Iterable[Task]) -> Mapping[str, list[int]]:
    """Returns the partitions of the tasks with this role, by subtopology id; ids and partitions are sorted."""
    table: dict[str, list[int]] = {}
    for each, subtopology_id, number in tasks:
        if each is role:
            table.setdefault(subtopology_id, []).append(number)
    return {subtopology_id: sorted(table[subtopology_id]) for subtopology_id in sorted(table)}
