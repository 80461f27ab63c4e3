"""A group id has one kind of group; and the delivery state of share groups."""

from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.groups.commands import (
    AddDeliveryState,
    DeleteDeliveryState,
    DeleteStateAtLeaders,
    DeliveryStateDeleted,
    FindDeliveryState,
)
from penstock.groups.share.group import ShareGroup
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest

from .coordinator_harness import GROUP, codes_of, commit_of, join_of, topic_of, txn_commit_of
from .share_harness import ShareHarness

A, B = topic_of("a", 4).topic_id, topic_of("b", 2).topic_id


def _consumer_join(member_id: str = "c1") -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=5000,
        subscribed_topic_names=("a",),
        topic_partitions=(),
    )


def _delete(world: ShareHarness) -> int:
    return world.submit(DeleteGroupsRequest(groups_names=(GROUP,)))


def _deleted(world: ShareHarness, ticket: int) -> ErrorCode:
    reply = world.replies[ticket]
    if isinstance(reply, PenstockError):
        return reply.code
    (result,) = reply.results
    return ErrorCode(result.error_code)


def _left() -> ShareHarness:
    """A group with delivery state in both topics, and without members."""
    world = ShareHarness()
    world.join("m1", "a", "b")
    world.beat("m1", -1)
    return world


# -- one kind


@pytest.mark.parametrize("is_empty", [False, True])
def test_the_name_of_a_share_group_is_taken_for_others(is_empty: bool) -> None:
    world = ShareHarness()
    world.join("m1")
    if is_empty:
        world.beat("m1", -1)
    assert world.refusal(_consumer_join()) == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.refusal(join_of(), 3) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert isinstance(world.machine.groups[GROUP], ShareGroup)


def test_the_name_of_a_consumer_group_is_taken_for_share_groups() -> None:
    world = ShareHarness()
    world.call(_consumer_join())
    assert world.refused("m1", 0, "a") == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_name_of_a_classic_group_is_taken_for_share_groups() -> None:
    world = ShareHarness()
    world.stable("c1")
    assert world.refused("m1", 0, "a") == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_has_no_offsets() -> None:
    world = ShareHarness()
    world.join("m1")
    assert set(codes_of(world.call(commit_of({0: 5}, topic="a"), 9))) == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert set(codes_of(world.call(txn_commit_of({0: 5}, topic="a")))) == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert world.refusal(OffsetDeleteRequest(group_id=GROUP, topics=())) == ErrorCode.GROUP_ID_NOT_FOUND


def test_it_is_listed_as_what_it_is_and_described_by_no_other_api() -> None:
    world = ShareHarness()
    world.join("m1")
    (listed,) = world.call(ListGroupsRequest(states_filter=(), types_filter=("Share",))).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state, listed.group_type) == (
        GROUP,
        "share",
        "Stable",
        "share",
    )
    assert world.call(ListGroupsRequest(states_filter=(), types_filter=("consumer",))).groups == []
    request = ConsumerGroupDescribeRequest(group_ids=(GROUP,), include_authorized_operations=False)
    assert world.call(request).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.call(DescribeGroupsRequest(groups=(GROUP,))).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


# -- delivery state


def test_it_is_known_where_a_group_has_delivery_state() -> None:
    world = ShareHarness()
    world.join("m1", "b")
    assert world.replies[world.command(FindDeliveryState(group_id=GROUP))] == {B: "b"}
    assert world.code(world.command(FindDeliveryState(group_id="missing"))) == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted() -> None:
    world = ShareHarness()
    world.join("m1")
    assert _deleted(world, _delete(world)) == ErrorCode.NON_EMPTY_GROUP
    assert world.effects == []


def test_a_group_is_deleted_when_the_leaders_have_forgotten_it() -> None:
    world = _left()
    ticket = _delete(world)
    assert world.effects == [DeleteStateAtLeaders(group_id=GROUP, topic_ids=frozenset((A, B)))]
    assert world.is_waiting(ticket)
    world.tell(DeliveryStateDeleted(group_id=GROUP, topic_ids=frozenset((A, B))))
    assert _deleted(world, ticket) == ErrorCode.NONE
    assert world.state == "Dead"
    world.compact()
    world.restart()
    assert world.state == "Dead"


