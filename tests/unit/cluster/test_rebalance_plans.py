"""Rebalance plans move as few replicas as possible."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.image import Broker, ClusterImage, PartitionState, Topic
from penstock.cluster.placement import Replicas, crowding, place_replicas
from penstock.cluster.rebalance_plans import Move, plan_drain, plan_rebalance, plan_replication
from penstock.foundation.errors import InvalidReplicationFactor
from penstock.foundation.ids import TopicIdPartition
from tests.examples import examples

TOPIC_IDS = st.binary(min_size=16, max_size=16)


def broker(node_id: int, rack: str | None = None, host_id: str = "") -> Broker:
    return Broker(node_id=node_id, host="h", port=1, rack=rack, host_id=host_id)


def plain(*node_ids: int) -> list[Broker]:
    return [broker(node_id) for node_id in node_ids]


def image_of(
    brokers: list[Broker], layout: Mapping[bytes, Mapping[int, Replicas]], drained: frozenset[int] = frozenset()
) -> ClusterImage:
    topics = {
        topic_id: Topic(
            topic_id=topic_id,
            name=f"topic-{topic_id.hex()}",
            partitions={
                number: PartitionState(replicas=replicas, leader=replicas[0], leader_epoch=0, isr=replicas)
                for number, replicas in partitions.items()
            },
        )
        for topic_id, partitions in layout.items()
    }
    return ClusterImage(brokers={known.node_id: known for known in brokers}, topics=topics, drained=drained)


def after(image: ClusterImage, moves: list[Move]) -> dict[bytes, dict[int, Replicas]]:
    layout = {
        topic_id: {number: state.replicas for number, state in topic.partitions.items()}
        for topic_id, topic in image.topics.items()
    }
    for move in moves:
        assert layout[move.tp.topic_id][move.tp.partition] == move.before
        layout[move.tp.topic_id][move.tp.partition] = move.after
    return layout


def loads(layout: Mapping[bytes, Mapping[int, Replicas]]) -> tuple[Counter[int], Counter[int]]:
    """Replicas and leaders of each broker."""
    everything = [replicas for partitions in layout.values() for replicas in partitions.values()]
    return Counter(node for replicas in everything for node in replicas), Counter(each[0] for each in everything)


@given(count=st.integers(3, 6), factor=st.integers(1, 3), topic_id=TOPIC_IDS)
@examples(15, deadline=None)
def test_a_new_broker_gets_its_share_and_nothing_else_moves(count: int, factor: int, topic_id: bytes) -> None:
    old = plain(*range(1, count + 1))
    layout = {topic_id: place_replicas(old, topic_id, range(1000), factor)}
    image = image_of([*old, broker(count + 1)], layout)
    moves = plan_rebalance(image)
    copies = sum(move.copies for move in moves)
    share = 1000 * factor / (count + 1)
    assert 0.98 * share <= copies <= 1.02 * share
    assert copies <= 1000 * factor / 3
    assert all(set(move.after) - set(move.before) <= {count + 1} for move in moves), "only the new one gets any"
    replicas, leaders = loads(after(image, moves))
    assert max(replicas.values()) - min(replicas.values()) <= 0.05 * share
    assert max(leaders.values()) - min(leaders.values()) <= 0.05 * 1000


def test_a_new_broker_gets_its_share_of_topics_of_one_partition() -> None:
    old = plain(1, 2, 3)
    ids = [number.to_bytes(16, "big") for number in range(400)]
    layout = {topic_id: place_replicas(old, topic_id, [0], 3) for topic_id in ids}
    image = image_of(plain(1, 2, 3, 4), layout)
    moves = plan_rebalance(image)
    assert sum(move.copies for move in moves) == 300
    replicas, leaders = loads(after(image, moves))
    assert set(replicas.values()) == {300}
    assert max(leaders.values()) - min(leaders.values()) <= 2


@given(
    factor=st.integers(1, 3),
    partitions=st.integers(1, 60),
    hosts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=3, max_size=7),
    topic_id=TOPIC_IDS,
)
@examples(100, deadline=None)
def test_a_balanced_cluster_needs_no_moves_and_no_plan_breaks_a_rule(
    factor: int, partitions: int, hosts: list[tuple[int, int]], topic_id: bytes
) -> None:
    brokers = [
        broker(node_id, f"rack-{rack}", f"host-{rack}-{host}") for node_id, (rack, host) in enumerate(hosts, start=1)
    ]
    table = {known.node_id: known for known in brokers}
    before = {topic_id: place_replicas(brokers[:3], topic_id, range(partitions), factor)}
    image = image_of(brokers, before)
    layout = after(image, plan_rebalance(image))
    racks, machines = {known.rack for known in brokers}, {known.host_id for known in brokers}
    for replicas in layout[topic_id].values():
        assert len(set(replicas)) == factor
        least = factor - min(factor, len(racks)), factor - min(factor, len(machines))
        assert crowding(table[node] for node in replicas) == least
    again = plan_rebalance(image_of(brokers, layout))
    assert again == [], "a second plan changes nothing"


def test_a_new_broker_in_a_rack_shares_with_its_neighbours() -> None:
    topic_id = b"\1" * 16
    racks = [broker(1, "a"), broker(2, "b"), broker(3, "c")]
    layout = {topic_id: place_replicas(racks, topic_id, range(300), 3)}
    image = image_of([*racks, broker(4, "a")], layout)
    moves = plan_rebalance(image)
    replicas, leaders = loads(after(image, moves))
    assert replicas == {1: 150, 2: 300, 3: 300, 4: 150}
    assert max(leaders.values()) - min(leaders.values()) <= 10
    assert sum(move.copies for move in moves) == 150


def test_replicas_that_share_a_machine_are_parted_when_there_is_another() -> None:
    topic_id = b"\1" * 16
    crowded = [broker(1, host_id="a"), broker(2, host_id="a")]
    image = image_of([*crowded, broker(3, host_id="b")], {topic_id: {0: (1, 2), 1: (2, 1)}})
    for replicas in after(image, plan_rebalance(image))[topic_id].values():
        assert 3 in replicas


def test_a_broker_that_is_away_keeps_what_it_has() -> None:
    topic_id = b"\1" * 16
    layout = {topic_id: place_replicas(plain(1, 2, 3, 4), topic_id, range(100), 2)}
    image = image_of(plain(1, 2, 3), layout)
    assert not any(move.copies for move in plan_rebalance(image))
    with_another = image_of(plain(1, 2, 3, 5), layout)
    moves = plan_rebalance(with_another)
    assert all(4 in move.after for move in moves if 4 in move.before)
    replicas, _ = loads(after(with_another, moves))
    assert replicas[4] == 50
    assert {replicas[node] for node in (1, 2, 3, 5)} <= {37, 38}


# -- emptying a broker


@given(factor=st.integers(1, 3), topic_id=TOPIC_IDS, gone=st.integers(1, 4), is_away=st.booleans())
@examples(20, deadline=None)
def test_a_broker_that_is_drained_holds_nothing_and_the_rest_stays(
    factor: int, topic_id: bytes, gone: int, is_away: bool
) -> None:
    everyone = plain(1, 2, 3, 4)
    layout = {topic_id: place_replicas(everyone, topic_id, range(200), factor)}
    image = image_of([known for known in everyone if not is_away or known.node_id != gone], layout)
    moves = plan_drain(image, gone)
    before, _ = loads(layout)
    assert sum(move.copies for move in moves) == before[gone]
    replicas, leaders = loads(after(image, moves))
    assert gone not in replicas
    assert max(replicas.values()) - min(replicas.values()) <= 20
    assert max(leaders.values()) - min(leaders.values()) <= 20
    assert all(gone in move.before for move in moves)


def test_a_broker_that_others_cannot_replace_is_not_drained() -> None:
    image = image_of(plain(1, 2), {b"\1" * 16: {0: (1, 2)}})
    with pytest.raises(InvalidReplicationFactor, match="add one, or lower the replication factor"):
        plan_drain(image, 1)


def test_a_rebalance_empties_brokers_that_are_drained() -> None:
    topic_id = b"\1" * 16
    layout = {topic_id: place_replicas(plain(1, 2, 3), topic_id, range(30), 2)}
    image = image_of(plain(1, 2, 3), layout, drained=frozenset({2}))
    replicas, _ = loads(after(image, plan_rebalance(image)))
    assert replicas == {1: 30, 3: 30}


# -- how many replicas there are


def test_more_brokers_can_hold_more_replicas() -> None:
    topic_id = b"\1" * 16
    image = image_of(plain(1, 2, 3), {topic_id: dict.fromkeys(range(50), (1,)), b"\2" * 16: {0: (1,)}})
    moves = plan_replication(image, [image.topics[topic_id]], 3)
    assert {move.tp for move in moves} == {TopicIdPartition(topic_id, number) for number in range(50)}
    assert all(move.after[0] == 1 and set(move.after) == {1, 2, 3} for move in moves)
    moves = plan_replication(image, [image.topics[topic_id]], 2)
    replicas, _ = loads(after(image, moves))
    assert abs(replicas[2] - replicas[3]) <= 1


def test_fewer_replicas_keep_the_preferred_leader_and_stay_apart() -> None:
    topic_id = b"\1" * 16
    brokers = [broker(1, "a"), broker(2, "a"), broker(3, "b")]
    image = image_of(brokers, {topic_id: {0: (1, 2, 3), 1: (2, 3, 1)}})
    layout = after(image, plan_replication(image, image.topics.values(), 2))
    assert layout[topic_id] == {0: (1, 3), 1: (2, 3)}


def test_of_fewer_replicas_those_remain_that_are_there_and_in_sync() -> None:
    topic_id = b"\1" * 16
    image = image_of(plain(1, 2, 3), {topic_id: {0: (4, 1, 2), 1: (1, 4, 2), 2: (1, 2, 3)}})
    topic = image.topics[topic_id]
    lagging = replace(topic.partitions[2], leader=3, isr=(3, 2))
    topics = {topic_id: replace(topic, partitions={**topic.partitions, 2: lagging})}
    image = replace(image, topics=topics)
    layout = after(image, plan_replication(image, topics.values(), 2))
    assert layout[topic_id] == {0: (1, 2), 1: (1, 2), 2: (2, 3)}


@pytest.mark.parametrize("factor", [0, -1, 3])
def test_a_replication_factor_that_cannot_be_is_refused(factor: int) -> None:
    image = image_of(plain(1, 2), {b"\1" * 16: {0: (1,)}})
    with pytest.raises(InvalidReplicationFactor):
        plan_replication(image, image.topics.values(), factor)
