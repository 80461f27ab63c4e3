"""Elections of one partition: its leader and its ISR as brokers fail and return."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.elections import (
    RESERVED_OFFSETS,
    Election,
    elect_leader,
    elect_requested,
    is_imbalanced,
    plan_elect,
    without_data,
)
from penstock.cluster.image import NO_EPOCH, NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from penstock.coordination.store import Conflict
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError, UnknownTopicOrPartition
from penstock.foundation.ids import TopicIdPartition
from tests.examples import examples

from .images import table_with_brokers

PLACE = TopicIdPartition(b"\7" * 16, 0)


def broker(node_id: int, epoch: int | None = None, **about: object) -> Broker:
    return Broker(node_id=node_id, host="h", port=1, epoch=node_id if epoch is None else epoch, **about)  # type: ignore[arg-type]


def there(*node_ids: int, **others: Broker) -> dict[int, Broker]:
    """Brokers in their first registrations, and some that are given whole."""
    found = {node_id: broker(node_id) for node_id in node_ids}
    return found | {given.node_id: given for given in others.values()}


def partition(replicas: tuple[int, ...] = (1, 2, 3), leader: int = 1, **about: object) -> PartitionState:
    """As it was made, its leader elected in that one's first registration."""
    return PartitionState(
        **{  # type: ignore[arg-type]
            "replicas": replicas,
            "leader": leader,
            "leader_epoch": 5,
            "isr": replicas,
            "leader_broker_epoch": leader if leader != NO_LEADER else NO_EPOCH,
            **about,
        }
    )


def settled(state: PartitionState, brokers: dict[int, Broker], *, unclean: bool = False) -> PartitionState:
    after = elect_leader(PLACE, state, brokers, unclean=unclean)
    assert elect_leader(PLACE, after, brokers, unclean=unclean) is after, "what is settled stays as it is"
    return after


def test_a_partition_whose_brokers_are_all_there_is_left_alone() -> None:
    state = partition()
    assert settled(state, there(1, 2, 3, 4)) is state


def test_the_first_replica_that_is_in_sync_takes_over_from_a_leader_that_is_gone() -> None:
    after = settled(partition(replicas=(1, 2, 3), isr=(3, 1, 2)), there(2, 3))
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (3, 2))
    assert after.leader_broker_epoch == 2


def test_replicas_that_are_not_in_sync_do_not_take_over() -> None:
    after = settled(partition(isr=(1, 3)), there(2, 3))
    assert (after.leader, after.isr) == (3, (3,))


def test_a_broker_that_is_gone_leaves_the_isr_and_the_epoch_stays() -> None:
    after = settled(partition(), there(1, 3))
    assert (after.leader, after.leader_epoch, after.isr) == (1, 5, (1, 3))


def test_a_partition_without_replicas_is_offline_and_keeps_its_last_isr() -> None:
    after = settled(partition(isr=(1, 2)), there(3))
    assert (after.leader, after.leader_epoch, after.isr) == (NO_LEADER, 6, (1, 2))
    assert after.leader_broker_epoch == NO_EPOCH


def test_the_first_replica_of_the_last_isr_that_returns_leads() -> None:
    offline = settled(partition(isr=(1, 2)), there(3))
    after = settled(offline, there(3, back=broker(2, 20)))
    assert (after.leader, after.leader_epoch, after.isr, after.leader_broker_epoch) == (2, 7, (2,), 20)


def test_a_leader_that_was_restarted_leads_in_a_new_epoch() -> None:
    after = settled(partition(), there(2, 3, again=broker(1, 99)))
    assert (after.leader, after.leader_epoch, after.leader_broker_epoch, after.isr) == (1, 6, 99, (1, 2, 3))


def test_a_follower_that_was_restarted_changes_nothing() -> None:
    state = partition()
    assert settled(state, there(1, 3, again=broker(2, 99))) is state


# -- unclean


def test_an_unclean_election_takes_the_first_live_replica_if_the_topic_allows_it() -> None:
    state = partition(isr=(1,))
    assert settled(state, there(2, 3)).leader == NO_LEADER
    after = settled(state, there(2, 3), unclean=True)
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (2,))


def test_an_unclean_election_is_not_held_while_a_clean_one_is_possible() -> None:
    after = settled(partition(isr=(1, 3)), there(2, 3), unclean=True)
    assert (after.leader, after.isr) == (3, (3,))


def test_a_memory_partition_that_is_led_uncleanly_begins_above_every_offset_it_gave() -> None:
    after = settled(partition(isr=(1,), reserved_to=RESERVED_OFFSETS), there(2, 3), unclean=True)
    assert (after.reserved_from, after.reserved_to) == (RESERVED_OFFSETS, 2 * RESERVED_OFFSETS)


# -- controlled shutdown


def test_a_leaving_broker_resigns_its_partitions_and_leaves_the_isr() -> None:
    brokers = there(2, 3, leaving=broker(1, leaving=True))
    after = settled(partition(), brokers)
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (2, 3))
    follower = settled(partition(leader=2), brokers)
    assert (follower.leader, follower.leader_epoch, follower.isr) == (2, 5, (2, 3))


