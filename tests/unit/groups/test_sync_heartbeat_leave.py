"""SyncGroup, Heartbeat and LeaveGroup, and members that do not send them."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.leave_group import LeaveGroupRequest

from .coordinator_harness import (
    DELAY_MS,
    GROUP,
    NOW_MS,
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

# -- SyncGroup


def test_followers_wait_for_what_the_leader_says() -> None:
    world = World()
    leader, follower = world.admit("a", "b")
    waiting = world.submit(sync_of(follower))
    assert world.is_waiting(waiting)
    answer = world.call(sync_of(leader, {leader.member_id: b"odd", follower.member_id: b"even"}))
    assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (b"odd", "consumer", "range")
    assert world.replies[waiting].assignment == b"even"
    assert world.state == "Stable"


def test_assignments_are_persisted_before_members_get_them() -> None:
    world = World()
    leader, follower = world.admit("a", "b")
    waiting = world.submit(sync_of(follower))
    world.can_persist = False
    assert world.refusal(sync_of(leader, {follower.member_id: b"all"})) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.code(waiting) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.state == "CompletingRebalance"
    assert not world.log


def test_members_may_retry_if_assignments_could_not_be_persisted() -> None:
    world = World()
    leader, follower = world.admit("a", "b")
    world.submit(sync_of(follower))
    world.can_persist = False
    world.submit(sync_of(leader, {follower.member_id: b"all"}))
    world.can_persist = True
    assert world.call(join_of(leader.member_id)).generation_id == 1, "they join again, and find the same generation"
    waiting = world.submit(sync_of(follower))
    world.call(sync_of(leader, {follower.member_id: b"all"}))
    assert world.replies[waiting].assignment == b"all"


def test_a_leader_that_does_not_try_again_is_gone_when_time_is_up() -> None:
    world = World()
    leader, follower = world.admit("a", "b", session_ms=1_000_000)
    world.submit(sync_of(follower))
    world.can_persist = False
    world.submit(sync_of(leader, {follower.member_id: b"all"}))
    world.can_persist = True
    waiting = world.submit(sync_of(follower))
    world.advance(REBALANCE_MS)
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group.roster.ids == [follower.member_id]


def test_a_late_sync_gets_its_assignment_at_once() -> None:
    world = World()
    leader, follower = world.admit("a", "b")
    world.call(sync_of(leader, {follower.member_id: b"all"}))
    assert world.call(sync_of(follower)).assignment == b"all"
    assert world.call(sync_of(leader)).assignment == b""


def test_a_repeated_sync_replaces_the_one_before() -> None:
    world = World()
    leader, follower = world.admit("a", "b")
    older = world.submit(sync_of(follower))
    newer = world.submit(sync_of(follower))
    assert world.code(older) == ErrorCode.REBALANCE_IN_PROGRESS
    world.call(sync_of(leader, {follower.member_id: b"all"}))
    assert world.replies[newer].assignment == b"all"


def test_assignments_for_strangers_are_dropped() -> None:
    world = World()
    (leader,) = world.admit("a")
    world.call(sync_of(leader, {"stranger": b"all"}))
    assert world.group.roster.ids == [leader.member_id]
    assert world.call(sync_of(leader)).assignment == b""


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "others"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_that_does_not_fit_the_group_is_refused(wrong: dict[str, str | None], code: ErrorCode) -> None:
    world = World()
    (leader,) = world.admit("a")
    assert world.refusal(sync_of(leader, **wrong)) == code  # type: ignore[arg-type]


def test_before_version_5_a_sync_does_not_say_what_was_agreed_on() -> None:
    world = World()
    (leader,) = world.admit("a")
    assert world.refusal(sync_of(leader, protocol_type=None, protocol=None), 4) == ErrorCode.NONE


def test_a_sync_of_another_generation_is_refused() -> None:
    world = World()
    (leader,) = world.admit("a")
    assert world.refusal(sync_of(Membership(leader.member_id, 7, True))) == ErrorCode.ILLEGAL_GENERATION
    assert world.refusal(sync_of(Membership("unknown", 1, True))) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_during_a_rebalance_gets_rebalance_in_progress() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    world.submit(join_of(leader.member_id))
    assert world.refusal(sync_of(follower)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_joins_and_does_not_sync_is_gone_when_time_is_up() -> None:
    world = World()
    leader, _ = world.admit("a", "b", session_ms=1_000_000)
    world.call(sync_of(leader, {leader.member_id: b"some"}))
    world.advance(REBALANCE_MS - 1)
    assert world.state == "Stable"
    world.advance(1)
    assert world.state == "PreparingRebalance"
    assert world.group.roster.ids == [leader.member_id]


def test_a_leader_that_does_not_share_anything_out_is_gone_when_time_is_up() -> None:
    world = World()
    _, follower = world.admit("a", "b", session_ms=1_000_000)
    waiting = world.submit(sync_of(follower))
    world.advance(REBALANCE_MS)
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    ticket = world.submit(join_of(follower.member_id))
    assert world.membership(ticket).leads


def test_when_all_have_synced_no_timer_runs() -> None:
    world = World()
    memberships = world.stable("a", "b", session_ms=1_000_000)
    world.advance(2 * REBALANCE_MS)
    assert world.state == "Stable"
    assert world.refusal(heartbeat_of(memberships[0])) == ErrorCode.NONE


def test_if_no_member_syncs_the_group_is_empty_in_the_end() -> None:
    world = World()
    world.admit("a", "b", session_ms=1_000_000)
    world.advance(REBALANCE_MS)
    assert world.state == "Empty"


def test_a_member_that_waits_for_the_leader_needs_no_heartbeats() -> None:
    world = World()
    leader, follower = world.admit("a", "b")
    waiting = world.submit(sync_of(follower))
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        assert world.refusal(heartbeat_of(leader)) == ErrorCode.NONE
    world.call(sync_of(leader, {follower.member_id: b"all"}))
    assert world.replies[waiting].assignment == b"all"
    world.advance(SESSION_MS - 1)
    assert follower.member_id in world.group.roster


# -- Heartbeat


def test_a_member_that_is_silent_too_long_is_removed() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    world.advance(SESSION_MS - 1)
    assert world.refusal(heartbeat_of(leader)) == ErrorCode.NONE
    world.advance(1)
    assert world.state == "PreparingRebalance"
    assert world.refusal(heartbeat_of(leader)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.refusal(heartbeat_of(follower)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_with_rebalance_in_progress_renews_the_session() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    world.submit(join_of(leader.member_id))
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        assert world.refusal(heartbeat_of(follower)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.member_id in world.group.roster


def test_a_member_may_send_heartbeats_before_it_syncs() -> None:
    world = World()
    leader, follower = world.admit("a", "b")
    assert world.refusal(heartbeat_of(follower)) == ErrorCode.NONE
    assert world.refusal(heartbeat_of(leader)) == ErrorCode.NONE


def test_a_commit_is_a_sign_of_life_too() -> None:
    world = World()
    (membership,) = world.stable("a")
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        world.call(commit_of({0: 1}, membership), 9)
    assert membership.member_id in world.group.roster


@pytest.mark.parametrize(
    ("membership", "group_id", "code"),
    [
        (Membership("a-1", 0, True), GROUP, ErrorCode.ILLEGAL_GENERATION),
        (Membership("a-1", 2, True), GROUP, ErrorCode.ILLEGAL_GENERATION),
        (Membership("b-1", 1, True), GROUP, ErrorCode.UNKNOWN_MEMBER_ID),
        (Membership("a-1", 1, True), "others", ErrorCode.UNKNOWN_MEMBER_ID),
        (Membership("a-1", 1, True), "", ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_a_heartbeat_that_does_not_fit_the_group_is_refused(
    membership: Membership, group_id: str, code: ErrorCode
) -> None:
    world = World()
    world.stable("a")
    assert world.refusal(heartbeat_of(membership, group_id=group_id)) == code


def test_an_empty_group_has_no_members() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(leave_of(membership.member_id))
    assert world.refusal(heartbeat_of(membership)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.refusal(sync_of(membership)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.refusal(join_of(membership.member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


# -- LeaveGroup


def test_when_a_member_leaves_the_others_are_rebalanced() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    answer = world.call(leave_of(follower.member_id))
    assert [(member.member_id, member.error_code) for member in answer.members] == [(follower.member_id, 0)]
    assert world.refusal(heartbeat_of(leader)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.membership(world.submit(join_of(leader.member_id))).generation == 2


def test_when_the_last_member_leaves_the_group_is_empty() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(leave_of(membership.member_id))
    assert (world.state, world.group.generation, world.group.leader) == ("Empty", 2, None)
    world.restart()
    assert (world.state, world.group.generation) == ("Empty", 2)


def test_if_an_empty_group_cannot_be_persisted_it_is_tried_again() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.can_persist = False
    assert world.refusal(leave_of(membership.member_id)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.advance(3000)
    assert world.state == "PreparingRebalance"
    world.can_persist = True
    world.advance(1000)
    assert world.state == "Empty"
    assert world.machine.wake_at_ms == NOW_MS + world.settings.offsets_check_interval_ms, "nothing else is left to do"


def test_if_an_empty_group_cannot_be_persisted_new_members_may_join() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.can_persist = False
    world.submit(leave_of(membership.member_id))
    ticket = world.submit(join_of(), 3)
    assert world.membership(ticket).generation == 2


def test_members_leave_in_one_request_and_are_answered_one_by_one() -> None:
    world = World()
    first, second, third = world.stable("a", "b", "c")
    answer = world.call(leave_of(second.member_id, "unknown", third.member_id, second.member_id))
    assert [member.error_code for member in answer.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert world.group.roster.ids == [first.member_id]


def test_old_clients_leave_alone_and_get_one_code() -> None:
    world = World()
    (membership,) = world.stable("a")
    request = LeaveGroupRequest(group_id=GROUP, member_id="unknown")
    assert world.call(request, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request = LeaveGroupRequest(group_id=GROUP, member_id=membership.member_id)
    assert world.call(request, 2).error_code == ErrorCode.NONE
    assert world.state == "Empty"


def test_leaving_a_missing_group_fails() -> None:
    world = World()
    answer = world.call(leave_of("unknown", "another"))
    assert [member.error_code for member in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert not world.machine.groups
    assert world.refusal(leave_of("unknown", group_id="")) == ErrorCode.INVALID_GROUP_ID


def test_a_member_that_leaves_gets_unknown_member_id_for_its_join() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    waiting = world.submit(join_of(leader.member_id))
    world.call(leave_of(leader.member_id))
    assert world.code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.membership(world.submit(join_of(follower.member_id))).leads


def test_a_member_that_leaves_gets_unknown_member_id_for_its_sync() -> None:
    world = World()
    _, follower = world.admit("a", "b")
    waiting = world.submit(sync_of(follower))
    world.call(leave_of(follower.member_id))
    assert world.code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_goes_on_when_the_awaited_member_leaves() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    waiting = world.submit(join_of(leader.member_id))
    world.call(leave_of(follower.member_id))
    assert world.membership(waiting).generation == 2


def test_a_pending_member_may_leave_without_a_rebalance() -> None:
    world = World()
    world.stable("a")
    member_id = world.call(join_of()).member_id
    answer = world.call(leave_of(member_id))
    assert answer.members[0].error_code == ErrorCode.NONE
    assert world.state == "Stable"
    assert not world.group.pending


def test_a_group_that_only_an_id_was_given_out_for_is_gone_when_it_leaves() -> None:
    world = World()
    member_id = world.call(join_of()).member_id
    world.call(leave_of(member_id))
    assert not world.machine.groups


def test_all_may_leave_before_the_first_rebalance() -> None:
    world = World()
    ticket = world.submit(join_of(), 3)
    world.call(leave_of("client-1"))
    assert world.code(ticket) == ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(DELAY_MS)
    assert world.state == "Empty"


# -- restarts


def test_after_a_restart_no_member_has_to_join_again() -> None:
    world = World()
    memberships = world.stable("a", "b")
    world.advance(SESSION_MS - 1)
    world.restart()
    world.advance(SESSION_MS - 1)
    assert [world.refusal(heartbeat_of(membership)) for membership in memberships] == [ErrorCode.NONE] * 2
    assert world.call(sync_of(memberships[1])).assignment == b"b-2"
    assert world.group.leader == memberships[0].member_id


def test_after_a_restart_silent_members_are_removed() -> None:
    world = World()
    world.stable("a", "b")
    world.restart()
    world.advance(SESSION_MS)
    assert world.state == "Empty"


def test_after_a_restart_during_a_rebalance_the_last_stable_generation_holds() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    world.submit(join_of(leader.member_id))
    ticket = world.submit(join_of(follower.member_id))
    assert world.membership(ticket).generation == 2
    world.restart()
    assert world.state == "Stable"
    assert world.refusal(heartbeat_of(follower)) == ErrorCode.NONE
    assert world.refusal(heartbeat_of(world.membership(ticket))) == ErrorCode.ILLEGAL_GENERATION
