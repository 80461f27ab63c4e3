"""Several listeners: clients get the addresses of the listener that they use."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.drivers import Outgoing
from tests.clients.raw import RawClient
from tests.clients.tls_lab import read_in_group

INSIDE, OUTSIDE, HIDDEN = "INSIDE", "OUTSIDE", "HIDDEN"
HOSTS = {INSIDE: "127.0.0.1", OUTSIDE: "localhost"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that is 127.0.0.1 on one listener, localhost on another, and not advertised on a third."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("listeners"),
        {
            "advertised.listeners": ",".join(f"{name}://{host}:0" for name, host in HOSTS.items()),
            "group.initial.rebalance.delay.ms": 0,
        },
        listeners=dict.fromkeys((INSIDE, OUTSIDE, HIDDEN), "PLAINTEXT"),
    ).start()
    ConfluentDriver(broker.at[INSIDE]).create_topic("orders", 2)
    yield broker
    broker.finish()


def raw(broker: BrokerProcess, listener: str) -> RawClient:
    host, _, port = broker.at[listener].rpartition(":")
    return RawClient((host, int(port)))


def port(broker: BrokerProcess, listener: str) -> int:
    return int(broker.at[listener].rpartition(":")[2])


@pytest.mark.parametrize("listener", HOSTS)
def test_every_answer_has_the_address_of_the_listener_that_was_asked(broker: BrokerProcess, listener: str) -> None:
    expected = (HOSTS[listener], port(broker, listener))
    with raw(broker, listener) as client:
        metadata = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12)
        cluster = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
        group = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"]), 4)
    assert [(each.host, each.port) for each in metadata.brokers] == [expected]
    assert [(each.host, each.port) for each in cluster.brokers] == [expected]
    assert [(each.host, each.port) for each in group.coordinators] == [expected]
    assert {each.leader_id for each in metadata.topics[0].partitions} == {1}


@pytest.mark.parametrize(
    ("version", "error"), [(12, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)]
)
def test_a_broker_is_not_shown_on_a_listener_that_it_does_not_advertise(
    broker: BrokerProcess, version: int, error: ErrorCode
) -> None:
    with raw(broker, HIDDEN) as client:
        metadata = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), version)
        cluster = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
        group = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"]), 4)
        described = client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="orders")]), 0)
    assert metadata.brokers == cluster.brokers == []
    assert [(each.error_code, each.leader_id) for each in metadata.topics[0].partitions] == [(error, -1)] * 2
    assert [each.error_code for each in group.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert {each.error_code for each in described.topics[0].partitions} == {ErrorCode.LISTENER_NOT_FOUND}


@pytest.mark.parametrize("listener", HOSTS)
def test_clients_produce_and_consume_on_each_listener(broker: BrokerProcess, listener: str) -> None:
    driver = ConfluentDriver(broker.at[listener])
    topic = f"messages-{listener}"
    driver.create_topic(topic, 1)
    driver.produce(topic, [Outgoing(value=b"one"), Outgoing(value=b"two")])
    assert read_in_group(broker.at[listener], topic, 2) == [b"one", b"two"]


def test_the_listeners_are_among_the_settings_of_the_broker(broker: BrokerProcess) -> None:
    admin = ConfluentDriver(broker.at[INSIDE]).admin
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    found = {name: entry.value for name, entry in answer.result().items()}
    assert found["listeners"] == ",".join(f"{name}://{at}" for name, at in broker.at.items())
    assert found["advertised.listeners"] == ",".join(
        f"{name}://{host}:{port(broker, name)}" for name, host in HOSTS.items()
    )
    assert found["inter.broker.listener.name"] == INSIDE
