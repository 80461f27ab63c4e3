"""Computes the target assignment of a streams group: the tasks of each member (KIP-1071). Pure.

The targets of large groups are computed in time slices: see modern/target_assignment.py.
"""

from typing import Final

from penstock.foundation.steps import Steps
from penstock.groups.streams.assignor import STEP, Assignments, Worker, assign_sticky
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.tasks import NO_TASKS
from penstock.groups.streams.topology import ConfiguredTopology

COST_AT_ONCE: Final = 500
"""Maximum number of tasks plus members of a group whose target is computed at once, in about 4 milliseconds."""


def is_large(state: StreamsState, configured: ConfiguredTopology, standbys: int) -> bool:
    """Whether computing the target assignment at once would block the event loop for too long."""
    tasks = sum(configured.task_counts.values()) * (1 + standbys)
    held = sum(map(len, state.targets.values()))
    return tasks + held + len(state.members) > COST_AT_ONCE


def compute_assignments(state: StreamsState, configured: ConfiguredTopology, standbys: int) -> Steps[Assignments]:
    """Computes the tasks of each member; no tasks if topics are missing. A generator; `state` must not change."""
    workers = []
    for count, member in enumerate(state.members.values(), 1):
        if not count % STEP:
            yield
        held = state.targets.get(member.member_id, NO_TASKS)
        workers.append(Worker(member.member_id, member.process_id, held))
    if not configured.is_ready:
        return {worker.member_id: NO_TASKS for worker in workers}
    return (yield from assign_sticky(workers, configured.task_counts, configured.stateful, standbys))
