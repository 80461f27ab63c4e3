"""A consumer group becomes a classic one again when only classic members are left (KIP-848)."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.groups import records
from penstock.groups.classic.membership import State
from penstock.groups.commands import TopicsChanged
from penstock.wire.messages.describe_groups import DescribeGroupsRequest

from .coordinator_harness import (
    GROUP,
    Membership,
    codes_of,
    commit_of,
    heartbeat_of,
    image_of,
    join_of,
    leave_of,
    sync_of,
    topic_of,
)
from .migration_harness import MigrationHarness, assigned, assignment, subscription
from .test_upgrade import kinds_since

SHARES = {"a": {"orders": [0, 1]}, "b": {"orders": [2, 3]}}
JOINING = {"protocols": [("range", subscription("orders"))]}


def settled(**settings: object) -> tuple[MigrationHarness, dict[str, Membership]]:
    """Two eager classic members and one of the newer protocol, which all own their targets."""
    world = MigrationHarness(**settings)
    memberships, _ = world.mixed(SHARES)
    return world, world.settle_all(memberships)


def rebalanced(world: MigrationHarness, memberships: dict[str, Membership]) -> dict[str, Membership]:
    """All join the classic group again, and the first of them shares out."""
    tickets = {
        name: world.submit(join_of(membership.member_id, **JOINING)) for name, membership in memberships.items()
    }
    found = {name: world.membership(ticket) for name, ticket in tickets.items()}
    leader = next(membership for membership in found.values() if membership.leads)
    given = {membership.member_id: assignment(SHARES[name]) for name, membership in found.items()}
    for membership in found.values():
        if membership is not leader:
            world.submit(sync_of(membership))
    world.submit(sync_of(leader, given))
    return found


# -- when


def test_the_last_one_of_the_newer_protocol_leaves_and_the_others_are_rebalanced() -> None:
    world, memberships = settled()
    epoch = world.consumer.state.epoch
    world.beat("new", -1)
    assert world.is_classic
    world.advance(0)
    assert (world.classic.state, world.classic.generation) == (State.PREPARING, epoch)
    assert world.hears(memberships["a"]) == ErrorCode.REBALANCE_IN_PROGRESS
    memberships = rebalanced(world, memberships)
    assert world.state == "Stable"
    assert {membership.generation for membership in memberships.values()} == {epoch + 1}
    assert world.hears(memberships["a"]) == ErrorCode.NONE


def test_the_last_one_of_the_newer_protocol_is_silent_for_too_long() -> None:
    world, memberships = settled(consumer_session_timeout_ms=20_000)
    for _ in range(19):
        world.advance(1000)
        for membership in memberships.values():
            assert world.hears(membership) == ErrorCode.NONE
    world.advance(1000)
    assert world.is_classic
    assert set(world.classic.roster.ids) == {membership.member_id for membership in memberships.values()}
    assert world.hears(memberships["a"]) == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_one_of_the_newer_protocol_keeps_what_it_has_to_give_up_for_too_long() -> None:
    world = MigrationHarness()
    world.beat("new", rebalance_timeout_ms=20_000)
    membership = world.join("", version=3)
    for _ in range(20):
        world.beat("new", 1)
        assert world.hears(membership) == ErrorCode.NONE
        world.advance(1000)
    assert world.is_classic


def test_an_administrator_removes_the_last_one_of_the_newer_protocol() -> None:
    world, memberships = settled()
    world.call(leave_of("new", memberships["a"].member_id))
    assert world.is_classic
    assert world.classic.roster.ids == [memberships["b"].member_id]


def test_a_classic_one_that_leaves_changes_nothing_while_there_are_newer_ones() -> None:
    world, memberships = settled()
    world.call(leave_of(memberships["a"].member_id))
    assert not world.is_classic


def test_while_another_one_speaks_the_newer_protocol_the_group_stays_as_it_is() -> None:
    world, _ = settled()
    world.beat("another")
    world.beat("new", -1)
    assert not world.is_classic
    world.beat("another", -1)
    assert world.is_classic


def test_a_static_member_that_is_away_is_waited_for() -> None:
    world = MigrationHarness(consumer_session_timeout_ms=9000)
    world.beat("new", instance_id="i")
    world.join("", version=3)
    world.beat("new", -2, instance_id="i")
    assert not world.is_classic
    world.advance(9000)
    assert world.is_classic


def test_a_group_without_members_is_not_a_classic_one_by_that() -> None:
    world = MigrationHarness()
    world.beat("new")
    world.beat("new", -1)
    assert not world.is_classic
    assert world.consumer.is_empty


def test_partitions_held_after_a_downgrade_are_not_given_to_the_next_newer_member() -> None:
    """It was the target of one that has left, but the members that have to give it up have not heard of that."""
    world = MigrationHarness()
    world.mixed({"a": {"orders": [0, 1, 2, 3]}}, protocol="cooperative-sticky")
    assert len(world.consumer.state.targets["a-1"]) == 2
    world.beat("new", -1)
    assert world.is_classic
    response = world.beat("next")
    world.advance(0)
    assert not world.is_classic
    member = world.member("a-1")
    assert {place.partition for place in (*member.assigned, *member.revoking)} == {0, 1, 2, 3}
    assert not world.held("next")
    assert not world.beat("next", response.member_epoch, {}).assignment


@pytest.mark.parametrize("settings", [{"may_downgrade": False}, {"size_max": 1}])
def test_a_group_that_may_not_be_downgraded_goes_on_with_classic_members_alone(settings: dict[str, object]) -> None:
    world = MigrationHarness(**{"size_max": 2, **settings})
    world.beat("new")
    memberships = {"a": world.join("a"), "b": world.join("b")}
    world.beat("new", -1)
    assert not world.is_classic
    for name in ("a", "b"):
        assert world.hears(memberships[name]) == ErrorCode.REBALANCE_IN_PROGRESS
        memberships[name] = world.join(name)
    assert world.sync(memberships["a"])["orders"]
    assert world.state == "Stable"


def test_once_it_may_be_downgraded_it_is_when_the_next_one_goes() -> None:
    world = MigrationHarness(may_downgrade=False)
    world.beat("new")
    world.join("a")
    world.join("b")
    world.beat("new", -1)
    world.machine.settings = MigrationHarness().settings
    world.call(leave_of("a"))
    assert world.is_classic
    assert world.classic.roster.ids == ["b"]


# -- what it becomes


@pytest.mark.parametrize("restarted", [False, True])
def test_members_go_on_with_what_they_were_to_have(restarted: bool) -> None:
    world, memberships = settled()
    targets = {name: world.held(membership.member_id) for name, membership in memberships.items()}
    epoch = world.consumer.state.epoch
    world.beat("new", -1)
    if restarted:
        world.restart()
    group = world.classic
    assert (group.protocol_type, group.protocol, group.generation, group.leader) == ("consumer", "range", epoch, None)
    for name, membership in memberships.items():
        member = group.roster.get(membership.member_id)
        assert member is not None
        assert assigned(member.assignment) == targets[name]
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 60_000)
        assert member.protocols == (("range", subscription("orders")),)


def test_the_records_are_those_that_kafka_writes() -> None:
    world = MigrationHarness()
    world.beat("new")
    world.join("a")
    before = len(world.log)
    world.beat("new", -1)
    kinds = kinds_since(world, before)
    assert kinds[-1] == (records.GROUP_METADATA, True)
    assert kinds[:-1] == [
        *[(records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, False)] * 2,
        *[(records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, False)] * 2,
        *[(records.CONSUMER_GROUP_MEMBER_METADATA, False)] * 2,
        (records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, False),
        (records.CONSUMER_GROUP_METADATA, False),
    ]


def test_offsets_stay_and_members_commit_until_they_join_again() -> None:
    world, memberships = settled()
    world.call(commit_of({0: 7}, memberships["a"]), 9)
    world.beat("new", -1)
    world.advance(0)
    assert codes_of(world.call(commit_of({0: 8}, memberships["a"]), 9)) == [ErrorCode.NONE]
    assert world.fetched(0) == [8]
    world.restart()
    assert world.fetched(0) == [8]


def test_a_member_that_has_not_learned_of_a_rebalance_may_commit() -> None:
    world, memberships = settled()
    world.call(leave_of(memberships["a"].member_id))
    world.beat("new", -1)
    world.advance(0)
    assert world.is_classic
    assert codes_of(world.call(commit_of({0: 8}, memberships["b"]), 9)) == [ErrorCode.NONE]
    assert world.hears(memberships["b"]) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_was_behind_has_to_start_over() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed(SHARES)
    world.beat("new", -1)
    world.advance(0)
    assert world.hears(memberships["a"]) == ErrorCode.ILLEGAL_GENERATION
    assert codes_of(world.call(commit_of({0: 8}, memberships["a"]), 9)) == [ErrorCode.ILLEGAL_GENERATION]
    assert rebalanced(world, memberships)["a"].generation == 3


def test_a_coordinator_that_takes_over_before_the_rebalance_begins_it_too() -> None:
    world, memberships = settled()
    world.beat("new", -1)
    world.restart()
    assert world.classic.state is State.PREPARING
    assert world.hears(memberships["a"]) == ErrorCode.REBALANCE_IN_PROGRESS
    rebalanced(world, memberships)
    world.restart()
    assert world.state == "Stable"


def test_a_member_that_joins_before_the_rebalance_is_in_it() -> None:
    world, memberships = settled()
    world.beat("new", -1)
    early = world.submit(join_of("", **JOINING), 3)
    world.advance(0)
    assert world.is_waiting(early)
    tickets = [world.submit(join_of(membership.member_id, **JOINING)) for membership in memberships.values()]
    assert len({world.membership(ticket).generation for ticket in (early, *tickets)}) == 1


def test_sessions_start_again_and_silent_members_are_removed() -> None:
    world, memberships = settled()
    world.advance(9000)
    world.beat("new", -1)
    world.advance(9999)
    assert len(world.classic.roster) == 2
    world.submit(heartbeat_of(memberships["a"]))
    world.advance(1)
    assert world.classic.roster.ids == [memberships["a"].member_id]


def test_a_downgrade_that_cannot_be_persisted_leaves_the_group_as_it_was() -> None:
    world, memberships = settled(consumer_session_timeout_ms=20_000)
    world.can_persist = False
    assert world.refusal(world.beat_of("new", -1), 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.advance(0)
    assert not world.is_classic
    for _ in range(20):
        world.advance(1000)
        for membership in memberships.values():
            assert world.hears(membership) == ErrorCode.NONE
    world.can_persist = True
    world.advance(1000)
    assert world.is_classic, "the one that is silent is removed when that can be persisted"


def test_it_is_shown_as_a_classic_group() -> None:
    world, memberships = settled()
    world.beat("new", -1)
    world.advance(0)
    rebalanced(world, memberships)
    (found,) = world.call(DescribeGroupsRequest(groups=(GROUP,)), 6).groups
    assert (found.error_code, found.group_state, found.protocol_data) == (ErrorCode.NONE, "Stable", "range")
    assert len(found.members) == 2


def test_a_group_moves_up_and_down_and_its_generations_only_grow() -> None:
    world, memberships = settled()
    generations = [world.consumer.state.epoch]
    for number in range(3):
        newest = f"new-{number}"
        world.beat("new" if number == 0 else f"new-{number - 1}", -1)
        world.advance(0)
        memberships = rebalanced(world, memberships)
        generations.append(world.classic.generation)
        world.beat(newest)
        world.advance(0)
        memberships = world.settle_all(memberships, newest)
        generations.append(world.consumer.state.epoch)
    assert generations == sorted(set(generations))


# -- by a static member that is replaced


def static(**settings: object) -> tuple[MigrationHarness, Membership]:
    """A classic member, and a static one of the newer protocol; both have what they are to have."""
    world = MigrationHarness(**settings)
    world.beat("new", instance_id="i")
    membership = world.join("a")
    for _ in range(2):
        world.beat("new", world.member("new").epoch, world.held("new"))
        membership = world.join("a")
        world.sync(membership)
    assert world.state == "Stable"
    return world, membership


@pytest.mark.parametrize("restarted", [False, True])
def test_the_last_one_of_the_newer_protocol_returns_as_a_classic_one_and_nothing_is_rebalanced(
    restarted: bool,
) -> None:
    world, membership = static()
    shares = (world.held("a"), world.held("new"))
    back = world.join("", instance_id="i")
    if restarted:
        world.restart()
    world.advance(0)
    assert world.is_classic
    assert world.state == "Stable"
    assert back.generation == membership.generation == world.classic.generation
    assert (world.sync(membership), world.sync(back, instance_id="i")) == shares
    assert world.hears(membership) == world.hears(back, instance_id="i") == ErrorCode.NONE
    assert world.hears(Membership("new", 2, False), instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    world.advance(9999)
    assert len(world.classic.roster) == 2
    world.advance(1)
    assert world.state == "Empty"


def test_it_is_rebalanced_if_the_one_that_returns_wants_something_else() -> None:
    world, membership = static()
    back = world.join("", instance_id="i", topics=("orders", "prices"))
    world.advance(0)
    assert world.classic.state is State.PREPARING
    assert world.hears(membership) == world.hears(back, instance_id="i") == ErrorCode.REBALANCE_IN_PROGRESS


def test_it_is_rebalanced_if_a_member_does_not_own_its_target() -> None:
    world = MigrationHarness()
    world.beat("new", instance_id="i")
    waiting = world.join("a")
    back = world.join("", instance_id="i")
    world.advance(0)
    assert world.classic.state is State.PREPARING
    assert world.hears(waiting) == world.hears(back, instance_id="i") == ErrorCode.REBALANCE_IN_PROGRESS


def test_it_is_rebalanced_if_its_topics_have_grown_meanwhile() -> None:
    world = MigrationHarness()
    world.beat("new", instance_id="i")
    world.machine.image = image_of(topic_of("orders", 5))
    world.tell(TopicsChanged(deleted=frozenset()))
    back = world.join("", instance_id="i")
    world.advance(0)
    assert world.classic.state is State.PREPARING
    assert world.hears(back, instance_id="i") == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_group_stays_as_it_is_if_it_may_not_be_downgraded() -> None:
    world, _ = static(may_downgrade=False)
    share = world.held("new")
    back = world.join("", instance_id="i")
    assert not world.is_classic
    assert world.sync(back, instance_id="i") == share
    assert set(world.consumer.state.members) == {"a", back.member_id}
