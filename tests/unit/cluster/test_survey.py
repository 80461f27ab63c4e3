"""A client's survey of a cluster: an image to plan on, and its health."""

from penstock.client.cluster_admin import BrokerInfo, Reassignment
from penstock.client.metadata import NO_NODE, PartitionInfo, TopicInfo
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.placement import closed_brokers, open_brokers
from penstock.cluster.rebalance_plans import Move, plan_drain, plan_leaders, plan_rebalance, throttled_replicas
from penstock.cluster.settings import CORDONED
from penstock.cluster.survey import examine, image_of
from penstock.foundation.ids import TopicIdPartition, TopicPartition

from .test_rebalance_plans import broker

ORDERS = b"\1" * 16


def info(node_id: int, rack: str | None = None, host: str = "") -> BrokerInfo:
    return BrokerInfo(node_id=node_id, host=host or f"host-{node_id}", port=9092, rack=rack)


def orders(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicInfo:
    """A topic by leader, replicas and ISR of each partition."""
    return TopicInfo(
        name="orders",
        topic_id=ORDERS,
        is_internal=False,
        partitions={
            number: PartitionInfo(
                tp=TopicPartition("orders", number), leader=leader, leader_epoch=4, replicas=replicas, isr=isr
            )
            for number, (leader, replicas, isr) in enumerate(partitions)
        },
    )


def seen(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> ClusterImage:
    """Brokers 1, 2 and 3, and that topic."""
    return image_of([info(node) for node in (1, 2, 3)], [orders(*partitions)], {})


def numbers(placed: tuple[tuple[TopicIdPartition, PartitionState], ...]) -> list[int]:
    return [place.partition for place, _ in placed]


def test_a_cluster_in_which_all_are_in_sync_is_healthy() -> None:
    health = examine(seen((1, (1, 2), (1, 2)), (2, (2, 3), (3, 2))), {"orders": 2})
    assert health.is_good
    assert health.moving == health.not_preferred == ()


def test_each_illness_is_found() -> None:
    image = seen(
        (1, (1, 2), (1, 2)),
        (NO_NODE, (4, 1), (4,)),
        (1, (1, 2, 3), (1,)),
        (3, (2, 3), (2, 3)),
    )
    health = examine(image, {"orders": 2})
    assert numbers(health.offline) == [1]
    assert numbers(health.under_replicated) == [1, 2]
    assert numbers(health.under_min_isr) == [1, 2]
    assert numbers(health.not_preferred) == [3]
    assert health.missing == (4,)
    assert not health.is_good


def test_a_topic_whose_settings_are_not_known_wants_one_replica_in_sync() -> None:
    assert examine(seen((1, (1,), (1,))), {}).under_min_isr == ()


def test_leaders_that_are_not_the_preferred_ones_and_moves_are_no_illness() -> None:
    name = TopicPartition("orders", 0)
    move = Reassignment(tp=name, replicas=(2, 3, 1), adding=(3,), removing=(1,))
    image = image_of([info(1), info(2), info(3)], [orders((1, (2, 3, 1), (1, 2)))], {name: move})
    health = examine(image, {})
    assert numbers(health.moving) == [0]
    assert numbers(health.not_preferred) == [0]
    assert health.is_good, "a replica that is being added may lag"


def test_plans_know_racks_machines_and_brokers_that_are_closed() -> None:
    image = image_of(
        [info(1, "a"), info(2, "b", "other"), info(3, host="other")],
        [orders((1, (1,), (1,)))],
        {},
        machines={3: "own"},
        closed=[2],
    )
    assert [image.brokers[node].failure_domain for node in (1, 2, 3)] == [
        ("a", "host-1"),
        ("b", "other"),
        ("", "own"),
    ]
    assert [known.node_id for known in open_brokers(image)] == [1, 3]
    (move,) = plan_drain(image, 1)
    assert move.after == (3,)


def test_a_plan_starts_from_where_a_partition_is_on_its_way_to() -> None:
    name = TopicPartition("orders", 0)
    move = Reassignment(tp=name, replicas=(2, 1), adding=(2,), removing=(1,))
    image = image_of([info(1), info(2)], [orders((1, (2, 1), (1,)))], {name: move})
    (found,) = plan_drain(image, 2)
    assert (found.before, found.after) == ((2,), (1,))


# -- cordoned brokers (KIP-1066)


def test_a_cordoned_broker_gets_no_replicas_and_a_rebalance_empties_it() -> None:
    image = ClusterImage(
        brokers={node: broker(node) for node in (1, 2, 3)},
        broker_configs={"2": {CORDONED: "*"}, "3": {CORDONED: ""}, "": {CORDONED: "*"}},
        topics=seen((2, (2, 1), (2, 1))).topics,
    )
    assert closed_brokers(image) == {2}
    assert [known.node_id for known in open_brokers(image)] == [1, 3]
    (move,) = plan_rebalance(image)
    assert set(move.after) == {1, 3}


# -- throttles (KIP-73)


def move_of(number: int, before: tuple[int, ...], after: tuple[int, ...], topic: str = "orders") -> Move:
    return Move(tp=TopicIdPartition(topic.encode().ljust(16), number), topic=topic, before=before, after=after)


def test_throttles_list_leaders_and_followers() -> None:
    moves = [
        move_of(0, (1, 2), (2, 3)),
        move_of(4, (3,), (3, 1, 2)),
        move_of(5, (1, 2), (2, 1)),
        move_of(0, (1,), (2,), "clicks"),
        move_of(0, (1, 2), (1,), "shrinks"),
    ]
    assert throttled_replicas(moves) == {"orders": ("0:1,0:2,4:3", "0:3,4:1,4:2"), "clicks": ("0:1", "0:2")}


def test_only_a_leader_that_could_be_another_is_worth_an_election() -> None:
    image = seen((2, (1, 2), (1, 2)), (2, (1, 2), (2,)), (2, (4, 2), (4, 2)), (1, (1, 2), (1, 2)))
    assert [place.partition for place, _ in plan_leaders(image)] == [0]
