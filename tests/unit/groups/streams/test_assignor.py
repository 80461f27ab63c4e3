"""The task assignor of streams groups."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from penstock.foundation.steps import run_steps
from penstock.groups.streams.assignor import Assignments, Worker, assign_sticky
from penstock.groups.streams.tasks import NO_TASKS, Role, Task, Tasks
from tests.examples import examples


def assign(
    members: Mapping[str, str], counts: Mapping[str, int], standbys: int = 0, held: Mapping[str, Tasks] | None = None
) -> Assignments:
    """`members`: their processes. Subtopologies with a name in capitals have state."""
    workers = [
        Worker(member_id, process, (held or {}).get(member_id, NO_TASKS)) for member_id, process in members.items()
    ]
    stateful = frozenset(name for name in counts if name.isupper())
    return run_steps(assign_sticky(workers, counts, stateful, standbys))


def of_role(tasks: Tasks, role: Role) -> set[tuple[str, int]]:
    return {(task.subtopology_id, task.partition) for task in tasks if task.role is role}


def test_all_tasks_are_shared_out_evenly() -> None:
    shares = assign({"a": "p", "b": "q", "c": "r"}, {"x": 4, "Y": 3})
    assert sorted(len(share) for share in shares.values()) == [2, 2, 3]


def test_without_members_nothing_is_assigned() -> None:
    assert assign({}, {"x": 4}) == {}


def test_a_process_with_more_threads_gets_more() -> None:
    shares = assign({"a1": "p", "a2": "p", "a3": "p", "b": "q"}, {"x": 8})
    assert {member_id: len(share) for member_id, share in shares.items()} == {"a1": 2, "a2": 2, "a3": 2, "b": 2}


def test_a_member_that_joins_takes_no_more_than_its_share() -> None:
    before = assign({"a": "p", "b": "q"}, {"X": 6})
    after = assign({"a": "p", "b": "q", "c": "r"}, {"X": 6}, held=before)
    moved = sum(len(after[member_id] - before[member_id]) for member_id in before)
    assert (len(after["c"]), moved) == (2, 0)


def test_the_task_of_a_member_that_is_gone_goes_to_where_its_state_is() -> None:
    members = {"a": "p", "b": "q", "c": "r"}
    before = assign(members, {"X": 3}, standbys=1)
    ((state),) = of_role(before["a"], Role.ACTIVE)
    left = {member_id: process for member_id, process in members.items() if member_id != "a"}
    copy = next(member_id for member_id in left if state in of_role(before[member_id], Role.STANDBY))
    after = assign(left, {"X": 3}, standbys=1, held=before)
    assert state in of_role(after[copy], Role.ACTIVE)


def test_only_tasks_with_state_have_copies() -> None:
    shares = assign({"a": "p", "b": "q"}, {"x": 2, "Y": 2}, standbys=1)
    copies = Counter(task.subtopology_id for share in shares.values() for task in share if task.role is Role.STANDBY)
    assert copies == {"Y": 2}


def test_a_copy_for_which_there_is_no_other_process_is_not_made() -> None:
    shares = assign({"a1": "p", "a2": "p"}, {"X": 2}, standbys=2)
    assert all(task.role is Role.ACTIVE for share in shares.values() for task in share)


members_ = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("pqrs"), min_size=1)
counts_ = st.dictionaries(st.sampled_from(["x", "y", "X", "Y"]), st.integers(1, 9))


@given(before=members_, after=members_, counts=counts_, later=counts_, standbys=st.integers(0, 2))
@examples(deadline=None)
def test_every_task_has_one_owner_and_as_many_copies_as_there_are_other_processes(
    before: dict[str, str], after: dict[str, str], counts: dict[str, int], later: dict[str, int], standbys: int
) -> None:
    held = assign(before, counts, standbys)
    shares = assign(after, later, standbys, held)
    active = Counter(state for share in shares.values() for state in of_role(share, Role.ACTIVE))
    assert active == {(name, number): 1 for name, count in later.items() for number in range(count)}
    copies = Counter(state for share in shares.values() for state in of_role(share, Role.STANDBY))
    others = min(standbys, len(set(after.values())) - 1)
    assert copies == {state: others for state in active if state[0].isupper() and others}
    for process in set(after.values()):
        here = [
            (task.subtopology_id, task.partition)
            for one, share in shares.items()
            if after[one] == process
            for task in share
        ]
        assert len(set(here)) == len(here), "a process has the state of a task twice"


@given(members=members_, counts=counts_)
@examples(deadline=None)
def test_active_tasks_are_level_over_processes(members: dict[str, str], counts: dict[str, int]) -> None:
    shares = assign(members, counts)
    threads = Counter(members.values())
    loads = Counter(dict.fromkeys(threads, 0))
    for member_id, share in shares.items():
        loads[members[member_id]] += len(share)
    for one in threads:
        for other in threads:
            # No process has so much more than another that a task would be better off there.
            assert (loads[one] - 1) / threads[one] <= (loads[other] + 1) / threads[other]


@given(members=members_, counts=counts_, standbys=st.integers(0, 2))
@examples(deadline=None)
def test_tasks_stay_with_their_members_without_changes(
    members: dict[str, str], counts: dict[str, int], standbys: int
) -> None:
    once = assign(members, counts, standbys)
    again = assign(members, counts, standbys, held=once)
    moved = [
        Task(Role.ACTIVE, *state)
        for member_id in members
        for state in of_role(once[member_id], Role.ACTIVE) - of_role(again[member_id], Role.ACTIVE)
    ]
    assert not moved
