"""Elections on request while brokers are down: preferred ones, and unclean ones that lose messages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import ResourceType

from penstock.broker.config_admin import Resource
from penstock.broker.handlers.incremental_alter_configs import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.clusters import ClusterProcesses

from .driver_confluent import ConfluentDriver
from .drivers import Outgoing
from .raw import RawClient
from .test_reassignments import elect, place, placed
from .waiting import wait_until

UNCLEAN = "unclean.leader.election.enable"
LEAVE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path, settings={"auto.leader.rebalance.enable": False})
    yield made
    made.finish()


def values(driver: ConfluentDriver, topic: str, count: int) -> list[bytes | None]:
    return [message.value for message in driver.consume_from_start(topic, count)]


def led_by(cluster: ClusterProcesses, topic: str) -> int:
    return placed(cluster, topic)[0][0]


def settled(cluster: ClusterProcesses) -> ConfluentDriver:
    """A client, once those that are gone are missed: it would ask them, and wait for an answer."""
    running = [broker for broker in cluster.brokers.values() if broker.is_running]
    wait_until(
        lambda: (
            all(broker.metric("penstock_brokers") == len(running) for broker in running)
            and sum(broker.metric("penstock_is_controller") for broker in running) == 1
        ),
        "the others know which broker is gone",
        LEAVE_S,
    )
    return ConfluentDriver(cluster.bootstrap)


def test_a_preferred_leader_that_is_gone_cannot_be_elected(cluster: ClusterProcesses) -> None:
    place(ConfluentDriver(cluster.bootstrap), "orders", [3, 1])
    place(ConfluentDriver(cluster.bootstrap), "alone", [3])
    cluster.lose(3)
    confluent = settled(cluster)
    wait_until(lambda: led_by(cluster, "orders") == 1, "the other one leads", LEAVE_S)
    wait_until(lambda: led_by(cluster, "alone") == -1, "there is no leader", LEAVE_S)
    assert elect(confluent, ElectionType.PREFERRED, ("orders", 0), ("alone", 0)) == {
        ("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("alone", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    assert elect(confluent, ElectionType.UNCLEAN, ("orders", 0), ("alone", 0)) == {
        ("orders", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("alone", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    cluster.brokers[3].start()
    confluent = settled(cluster)
    wait_until(lambda: placed(cluster, "orders")[0][2] == [1, 3], "it is in sync again", LEAVE_S)
    assert elect(confluent, ElectionType.PREFERRED)["orders", 0] is None
    wait_until(lambda: led_by(cluster, "orders") == 3, "it leads again")


def lose(cluster: ClusterProcesses, topic: str) -> ConfluentDriver:
    """Two replicas: the first one misses what is written while it is away, then the other one is gone."""
    confluent = ConfluentDriver(cluster.bootstrap)
    confluent.produce(topic, [Outgoing(value=b"both", partition=0)])
    cluster.brokers[1].stop()
    confluent = settled(cluster)
    wait_until(lambda: placed(cluster, topic)[0][2] == [2], "one is in sync", LEAVE_S)
    confluent.produce(topic, [Outgoing(value=b"%d" % number, partition=0) for number in range(3)])
    # What it has is not known to a leader that it never asked: at worst nothing.
    assert cluster.brokers[2].metric("penstock_follower_lag_max") in (3, 4)
    assert cluster.brokers[2].metric("penstock_follower_lag") in (3, 4)
    assert cluster.brokers[2].metric("penstock_under_replicated_partitions") == 1
    cluster.lose(2)
    cluster.brokers[1].start()
    return settled(cluster)


def test_an_unclean_election_is_held_only_when_it_is_asked_for(cluster: ClusterProcesses) -> None:
    place(ConfluentDriver(cluster.bootstrap), "orders", [1, 2])
    confluent = lose(cluster, "orders")
    wait_until(lambda: led_by(cluster, "orders") == -1, "there is no leader", LEAVE_S)
    brokers = [cluster.brokers[1], cluster.brokers[3]]
    wait_until(
        lambda: sum(broker.metric("penstock_leaderless_partitions") for broker in brokers) == 1,
        "the controller reports it",
    )
    assert elect(confluent, ElectionType.PREFERRED, ("orders", 0)) == {
        ("orders", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    }
    assert elect(confluent, ElectionType.UNCLEAN, ("orders", 0)) == {("orders", 0): None}
    wait_until(lambda: led_by(cluster, "orders") == 1, "it leads")
    confluent.produce("orders", [Outgoing(value=b"later", partition=0)])
    assert values(confluent, "orders", 2) == [b"both", b"later"]


def test_a_topic_that_allows_it_goes_on_without_what_is_lost(cluster: ClusterProcesses) -> None:
    place(ConfluentDriver(cluster.bootstrap), "orders", [1, 2])
    confluent = lose(cluster, "orders")
    wait_until(lambda: led_by(cluster, "orders") == -1, "there is no leader", LEAVE_S)
    confluent.incremental(ResourceType.TOPIC, "orders", [(UNCLEAN, "SET", "true")])
    wait_until(lambda: led_by(cluster, "orders") == 1, "it leads", LEAVE_S)
    assert values(confluent, "orders", 1) == [b"both"]


@pytest.mark.slow
def test_a_cluster_that_allows_it_goes_on_too(cluster: ClusterProcesses) -> None:
    place(ConfluentDriver(cluster.bootstrap), "orders", [1, 2])
    lose(cluster, "orders")
    wait_until(lambda: led_by(cluster, "orders") == -1, "there is no leader", LEAVE_S)
    # No library names the whole cluster.
    change = AlterableConfig(name=UNCLEAN, config_operation=Operation.SET, value="true")
    everyone = AlterConfigsResource(resource_type=Resource.BROKER, resource_name="", configs=[change])
    with RawClient(cluster.brokers[1].address) as raw:
        answer = raw.ask(IncrementalAlterConfigsRequest(resources=[everyone], validate_only=False), 1)
    assert answer.responses[0].error_code == 0
    wait_until(lambda: led_by(cluster, "orders") == 1, "it leads", LEAVE_S)
