"""Members of the classic protocol in a consumer group (KIP-848)."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.modern.members import MemberState
from penstock.wire.messages.leave_group import LeaveGroupRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

from .coordinator_harness import (
    GROUP,
    Membership,
    codes_of,
    commit_of,
    heartbeat_of,
    join_of,
    leave_of,
    sync_of,
    txn_commit_of,
)
from .migration_harness import COOPERATIVE, MigrationHarness, subscription

SHARES = {"a": {"orders": [0, 1]}, "b": {"orders": [2, 3]}}
JOINING = {"protocols": [("range", subscription("orders"))]}


def settled(**settings: object) -> tuple[MigrationHarness, dict[str, Membership]]:
    """Two eager classic members and one of the newer protocol, which all own their targets."""
    world = MigrationHarness(**settings)
    memberships, _ = world.mixed(SHARES)
    return world, world.settle_all(memberships)


# -- eager members


def test_an_eager_member_rejoins_on_rebalance_in_progress_and_gets_its_share_at_once() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed(SHARES)
    assert world.hears(memberships["a"]) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(memberships["a"].member_id)
    assert again == Membership(memberships["a"].member_id, 2, False)
    given = world.sync(again)
    assert given == world.held(again.member_id)
    assert world.hears(again) == ErrorCode.NONE
    assert world.hears(memberships["a"]) == ErrorCode.ILLEGAL_GENERATION


def test_partitions_that_a_classic_member_revokes_go_to_the_waiting_member() -> None:
    world = MigrationHarness()
    memberships, response = world.mixed(SHARES)
    assert response.member_epoch == 2
    assert world.member("new").state is MemberState.UNRELEASED_PARTITIONS
    for membership in memberships.values():
        world.join(membership.member_id)
    answer = world.beat("new", 2)
    assert answer.assignment is not None
    assert sum(len(world.held(member_id)["orders"]) for member_id in world.consumer.state.members) == 4
    assert world.state == "Stable"


def test_a_classic_member_waits_for_partitions_of_the_newer_one_and_gets_them_when_revoked() -> None:
    world = MigrationHarness()
    world.beat("new")
    membership = world.join("", version=3)
    assert world.sync(membership) == {}
    assert world.member(membership.member_id).state is MemberState.UNRELEASED_PARTITIONS
    assert world.hears(membership) == ErrorCode.NONE, "there is nothing to join for yet"
    world.beat("new", 1)
    kept = world.held("new")
    assert len(kept["orders"]) == 2
    assert world.hears(membership) == ErrorCode.NONE
    world.beat("new", 1, kept)
    assert world.hears(membership) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(membership.member_id)
    assert again.generation == membership.generation
    assert len(world.sync(again)["orders"]) == 2
    assert world.hears(again) == ErrorCode.NONE


def test_a_sync_of_an_older_epoch_gets_rebalance_in_progress() -> None:
    world, memberships = settled()
    membership = world.join(memberships["a"].member_id)
    world.beat("another")
    assert world.refusal(sync_of(membership)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_rebalances_when_topics_grow() -> None:
    world, memberships = settled()
    assert world.hears(memberships["a"]) == ErrorCode.NONE
    world.call(join_of(memberships["b"].member_id, protocols=[("range", subscription("orders", "prices"))]))
    assert world.hears(memberships["a"]) == ErrorCode.REBALANCE_IN_PROGRESS
    world.settle_all({"a": memberships["a"]})  # `b` has what it wants already
    assert "prices" in world.held(memberships["b"].member_id)


def test_joining_again_without_need_changes_nothing() -> None:
    world, memberships = settled()
    epoch = world.consumer.state.epoch
    before = world.sync(memberships["a"])
    again = world.join(memberships["a"].member_id)
    assert (again.generation, world.sync(again)) == (epoch, before)
    assert world.state == "Stable"


# -- cooperative members


def test_a_cooperative_member_gives_up_first_what_it_must_and_keeps_the_rest() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed({"a": {"orders": [0, 1, 2, 3]}}, COOPERATIVE)
    membership = memberships["a"]
    assert world.hears(membership) == ErrorCode.REBALANCE_IN_PROGRESS
    first = world.join(membership.member_id, {"orders": [0, 1, 2, 3]}, protocol=COOPERATIVE)
    assert first.generation == membership.generation, "it stays in its epoch until it has given up what it must"
    assert world.member(membership.member_id).state is MemberState.UNREVOKED_PARTITIONS
    kept = world.sync(first, COOPERATIVE)
    assert len(kept["orders"]) == 2
    world.beat("new", 2)
    assert world.held("new") == {}, "they have no owner while they are being revoked"
    assert world.hears(first) == ErrorCode.REBALANCE_IN_PROGRESS
    second = world.join(membership.member_id, kept, protocol=COOPERATIVE)
    assert second.generation == 2
    assert world.sync(second, COOPERATIVE) == kept
    assert world.hears(second) == ErrorCode.NONE
    world.beat("new", 2)
    assert len(world.held("new")["orders"]) == 2


def test_a_cooperative_member_that_still_owns_what_it_must_give_up_gets_no_further() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed({"a": {"orders": [0, 1, 2, 3]}}, COOPERATIVE)
    for _ in range(2):
        world.join(memberships["a"].member_id, {"orders": [0, 1, 2, 3]}, protocol=COOPERATIVE)
    assert world.member(memberships["a"].member_id).epoch == 1


def test_a_removed_member_that_still_owns_partitions_gets_an_error() -> None:
    world, memberships = settled()
    world.call(leave_of(memberships["a"].member_id))
    owning = join_of(memberships["a"].member_id, protocols=[("range", subscription("orders", owned={"orders": [0]}))])
    assert world.refusal(owning) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(memberships["a"].member_id).generation > memberships["a"].generation


# -- coming


def test_a_new_member_has_to_know_its_id_before_it_is_one() -> None:
    world, _ = settled()
    answer = world.call(join_of(**JOINING), 4)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(world.consumer.state.members) == 3
    membership = world.join(answer.member_id)
    assert membership.member_id == answer.member_id
    assert len(world.consumer.state.members) == 4


def test_older_clients_get_their_id_with_the_answer() -> None:
    world, _ = settled()
    membership = world.join("", version=3)
    assert membership.member_id in world.consumer.state.members


def test_the_first_version_has_one_timeout_for_session_and_rebalance() -> None:
    world, _ = settled()
    membership = world.join("", version=0, session_ms=8000, rebalance_ms=-1)
    assert world.member(membership.member_id).rebalance_timeout_ms == 8000


@pytest.mark.parametrize(
    "wanted",
    [
        {"protocol_type": "connect"},
        {"protocols": ()},
        {"protocols": [("sticky", subscription("orders"))]},
        {"protocols": [("range", b"plain")]},
    ],
)
def test_a_member_must_share_a_protocol_with_all_classic_ones(wanted: dict[str, object]) -> None:
    world, _ = settled()
    request = join_of(**{"member_id": "x", **JOINING, **wanted})  # type: ignore[arg-type]
    log = len(world.log)
    assert world.refusal(request) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(world.log) == log


def test_members_may_differ_in_what_they_like_best() -> None:
    world, memberships = settled()
    said = subscription("orders")
    answer = world.call(join_of("x", protocols=[("roundrobin", said), ("range", said)]))
    assert (answer.error_code, answer.protocol_name) == (ErrorCode.NONE, "roundrobin")
    other = join_of("y", protocols=[("roundrobin", said)])
    assert world.refusal(other) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (
        world.refusal(sync_of(Membership("x", answer.generation_id, False))) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert world.sync(Membership("x", answer.generation_id, False), "roundrobin") == world.held("x")
    assert world.refusal(sync_of(memberships["a"], protocol="roundrobin")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_without_classic_members_any_protocol_is_accepted() -> None:
    world = MigrationHarness()
    world.beat("new")
    assert world.join("x", protocol="mine").generation == 2


def test_a_full_group_accepts_only_its_members() -> None:
    world, memberships = settled(consumer_size_max=3)
    assert world.refusal(join_of("x", **JOINING)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.refusal(join_of(**JOINING)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join(memberships["a"].member_id).member_id == memberships["a"].member_id


@pytest.mark.parametrize("session_ms", [5999, 1_800_001])
def test_session_timeouts_have_the_same_bounds(session_ms: int) -> None:
    world, _ = settled()
    assert world.refusal(join_of("x", session_ms=session_ms, **JOINING)) == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_join_that_cannot_be_persisted_changes_nothing() -> None:
    world, _ = settled()
    world.can_persist = False
    assert world.refusal(join_of("x", **JOINING)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "x" not in world.consumer.state.members
    world.advance(120_000)
    world.can_persist = True
    world.advance(120_000)
    assert world.state == "Empty"


# -- static members


def test_a_static_member_returns_under_another_id_and_keeps_its_share() -> None:
    world = MigrationHarness()
    world.beat("new")
    old = world.join("", instance_id="i")
    world.beat("new", 1)
    world.beat("new", 1, world.held("new"))
    old = world.join(old.member_id, instance_id="i")
    share = world.sync(old, instance_id="i")
    assert share
    new = world.join("", instance_id="i")
    assert new.member_id != old.member_id
    assert new.generation == old.generation
    assert world.sync(new, instance_id="i") == share
    assert world.hears(old, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert world.hears(old) == ErrorCode.UNKNOWN_MEMBER_ID
    fenced = join_of(old.member_id, instance_id="i", **JOINING)
    assert world.refusal(fenced) == ErrorCode.FENCED_INSTANCE_ID
    assert world.refusal(join_of("x", instance_id="other", **JOINING)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_of_the_newer_protocol_takes_over_from_a_classic_one() -> None:
    world = MigrationHarness()
    world.beat("new")
    world.join("", instance_id="i")
    answer = world.beat("successor", instance_id="i")
    assert answer.member_epoch == world.consumer.state.epoch
    assert set(world.consumer.state.members) == {"new", "successor"}
    assert world.member("successor").classic is None


def test_a_classic_static_member_takes_over_from_one_of_the_newer_protocol_that_is_there_still() -> None:
    world = MigrationHarness()
    world.beat("new")
    world.beat("old", instance_id="i")
    world.beat("new", 1)
    world.beat("new", 1, world.held("new"))
    world.beat("old", 2)
    share = world.held("old")
    assert share
    membership = world.join("", instance_id="i")
    assert world.sync(membership, instance_id="i") == share
    assert world.refusal(world.beat_of("old", 2, instance_id="i"), 1) == ErrorCode.FENCED_INSTANCE_ID


def test_a_classic_member_that_takes_over_subscribes_by_names_alone() -> None:
    world = MigrationHarness()
    world.beat("new")
    world.beat("old", instance_id="i", subscribed_topic_regex="prices")
    assert world.consumer.state.regexes
    membership = world.join("", instance_id="i")
    assert (world.member(membership.member_id).topic_names, world.member(membership.member_id).topic_regex) == (
        {"orders"},
        "",
    )
    assert not world.consumer.state.regexes


def test_a_static_member_that_is_away_may_return_as_a_classic_one() -> None:
    world = MigrationHarness()
    world.beat("new")
    world.beat("old", instance_id="i")
    world.beat("old", -2, instance_id="i")
    membership = world.join("", instance_id="i")
    assert world.member(membership.member_id).epoch == membership.generation == 2


# -- checks of members


@pytest.mark.parametrize(
    ("membership", "code"),
    [
        (Membership("x", 2, False), ErrorCode.UNKNOWN_MEMBER_ID),
        (Membership("new", 2, False), ErrorCode.UNKNOWN_MEMBER_ID),
        (Membership("a-1", 1, False), ErrorCode.ILLEGAL_GENERATION),
        (Membership("a-1", 3, False), ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_only_classic_members_in_their_generation_renew_their_sessions(
    membership: Membership, code: ErrorCode
) -> None:
    world, memberships = settled()
    assert memberships["a"] == Membership("a-1", 2, False)
    assert world.refusal(heartbeat_of(membership)) == code
    assert world.refusal(sync_of(membership)) == code
    assert world.refusal(heartbeat_of(membership, instance_id="i")) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("wanted", [{"protocol_type": "connect"}, {"protocol_type": None}, {"protocol": None}])
def test_a_sync_says_by_which_protocol(wanted: dict[str, str | None]) -> None:
    world, memberships = settled()
    assert world.refusal(sync_of(memberships["a"], **wanted)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]


def test_older_syncs_need_not_say_by_which_protocol() -> None:
    world, memberships = settled()
    reply = world.call(sync_of(memberships["a"], protocol_type=None, protocol=None), 4)
    assert (reply.error_code, reply.protocol_name) == (ErrorCode.NONE, None)


# -- time


def test_a_silent_classic_member_is_removed_after_its_own_session_timeout() -> None:
    world, memberships = settled()
    world.advance(9999)
    world.submit(heartbeat_of(memberships["b"]))
    world.advance(1)
    assert set(world.consumer.state.members) == {memberships["b"].member_id, "new"}
    assert world.hears(memberships["b"]) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.hears(memberships["a"]) == ErrorCode.UNKNOWN_MEMBER_ID


def beating(world: MigrationHarness, membership: Membership, ms: int) -> None:
    """Time passes, and a member and the newer one are heard of meanwhile."""
    for _ in range(ms // 1000):
        world.advance(1000)
        world.submit(heartbeat_of(membership))
        world.submit(world.beat_of("new", world.member("new").epoch), 1)


def test_a_classic_member_that_does_not_join_again_in_time_is_removed() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed({"a": {"orders": [0]}}, rebalance_ms=20_000)
    assert world.hears(memberships["a"]) == ErrorCode.REBALANCE_IN_PROGRESS
    beating(world, memberships["a"], 19_000)
    assert memberships["a"].member_id in world.consumer.state.members
    beating(world, memberships["a"], 1000)
    assert set(world.consumer.state.members) == {"new"}


def test_a_classic_member_that_joins_again_in_time_may_stay() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed({"a": {"orders": [0]}}, rebalance_ms=20_000)
    assert world.hears(memberships["a"]) == ErrorCode.REBALANCE_IN_PROGRESS
    beating(world, memberships["a"], 19_000)
    membership = world.join(memberships["a"].member_id, rebalance_ms=20_000)
    world.sync(membership)
    beating(world, membership, 40_000)
    assert membership.member_id in world.consumer.state.members


def test_a_classic_member_that_joins_and_does_not_sync_in_time_is_removed() -> None:
    world = MigrationHarness()
    memberships, _ = world.mixed({"a": {"orders": [0]}}, rebalance_ms=20_000)
    membership = world.join(memberships["a"].member_id, rebalance_ms=20_000)
    beating(world, membership, 19_000)
    assert membership.member_id in world.consumer.state.members
    beating(world, membership, 1000)
    assert set(world.consumer.state.members) == {"new"}


def test_a_classic_member_that_joined_and_synced_has_no_more_to_do() -> None:
    world, memberships = settled()
    for _ in range(100):
        world.advance(1000)
        for membership in memberships.values():
            assert world.hears(membership) == ErrorCode.NONE
        world.beat("new", world.member("new").epoch)
    assert len(world.consumer.state.members) == 3


def test_a_removal_that_cannot_be_persisted_is_tried_again() -> None:
    world, memberships = settled()
    world.can_persist = False
    world.advance(10_000)
    assert len(world.consumer.state.members) == 3
    world.can_persist = True
    for _ in range(2):
        world.advance(1000)
        world.beat("new", world.member("new").epoch)
    assert set(world.consumer.state.members) == {"new"}
    assert memberships["a"].member_id not in world.consumer.state.members


# -- going


@pytest.mark.parametrize("version", [2, 5])
def test_a_classic_member_leaves_and_the_others_share_what_it_had(version: int) -> None:
    world, memberships = settled()
    gone = memberships.pop("a")
    reply = world.call(LeaveGroupRequest(group_id=GROUP, member_id=gone.member_id), 2) if version < 3 else None
    reply = reply or world.call(leave_of(gone.member_id), version)
    assert (reply.error_code, [entry.error_code for entry in reply.members]) == (0, [0] if version >= 3 else [])
    assert world.hears(memberships["b"]) == ErrorCode.REBALANCE_IN_PROGRESS
    world.settle_all(memberships)
    assert sum(len(world.held(member_id)["orders"]) for member_id in world.consumer.state.members) == 4


def test_a_client_that_is_not_a_member_cannot_leave() -> None:
    world, _ = settled()
    log = len(world.log)
    assert world.call(leave_of("x")).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.call(leave_of("", instance_id="i")).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.call(LeaveGroupRequest(group_id=GROUP, member_id="x"), 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(world.log) == log, "nothing is rebalanced"


def test_several_leave_at_once_and_static_ones_by_their_instance_id_alone() -> None:
    world, memberships = settled()
    static = world.join("", instance_id="i")
    fenced = leave_of("x", instance_id="i")
    assert world.call(fenced).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    epoch = world.consumer.state.epoch
    members = [*leave_of("", instance_id="i").members, *leave_of(memberships["a"].member_id, "x").members]
    reply = world.call(LeaveGroupRequest(group_id=GROUP, members=members))
    assert [entry.error_code for entry in reply.members] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert set(world.consumer.state.members) == {memberships["b"].member_id, "new"}
    assert static.member_id not in world.consumer.state.members
    assert world.consumer.state.epoch == epoch + 1, "one rebalance for all of them"


def test_a_member_of_the_newer_protocol_can_be_made_to_leave_too() -> None:
    world = MigrationHarness()
    world.beat("one")
    world.beat("two", instance_id="i")
    assert world.call(leave_of("one")).members[0].error_code == 0
    assert world.call(leave_of("", instance_id="i")).members[0].error_code == 0
    assert world.consumer.is_empty


# -- offsets


@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_classic_member_commits_by_its_generation_in_any_version(version: int) -> None:
    world, memberships = settled()
    assert codes_of(world.call(commit_of({0: 5}, memberships["a"]), version)) == [ErrorCode.NONE]
    for generation in (memberships["a"].generation - 2, memberships["a"].generation + 1):
        other = Membership(memberships["a"].member_id, generation, False)
        assert codes_of(world.call(commit_of({0: 9}, other), version)) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.fetched(0) == [5]
    unknown = commit_of({0: 9}, Membership("x", 2, False))
    assert codes_of(world.call(unknown, version)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_of_the_newer_protocol_needs_a_newer_version_to_commit() -> None:
    world, _ = settled()
    new = Membership("new", world.member("new").epoch, False)
    assert codes_of(world.call(commit_of({0: 5}, new), 8)) == [ErrorCode.UNSUPPORTED_VERSION]
    assert codes_of(world.call(commit_of({0: 5}, new), 9)) == [ErrorCode.NONE]


@pytest.mark.parametrize("version", [7, 9])
def test_a_classic_member_commits_what_it_keeps_while_it_joins_again(version: int) -> None:
    """A cooperative member that is closed before it is answered knows the older generation only."""
    world, memberships = settled()
    old = memberships["a"]
    before = world.held(old.member_id)["orders"]
    world.beat("another")
    assert world.join(old.member_id).generation > old.generation
    kept = world.held(old.member_id)["orders"]
    (of_another, *_) = {0, 1, 2, 3} - set(before)
    assert codes_of(world.call(commit_of({kept[0]: 5}, old), version)) == [ErrorCode.NONE]
    assert codes_of(world.call(commit_of({of_another: 5}, old), version)) == [ErrorCode.ILLEGAL_GENERATION]
    assert world.fetched(kept[0]) == [5]


@pytest.mark.parametrize(
    ("member_id", "generation", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("a-1", 2, ErrorCode.NONE),
        ("a-1", 1, ErrorCode.ILLEGAL_GENERATION),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_classic_member_may_send_its_member_id_with_offset_fetch(
    member_id: str | None, generation: int, code: ErrorCode
) -> None:
    world, _ = settled()
    wanted = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=generation, topics=None)
    (found,) = world.call(OffsetFetchRequest(groups=[wanted]), 9).groups
    assert found.error_code == code


def test_transactions_commit_by_generation_too() -> None:
    world, memberships = settled()
    assert codes_of(world.call(txn_commit_of({0: 5}, memberships["a"]), 5)) == [ErrorCode.NONE]
    other = Membership(memberships["a"].member_id, 9, False)
    assert codes_of(world.call(txn_commit_of({0: 5}, other), 5)) == [ErrorCode.ILLEGAL_GENERATION]
    # Before KIP-447 requests had no member id.
    assert codes_of(world.call(txn_commit_of({0: 5}), 5)) == [ErrorCode.NONE]


def test_a_commit_of_a_classic_member_renews_its_session_before_it_joins_again() -> None:
    world, memberships = settled()
    world.beat("another")
    assert world.hears(memberships["a"]) == ErrorCode.REBALANCE_IN_PROGRESS
    assert codes_of(world.call(commit_of({0: 5}, memberships["a"]), 9)) == [ErrorCode.NONE]


def test_a_refusal_says_what_to_do() -> None:
    world, _ = settled()
    reply = world.call(join_of("x", protocols=[("sticky", subscription("orders"))]))
    assert isinstance(reply, PenstockError)
    assert GROUP in reply.message