def test_a_leaving_broker_leads_partitions_that_no_other_can_lead() -> None:
    brokers = there(2, 3, leaving=broker(1, leaving=True))
    state = partition(isr=(1,))
    assert settled(state, brokers) is state
    both = there(first=broker(1, leaving=True), second=broker(2, leaving=True))
    assert settled(partition(isr=(1, 2)), both).leader == 1


def test_a_broker_that_is_leaving_is_not_elected() -> None:
    after = settled(partition(isr=(1, 2)), there(3, leaving=broker(2, leaving=True)))
    assert (after.leader, after.isr) == (NO_LEADER, (2,))


# -- brokers without data


def test_a_broker_without_data_leaves_the_isr() -> None:
    after = without_data(partition(), 2)
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 3), 1, 5)


def test_a_leader_without_data_leads_no_more() -> None:
    after = without_data(partition(), 1)
    assert (after.isr, after.leader, after.leader_epoch, after.leader_broker_epoch) == (
        (2, 3),
        NO_LEADER,
        6,
        NO_EPOCH,
    )
    assert settled(after, there(1, 2, 3)).leader == 2


def test_a_broker_that_is_not_in_sync_has_nothing_to_leave() -> None:
    state = partition(isr=(1, 3))
    assert without_data(state, 2) is state


def test_the_last_member_in_memory_begins_above_every_offset_it_gave() -> None:
    after = without_data(partition(isr=(1,), reserved_to=RESERVED_OFFSETS), 1)
    assert (after.isr, after.leader, after.leader_epoch) == ((1,), NO_LEADER, 6)
    assert (after.reserved_from, after.reserved_to) == (RESERVED_OFFSETS, 2 * RESERVED_OFFSETS)
    assert settled(after, there(1, 2)).leader == 1


def test_a_member_in_memory_that_is_not_the_last_reserves_nothing_new() -> None:
    after = without_data(partition(reserved_to=RESERVED_OFFSETS), 1)
    assert (after.reserved_from, after.reserved_to) == (0, RESERVED_OFFSETS)


def test_the_last_member_on_disk_that_lost_its_data_does_not_lead_by_itself() -> None:
    state = without_data(partition(isr=(1,)), 1)
    assert (state.isr, state.leader) == ((1,), NO_LEADER)
    lost = broker(1, 9, lost={PLACE: state.leader_epoch})
    assert settled(state, there(2, 3, lost=lost)) is state
    assert settled(state, there(2, 3, found=broker(1, 10))).leader == 1, "its folder was brought back"


def test_a_lost_log_is_forgotten_once_there_is_a_leader() -> None:
    state = without_data(partition(isr=(1,)), 1)
    lost = broker(1, 9, lost={PLACE: state.leader_epoch})
    brokers = there(2, 3, lost=lost)
    led = settled(state, brokers, unclean=True)
    assert (led.leader, led.isr) == (2, (2,))
    caught_up = replace(led, isr=(2, 1))
    assert settled(caught_up, brokers) is caught_up
    del brokers[2]
    assert settled(caught_up, brokers).leader == 1


# -- preferred leaders, and elections on request


def test_the_preferred_leader_is_the_first_replica_if_it_is_in_sync() -> None:
    assert is_imbalanced(PLACE, partition(leader=2), there(1, 2, 3))
    assert not is_imbalanced(PLACE, partition(leader=1), there(1, 2, 3))
    assert not is_imbalanced(PLACE, partition(leader=2, isr=(2, 3)), there(1, 2, 3))
    assert not is_imbalanced(PLACE, partition(leader=2), there(2, 3, leaving=broker(1, leaving=True)))
    assert not is_imbalanced(PLACE, partition(leader=NO_LEADER), there(1, 2, 3))


def asked(state: PartitionState, brokers: dict[int, Broker], election: Election) -> PartitionState:
    topic = Topic(topic_id=PLACE.topic_id, name="orders", partitions={0: state}, count=1)
    return elect_requested(ClusterImage(brokers=brokers, topics={PLACE.topic_id: topic}), PLACE, election)


def refused(state: PartitionState, brokers: dict[int, Broker], election: Election) -> ErrorCode:
    with pytest.raises(PenstockError) as error:
        asked(state, brokers, election)
    return error.value.code


def test_a_preferred_leader_is_elected_on_request() -> None:
    after = asked(partition(leader=2), there(1, 2, 3), Election.PREFERRED)
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1, 2, 3))


def test_an_election_that_changes_nothing_is_refused_as_kafka_does() -> None:
    preferred, unclean = Election.PREFERRED, Election.UNCLEAN
    brokers = there(1, 2, 3)
    assert refused(partition(), brokers, preferred) is ErrorCode.ELECTION_NOT_NEEDED
    assert refused(partition(leader=2), brokers, unclean) is ErrorCode.ELECTION_NOT_NEEDED
    behind = partition(leader=2, isr=(2, 3))
    assert refused(behind, brokers, preferred) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    offline = partition(leader=NO_LEADER, isr=(1,))
    assert refused(offline, there(2), preferred) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert refused(offline, {}, unclean) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_a_preferred_election_of_an_offline_partition_takes_an_in_sync_replica() -> None:
    after = asked(partition(leader=NO_LEADER, isr=(1, 3)), there(3), Election.PREFERRED)
    assert (after.leader, after.isr) == (3, (3,))


