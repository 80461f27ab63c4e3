"""DescribeGroups, ListGroups and DeleteGroups."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.codec import encode_bytes
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest

from .coordinator_harness import GROUP, World, commit_of, join_of, leave_of, subscription, txn_commit_of


def _described(world: World, version: int = 6, group_id: str = GROUP) -> DescribedGroup:
    response = world.call(DescribeGroupsRequest(groups=[group_id]), version)
    assert encode_bytes(response, version)
    (group,) = response.groups
    assert isinstance(group, DescribedGroup)
    return group


def _listed(world: World, **wanted: list[str]) -> dict[str, tuple[str, str, str]]:
    response = world.call(ListGroupsRequest(**wanted))
    assert response.error_code == ErrorCode.NONE
    return {group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in response.groups}


def _deleted(world: World, *names: str) -> list[tuple[str, ErrorCode]]:
    response = world.call(DeleteGroupsRequest(groups_names=names))
    return [(result.group_id, ErrorCode(result.error_code)) for result in response.results]


# -- DescribeGroups


def test_a_stable_group_is_described_with_what_its_members_say_and_have() -> None:
    world = World()
    world.stable("a", protocols=[("range", b"about a")])
    group = _described(world)
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
        ErrorCode.NONE,
        "Stable",
        "consumer",
        "range",
    )
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == ("a-1", "a", "10.0.0.1")
    assert (member.member_metadata, member.member_assignment, member.group_instance_id) == (b"about a", b"a-1", None)


def test_while_a_group_is_rebalanced_its_members_are_described_without_what_they_say() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.submit(join_of(), 3)
    group = _described(world)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]
    world.submit(join_of(membership.member_id))
    assert _described(world).group_state == "CompletingRebalance"


def test_an_empty_group_has_no_members() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(leave_of(membership.member_id))
    group = _described(world)
    assert (group.group_state, group.protocol_type, list(group.members)) == ("Empty", "consumer", [])


@pytest.mark.parametrize("group_id", [GROUP, ""])
def test_a_group_that_is_not_there_is_dead_and_an_error_from_version_6_on(group_id: str) -> None:
    world = World()
    before, after = _described(world, 5, group_id), _described(world, 6, group_id)
    assert (before.error_code, before.group_state) == (ErrorCode.NONE, "Dead")
    assert (after.error_code, after.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert after.error_message == f"group {group_id!r} does not exist"


def test_groups_are_described_in_the_order_that_they_are_asked_for() -> None:
    world = World()
    world.stable("a")
    response = world.call(DescribeGroupsRequest(groups=["x", GROUP, "y"]))
    assert [group.group_state for group in response.groups] == ["Dead", "Stable", "Dead"]


# -- ListGroups


def test_all_groups_are_listed() -> None:
    world = World()
    world.stable("a")
    world.call(commit_of({0: 1}, group_id="alone"), 9)
    assert _listed(world) == {
        GROUP: ("consumer", "Stable", "classic"),
        "alone": ("", "Empty", "classic"),
    }


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"states_filter": ["Stable"]}, {GROUP}),
        ({"states_filter": [" stable "]}, {GROUP}),
        ({"states_filter": ["empty", "Dead"]}, {"alone"}),
        ({"states_filter": ["nonsense"]}, set()),
        ({"types_filter": ["Classic"]}, {GROUP, "alone"}),
        ({"types_filter": ["consumer"]}, set()),
        ({"types_filter": ["nonsense"]}, set()),
        ({"types_filter": ["classic"], "states_filter": ["Stable"]}, {GROUP}),
    ],
)
def test_a_list_can_be_asked_for_by_state_and_type(wanted: dict[str, list[str]], found: set[str]) -> None:
    world = World()
    world.stable("a")
    world.call(commit_of({0: 1}, group_id="alone"), 9)
    assert set(_listed(world, **wanted)) == found


# -- DeleteGroups


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    world = World()
    (membership,) = world.stable("a", protocols=[("range", subscription("orders"))])
    world.call(commit_of({0: 1, 1: 2}, membership), 9)
    world.call(txn_commit_of({2: 3}, membership))
    world.call(leave_of(membership.member_id))
    assert _deleted(world, GROUP) == [(GROUP, ErrorCode.NONE)]
    assert not world.machine.groups
    world.end_transaction(1, committed=True)
    assert not world.machine.groups
    world.restart()
    assert not world.machine.groups


def test_a_group_with_members_cannot_be_deleted() -> None:
    world = World()
    world.stable("a")
    assert _deleted(world, GROUP) == [(GROUP, ErrorCode.NON_EMPTY_GROUP)]
    world.submit(join_of(), 3)
    assert _deleted(world, GROUP) == [(GROUP, ErrorCode.NON_EMPTY_GROUP)]


def test_groups_are_deleted_one_by_one() -> None:
    world = World()
    world.stable("a")
    world.call(commit_of({0: 1}, group_id="alone"), 9)
    assert _deleted(world, "alone", GROUP, "missing", "alone") == [
        ("alone", ErrorCode.NONE),
        (GROUP, ErrorCode.NON_EMPTY_GROUP),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert list(world.machine.groups) == [GROUP]


def test_a_group_whose_deletion_cannot_be_persisted_is_still_there() -> None:
    world = World()
    world.call(commit_of({0: 1}), 9)
    world.can_persist = False
    assert world.refusal(DeleteGroupsRequest(groups_names=[GROUP])) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.fetched(0) == [1]


def test_a_pending_member_of_a_deleted_group_is_unknown() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(leave_of(membership.member_id))
    member_id = world.call(join_of()).member_id
    assert _deleted(world, GROUP) == [(GROUP, ErrorCode.NONE)]
    assert world.refusal(join_of(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.machine.groups
