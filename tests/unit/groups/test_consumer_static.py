"""Static members of a consumer group: they leave for a while and get their partitions back."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.groups.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    UnknownMemberId,
    UnreleasedInstanceId,
)

from .consumer_harness import REBALANCE_MS, SESSION_MS, ConsumerHarness


def _two() -> ConsumerHarness:
    """A static and a dynamic member at rest, in epoch 2."""
    group = ConsumerHarness()
    group.join("s1", "a", instance_id="i1")
    group.join("m2", "a")
    group.settle("s1", "m2")
    return group


def test_a_returning_static_member_gets_its_partitions_without_a_rebalance() -> None:
    group = _two()
    had = group.assigned("s1")
    answer = group.beat("s1", -2, instance_id="i1")
    assert (answer.member_id, answer.member_epoch) == ("s1", -2)
    assert group.member("s1").member_epoch == -2
    assert group.beat("m2", 2).assignment is None

    back = group.join("s2", "a", instance_id="i1")
    assert (back.member_epoch, group.named(back)) == (2, had)
    assert [member.member_id for member in group.described.members] == ["m2", "s2"]
    assert group.described.group_epoch == 2
    assert group.beat("m2", 2).assignment is None
    assert group.machine.group.state_name == "Stable"


def test_a_static_member_may_come_back_under_the_same_id() -> None:
    group = _two()
    had = group.assigned("s1")
    group.beat("s1", -2, instance_id="i1")
    back = group.join("s1", "a", instance_id="i1")
    assert (back.member_epoch, group.named(back)) == (2, had)
    assert group.pass_time(SESSION_MS + 1) == ["m2", "s1"]  # its session is watched again


def test_a_static_member_that_comes_back_with_another_subscription_changes_the_group() -> None:
    group = _two()
    group.beat("s1", -2, instance_id="i1")
    back = group.join("s2", "a", "b", instance_id="i1")
    assert back.member_epoch == 3
    assert group.named(back)["b"] == [0, 1]


def test_a_static_member_that_leaves_owns_nothing_so_what_it_had_to_give_up_is_free() -> None:
    group = ConsumerHarness()
    group.join("s1", "a", instance_id="i1")
    group.join("m2", "a")
    group.beat("s1", 1, instance_id="i1")
    group.beat("s1", -2, instance_id="i1")
    assert len(group.named(group.beat("m2", 2))["a"]) == 2
    assert group.pass_time(REBALANCE_MS - SESSION_MS) == []  # and its rebalance timeout is no matter any more


def test_a_static_member_that_does_not_come_back_in_time_is_removed() -> None:
    group = _two()
    group.beat("s1", -2, instance_id="i1")
    group.pass_time(SESSION_MS - 1000)
    group.beat("m2", 2)
    assert group.pass_time(1000) == ["s1"]
    assert group.named(group.beat("m2", 2)) == {"a": [0, 1, 2, 3]}
    assert group.join("s2", "a", instance_id="i1").member_epoch == 4


def test_a_static_member_that_leaves_for_good_is_removed() -> None:
    group = _two()
    answer = group.beat("s1", -1, instance_id="i1")
    assert (answer.member_id, answer.member_epoch) == ("s1", -1)
    assert [member.member_id for member in group.described.members] == ["m2"]


def test_an_instance_id_that_is_in_use_cannot_be_taken() -> None:
    error = _two().refused("s2", 0, {}, **ConsumerHarness.full("a", instance_id="i1"))
    assert isinstance(error, UnreleasedInstanceId)
    assert error.code == ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_whose_response_to_joining_was_lost_may_join_again() -> None:
    group = _two()
    again = group.join("s1", "a", instance_id="i1")
    assert (again.member_epoch, group.named(again)) == (2, group.assigned("s1"))


@pytest.mark.parametrize("epoch", [2, -1, -2])
def test_a_member_whose_instance_id_was_taken_over_is_fenced(epoch: int) -> None:
    group = _two()
    group.beat("s1", -2, instance_id="i1")
    group.join("s2", "a", instance_id="i1")
    error = group.refused("s1", epoch, instance_id="i1")
    assert isinstance(error, FencedInstanceId)
    assert error.code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("epoch", [2, -1, -2])
def test_an_unused_instance_id_is_unknown(epoch: int) -> None:
    assert isinstance(_two().refused("s1", epoch, instance_id="i9"), UnknownMemberId)


def test_a_member_that_is_away_has_to_join() -> None:
    group = _two()
    group.beat("s1", -2, instance_id="i1")
    assert isinstance(group.refused("s1", 2, instance_id="i1"), FencedMemberEpoch)


@pytest.mark.parametrize("epoch", [1, 3])
def test_the_epoch_of_a_static_member_is_checked_too(epoch: int) -> None:
    assert isinstance(_two().refused("s1", epoch, instance_id="i1"), FencedMemberEpoch)


def test_a_dynamic_member_may_become_static() -> None:
    group = _two()
    group.join("m2", "a", instance_id="i2")
    assert group.member("m2").instance_id == "i2"
    assert group.machine.group.state.by_instance == {"i1": "s1", "i2": "m2"}


def test_a_member_may_change_its_instance_id() -> None:
    group = _two()
    group.join("s1", "a", instance_id="i9")
    assert group.machine.group.state.by_instance == {"i9": "s1"}
    assert isinstance(group.refused("s1", 2, instance_id="i1"), UnknownMemberId)


def test_a_static_member_may_come_back_to_a_full_group() -> None:
    group = ConsumerHarness(group_consumer_max_size=1)
    group.join("s1", "a", instance_id="i1")
    assert isinstance(group.refused("s2", 0, {}, **group.full("a", instance_id="i2")), GroupMaxSizeReached)
    assert isinstance(group.refused("s2", 0, {}, **group.full("a", instance_id="i1")), UnreleasedInstanceId)
    group.beat("s1", -2, instance_id="i1")
    assert group.join("s2", "a", instance_id="i1").member_epoch == 1


def test_the_timers_of_a_replaced_member_end_with_it() -> None:
    group = _two()
    group.beat("s1", -2, instance_id="i1")
    group.join("s2", "a", instance_id="i1")
    assert ("readers", "session", "s1") not in group.machine.timers
    assert ("readers", "session", "s2") in group.machine.timers


def test_ranges_stay_with_static_members_through_a_restart_of_all() -> None:
    group = ConsumerHarness(group_consumer_assignors="range")
    group.join("z", "a", instance_id="i1")
    group.join("y", "a", instance_id="i2")
    group.settle("y", "z")
    assert group.assigned("z") == {"a": [0, 1]}
    for old, new, instance_id in (("z", "b", "i1"), ("y", "c", "i2")):
        group.beat(old, -2, instance_id=instance_id)
        group.join(new, "a", instance_id=instance_id)
    assert (group.assigned("b"), group.assigned("c")) == ({"a": [0, 1]}, {"a": [2, 3]})


def test_a_returning_static_member_may_commit_its_partitions_in_any_epoch() -> None:
    group = _two()
    group.beat("s1", -2, instance_id="i1")
    group.join("s2", "a", instance_id="i1")
    assert set(group.machine.group.state.members["s2"].assigned.values()) == {0}