def test_an_unclean_election_on_request_prefers_in_sync_replicas() -> None:
    offline = partition(leader=NO_LEADER, isr=(3,))
    assert asked(offline, there(2, 3), Election.UNCLEAN).leader == 3
    after = asked(offline, there(2), Election.UNCLEAN)
    assert (after.leader, after.isr) == (2, (2,))


def test_an_operator_may_begin_anew_with_a_broker_that_lost_everything() -> None:
    state = without_data(partition(replicas=(1,)), 1)
    brokers = there(lost=broker(1, 9, lost={PLACE: state.leader_epoch}))
    after = asked(state, brokers, Election.UNCLEAN)
    assert (after.leader, after.isr) == (1, (1,))
    assert settled(after, brokers) is after, "the controller lets it lead"


def test_an_election_is_one_write_on_the_condition_of_what_was_seen() -> None:
    table = table_with_brokers(1, 2)
    place = TopicIdPartition(table.create("orders", assignments={0: [1, 2]}), 0)
    table.set(place, leader=2, leader_epoch=1, leader_broker_epoch=table.image.brokers[2].epoch)
    ops = plan_elect(table.image, place, Election.PREFERRED)
    table.transact(ops)
    assert (table.state(place).leader, table.state(place).leader_epoch) == (1, 2)
    with pytest.raises(Conflict):
        table.transact(ops)


@pytest.mark.parametrize("place", [TopicIdPartition(b"\0" * 16, 0), TopicIdPartition(PLACE.topic_id, 7)])
def test_a_partition_that_is_not_there_is_not_elected_for(place: TopicIdPartition) -> None:
    topic = Topic(topic_id=PLACE.topic_id, name="orders", partitions={0: partition()}, count=1)
    image = ClusterImage(brokers=there(1), topics={PLACE.topic_id: topic})
    with pytest.raises(UnknownTopicOrPartition):
        plan_elect(image, place, Election.UNCLEAN)


# -- any brokers at all

NODES = st.sampled_from(range(1, 6))


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    replicas = tuple(draw(st.lists(NODES, min_size=1, max_size=5, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = draw(st.sampled_from((*isr, NO_LEADER)))
    moving = draw(st.booleans())
    return PartitionState(
        replicas=replicas,
        leader=leader,
        leader_epoch=draw(st.integers(0, 3)),
        isr=isr,
        leader_broker_epoch=draw(st.integers(0, 2)),
        adding=tuple(node for node in replicas if node % 2 and moving),
        removing=tuple(node for node in replicas[1:] if node % 2 == 0 and moving),
        reserved_to=draw(st.sampled_from((0, RESERVED_OFFSETS))),
    )


@st.composite
def any_brokers(draw: st.DrawFn) -> dict[int, Broker]:
    return {
        node: broker(node, draw(st.integers(0, 2)), leaving=draw(st.booleans()))
        for node in draw(st.lists(NODES, unique=True))
    }


@given(state=partitions(), brokers=any_brokers(), unclean=st.booleans(), is_lost=st.booleans())
@examples(600)
def test_elections_converge_and_keep_acknowledged_records(
    state: PartitionState, brokers: dict[int, Broker], unclean: bool, is_lost: bool
) -> None:
    last = state.isr[0]
    if is_lost and len(state.isr) == 1 and state.leader == NO_LEADER and last in brokers:
        brokers[last] = replace(brokers[last], lost={PLACE: state.leader_epoch})
    after = elect_leader(PLACE, state, brokers, unclean=unclean)
    then = elect_leader(PLACE, after, brokers, unclean=unclean)
    assert then is after or (unclean and state.is_reassigned), "an unclean election may end a reassignment"
    assert elect_leader(PLACE, then, brokers, unclean=unclean) is then
    assert after.isr, "a replica always has what was acknowledged"
    assert set(after.isr) <= set(after.replicas)
    assert after.leader == NO_LEADER or after.leader in after.isr
    if after.leader != state.leader:
        assert after.leader_epoch == state.leader_epoch + 1
    if after.leader != NO_LEADER:
        assert brokers[after.leader].epoch == after.leader_broker_epoch
        if (after.leader, after.leader_epoch) == (state.leader, state.leader_epoch):
            assert after.leader_broker_epoch == state.leader_broker_epoch, "a new life is a new epoch"
    if not unclean:
        assert set(after.isr) <= set(state.isr)
    able = [
        node
        for node in after.isr
        if node in brokers and not brokers[node].leaving and not brokers[node].has_lost(PLACE, after)
    ]
    assert not able or after.leader != NO_LEADER, "a partition is led if it can be"
