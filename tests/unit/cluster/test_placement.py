"""Placement of replicas: apart from each other, even, and deterministic."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.image import Broker
from penstock.cluster.placement import Replicas, awaited_brokers, open_brokers, place_replicas
from penstock.cluster.registration import plan_drained
from penstock.foundation.errors import InvalidReplicationFactor
from tests.examples import examples

from .images import table_with_brokers

TOPIC_ID = b"\7" * 16


def broker(node_id: int, rack: str | None = None, host_id: str = "") -> Broker:
    return Broker(node_id=node_id, host="h", port=1, rack=rack, host_id=host_id)


def placed(brokers: list[Broker], count: int, factor: int, topic_id: bytes = TOPIC_ID) -> dict[int, Replicas]:
    return place_replicas(brokers, topic_id, range(count), factor)


@st.composite
def clusters(draw: st.DrawFn) -> list[Broker]:
    """Brokers on machines in racks, as uneven as they come; a machine stands in one rack."""
    racks = draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    hosts = [(f"rack-{rack}", f"host-{number}") for number, rack in enumerate(racks)]
    places = draw(st.lists(st.sampled_from(hosts), min_size=1, max_size=9))
    return [broker(node_id, *place) for node_id, place in enumerate(places, start=1)]


@given(
    brokers=clusters(),
    count=st.integers(1, 40),
    factor=st.integers(1, 5),
    topic_id=st.binary(min_size=16, max_size=16),
)
@examples(200, deadline=None)
def test_replicas_share_no_rack_and_no_machine_while_another_has_none(
    brokers: list[Broker], count: int, factor: int, topic_id: bytes
) -> None:
    factor = min(factor, len(brokers))
    table = {known.node_id: known for known in brokers}
    for replicas in placed(brokers, count, factor, topic_id).values():
        assert len(set(replicas)) == factor
        racks = Counter(table[node].rack for node in replicas)
        hosts = Counter(table[node].host_id for node in replicas)
        assert len(racks) == min(factor, len({known.rack for known in brokers}))
        if max(hosts.values()) > 1:
            assert {known.host_id for known in brokers} == set(hosts), "every machine has one"


@given(count=st.integers(3, 7), factor=st.integers(1, 3), topic_id=st.binary(min_size=16, max_size=16))
@examples(20, deadline=None)
def test_a_thousand_partitions_are_spread_evenly(count: int, factor: int, topic_id: bytes) -> None:
    assignment = placed([broker(node_id) for node_id in range(1, count + 1)], 1000, factor, topic_id)
    replicas = Counter(node for each in assignment.values() for node in each)
    leaders = Counter(each[0] for each in assignment.values())
    assert max(replicas.values()) - min(replicas.values()) <= 10
    assert max(leaders.values()) - min(leaders.values()) <= 10
    assert len(leaders) == count


@pytest.mark.parametrize("racks", [2, 3])
def test_racks_of_the_same_size_are_spread_evenly_too(racks: int) -> None:
    brokers = [broker(node_id, rack=f"rack-{node_id % racks}") for node_id in range(1, 2 * racks + 1)]
    assignment = placed(brokers, 1000, 2)
    replicas = Counter(node for each in assignment.values() for node in each)
    leaders = Counter(each[0] for each in assignment.values())
    assert max(replicas.values()) - min(replicas.values()) <= 10
    assert max(leaders.values()) - min(leaders.values()) <= 10


@given(count=st.integers(1, 6), partitions=st.integers(1, 24), topic_id=st.binary(min_size=16, max_size=16))
@examples(100, deadline=None)
def test_few_partitions_of_one_replica_are_spread_as_evenly_as_they_can_be(
    count: int, partitions: int, topic_id: bytes
) -> None:
    assignment = placed([broker(node_id) for node_id in range(1, count + 1)], partitions, 1, topic_id)
    leaders = Counter(dict.fromkeys(range(1, count + 1), 0))
    leaders.update(each[0] for each in assignment.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1


def test_many_topics_of_one_partition_are_spread_by_chance() -> None:
    brokers = [broker(node_id) for node_id in range(1, 4)]
    leaders = Counter(placed(brokers, 1, 2, number.to_bytes(16, "big"))[0][0] for number in range(1000))
    assert min(leaders.values()) > 250


def test_placement_does_not_depend_on_the_order_of_brokers() -> None:
    brokers = [broker(node_id, rack=f"rack-{node_id % 2}") for node_id in range(1, 7)]
    assert placed(brokers, 50, 3) == placed(brokers[::-1], 50, 3)
    assert placed(brokers, 50, 3) != placed(brokers, 50, 3, b"\10" * 16)


def test_new_partitions_of_a_topic_go_where_it_has_the_fewest() -> None:
    brokers = [broker(node_id) for node_id in (1, 2, 3)]
    first = place_replicas(brokers[:2], TOPIC_ID, range(4), 1)
    more = place_replicas(brokers, TOPIC_ID, range(4, 6), 1, existing=first.values())
    assert set(more) == {4, 5}
    assert set(more.values()) == {(3,)}


@pytest.mark.parametrize("factor", [-1, 0, 3])
def test_more_replicas_than_brokers_cannot_be(factor: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        placed([broker(1), broker(2)], 1, factor)


def test_brokers_that_leave_or_are_drained_get_no_replicas() -> None:
    table = table_with_brokers(1, 2, 3)
    table.register(2, leaving=True)
    table.transact(plan_drained(table.image, 3, drained=True))
    assert [known.node_id for known in open_brokers(table.image)] == [1]


def test_brokers_with_replicas_are_awaited_if_too_few_are_registered() -> None:
    table = table_with_brokers(1, 2, 3, 4)
    table.create("orders", assignments={0: [1, 2, 3]})
    assert awaited_brokers(table.image, 5) == [], "no broker is away"
    table.unregister(3)
    table.unregister(4)
    assert awaited_brokers(table.image, 2) == [], "two are there"
    assert awaited_brokers(table.image, 3) == [3], "of 4 nothing is known"
    table.transact(plan_drained(table.image, 3, drained=True))
    assert awaited_brokers(table.image, 3) == [], "3 is to get nothing any more"
