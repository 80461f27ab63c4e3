"""Expired sessions, revocations that take too long, and decisions that could not be persisted."""

import pytest

from penstock.groups.errors import FencedMemberEpoch, UnknownMemberId
from penstock.groups.group import RETRY_MS

from .consumer_harness import REBALANCE_MS, SESSION_MS, ConsumerHarness


def _two() -> ConsumerHarness:
    group = ConsumerHarness()
    group.join("m1", "a")
    group.join("m2", "a")
    return group


# -- silence


def test_a_member_that_is_silent_too_long_is_removed_and_its_partitions_are_free() -> None:
    group = _two()
    group.settle("m1", "m2")
    group.pass_time(SESSION_MS - 1)
    group.beat("m2", 2)
    assert group.pass_time(1) == ["m1"]
    assert group.named(group.beat("m2", 2)) == {"a": [0, 1, 2, 3]}
    assert isinstance(group.refused("m1", 2), UnknownMemberId)


def test_a_heartbeat_starts_the_session_anew() -> None:
    group = ConsumerHarness()
    group.join("m1", "a")
    for _ in range(5):
        assert group.pass_time(SESSION_MS - 1) == []
        group.beat("m1", 1)


def test_a_refused_heartbeat_does_not_start_the_session_anew() -> None:
    group = _two()
    group.pass_time(SESSION_MS - 1)
    assert isinstance(group.refused("m1", 9), FencedMemberEpoch)
    assert group.pass_time(1) == ["m1", "m2"]
    assert group.machine.group.state_name == "Empty"


def test_the_session_timeout_is_that_of_the_settings() -> None:
    group = ConsumerHarness(group_consumer_session_timeout_ms=100)
    group.join("m1", "a")
    assert group.pass_time(99) == []
    assert group.pass_time(1) == ["m1"]


def test_many_expired_sessions_make_one_target() -> None:
    group = ConsumerHarness({"a": 8})
    for number in range(8):
        group.join(f"m{number}", "a")
    group.pass_time(SESSION_MS - 1)
    group.beat("m0", 1)
    assert len(group.pass_time(1)) == 7
    target_epoch = group.described.assignment_epoch
    group.beat("m0", 1)
    assert group.described.assignment_epoch == group.described.group_epoch == target_epoch + 7


def test_no_timer_is_left_of_a_member_that_has_left() -> None:
    group = _two()
    group.beat("m1", 1)
    group.beat("m1", -1)
    assert ("readers", "session", "m1") not in group.machine.timers
    assert ("readers", "rebalance", "m1") not in group.machine.timers


# -- giving up


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_removed() -> None:
    group = _two()
    assert group.beat("m1", 1).assignment is not None
    for _ in range(3):
        group.pass_time(REBALANCE_MS // 3 - 1)
        group.beat("m1", 1)
        group.beat("m2", 2)
    assert group.pass_time(3) == ["m1"]
    assert group.named(group.beat("m2", 2)) == {"a": [0, 1, 2, 3]}


def test_the_rebalance_timeout_is_the_members_own() -> None:
    group = ConsumerHarness()
    group.join("m1", "a", rebalance_timeout_ms=500)
    group.join("m2", "a")
    group.beat("m1", 1)
    assert group.pass_time(499) == []
    assert group.pass_time(1) == ["m1"]


def test_a_member_that_gave_up_in_time_stays() -> None:
    group = _two()
    kept = group.named(group.beat("m1", 1))
    group.beat("m1", 1, kept)
    for _ in range(4):
        assert group.pass_time(REBALANCE_MS // 2) == []
        group.beat("m1", 2)
        group.beat("m2", 2)


def test_the_time_to_give_up_begins_anew_when_there_is_more_to_give_up() -> None:
    group = ConsumerHarness({"a": 4, "b": 4})
    group.join("m1", "a", "b")
    group.join("m2", "a", "b")
    group.beat("m1", 1)
    group.pass_time(SESSION_MS - 1)
    group.beat("m2", 2)
    group.beat("m1", 1, subscribed_topic_names=("a",))
    group.pass_time(REBALANCE_MS - SESSION_MS + 1)
    assert group.member("m1").member_epoch == 1


def test_a_timer_of_a_missing_member_does_nothing() -> None:
    group = _two()
    for kind, member_id in (("session", "m9"), ("rebalance", "m9"), ("rebalance", "m1"), ("other", "m1")):
        decision = group.machine.group.on_timer(kind, member_id, group.now_ms)
        assert (decision.persist, decision.replies) == ((), ())


# -- what could not be persisted


def test_a_member_whose_joining_could_not_be_persisted_is_none() -> None:
    group = ConsumerHarness()
    group.machine.can_persist = False
    assert group.answer("m1", 0, {}, **group.full("a")) is None
    assert group.machine.group.is_empty
    group.machine.can_persist = True
    assert group.pass_time(SESSION_MS) == []
    assert group.join("m1", "a").member_epoch == 1


def test_a_member_whose_leaving_could_not_be_persisted_is_watched_still() -> None:
    group = _two()
    group.machine.can_persist = False
    assert group.answer("m1", -1) is None
    group.machine.can_persist = True
    assert group.pass_time(SESSION_MS) == ["m1", "m2"]


@pytest.mark.parametrize("kind", ["session", "rebalance"])
def test_a_removal_that_could_not_be_persisted_is_tried_again(kind: str) -> None:
    group = ConsumerHarness(group_consumer_session_timeout_ms=SESSION_MS if kind == "session" else 10 * SESSION_MS)
    group.join("m1", "a")
    group.join("m2", "a")
    group.beat("m1", 1)
    group.machine.can_persist = False
    group.pass_time(SESSION_MS if kind == "session" else REBALANCE_MS)
    assert len(group.described.members) == 2
    group.machine.can_persist = True
    assert "m1" in group.pass_time(RETRY_MS)


def test_a_member_that_sends_a_heartbeat_before_the_second_try_stays() -> None:
    group = _two()
    group.machine.can_persist = False
    group.pass_time(SESSION_MS)
    group.machine.can_persist = True
    group.beat("m1", 1)
    assert group.pass_time(RETRY_MS) == ["m2"]


def test_a_revocation_timeout_that_cannot_be_persisted_removes_no_member() -> None:
    group = _two()
    group.machine.can_persist = False
    assert group.answer("m1", 1) is None
    group.machine.can_persist = True
    group.pass_time(SESSION_MS - 1)
    group.beat("m1", -1)
    group.join("m1", "a")
    group.pass_time(REBALANCE_MS - SESSION_MS + 1)
    assert group.member("m1")


def test_a_revocation_that_could_not_be_persisted_leaves_the_timer_running() -> None:
    group = _two()
    kept = group.named(group.beat("m1", 1))
    group.pass_time(SESSION_MS - 1)
    group.machine.can_persist = False
    assert group.answer("m1", 1, kept) is None
    group.machine.can_persist = True
    assert "m1" in group.pass_time(REBALANCE_MS - SESSION_MS + 1)


def test_a_timer_that_was_set_with_a_new_subscription_is_not_lost_to_the_record_of_it() -> None:
    group = ConsumerHarness(group_consumer_session_timeout_ms=10 * REBALANCE_MS)
    group.join("m1", "a", "b")
    group.beat("m1", 1, subscribed_topic_names=("a",))
    assert group.pass_time(REBALANCE_MS) == ["m1"]
