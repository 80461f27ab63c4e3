"""A classic group that has members becomes a consumer group (KIP-848)."""

from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.groups import records
from penstock.groups.classic.group import ClassicGroup
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.state import kind_of

from .coordinator_harness import GROUP, Ended, commit_of, heartbeat_of, join_of, leave_of, sync_of
from .migration_harness import ORDERS, MigrationHarness, assignment, subscription

SHARES = {"a": {"orders": [0, 1]}, "b": {"orders": [2, 3]}}


def kinds_since(world: MigrationHarness, length: int) -> list[tuple[int, bool]]:
    """The kinds of records since the log had this length, and whether they say that something is there."""
    entries = [entry for entry in world.log[length:] if not isinstance(entry, Ended)]
    return [(kind_of(record.key), record.value is not None) for record, _ in entries]


# -- what it becomes


@pytest.mark.parametrize("restarted", [False, True])
def test_members_go_on_with_what_they_have(restarted: bool) -> None:
    world = MigrationHarness()
    memberships = world.classics(SHARES, session_ms=7000, rebalance_ms=9000)
    world.beat("new")
    if restarted:
        world.restart()
    for name, owned in SHARES.items():
        member = world.member(memberships[name].member_id)
        assert (member.epoch, member.previous_epoch, member.state.name) == (1, 1, "STABLE")
        assert world.held(member.member_id) == owned
        assert (member.topic_names, member.client_id, member.rebalance_timeout_ms) == ({"orders"}, name, 9000)
        assert member.classic is not None
        assert member.classic.session_timeout_ms == 7000
        assert [protocol.name for protocol in member.classic.supported_protocols] == ["range"]
        assert set(member.assigned.values()) == {1}
    assert world.consumer.state.epoch == world.consumer.state.target_epoch == 2
    assert world.held("new") == {}, "others have what it is to have"


def test_the_records_are_those_that_kafka_writes() -> None:
    world = MigrationHarness()
    world.classics({"a": {"orders": [0, 1, 2, 3]}})
    before = len(world.log)
    world.beat("new")
    assert kinds_since(world, before) == [
        (records.GROUP_METADATA, False),
        (records.CONSUMER_GROUP_MEMBER_METADATA, True),
        (records.CONSUMER_GROUP_METADATA, True),
        (records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, True),
        (records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, True),
        (records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, True),
        # and then those of the member that joins
        (records.CONSUMER_GROUP_MEMBER_METADATA, True),
        (records.CONSUMER_GROUP_METADATA, True),
        (records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, True),
        (records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, True),
        (records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, True),
        (records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, True),
    ]


def test_offsets_stay() -> None:
    world = MigrationHarness()
    memberships = world.classics(SHARES)
    world.call(commit_of({0: 7}, memberships["a"]), 9)
    world.beat("new")
    assert world.fetched(0) == [7]
    world.restart()
    assert world.fetched(0) == [7]


def test_as_few_partitions_as_possible_move_to_the_new_member() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed()
    state = world.consumer.state
    sizes = {member_id: len(state.targets[member_id]) for member_id in state.members}
    assert sorted(sizes.values()) == [1, 1, 2]
    for name, membership in memberships.items():
        assert {place.partition for place in state.targets[membership.member_id]} <= set(SHARES[name]["orders"])


def test_a_partition_that_two_were_given_has_one_owner() -> None:
    world = MigrationHarness()
    memberships = world.classics({"a": {"orders": [0, 1]}, "b": {"orders": [1, 2]}})
    world.beat("new")
    assert world.held(memberships["a"].member_id) == {"orders": [0, 1]}
    assert world.held(memberships["b"].member_id) == {"orders": [2]}


def test_static_members_and_racks_are_kept() -> None:
    world = MigrationHarness()
    ticket = world.submit(
        join_of(instance_id="i", protocols=[("range", subscription("orders", version=3, rack="eu"))]), 5
    )
    world.advance(6000)
    membership = world.membership(ticket)
    world.submit(sync_of(membership, {membership.member_id: assignment({"orders": [0]})}, instance_id="i"))
    world.beat("new")
    member = world.member(membership.member_id)
    assert (member.instance_id, member.rack_id) == ("i", "eu")


