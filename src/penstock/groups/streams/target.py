"""The target of a streams group: which member is to have which tasks once all have reconciled (KIP-1071). Pure.

Where a group is large, it is computed in pieces: see groups/target_assignment.py.
"""

from collections.abc import Iterator
from typing import Final

from penstock.foundation.steps import Steps, run_steps
from penstock.groups.changes import Change
from penstock.groups.streams import records
from penstock.groups.streams.assignor import STEP, Shares, Worker, assign_sticky
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.tasks import NO_TASKS
from penstock.groups.streams.topology import Configured

COST_AT_ONCE: Final = 500
"""Tasks and members that are assigned at once: about four milliseconds."""


def is_large(state: StreamsState, configured: Configured, standbys: int) -> bool:
    """Whether it takes too long to compute the target at once."""
    tasks = sum(configured.task_counts.values()) * (1 + standbys)
    held = sum(map(len, state.targets.values()))
    return tasks + held + len(state.members) > COST_AT_ONCE


def new_target(
    group_id: str, state: StreamsState, configured: Configured, standbys: int, now_ms: int
) -> Iterator[Change]:
    """Compute the target for the group's epoch: what differs from the last one, and its epoch."""
    for member_id, share in run_steps(shares_of(state, configured, standbys)).items():
        if state.targets.get(member_id) != share:
            yield records.target(group_id, member_id, share)
    yield records.target_epoch(group_id, state.epoch, now_ms)


def shares_of(state: StreamsState, configured: Configured, standbys: int) -> Steps[Shares]:
    """What each member is to have; nothing while the topics are not there. `state` must not change meanwhile."""
    workers = []
    for count, member in enumerate(state.members.values(), 1):
        if not count % STEP:
            yield
        held = state.targets.get(member.member_id, NO_TASKS)
        workers.append(Worker(member.member_id, member.process_id, held))
    if not configured.is_ready:
        return {worker.member_id: NO_TASKS for worker in workers}
    return (yield from assign_sticky(workers, configured.task_counts, configured.stateful, standbys))
