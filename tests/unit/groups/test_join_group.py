"""JoinGroup: which members are admitted, with which member id, and when the response is sent."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.groups.classic import membership
from penstock.groups.commands import ClientDisconnected
from penstock.wire.codec import encode_bytes

from .coordinator_harness import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    World,
    heartbeat_of,
    join_of,
    leave_of,
    sync_of,
)


def test_a_new_member_is_given_an_id_to_join_with() -> None:
    world = World()
    answer = world.call(join_of(), client_id="billing")
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "billing-1"
    ticket = world.submit(join_of(answer.member_id))
    world.advance(DELAY_MS)
    assert world.membership(ticket).member_id == "billing-1"


@pytest.mark.parametrize("version", [4, 6, 7, 9])
def test_the_answer_with_a_member_id_can_be_written_in_every_version(version: int) -> None:
    answer = World().call(join_of(), version)
    assert encode_bytes(answer, version)


def test_old_clients_are_members_at_once() -> None:
    world = World()
    ticket = world.submit(join_of(), 3)
    assert world.is_waiting(ticket)
    world.advance(DELAY_MS)
    assert world.membership(ticket).leads


def test_in_the_oldest_version_the_session_timeout_is_the_rebalance_timeout_too() -> None:
    world = World()
    world.submit(join_of(rebalance_ms=-1), 0)
    (member,) = world.group.roster
    assert member.rebalance_timeout_ms == SESSION_MS


def test_an_id_that_is_not_joined_with_is_void_after_the_session_timeout() -> None:
    world = World()
    member_id = world.call(join_of()).member_id
    world.advance(SESSION_MS)
    assert GROUP not in world.machine.groups
    assert world.refusal(join_of(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_given_out() -> None:
    world = World()
    (first,) = world.stable("a")
    member_id = world.call(join_of()).member_id
    again = world.submit(join_of(first.member_id))
    assert world.is_waiting(again)
    joined = world.submit(join_of(member_id))
    assert world.membership(again).generation == world.membership(joined).generation == 2


def test_a_rebalance_goes_on_when_an_id_that_was_given_out_is_void() -> None:
    world = World()
    (first,) = world.stable("a")
    world.call(join_of())
    again = world.submit(join_of(first.member_id))
    world.advance(SESSION_MS)
    assert world.membership(again).generation == 2


def test_ids_that_were_given_out_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "PENDING_MAX", 3)
    world = World()
    ids = [world.call(join_of()).member_id for _ in range(5)]
    assert list(world.group.pending) == ids[2:]
    assert world.refusal(join_of(ids[0])) == ErrorCode.UNKNOWN_MEMBER_ID
    world.advance(SESSION_MS)
    assert GROUP not in world.machine.groups


def test_only_the_leader_gets_the_members() -> None:
    world = World()
    tickets = [
        world.submit(join_of(protocols=[("range", name.encode())]), 3, client_id=name) for name in ("a", "b", "c")
    ]
    world.advance(2 * DELAY_MS)
    leader, *others = (world.replies[ticket] for ticket in tickets)
    assert leader.leader == leader.member_id
    assert {(member.member_id, member.metadata) for member in leader.members} == {
        ("a-1", b"a"),
        ("b-2", b"b"),
        ("c-3", b"c"),
    }
    assert (leader.generation_id, leader.protocol_type, leader.protocol_name) == (1, "consumer", "range")
    assert not leader.skip_assignment
    for answer in others:
        assert answer.leader == leader.member_id
        assert list(answer.members) == []


# -- the first rebalance of an empty group (KIP-134)


def test_an_empty_group_waits_for_more_members() -> None:
    world = World()
    ticket = world.submit(join_of(), 3)
    world.advance(DELAY_MS - 1)
    assert world.is_waiting(ticket)
    world.advance(1)
    assert not world.is_waiting(ticket)


def test_the_first_rebalance_is_put_off_as_long_as_members_keep_coming() -> None:
    world = World()
    tickets = [world.submit(join_of(), 3)]
    for _ in range(3):
        world.advance(DELAY_MS - 1)
        tickets.append(world.submit(join_of(), 3))
    assert all(map(world.is_waiting, tickets))
    world.advance(2 * DELAY_MS)
    assert {world.membership(ticket).generation for ticket in tickets} == {1}


def test_the_first_rebalance_is_put_off_no_longer_than_the_rebalance_timeout() -> None:
    world = World()
    rebalance_ms = 3 * DELAY_MS - 500
    first = world.submit(join_of(rebalance_ms=rebalance_ms), 3)
    for _ in range(20):
        world.advance(rebalance_ms // 20)
        world.submit(join_of(rebalance_ms=rebalance_ms), 3)
    world.advance(rebalance_ms % 20)
    assert world.membership(first).generation == 1


def test_without_a_delay_the_first_member_is_answered_at_once() -> None:
    world = World(initial_rebalance_delay_ms=0)
    ticket = world.submit(join_of(), 3)
    world.advance(0)
    assert world.membership(ticket).leads


def test_later_rebalances_do_not_wait_once_all_have_joined() -> None:
    world = World()
    (first,) = world.stable("a")
    second = world.submit(join_of(), 3)
    again = world.submit(join_of(first.member_id))
    assert world.membership(second).generation == world.membership(again).generation == 2


# -- what all can work by


def test_the_protocol_is_one_that_all_know_and_most_like_best() -> None:
    world = World()
    offers = [("range", "sticky", "old"), ("sticky", "range"), ("sticky", "range", "own")]
    for names in offers:
        world.submit(join_of(protocols=[(name, name.encode()) for name in names]), 3)
    world.advance(2 * DELAY_MS)
    assert world.group.protocol == "sticky"
    assert world.replies[1].members[0].metadata == b"sticky"


def test_a_protocol_that_not_all_know_has_no_chance() -> None:
    world = World()
    for names in (("new", "range"), ("new", "range"), ("range",)):
        world.submit(join_of(protocols=[(name, b"") for name in names]), 3)
    world.advance(2 * DELAY_MS)
    assert world.group.protocol == "range"


@pytest.mark.parametrize(
    "wanted",
    [
        {"protocols": [("sticky", b"")]},
        {"protocols": []},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
)
def test_a_member_without_a_common_protocol_is_refused(wanted: dict[str, object]) -> None:
    world = World()
    world.stable("a")
    assert world.refusal(join_of(**wanted)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert world.state == "Stable"


@pytest.mark.parametrize("wanted", [{"protocols": []}, {"protocol_type": ""}])
def test_the_first_member_needs_a_protocol(wanted: dict[str, object]) -> None:
    world = World()
    assert world.refusal(join_of(**wanted)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert not world.machine.groups


def test_an_empty_group_may_be_of_another_type_next_time() -> None:
    world = World()
    (membership,) = world.stable("a")
    world.call(leave_of(membership.member_id))
    assert world.state == "Empty"
    world.admit("b", protocol_type="connect")
    assert world.group.protocol_type == "connect"


# -- what is refused


def test_a_group_needs_an_id() -> None:
    assert World().refusal(join_of(group_id="")) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [0, 5999, 1_800_001])
def test_a_session_timeout_has_bounds(session_ms: int) -> None:
    assert World().refusal(join_of(session_ms=session_ms)) == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("session_ms", [6000, 1_800_000])
def test_a_session_timeout_may_be_as_its_bounds(session_ms: int) -> None:
    assert World().refusal(join_of(session_ms=session_ms)) == ErrorCode.MEMBER_ID_REQUIRED


def test_a_member_of_a_group_that_is_not_there_is_unknown() -> None:
    world = World()
    assert world.refusal(join_of("unknown")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert not world.machine.groups


def test_a_member_that_the_group_does_not_have_is_unknown() -> None:
    world = World()
    world.stable("a")
    assert world.refusal(join_of("unknown")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_accepts_no_member() -> None:
    world = World(size_max=2)
    world.stable("a", "b")
    assert world.refusal(join_of()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.state == "Stable"


def test_a_group_that_is_being_put_together_takes_no_more_than_it_may_have() -> None:
    world = World(size_max=2)
    tickets = [world.submit(join_of(), 3) for _ in range(3)]
    assert world.code(tickets[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    world.advance(2 * DELAY_MS)
    assert [world.code(ticket) for ticket in tickets[:2]] == [0, 0]


def test_a_member_with_an_id_that_finds_the_group_full_is_forgotten() -> None:
    world = World(size_max=1)
    member_id = world.call(join_of()).member_id
    world.submit(join_of(), 3)
    assert world.refusal(join_of(member_id)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not world.group.pending


def test_members_of_a_full_group_may_join_again() -> None:
    world = World(size_max=2)
    memberships = world.stable("a", "b")
    tickets = [world.submit(join_of(membership.member_id)) for membership in memberships]
    assert [world.code(ticket) for ticket in tickets] == [0, 0]


def test_a_group_that_has_become_too_large_loses_the_last_to_join_again() -> None:
    world = World()
    memberships = world.stable("a", "b", "c")
    world.settings = world.machine.settings = World(size_max=2).settings
    world.restart()
    assert world.state == "PreparingRebalance"
    tickets = [world.submit(join_of(membership.member_id)) for membership in memberships]
    assert world.code(tickets[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [world.code(ticket) for ticket in tickets[:2]] == [0, 0]


# -- joining again


def test_a_follower_that_lost_the_answer_gets_it_again() -> None:
    world = World()
    _, follower = world.stable("a", "b")
    answer = world.call(join_of(follower.member_id))
    assert (answer.generation_id, answer.error_code) == (follower.generation, 0)
    assert world.state == "Stable"


def test_a_leader_that_lost_the_response_gets_the_members_again() -> None:
    world = World()
    leader, _ = world.admit("a", "b")
    answer = world.call(join_of(leader.member_id))
    assert (answer.generation_id, len(answer.members)) == (1, 2)
    assert world.state == "CompletingRebalance"


def test_the_leader_of_a_stable_group_has_it_rebalanced_by_joining() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    ticket = world.submit(join_of(leader.member_id))
    assert world.is_waiting(ticket)
    assert world.refusal(heartbeat_of(follower)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_has_changed_has_the_group_rebalanced() -> None:
    world = World()
    _, follower = world.stable("a", "b")
    world.submit(join_of(follower.member_id, protocols=[("range", b"other topics")]))
    assert world.state == "PreparingRebalance"


def test_a_member_that_changes_while_others_wait_for_the_leader_has_all_join_again() -> None:
    world = World()
    leader, second, third = world.admit("a", "b", "c")
    waiting = world.submit(sync_of(third))
    world.submit(join_of(second.member_id, protocols=[("range", b"other topics")]))
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    tickets = [world.submit(join_of(membership.member_id)) for membership in (leader, third)]
    assert {world.membership(ticket).generation for ticket in tickets} == {2}


def test_a_repeated_join_replaces_the_one_before() -> None:
    world = World()
    leader, follower = world.stable("a", "b")
    older = world.submit(join_of(leader.member_id))
    newer = world.submit(join_of(leader.member_id))
    assert world.code(older) == ErrorCode.REBALANCE_IN_PROGRESS
    world.submit(join_of(follower.member_id))
    assert world.membership(newer).generation == 2


def test_a_protocol_that_is_offered_twice_counts_once() -> None:
    world = World()
    ticket = world.submit(join_of(protocols=[("range", b"first"), ("range", b"second")]), 3)
    world.advance(DELAY_MS)
    assert world.replies[ticket].members[0].metadata == b"first"


# -- members that do not join in time


def test_a_member_that_does_not_join_again_in_time_is_gone() -> None:
    world = World()
    leader, _ = world.stable("a", "b", session_ms=REBALANCE_MS * 2)
    ticket = world.submit(join_of(leader.member_id))
    world.advance(REBALANCE_MS - 1)
    assert world.is_waiting(ticket)
    world.advance(1)
    assert world.membership(ticket).generation == 2
    assert world.group.roster.ids == [leader.member_id]


def test_the_most_patient_member_says_how_long_a_rebalance_waits() -> None:
    world = World()
    patient = world.submit(join_of(rebalance_ms=90_000, session_ms=200_000), 3)
    hasty = world.submit(join_of(rebalance_ms=1000, session_ms=200_000), 3)
    world.advance(2 * DELAY_MS)
    memberships = [world.membership(patient), world.membership(hasty)]
    world.settle(memberships)
    ticket = world.submit(join_of(memberships[0].member_id, rebalance_ms=90_000, session_ms=200_000))
    world.advance(89_999)
    assert world.is_waiting(ticket)
    world.advance(1)
    assert world.membership(ticket).generation == 2


def test_another_leads_if_the_leader_does_not_join_again() -> None:
    world = World()
    leader, follower = world.stable("a", "b", session_ms=REBALANCE_MS * 2)
    ticket = world.submit(join_of(follower.member_id, protocols=[("range", b"changed")]))
    world.advance(REBALANCE_MS)
    assert world.membership(ticket).leads
    assert leader.member_id not in world.group.roster


def test_a_new_member_whose_response_takes_too_long_has_to_join_again() -> None:
    world = World()
    (first,) = world.stable("a", rebalance_ms=1_000_000, session_ms=1_000_000)
    ticket = world.submit(join_of(rebalance_ms=1_000_000), 3)
    world.advance(membership.NEW_MEMBER_TIMEOUT_MS)
    assert world.code(ticket) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group.roster.ids == [first.member_id]


def test_a_member_that_waits_for_others_to_join_needs_no_heartbeats() -> None:
    world = World()
    leader, _ = world.stable("a", "b", session_ms=2 * REBALANCE_MS)
    ticket = world.submit(join_of(leader.member_id, session_ms=SESSION_MS))
    world.advance(REBALANCE_MS)
    assert world.membership(ticket).generation == 2
    world.advance(SESSION_MS - 1)
    assert leader.member_id in world.group.roster
    world.advance(1)
    assert world.state == "Empty"


# -- hanging up

CHANGED = (("range", b"changed"),)


def test_the_session_of_a_member_that_disconnects_in_a_join_starts_then() -> None:
    world = World()
    first, second = world.stable("a", "b")
    ticket = world.submit(join_of(second.member_id, protocols=CHANGED))
    world.tell(ClientDisconnected(group_id=GROUP, ticket=ticket))
    again = world.submit(join_of(first.member_id))
    world.advance(SESSION_MS - 1)
    assert world.is_waiting(again)
    world.advance(1)
    assert world.membership(again).generation == 2
    assert world.group.roster.ids == [first.member_id]
    assert world.is_waiting(ticket), "no client would get the response"


def test_a_disconnected_member_may_join_again() -> None:
    world = World()
    first, second = world.stable("a", "b")
    ticket = world.submit(join_of(second.member_id, protocols=CHANGED))
    world.tell(ClientDisconnected(group_id=GROUP, ticket=ticket))
    world.advance(SESSION_MS - 1)
    again = world.submit(join_of(second.member_id, protocols=CHANGED))
    for _ in range(2):  # longer than the session: but it waits again
        assert world.code(world.submit(heartbeat_of(first))) == ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(SESSION_MS - 1)
    other = world.submit(join_of(first.member_id))
    assert world.membership(again).generation == world.membership(other).generation == 2


def test_a_new_member_that_disconnects_does_not_delay_the_others_for_minutes() -> None:
    world = World()
    (first,) = world.stable("a")
    ticket = world.submit(join_of(), 3)
    world.tell(ClientDisconnected(group_id=GROUP, ticket=ticket))
    again = world.submit(join_of(first.member_id))
    world.advance(SESSION_MS)
    assert world.membership(again).generation == 2
    assert world.group.roster.ids == [first.member_id]


def test_the_session_of_a_member_that_disconnects_in_a_sync_starts_then() -> None:
    world = World()
    first, second = world.admit("a", "b")
    follower = second if first.leads else first
    ticket = world.submit(sync_of(follower))
    world.advance(SESSION_MS - 1)
    leader = first if first.leads else second
    world.submit(heartbeat_of(leader))
    world.tell(ClientDisconnected(group_id=GROUP, ticket=ticket))
    world.advance(SESSION_MS - 1)
    assert follower.member_id in world.group.roster.ids
    world.submit(heartbeat_of(leader))
    world.advance(1)
    assert world.group.roster.ids == [leader.member_id]


def test_a_ticket_that_was_answered_already_is_no_ones() -> None:
    world = World()
    (first,) = world.stable("a")
    world.tell(ClientDisconnected(group_id=GROUP, ticket=1))
    world.tell(ClientDisconnected(group_id="missing", ticket=1))
    assert world.state == "Stable"
    assert world.group.roster.ids == [first.member_id]
