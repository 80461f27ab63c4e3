"""Which tasks a member of a streams group may get."""

from penstock.groups.modern.members import MemberState
from penstock.groups.modern.reconciliation import ReconciliationContext, reconcile
from penstock.groups.streams.members import StreamsMember
from penstock.groups.streams.state import StreamsState
from penstock.groups.streams.tasks import Role, Task

ACTIVE, STANDBY, OTHER = Task(Role.ACTIVE, "1", 4), Task(Role.STANDBY, "1", 4), Task(Role.ACTIVE, "1", 2)


def state_of(target_epoch: int, *members: StreamsMember) -> StreamsState:
    state = StreamsState()
    state.target_epoch = target_epoch
    for member in members:
        state._put(None, member)
    return state


def member_of(member_id: str, process_id: str, *held: Task, epoch: int = 5) -> StreamsMember:
    waits = MemberState.UNRELEASED_PARTITIONS
    return StreamsMember(member_id, process_id=process_id, epoch=epoch, state=waits, assigned=dict.fromkeys(held, 5))


def test_a_member_does_not_get_a_task_in_a_second_role_while_the_next_target_is_written() -> None:
    """Within an epoch the member keeps its standby task, though the next target has the task as active."""
    member = member_of("m", "p", STANDBY)
    state = state_of(5, member)
    context = ReconciliationContext(
        epoch=5, target={ACTIVE, OTHER}, is_free=lambda task: state.is_free(task, member), owned=None
    )
    reconciled = reconcile(member.current_assignment, context)
    assert reconciled.assigned.keys() == {STANDBY, OTHER}


def test_a_member_that_has_revoked_its_standby_task_gets_the_active_task_with_the_next_epoch() -> None:
    member = member_of("m", "p", STANDBY)
    state = state_of(6, member)
    context = ReconciliationContext(
        epoch=6, target={ACTIVE}, is_free=lambda task: state.is_free(task, member), owned=()
    )
    reconciled = reconcile(member.current_assignment, context)
    assert (reconciled.epoch, reconciled.assigned.keys()) == (6, {ACTIVE})


def test_a_task_is_not_free_while_another_member_of_the_process_has_its_state() -> None:
    member, near, far = member_of("m", "p"), member_of("n", "p", STANDBY), member_of("f", "q", STANDBY)
    assert not state_of(6, member, near).is_free(ACTIVE, member)
    assert state_of(6, member, far).is_free(ACTIVE, member)
