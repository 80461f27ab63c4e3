"""Reassignment: replicas are added first, and removed when the others are in sync."""

from collections.abc import Callable, Sequence

import pytest

from penstock.cluster.elections import elect_leader
from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.cluster.reassignment import (
    Reassignment,
    find_reassignments,
    plan_cancel,
    plan_reassign,
    target_replicas,
)
from penstock.cluster.registration import plan_leaving
from penstock.coordination.store import Op
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicIdPartition

from .images import Table, table_with_brokers


@pytest.fixture
def table() -> Table:
    return table_with_brokers(1, 2, 3, 4, 5)


@pytest.fixture
def place(table: Table) -> TopicIdPartition:
    return TopicIdPartition(table.create("orders", assignments={0: [1, 2, 3]}), 0)


def moved(table: Table, place: TopicIdPartition, *replicas: int) -> PartitionState:
    table.transact(plan_reassign(table.image, place, replicas))
    return table.state(place)


def settled(table: Table, place: TopicIdPartition) -> PartitionState:
    """After the controller has looked."""
    after = elect_leader(place, table.state(place), table.image.brokers, unclean=False)
    return table.set(place, **{name: getattr(after, name) for name in after.__slots__ if name != "version"})


def refused(plan: Callable[[], Sequence[Op]]) -> ErrorCode:
    with pytest.raises(PenstockError) as error:
        plan()
    assert error.value.message
    return error.value.code


def test_new_replicas_are_added_beside_the_old_ones(table: Table, place: TopicIdPartition) -> None:
    state = moved(table, place, 4, 1, 5)
    assert (state.replicas, state.adding, state.removing) == ((4, 1, 5, 2, 3), (4, 5), (2, 3))
    assert (state.leader, state.leader_epoch, state.isr) == (1, 0, (1, 2, 3))
    assert target_replicas(state) == (4, 1, 5)


def test_old_replicas_go_when_all_new_ones_are_in_sync(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 1, 5)
    table.set(place, isr=(1, 2, 3, 4))
    assert settled(table, place).is_reassigned
    table.set(place, isr=(1, 2, 3, 4, 5))
    state = settled(table, place)
    assert (state.replicas, state.isr, state.adding, state.removing) == ((4, 1, 5), (1, 4, 5), (), ())
    assert (state.leader, state.leader_epoch) == (1, 1), "those that were removed must not be heard any more"


def test_a_removed_leader_is_replaced_in_the_same_step(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 5)
    table.set(place, isr=(1, 2, 3, 4, 5))
    state = settled(table, place)
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((4, 5), (4, 5), 4, 1)
    assert state.leader_broker_epoch == table.image.brokers[4].epoch


def test_a_reassignment_without_new_replicas_is_done_at_once(table: Table, place: TopicIdPartition) -> None:
    state = moved(table, place, 3, 1, 2)
    assert (state.replicas, state.leader, state.leader_epoch, state.is_reassigned) == ((3, 1, 2), 1, 0, False)
    state = moved(table, place, 3, 2)
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((3, 2), (2, 3), 3, 1)


def test_an_assignment_that_is_there_already_changes_nothing(table: Table, place: TopicIdPartition) -> None:
    assert plan_reassign(table.image, place, [1, 2, 3]) == []


def test_more_replicas_are_added_and_none_is_dropped(table: Table, place: TopicIdPartition) -> None:
    state = moved(table, place, 1, 2, 3, 4)
    assert (state.adding, state.removing) == ((4,), ())
    table.set(place, isr=(1, 2, 3, 4))
    state = settled(table, place)
    assert (state.replicas, state.leader_epoch, state.is_reassigned) == ((1, 2, 3, 4), 0, False)


def test_a_reassignment_waits_for_brokers_that_are_away(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 5)
    table.unregister(5)
    table.set(place, isr=(1, 2, 3, 4))
    assert settled(table, place).is_reassigned
    table.register(5)
    table.set(place, isr=(1, 2, 3, 4, 5))
    assert settled(table, place).replicas == (4, 5)


def test_a_newer_reassignment_replaces_the_one_before(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 1, 2)
    state = moved(table, place, 5, 1, 2)
    assert (state.replicas, state.adding, state.removing) == ((5, 1, 2, 3), (5,), (3,))
    assert state.leader_epoch == 1, "broker 4 was dropped"
    state = moved(table, place, 1, 2, 3)
    assert (state.replicas, state.is_reassigned) == ((1, 2, 3), False)


def test_a_newer_reassignment_keeps_track_of_replicas_being_added(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 1, 2)
    state = moved(table, place, 4, 1, 5)
    assert (state.adding, state.removing) == ((4, 5), (2, 3))
    table.transact(plan_cancel(table.image, place))
    assert set(table.state(place).replicas) == {1, 2, 3}


def test_a_newer_reassignment_keeps_the_only_in_sync_replica(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 1, 2)
    table.set(place, isr=(4,), leader=4, leader_broker_epoch=table.image.brokers[4].epoch)
    state = moved(table, place, 5)
    assert state.isr == (4,)
    assert 4 in state.removing


