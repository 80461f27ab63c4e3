"""Members of a consumer group join, change their subscription and leave (KIP-848)."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.groups.errors import FencedMemberEpoch, GroupMaxSizeReached, UnknownMemberId, UnsupportedAssignor

from .consumer_harness import REBALANCE_MS, ConsumerHarness


def test_the_first_member_gets_everything_at_once() -> None:
    group = ConsumerHarness()
    answer = group.join("m1", "a", "b")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m1", 1, 5000)
    assert group.named(answer) == {"a": [0, 1, 2, 3], "b": [0, 1]}
    assert group.machine.group.state_name == "Stable"
    assert not group.machine.group.is_empty


def test_heartbeats_are_asked_for_as_often_as_the_settings_say() -> None:
    group = ConsumerHarness(group_consumer_heartbeat_interval_ms=1234)
    assert group.join("m1", "a").heartbeat_interval_ms == 1234


def test_a_heartbeat_that_changes_nothing_is_answered_without_an_assignment_and_writes_nothing() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    written = len(group.machine.log)
    answer = group.beat("m1", 1)
    assert (answer.member_epoch, answer.assignment) == (1, None)
    assert len(group.machine.log) == written


def test_a_full_request_is_answered_with_the_assignment() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    answer = group.beat("m1", 1, {"a": [0, 1, 2, 3]}, **group.full("a"))
    assert group.named(answer) == {"a": [0, 1, 2, 3]}


@pytest.mark.parametrize("missing", ["rebalance_timeout_ms", "subscribed_topic_names", "owned"])
def test_a_request_that_leaves_something_out_is_not_full(missing: str) -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    fields = group.full("a")
    fields.pop(missing, None)
    owned = None if missing == "owned" else {"a": [0, 1, 2, 3]}
    assert group.beat("m1", 1, owned, **fields).assignment is None


def test_a_second_member_gets_its_share_once_the_first_has_revoked() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    answer = group.join("m2", "a")
    assert (answer.member_epoch, group.named(answer)) == (2, {})
    assert group.machine.group.state_name == "Reconciling"

    response = group.beat("m1", 1)
    (kept,) = group.named(response).values()
    assert (response.member_epoch, len(kept)) == (1, 2)
    assert group.beat("m2", 2).assignment is None

    done = group.beat("m1", 1, {"a": kept})
    assert (done.member_epoch, group.named(done)) == (2, {"a": kept})
    got = group.named(group.beat("m2", 2))
    assert sorted(kept + got["a"]) == [0, 1, 2, 3]
    assert group.machine.group.state_name == "Stable"


def test_a_member_learns_what_a_late_request_to_join_has_taken_from_it() -> None:
    """The request waited on a connection that the member has given up, and names what it read then."""
    group = ConsumerHarness()
    group.join("m1", "a")
    assert group.named(group.join("m1", "nothing")) == {}
    group.join("m2", "a")
    answer = group.beat("m1", 2)
    assert answer.member_epoch == 3
    assert group.named(answer) == {}, "else it would believe to own the partitions in the epoch of the new owner"
    assert sorted(group.named(group.beat("m2", 3, {}, **group.full("a")))["a"]) == [0, 1, 2, 3]


def test_partitions_that_a_member_still_owns_are_not_reassigned() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    group.join("m2", "a")
    kept = group.named(group.beat("m1", 1))
    for owned in (None, {"a": [0, 1, 2, 3]}, {"a": [*kept["a"], ({0, 1, 2, 3} - set(kept["a"])).pop()]}):
        answer = group.beat("m1", 1, owned)
        assert answer.member_epoch == 1
        assert group.beat("m2", 2).assignment is None


def test_three_members_come_to_rest_with_equal_shares() -> None:
    group = ConsumerHarness({"a": 7})
    for member_id in ("m1", "m2", "m3"):
        group.join(member_id, "a")
    group.settle("m1", "m2", "m3")
    assert group.machine.group.state_name == "Stable"
    assert sorted(len(group.assigned(member_id)["a"]) for member_id in ("m1", "m2", "m3")) == [2, 2, 3]


def test_a_member_without_a_name_is_given_one_in_version_0() -> None:
    group = ConsumerHarness()
    answer = group.join("", "a", version=0, client_id="billing")
    assert answer.member_id == "billing-1"
    assert group.beat("billing-1", 1, version=0).member_epoch == 1


def test_a_member_may_subscribe_to_nothing() -> None:
    group = ConsumerHarness()
    answer = group.join("m1")
    assert (answer.member_epoch, group.named(answer)) == (1, {})
    answer = group.beat("m1", 1, subscribed_topic_names=("a",))
    assert (answer.member_epoch, group.named(answer)) == (2, {"a": [0, 1, 2, 3]})


def test_a_topic_that_is_not_there_is_waited_for() -> None:
    group = ConsumerHarness({})
    assert group.named(group.join("m1", "a")) == {}
    group.set_topics(a=2)
    answer = group.beat("m1", 1)
    assert (answer.member_epoch, group.named(answer)) == (2, {"a": [0, 1]})


# -- changing one's mind


def test_a_member_that_subscribes_to_more_gets_more() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    answer = group.beat("m1", 1, subscribed_topic_names=("a", "b"))
    assert (answer.member_epoch, group.named(answer)) == (2, {"a": [0, 1, 2, 3], "b": [0, 1]})


def test_a_member_that_subscribes_to_less_gives_up_before_it_goes_on() -> None:
    group = ConsumerHarness()
    group.join("m1", "a", "b")
    answer = group.beat("m1", 1, subscribed_topic_names=("a",))
    assert (answer.member_epoch, group.named(answer)) == (1, {"a": [0, 1, 2, 3]})
    assert group.beat("m1", 1, {"a": [0, 1, 2, 3]}).member_epoch == 2


def test_the_same_subscription_again_changes_nothing() -> None:
    group = ConsumerHarness()
    group.join("m1", "a", "b")
    written = len(group.machine.log)
    group.beat("m1", 1, subscribed_topic_names=("b", "a"))
    assert len(group.machine.log) == written


def test_a_member_at_another_address_is_noted_and_no_rebalance_comes_of_it() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    answer = group.beat("m1", 1, host="/10.0.0.9", client_id="renamed", rack_id="r2", rebalance_timeout_ms=7)
    assert answer.member_epoch == 1
    member = group.member("m1")
    assert (member.client_host, member.client_id, member.rack_id) == ("/10.0.0.9", "renamed", "r2")
    assert group.described.group_epoch == 1


def test_a_member_that_joins_again_gets_what_it_had() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    answer = group.join("m1", "a")
    assert (answer.member_epoch, group.named(answer)) == (1, {"a": [0, 1, 2, 3]})


def test_a_member_that_joins_again_owns_nothing_so_that_the_others_need_not_wait() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    group.join("m2", "a")
    group.beat("m1", 1)
    answer = group.join("m1", "a")
    assert answer.member_epoch == 2
    assert len(group.named(answer)["a"]) == len(group.named(group.beat("m2", 2))["a"]) == 2


# -- epochs


def test_an_unknown_member_has_to_join() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    error = group.refused("m2", 1)
    assert isinstance(error, UnknownMemberId)
    assert error.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_epoch_that_is_not_reached_yet_is_fenced() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    error = group.refused("m1", 2)
    assert isinstance(error, FencedMemberEpoch)
    assert error.code == ErrorCode.FENCED_MEMBER_EPOCH


def _two_epochs_on() -> ConsumerHarness:
    """m1 owns a-0 to a-3 in epoch 3; it was in epoch 2, and in 1 before."""
    group = ConsumerHarness()
    group.join("m1", "a")
    for names in (("a", "x"), ("a", "y")):
        group.beat("m1", group.member("m1").member_epoch, subscribed_topic_names=names)
    assert group.member("m1").member_epoch == 3
    return group


@pytest.mark.parametrize("owned", [{}, {"a": [1]}, {"a": [0, 1, 2, 3]}])
def test_the_epoch_before_is_accepted_from_one_that_may_have_missed_a_response(
    owned: dict[str, list[int]],
) -> None:
    group = _two_epochs_on()
    answer = group.beat("m1", 2, owned, **group.full("a", "y"))
    assert (answer.member_epoch, group.named(answer)) == (3, {"a": [0, 1, 2, 3]})


@pytest.mark.parametrize("owned", [None, {"b": [0]}, {"a": [0, 1, 2, 3], "b": [1]}])
def test_the_epoch_before_is_fenced_if_the_member_owns_what_it_should_not(owned: dict[str, list[int]] | None) -> None:
    error = _two_epochs_on().refused("m1", 2, owned)
    assert isinstance(error, FencedMemberEpoch)


def test_an_epoch_from_before_the_last_is_fenced() -> None:
    assert isinstance(_two_epochs_on().refused("m1", 1, {"a": [0]}), FencedMemberEpoch)


def test_a_request_from_before_a_revocation_does_not_acknowledge_it() -> None:
    """A late copy of a request that was sent before the partitions were given is no answer to taking them away."""
    group = ConsumerHarness()
    group.join("m1", "a")
    group.beat("m1", 1, subscribed_topic_names=("a", "b"))  # epoch 2, and b for the first time
    group.join("m2", "b")
    assert group.beat("m1", 2).member_epoch == 2
    assert isinstance(group.refused("m1", 1, {"a": [0, 1, 2, 3]}), FencedMemberEpoch)


# -- leaving


def test_a_member_that_leaves_frees_its_partitions() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    group.join("m2", "a")
    group.settle("m1", "m2")
    answer = group.beat("m1", -1)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == ("m1", -1, None)
    assert group.machine.group.state_name == "Assigning"
    assert group.named(group.beat("m2", 2)) == {"a": [0, 1, 2, 3]}
    assert group.machine.group.state_name == "Stable"


def test_the_last_member_leaves_an_empty_group() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    group.beat("m1", -1)
    assert group.machine.group.is_empty
    assert group.machine.group.state_name == "Empty"
    assert (group.described.group_epoch, group.described.assignment_epoch) == (2, 2)
    assert group.join("m2", "a").member_epoch == 3


def test_a_client_that_is_not_a_member_cannot_leave() -> None:
    group = ConsumerHarness()
    assert isinstance(group.refused("m1", -1), UnknownMemberId)


# -- assignors and sizes


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    group = ConsumerHarness({"a": 4, "b": 4})
    for member_id, assignor in (("m1", "range"), ("m2", "range"), ("m3", "uniform")):
        group.join(member_id, "a", "b", server_assignor=assignor)
    assert group.described.assignor_name == "range"
    assert group.target("m1") == {"a": [0, 1], "b": [0, 1]}
    assert group.target("m3") == {"a": [3], "b": [3]}


def test_the_first_assignor_of_the_settings_is_the_default() -> None:
    group = ConsumerHarness(group_consumer_assignors="range,uniform")
    group.join("m1", "a")
    assert group.described.assignor_name == "range"
    assert ConsumerHarness().described.assignor_name == "uniform"


def test_a_vote_that_changes_the_assignor_makes_a_new_target() -> None:
    group = ConsumerHarness({"a": 4, "b": 4})
    group.join("m1", "a", "b")
    group.join("m2", "a", "b")
    group.settle("m1", "m2")
    epoch = group.described.group_epoch
    group.beat("m1", epoch, server_assignor="range")
    assert (group.described.group_epoch, group.described.assignor_name) == (epoch + 1, "range")
    assert group.target("m1") == {"a": [0, 1], "b": [0, 1]}


def test_a_vote_that_changes_nothing_makes_no_new_target() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    assert group.beat("m1", 1, server_assignor="uniform").member_epoch == 1


def test_an_assignor_that_is_not_known_is_refused() -> None:
    group = ConsumerHarness(group_consumer_assignors="uniform")
    error = group.refused("m1", 0, {}, **group.full("a", server_assignor="range"))
    assert isinstance(error, UnsupportedAssignor)
    assert error.code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform" in error.message


def test_a_group_takes_no_more_members_than_the_settings_allow() -> None:
    group = ConsumerHarness(group_consumer_max_size=2)
    group.join("m1", "a")
    group.join("m2", "a")
    error = group.refused("m3", 0, {}, **group.full("a"))
    assert isinstance(error, GroupMaxSizeReached)
    assert error.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.join("m2", "a").member_epoch == 2  # a member may join again


def test_the_rebalance_timeout_is_kept_when_it_is_not_sent_again() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    group.beat("m1", 1, subscribed_topic_names=("b",))
    assert group.machine.group.state.members["m1"].rebalance_timeout_ms == REBALANCE_MS
