"""Static members (KIP-345): a member that returns with its group.instance.id gets its place."""

import pytest

from penstock.foundation.codes import ErrorCode

from .coordinator_harness import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Membership,
    World,
    commit_of,
    heartbeat_of,
    join_of,
    leave_of,
    sync_of,
)


def _stable(world: World, *instances: str) -> list[Membership]:
    """A stable group of static members; the first leads."""
    tickets = [world.submit(join_of(instance_id=instance)) for instance in instances]
    world.advance(2 * DELAY_MS)
    memberships = [world.membership(ticket) for ticket in tickets]
    world.settle(memberships)
    return memberships


def test_a_static_member_is_named_after_its_instance_and_needs_no_second_request() -> None:
    world = World()
    (membership,) = _stable(world, "red")
    assert membership.member_id == "red-1"
    assert world.group.roster.by_instance == {"red": "red-1"}


def test_the_leader_gets_the_instance_ids() -> None:
    world = World()
    ticket = world.submit(join_of(instance_id="red"))
    world.advance(DELAY_MS)
    assert [member.group_instance_id for member in world.replies[ticket].members] == ["red"]


def test_a_static_member_that_returns_keeps_its_share_without_a_rebalance() -> None:
    world = World()
    _, blue = _stable(world, "red", "blue")
    answer = world.call(join_of(instance_id="blue"))
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, "red-1")
    assert answer.member_id not in ("", blue.member_id)
    assert world.state == "Stable"
    back = Membership(answer.member_id, 1, False)
    assert world.call(sync_of(back, instance_id="blue")).assignment == b"blue-2"
    assert world.refusal(heartbeat_of(back, "blue")) == ErrorCode.NONE


