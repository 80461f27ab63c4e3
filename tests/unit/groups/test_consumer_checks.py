"""Which clients may commit and fetch offsets, and how a group is described."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.groups.errors import IllegalGeneration, StaleMemberEpoch, UnknownMemberId
from penstock.groups.records import (
    CONSUMER_GROUP_MEMBER_METADATA,
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    MemberKey,
)
from tests.simulation.group_machines import GROUP

from .consumer_harness import SESSION_MS, ConsumerHarness

PARTITIONS = [(b"a topic of none.", 0)]
"""Partitions of a topic that no member has."""


def _two() -> ConsumerHarness:
    """m1 has to give up half of a; it is in epoch 1 and m2 in 2."""
    group = ConsumerHarness()
    group.join("m1", "a")
    group.join("m2", "a")
    group.beat("m1", 1)
    return group


def test_a_member_commits_and_fetches_in_its_epoch() -> None:
    group = _two().machine.group
    group.check_commit("m1", 1, PARTITIONS)
    group.check_fetch("m1", 1)


@pytest.mark.parametrize("epoch", [0, 2, -1])
def test_a_member_in_another_epoch_is_stale(epoch: int) -> None:
    group = _two().machine.group
    with pytest.raises(StaleMemberEpoch) as refused:
        group.check_commit("m1", epoch, PARTITIONS)
    assert refused.value.code == ErrorCode.STALE_MEMBER_EPOCH
    with pytest.raises(StaleMemberEpoch):
        group.check_fetch("m1", epoch)


@pytest.mark.parametrize("member_id", ["m9", ""])
def test_only_members_commit_and_fetch_offsets(member_id: str) -> None:
    group = _two().machine.group
    with pytest.raises(UnknownMemberId) as refused:
        group.check_commit(member_id, 1, PARTITIONS)
    assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(UnknownMemberId):
        group.check_fetch(member_id, 1)


def test_any_client_commits_to_an_empty_group_without_an_epoch() -> None:
    group = ConsumerHarness().machine.group
    group.check_commit("", -1, PARTITIONS)
    with pytest.raises(UnknownMemberId):
        group.check_commit("m1", 0, PARTITIONS)
    with pytest.raises(UnknownMemberId):
        _two().machine.group.check_commit("", -1, PARTITIONS)


def test_any_client_fetches_offsets_without_a_member_id() -> None:
    _two().machine.group.check_fetch(None, -1)
    with pytest.raises(UnknownMemberId):
        _two().machine.group.check_fetch(None, 1)


def test_an_older_epoch_commits_what_the_member_had_by_then_and_still_has() -> None:
    group = ConsumerHarness({"a": 1, "b": 1})
    group.join("m1", "a")
    group.beat("m1", 1, subscribed_topic_names=("a", "b"))
    topics = {name: topic.topic_id for name, topic in group.machine.image.by_name.items()}
    check = group.machine.group.check_commit
    check("m1", 1, [(topics["a"], 0)])
    check("m1", 2, [(topics["b"], 0)])
    for partitions in ([(topics["b"], 0)], [(topics["a"], 0), (topics["b"], 0)], [(topics["a"], 1)]):
        with pytest.raises(StaleMemberEpoch):
            check("m1", 1, partitions)
    with pytest.raises(StaleMemberEpoch):
        check("m1", 3, [(topics["a"], 0)])


def test_offsets_of_partitions_being_revoked_may_still_be_committed() -> None:
    group = _two()
    group.beat("m1", 1, subscribed_topic_names=("a", "b"))
    (topic_id,) = {place.topic_id for place in group.machine.group.state.members["m1"].revoking}
    for number in range(4):
        group.machine.group.check_commit("m1", 1, [(topic_id, number)])


def _with_a_classic_member() -> ConsumerHarness:
    group = _two()
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="old",
        client_host="/::1",
        subscribed_topic_names=("a",),
        subscribed_topic_regex=None,
        rebalance_timeout_ms=1000,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(session_timeout_ms=70_000, supported_protocols=()),
    )
    key = MemberKey(group=GROUP, member_id="c1")
    group.machine.group.apply_record(CONSUMER_GROUP_MEMBER_METADATA, key, value)
    return group


def test_a_member_of_the_classic_protocol_gets_generation_errors() -> None:
    group = _with_a_classic_member().machine.group
    for check in (lambda: group.check_commit("c1", 7, PARTITIONS), lambda: group.check_fetch("c1", 7)):
        with pytest.raises(IllegalGeneration) as refused:
            check()
        assert refused.value.code == ErrorCode.ILLEGAL_GENERATION


def test_a_member_of_the_classic_protocol_has_a_session_timeout_of_its_own() -> None:
    group = _with_a_classic_member()
    group.machine.group.loaded(group.now_ms)
    assert group.pass_time(SESSION_MS) == ["m1", "m2"]
    assert group.pass_time(70_000 - SESSION_MS) == ["c1"]


# -- describing


def test_a_group_is_described_with_all_its_epochs_and_assignments() -> None:
    group = ConsumerHarness()
    group.join("m1", "a", "x", rack_id="r1", client_id="billing", host="/10.0.0.1")
    group.join("m2", subscribed_topic_regex="a|b", instance_id="i2", server_assignor="range")
    group.beat("m1", 1, client_id="billing", host="/10.0.0.1")
    described = group.described
    assert (described.error_code, described.group_id, described.group_state) == (0, GROUP, "Reconciling")
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (2, 2, "range")
    first, second = described.members
    assert (first.member_id, first.member_epoch, first.member_type) == ("m1", 1, 1)
    assert (first.client_id, first.client_host, first.rack_id) == ("billing", "/10.0.0.1", "r1")
    assert (list(first.subscribed_topic_names), first.subscribed_topic_regex) == (["a", "x"], "")
    assert (second.instance_id, second.subscribed_topic_regex) == ("i2", "a|b")
    assert [(entry.topic_name, list(entry.partitions)) for entry in first.assignment.topic_partitions] == [
        ("a", [0, 1, 2, 3])  # with what it has still to give up
    ]
    assert group.target("m1") == {"a": [2, 3]}
    assert group.target("m2") == {"a": [0, 1], "b": [0, 1]}
    assert [entry.topic_name for entry in second.assignment.topic_partitions] == ["b"]


def test_a_member_of_the_classic_protocol_is_described_as_such() -> None:
    assert _with_a_classic_member().member("c1").member_type == 0


def test_topics_that_are_gone_are_left_out_of_a_description() -> None:
    group = ConsumerHarness()
    group.join("m1", "a", "b")
    group.set_topics(a=None)
    (entry,) = group.member("m1").assignment.topic_partitions
    assert entry.topic_name == "b"


def test_an_empty_group_is_described_as_empty() -> None:
    described = ConsumerHarness().described
    assert (described.group_state, described.members) == ("Empty", [])


def test_a_group_knows_what_it_subscribes_to() -> None:
    group = ConsumerHarness()
    group.join("m1", "a", "not-there")
    group.join("m2", subscribed_topic_regex="b.*")
    assert [name for name in ("a", "b", "c", "not-there") if group.machine.group.subscribes_to(name)] == [
        "a",
        "b",
        "not-there",
    ]