def test_a_static_member_returns_with_the_newer_protocol_and_takes_over_its_share() -> None:
    world = MigrationHarness()
    ticket = world.submit(join_of(instance_id="i", protocols=[("range", subscription("orders"))]), 5)
    world.advance(6000)
    membership = world.membership(ticket)
    world.submit(sync_of(membership, {membership.member_id: assignment({"orders": [0, 1, 2, 3]})}, instance_id="i"))
    answer = world.beat("new", instance_id="i")
    assert answer.assignment is not None
    assert world.held("new") == {"orders": [0, 1, 2, 3]}
    assert list(world.consumer.state.members) == ["new"]
    world.advance(0)
    assert world.hears(membership, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    world.advance(44_999)
    assert not world.consumer.is_empty
    world.advance(1)
    assert world.consumer.is_empty


def test_unowned_partitions_are_assigned_when_a_static_member_returns() -> None:
    world = MigrationHarness()
    ticket = world.submit(join_of(instance_id="i", protocols=[("range", subscription("orders"))]), 5)
    world.advance(6000)
    membership = world.membership(ticket)
    world.submit(sync_of(membership, {membership.member_id: assignment({"orders": [1]})}, instance_id="i"))
    assert world.beat("new", instance_id="i").member_epoch == membership.generation + 1
    assert world.held("new") == {"orders": [0, 1, 2, 3]}


# -- waiting requests


def test_waiting_joins_get_rebalance_in_progress() -> None:
    world = MigrationHarness()
    memberships = world.classics(SHARES)
    waiting = world.submit(join_of(memberships["a"].member_id, protocols=[("range", subscription("orders"))]))
    assert world.state == "PreparingRebalance"
    assert world.is_waiting(waiting)
    world.beat("new")
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.held(memberships["a"].member_id) == SHARES["a"], "it has what it was given last"


def test_waiting_syncs_get_rebalance_in_progress() -> None:
    world = MigrationHarness()
    memberships = world.admit("a", "b", protocols=[("range", subscription("orders"))])
    follower = next(membership for membership in memberships if not membership.leads)
    waiting = world.submit(sync_of(follower))
    assert world.is_waiting(waiting)
    world.beat("new")
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.member(follower.member_id).epoch == follower.generation
    assert world.held(follower.member_id) == {}
    assert world.refusal(sync_of(follower)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_is_put_together_for_the_first_time_is_upgraded_too() -> None:
    world = MigrationHarness()
    waiting = world.submit(join_of(protocols=[("range", subscription("orders"))]), 3)
    assert world.beat("new").member_epoch == 1
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(world.consumer.state.members) == 2


def test_a_member_that_knows_only_its_id_joins_the_consumer_group_with_it() -> None:
    world = MigrationHarness()
    world.classics(SHARES)
    given = world.call(join_of(protocols=[("range", subscription("orders"))])).member_id
    world.beat("new")
    membership = world.join(given)
    assert (membership.member_id, membership.generation) == (given, 3)


# -- time


def test_a_classic_member_has_a_whole_session_from_then_on_and_is_removed_after_it() -> None:
    world = MigrationHarness()
    memberships = world.classics(SHARES, session_ms=10_000)
    world.advance(9000)
    world.beat("new")
    world.advance(9999)
    assert memberships["a"].member_id in world.consumer.state.members
    world.advance(1)
    assert list(world.consumer.state.members) == ["new"]


def test_sessions_run_on_after_a_restart() -> None:
    world = MigrationHarness()
    world.mixed(session_ms=10_000)
    world.restart()
    world.advance(9999)
    assert len(world.consumer.state.members) == 3
    world.advance(1)
    assert list(world.consumer.state.members) == ["new"]


def test_timers_of_the_classic_group_do_nothing_any_more() -> None:
    world = MigrationHarness()
    times = {"session_ms": 60_000, "rebalance_ms": 10_000}
    memberships = world.classics(SHARES, **times)
    world.submit(join_of(memberships["a"].member_id, protocols=[("range", subscription("orders"))], **times))
    world.beat("new")
    world.advance(20_000)
    assert len(world.consumer.state.members) == 3


# -- what is refused


@pytest.mark.parametrize("settings", [{"may_upgrade": False}, {"consumer_size_max": 1}])
def test_a_group_that_may_not_be_upgraded_stays_as_it_is(settings: dict[str, object]) -> None:
    world = MigrationHarness(**settings)
    memberships = world.classics(SHARES)
    assert world.refusal(world.beat_of("new"), 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.is_classic
    assert world.hears(memberships["a"]) == ErrorCode.NONE


def test_a_full_group_accepts_no_member() -> None:
    world = MigrationHarness(consumer_size_max=2)
    world.classics(SHARES)
    assert world.refusal(world.beat_of("new"), 1) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.is_classic


@pytest.mark.parametrize(
    ("wanted", "share"),
    [
        ({"protocol_type": "connect"}, assignment({})),
        ({"protocols": [("range", b"plain")]}, assignment({})),
        ({}, b"plain"),
        ({"protocols": [("mine", subscription("orders"))]}, assignment({"orders": [0]}, user_data=b"of mine")),
    ],
)
def test_a_group_whose_members_are_not_understood_stays_classic(wanted: dict[str, Any], share: bytes) -> None:
    world = MigrationHarness()
    wanted = {"protocols": [("range", subscription("orders"))], **wanted}
    (membership,) = world.admit("a", **wanted)
    ((protocol, _),) = wanted["protocols"]
    protocol_type = wanted.get("protocol_type", "consumer")
    world.submit(
        sync_of(membership, {membership.member_id: share}, protocol_type=protocol_type, protocol=protocol), 5
    )
    assert world.state == "Stable"
    assert world.refusal(world.beat_of("new"), 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.state == "Stable"
    assert world.is_classic


@pytest.mark.parametrize("protocol", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_user_data_that_a_common_assignor_does_not_read_does_not_hinder_an_upgrade(protocol: str) -> None:
    world = MigrationHarness()
    (membership,) = world.admit("a", protocols=[(protocol, subscription("orders"))])
    share = assignment({"orders": [0, 1, 2, 3]}, user_data=b"copied from the subscription")
    world.submit(sync_of(membership, {membership.member_id: share}, protocol=protocol), 5)
    assert world.call(world.beat_of("new"), 1).error_code == ErrorCode.NONE
    assert not world.is_classic


def test_partitions_of_a_cooperative_member_are_not_given_to_the_one_that_upgrades_the_group() -> None:
    """It has not yet fetched its assignment, in which two of its partitions are missing."""
    world = MigrationHarness()
    said = [("cooperative-sticky", subscription("orders", owned={"orders": [0, 1, 2, 3]}))]
    leader, other = sorted(world.admit("a", "b", protocols=said), key=lambda membership: not membership.leads)
    shares = {leader.member_id: assignment({}), other.member_id: assignment({"orders": [0, 1]})}
    world.submit(sync_of(leader, shares, protocol="cooperative-sticky"))
    assert world.state == "Stable"
    response = world.beat("new")
    world.advance(0)
    members = [world.member(membership.member_id) for membership in (leader, other)]
    held = [{place.partition for place in (*member.assigned, *member.revoking)} for member in members]
    assert held == [{2, 3}, {0, 1}]
    assert not world.held("new")
    assert not world.beat("new", response.member_epoch, {}).assignment


@pytest.mark.parametrize("epoch", [-2, -1, 1])
def test_only_a_joining_member_upgrades_a_group(epoch: int) -> None:
    world = MigrationHarness()
    world.classics(SHARES)
    request = world.beat_of("new", epoch, instance_id="i")
    assert world.refusal(request, 1) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.is_classic


def test_invalid_requests_are_refused_before_the_group_is_looked_up() -> None:
    world = MigrationHarness()
    for _ in range(2):
        assert world.refusal(world.beat_of("new", -3), 1) == ErrorCode.INVALID_REQUEST
        assert world.refusal(world.beat_of("new", 5, server_assignor="x"), 1) == ErrorCode.UNSUPPORTED_ASSIGNOR
        if not world.machine.groups:
            world.classics(SHARES)
    assert world.is_classic


def test_a_refused_heartbeat_does_not_answer_waiting_members() -> None:
    world = MigrationHarness()
    memberships = world.classics(SHARES)
    waiting = world.submit(join_of(memberships["a"].member_id, protocols=[("range", subscription("orders"))]))
    request = world.beat_of("new", subscribed_topic_names=(), subscribed_topic_regex="(")
    assert world.refusal(request, 1) == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.is_waiting(waiting)
    assert world.is_classic


# -- what cannot be persisted


def test_an_upgrade_that_cannot_be_persisted_leaves_the_group_as_it_was() -> None:
    world = MigrationHarness()
    memberships = world.classics(SHARES, session_ms=10_000)
    waiting = world.submit(join_of(memberships["a"].member_id, protocols=[("range", subscription("orders"))]))
    world.can_persist = False
    assert world.refusal(world.beat_of("new"), 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.code(waiting) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.advance(0)
    world.can_persist = True
    group = world.machine.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, group.joins) == ("PreparingRebalance", {})
    tickets = [
        world.submit(join_of(membership.member_id, protocols=[("range", subscription("orders"))]))
        for membership in memberships.values()
    ]
    assert {world.membership(ticket).generation for ticket in tickets} == {2}


def test_a_member_that_has_to_join_again_and_does_not_expires_after_its_session() -> None:
    world = MigrationHarness()
    memberships = world.classics(SHARES, session_ms=10_000, rebalance_ms=60_000)
    world.submit(join_of(memberships["a"].member_id, protocols=[("range", subscription("orders"))]))
    for _ in range(3):
        world.advance(5000)  # while it waits no heartbeat is expected
        world.submit(heartbeat_of(memberships["b"]))
    world.can_persist = False
    world.submit(world.beat_of("new"), 1)
    world.can_persist = True
    for _ in range(2):
        assert memberships["a"].member_id in world.classic.roster
        world.advance(5000)
        world.submit(heartbeat_of(memberships["b"]))
    assert world.classic.roster.ids == [memberships["b"].member_id]


def test_the_session_of_a_new_member_does_not_expire_while_it_joins_again() -> None:
    world = MigrationHarness()
    memberships = world.classics(SHARES, session_ms=10_000, rebalance_ms=60_000)
    given = world.call(join_of(protocols=[("range", subscription("orders"))])).member_id
    again = join_of(given, protocols=[("range", subscription("orders"))])
    world.submit(again)
    world.can_persist = False
    world.submit(world.beat_of("new"), 1)
    world.can_persist = True
    waiting = world.submit(again)
    for _ in range(4):
        world.advance(5000)
        for membership in memberships.values():
            world.submit(heartbeat_of(membership))
    assert world.is_waiting(waiting)
    assert given in world.classic.roster


# -- what is shown


def test_everyone_sees_a_consumer_group_with_members_of_both_kinds() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed()
    (listed,) = world.call(ListGroupsRequest(states_filter=(), types_filter=())).groups
    assert (listed.group_type, listed.protocol_type) == ("consumer", "consumer")
    describing = ConsumerGroupDescribeRequest(group_ids=(GROUP,), include_authorized_operations=False)
    (found,) = world.call(describing).groups
    assert {member.member_id: member.member_type for member in found.members} == {
        memberships["a"].member_id: 0,
        memberships["b"].member_id: 0,
        "new": 1,
    }
    a = next(member for member in found.members if member.member_id == memberships["a"].member_id)
    assert [(entry.topic_id, list(entry.partitions)) for entry in a.assignment.topic_partitions] == [
        (ORDERS.topic_id, [0, 1])
    ]
    assert found.group_state == "Reconciling"
    (before,) = world.call(DescribeGroupsRequest(groups=(GROUP,)), 5).groups
    (since,) = world.call(DescribeGroupsRequest(groups=(GROUP,)), 6).groups
    assert (before.error_code, before.group_state) == (ErrorCode.NONE, "Dead")
    assert (since.error_code, since.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_a_group_whose_last_member_is_leaving_is_as_good_as_empty() -> None:
    world = MigrationHarness()
    (membership,) = world.classics({"a": {"orders": [0]}}).values()
    world.can_persist = False
    world.submit(leave_of(membership.member_id))
    world.can_persist = True
    assert world.state == "PreparingRebalance"
    assert world.beat("new").member_epoch == 1
    world.advance(120_000)
    assert world.consumer.is_empty