def test_the_former_member_of_an_instance_id_is_fenced() -> None:
    world = World()
    _, blue = _stable(world, "red", "blue")
    world.call(join_of(instance_id="blue"))
    assert world.refusal(heartbeat_of(blue, "blue")) == ErrorCode.FENCED_INSTANCE_ID
    assert world.refusal(sync_of(blue, instance_id="blue")) == ErrorCode.FENCED_INSTANCE_ID
    assert world.refusal(join_of(blue.member_id, "blue")) == ErrorCode.FENCED_INSTANCE_ID
    assert world.refusal(heartbeat_of(blue)) == ErrorCode.UNKNOWN_MEMBER_ID
    response = world.call(commit_of({0: 1}, blue, instance_id="blue"), 9)
    assert response.topics[0].partitions[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    left = world.call(leave_of(blue.member_id, instance_id="blue"))
    assert left.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_returning_leader_leads_and_skips_the_assignment() -> None:
    world = World()
    _stable(world, "red", "blue")
    answer = world.call(join_of(instance_id="red"), 9)
    assert answer.leader == answer.member_id == world.group.leader
    assert answer.skip_assignment
    assert {member.member_id for member in answer.members} == {answer.member_id, "blue-2"}
    assert world.call(sync_of(Membership(answer.member_id, 1, True), instance_id="red")).assignment == b"red-1"


def test_a_returning_leader_of_an_older_version_is_answered_as_a_follower() -> None:
    world = World()
    _stable(world, "red", "blue")
    answer = world.call(join_of(instance_id="red"), 8)
    assert answer.leader == "red-1" != answer.member_id
    assert list(answer.members) == []
    assert world.group.leader == answer.member_id


def test_a_static_member_that_returns_is_still_there_after_a_restart() -> None:
    world = World()
    _stable(world, "red", "blue")
    answer = world.call(join_of(instance_id="blue"))
    world.restart()
    assert world.group.roster.by_instance == {"red": "red-1", "blue": answer.member_id}
    back = Membership(answer.member_id, 1, False)
    assert world.call(sync_of(back, instance_id="blue")).assignment == b"blue-2"


def test_if_a_return_cannot_be_persisted_the_old_holder_keeps_the_place() -> None:
    world = World()
    _, blue = _stable(world, "red", "blue")
    world.can_persist = False
    assert world.refusal(join_of(instance_id="blue")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.refusal(heartbeat_of(blue, "blue")) == ErrorCode.NONE
    world.can_persist = True
    answer = world.call(join_of(instance_id="blue"))
    assert world.group.roster.by_instance["blue"] == answer.member_id
    assert len(world.group.roster) == 2


def test_a_member_that_returned_keeps_its_other_protocols() -> None:
    world = World()
    _stable(world, "red")
    answer = world.call(join_of(instance_id="red", protocols=[("range", b"new"), ("sticky", b"too")]))
    member = world.group.roster.get(answer.member_id)
    assert member is not None
    assert member.protocols == (("range", b"new"), ("sticky", b"too"))
    assert member.assignment == b"red-1"


def test_a_return_that_changes_the_protocol_takes_a_rebalance() -> None:
    world = World()
    offers = [("range", b""), ("sticky", b"")]
    tickets = [world.submit(join_of(instance_id=name, protocols=offers)) for name in ("red", "blue")]
    world.advance(2 * DELAY_MS)
    memberships = [world.membership(ticket) for ticket in tickets]
    world.settle(memberships)
    back = world.submit(join_of(instance_id="blue", protocols=[("sticky", b"")]))
    assert world.state == "PreparingRebalance"
    world.submit(join_of(memberships[0].member_id, "red", protocols=offers))
    assert world.replies[back].protocol_name == "sticky"


def test_a_return_while_all_wait_for_the_leader_takes_another_rebalance() -> None:
    world = World()
    tickets = [world.submit(join_of(instance_id=name)) for name in ("red", "blue")]
    world.advance(2 * DELAY_MS)
    red, blue = (world.membership(ticket) for ticket in tickets)
    waiting = world.submit(sync_of(blue, instance_id="blue"))
    back = world.submit(join_of(instance_id="blue"))
    assert world.code(waiting) == ErrorCode.FENCED_INSTANCE_ID
    assert world.is_waiting(back)
    world.submit(join_of(red.member_id, "red"))
    assert world.membership(back).generation == 2


def test_a_return_while_all_join_takes_over_the_place_in_the_queue() -> None:
    world = World()
    red, blue, green = _stable(world, "red", "blue", "green")
    world.submit(join_of(red.member_id, "red"))
    older = world.submit(join_of(blue.member_id, "blue"))
    newer = world.submit(join_of(instance_id="blue"))
    assert world.code(older) == ErrorCode.FENCED_INSTANCE_ID
    world.submit(join_of(green.member_id, "green"))
    assert world.membership(newer).generation == 2
    assert len(world.group.roster) == 3


def test_two_that_join_under_one_instance_leave_one() -> None:
    world = World()
    first = world.submit(join_of(instance_id="red"))
    second = world.submit(join_of(instance_id="red"))
    assert world.code(first) == ErrorCode.FENCED_INSTANCE_ID
    world.advance(2 * DELAY_MS)
    assert world.membership(second).leads
    assert len(world.group.roster) == 1


def test_a_static_member_that_returns_to_a_full_group_takes_its_own_place() -> None:
    world = World(size_max=2)
    _stable(world, "red", "blue")
    assert world.refusal(join_of(instance_id="green")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.refusal(join_of(instance_id="blue")) == ErrorCode.NONE


def test_static_members_of_a_group_that_has_become_too_large_may_lose_their_places() -> None:
    world = World()
    memberships = _stable(world, "red", "blue")
    world.settings = World(size_max=1).settings
    world.restart()
    tickets = [
        world.submit(join_of(membership.member_id, name))
        for membership, name in zip(memberships, ("red", "blue"), strict=True)
    ]
    assert world.code(tickets[1]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.code(tickets[0]) == ErrorCode.NONE


def test_a_static_member_that_is_silent_too_long_is_gone() -> None:
    world = World()
    red, blue = _stable(world, "red", "blue")
    world.advance(SESSION_MS - 1)
    assert world.refusal(heartbeat_of(red, "red")) == ErrorCode.NONE
    world.advance(1)
    assert blue.member_id not in world.group.roster
    assert world.refusal(join_of(blue.member_id, "blue")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_goes_on_with_static_members_that_are_restarting() -> None:
    world = World()
    tickets = [world.submit(join_of(instance_id=name, session_ms=200_000)) for name in ("red", "blue")]
    world.advance(2 * DELAY_MS)
    red, blue = (world.membership(ticket) for ticket in tickets)
    world.settle([red, blue])
    ticket = world.submit(join_of(red.member_id, "red", session_ms=200_000))
    world.advance(REBALANCE_MS)
    assert world.membership(ticket).generation == 2
    assert {member.member_id for member in world.replies[ticket].members} == {red.member_id, blue.member_id}


def test_another_leads_while_a_static_leader_is_restarting() -> None:
    world = World()
    tickets = [world.submit(join_of(instance_id=name, session_ms=200_000)) for name in ("red", "blue")]
    world.advance(2 * DELAY_MS)
    red, blue = (world.membership(ticket) for ticket in tickets)
    world.settle([red, blue])
    ticket = world.submit(join_of(blue.member_id, "blue", protocols=[("range", b"new")], session_ms=200_000))
    world.advance(REBALANCE_MS)
    assert world.membership(ticket).leads
    assert red.member_id in world.group.roster


def test_sessions_of_syncing_members_start_again_when_all_have_to_join() -> None:
    world = World()
    tickets = [world.submit(join_of(instance_id=name)) for name in ("red", "blue")]
    world.advance(2 * DELAY_MS)
    red, blue = (world.membership(ticket) for ticket in tickets)
    world.submit(sync_of(blue, instance_id="blue"))
    world.advance(SESSION_MS - 1)
    world.call(heartbeat_of(red, "red"))
    world.advance(2)
    world.submit(join_of(), 3)
    world.advance(SESSION_MS - 1)
    world.call(heartbeat_of(red, "red"))
    assert blue.member_id in world.group.roster
    world.advance(1)
    assert blue.member_id not in world.group.roster


def test_a_static_member_that_neither_joins_nor_syncs_within_the_rebalance_timeout_is_gone() -> None:
    world = World()
    tickets = [world.submit(join_of(instance_id=name, session_ms=1_000_000)) for name in ("red", "blue")]
    world.advance(2 * DELAY_MS)
    red, blue = (world.membership(ticket) for ticket in tickets)
    world.settle([red, blue])
    ticket = world.submit(join_of(red.member_id, "red", session_ms=1_000_000))
    world.advance(REBALANCE_MS)
    membership = world.membership(ticket)
    world.call(sync_of(membership, {red.member_id: b"all"}, instance_id="red"))
    world.advance(REBALANCE_MS)
    assert world.group.roster.ids == [red.member_id]
    assert world.state == "PreparingRebalance"


def test_if_no_static_member_returns_the_rebalance_waits_for_their_sessions() -> None:
    world = World()
    tickets = [world.submit(join_of(instance_id=name, session_ms=200_000)) for name in ("red", "blue")]
    world.advance(2 * DELAY_MS)
    red, blue = (world.membership(ticket) for ticket in tickets)
    world.settle([red, blue])
    world.call(leave_of(red.member_id, instance_id="red"))
    world.advance(REBALANCE_MS + 1)
    assert world.state == "PreparingRebalance"
    world.advance(200_000)
    assert world.state == "Empty"


def test_an_administrator_removes_static_members_by_their_instances() -> None:
    world = World()
    _stable(world, "red", "blue")
    answer = world.call(leave_of("", instance_id="blue"))
    assert [(member.member_id, member.error_code) for member in answer.members] == [("", 0)]
    assert list(world.group.roster.by_instance) == ["red"]
    assert world.state == "PreparingRebalance"
    unknown = world.call(leave_of("", instance_id="blue"))
    assert unknown.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_whose_id_is_known_joins_again_like_any_other() -> None:
    world = World()
    red, blue = _stable(world, "red", "blue")
    assert world.call(join_of(blue.member_id, "blue")).generation_id == 1
    ticket = world.submit(join_of(red.member_id, "red"))
    assert world.is_waiting(ticket)


@pytest.mark.parametrize("instance", ["green", ""])
def test_an_unused_instance_id_is_unknown(instance: str) -> None:
    world = World()
    red, _ = _stable(world, "red", "blue")
    assert world.refusal(heartbeat_of(red, instance)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_to_a_dynamic_member_is_none_of_a_static_one() -> None:
    world = World()
    member_id = world.call(join_of()).member_id
    assert world.refusal(join_of(member_id, "red")) == ErrorCode.UNKNOWN_MEMBER_ID