def test_leaders_are_asked_again_until_they_have_forgotten() -> None:
    world = _left()
    ticket = _delete(world)
    world.advance(1000)
    assert len(world.effects) == 2
    world.restart()
    world.advance(0)
    assert len(world.effects) == 3, "the new coordinator goes on"
    world.tell(DeliveryStateDeleted(group_id=GROUP, topic_ids=frozenset((A, B))))
    world.advance(5000)
    assert len(world.effects) == 3
    assert world.is_waiting(ticket), "the one that was asked is gone"
    assert world.state == "Empty"


def test_a_deletion_that_cannot_be_persisted_is_refused_in_the_end() -> None:
    world = _left()
    world.can_persist = False
    ticket = _delete(world)
    assert world.effects == []
    world.advance(1000)
    assert _deleted(world, ticket) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.can_persist = True
    assert world.state == "Empty"


def test_a_member_that_joins_meanwhile_keeps_the_group_but_waits_for_its_topics() -> None:
    world = _left()
    ticket = _delete(world)
    assert world.assignment(world.join("m2", "a")) == {}
    world.tell(DeliveryStateDeleted(group_id=GROUP, topic_ids=frozenset((A, B))))
    assert _deleted(world, ticket) == ErrorCode.NON_EMPTY_GROUP
    epoch = world.shared.state.members["m2"].epoch
    assert world.assignment(world.beat("m2", epoch)) == {"a": [0, 1, 2, 3]}


def test_a_group_without_delivery_state_is_deleted_at_once() -> None:
    world = ShareHarness()
    world.join("m1", "nothing")
    world.beat("m1", -1)
    assert _deleted(world, _delete(world)) == ErrorCode.NONE
    assert world.state == "Dead"


def test_the_state_of_one_topic_is_dropped_and_the_group_stays() -> None:
    world = _left()
    ticket = world.command(DeleteDeliveryState(group_id=GROUP, topic_ids=frozenset((B,))))
    assert world.is_waiting(ticket)
    assert world.effects == [DeleteStateAtLeaders(group_id=GROUP, topic_ids=frozenset((B,)))]
    world.tell(DeliveryStateDeleted(group_id=GROUP, topic_ids=frozenset((B,))))
    assert world.replies[ticket] is None
    assert world.replies[world.command(FindDeliveryState(group_id=GROUP))] == {A: "a"}
    assert world.replies[world.command(DeleteDeliveryState(group_id=GROUP, topic_ids=frozenset((B,))))] is None


def test_delivery_state_is_noted_before_there_is_any_and_makes_a_group() -> None:
    world = ShareHarness()
    assert world.replies[world.command(AddDeliveryState(group_id=GROUP, topics={B: "b"}))] is None
    assert world.state == "Empty"
    assert world.replies[world.command(FindDeliveryState(group_id=GROUP))] == {B: "b"}
    log = len(world.log)
    world.command(AddDeliveryState(group_id=GROUP, topics={B: "b"}))
    assert len(world.log) == log
    world.join("m1", "a")
    assert world.code(world.command(AddDeliveryState(group_id=GROUP, topics={A: "a"}))) == ErrorCode.NON_EMPTY_GROUP


def test_delivery_state_that_is_being_dropped_cannot_be_set() -> None:
    world = _left()
    world.command(DeleteDeliveryState(group_id=GROUP, topic_ids=frozenset((B,))))
    ticket = world.command(AddDeliveryState(group_id=GROUP, topics={B: "b"}))
    assert world.code(ticket) == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    "command",
    [
        DeleteDeliveryState(group_id=GROUP, topic_ids=frozenset((A,))),
        AddDeliveryState(group_id=GROUP, topics={A: "a"}),
        FindDeliveryState(group_id=GROUP),
    ],
)
def test_a_consumer_group_has_no_delivery_state(command: Any) -> None:
    world = ShareHarness()
    world.call(_consumer_join())
    assert world.code(world.command(command)) == ErrorCode.GROUP_ID_NOT_FOUND