# -- taking it back


def test_a_reassignment_that_is_cancelled_leaves_what_was_there_before(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 5)
    table.set(place, isr=(1, 2, 3, 4))
    table.transact(plan_cancel(table.image, place))
    state = table.state(place)
    assert set(state.replicas) == {1, 2, 3}
    assert (state.isr, state.adding, state.removing) == ((1, 2, 3), (), ())
    assert (state.leader, state.leader_epoch) == (1, 1)


def test_a_new_replica_that_leads_already_hands_back_when_it_is_cancelled(
    table: Table, place: TopicIdPartition
) -> None:
    moved(table, place, 4, 5)
    table.set(place, isr=(2, 4), leader=4, leader_epoch=3, leader_broker_epoch=table.image.brokers[4].epoch)
    table.transact(plan_cancel(table.image, place))
    state = table.state(place)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 4, (2,))


def test_a_reassignment_without_which_messages_would_be_lost_is_not_cancelled(
    table: Table, place: TopicIdPartition
) -> None:
    moved(table, place, 4, 5)
    table.set(place, isr=(4,), leader=4, leader_broker_epoch=table.image.brokers[4].epoch)
    assert refused(lambda: plan_cancel(table.image, place)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    table.transact(plan_cancel(table.image, place, unclean=True))
    state = table.state(place)
    assert len(state.isr) == 1
    assert state.leader == state.isr[0]
    assert state.leader in (1, 2, 3)


def test_an_unclean_cancel_elects_no_replica_whose_broker_shuts_down(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 5)
    table.set(place, isr=(4,), leader=4, leader_broker_epoch=table.image.brokers[4].epoch)
    table.transact(plan_leaving(table.image, 1, table.image.brokers[1].epoch))
    table.transact(plan_cancel(table.image, place, unclean=True))
    assert table.state(place).leader == 2


def test_an_unclean_cancel_needs_a_replica_that_can_lead(table: Table, place: TopicIdPartition) -> None:
    moved(table, place, 4, 5)
    table.set(place, isr=(4,), leader=4, leader_broker_epoch=table.image.brokers[4].epoch)
    for node in (1, 2, 3):
        table.transact(plan_leaving(table.image, node, table.image.brokers[node].epoch))
    assert refused(lambda: plan_cancel(table.image, place, unclean=True)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_there_must_be_something_to_cancel(table: Table, place: TopicIdPartition) -> None:
    assert refused(lambda: plan_cancel(table.image, place)) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


# -- what cannot be


@pytest.mark.parametrize("replicas", [[], [1, 1], [1, 9]])
def test_an_assignment_that_cannot_be_is_refused_as_kafka_does(
    table: Table, place: TopicIdPartition, replicas: list[int]
) -> None:
    assert refused(lambda: plan_reassign(table.image, place, replicas)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_replication_factor_may_be_fixed_by_the_client(table: Table, place: TopicIdPartition) -> None:
    for replicas in ([1, 2], [1, 2, 3, 4]):
        code = refused(lambda replicas=replicas: plan_reassign(table.image, place, replicas, may_resize=False))
        assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    moved(table, place, 4, 5)
    code = refused(lambda: plan_reassign(table.image, place, [1, 2, 3], may_resize=False))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR, "it is on its way to two (KIP-860)"
    assert plan_reassign(table.image, place, [1, 2], may_resize=False)


def test_an_offline_partition_can_be_moved_to_where_it_may_come_back(table: Table, place: TopicIdPartition) -> None:
    for node in (1, 2, 3):
        table.unregister(node)
    settled(table, place)
    state = moved(table, place, 4, 5)
    assert (state.leader, state.isr, state.adding) == (NO_LEADER, (1, 2, 3), (4, 5))


def test_a_partition_that_is_not_there_is_not_moved(table: Table, place: TopicIdPartition) -> None:
    for unknown in (TopicIdPartition(b"\0" * 16, 0), TopicIdPartition(place.topic_id, 7)):
        code = refused(lambda unknown=unknown: plan_reassign(table.image, unknown, [1]))
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused(lambda unknown=unknown: plan_cancel(table.image, unknown)) is code


# -- ongoing reassignments


def test_ongoing_reassignments_are_listed(table: Table, place: TopicIdPartition) -> None:
    other = TopicIdPartition(table.create("payments", partitions=1), 0)
    assert list(find_reassignments(table.image)) == []
    moved(table, place, 4, 5)
    expected = Reassignment(tp=place, replicas=(4, 5, 1, 2, 3), adding=(4, 5), removing=(1, 2, 3))
    assert list(find_reassignments(table.image)) == [expected]
    assert list(find_reassignments(table.image, [place, other, TopicIdPartition(b"\0" * 16, 0)])) == [expected]
    assert list(find_reassignments(table.image, [other])) == []
