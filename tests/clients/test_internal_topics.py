"""The cluster's own topics: their first use, and their creation while a broker is away."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.brokers import BrokerProcess
from tests.clusters import ClusterProcesses

from .raw import RawClient
from .raw_members import GROUP, TRANSACTION, find_coordinator
from .waiting import wait_until

TOPICS = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
AWAY_S = 30
REPLICAS = 3


def replicas_of(raw: RawClient, topic: str) -> set[tuple[int, ...]]:
    return {tuple(sorted(found.replica_nodes)) for found in raw.describe(topic).partitions}


def ask(raw: RawClient, kind: int) -> ErrorCode:
    return ErrorCode(
        raw.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=("a",)), 6).coordinators[0].error_code
    )


def without_the_third(cluster: ClusterProcesses, raw: RawClient) -> None:
    """It has replicas, and is seen to be gone."""
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=REPLICAS, assignments=[], configs=[])
    raw.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    cluster.lose(3)
    everything = MetadataRequest(topics=[])
    wait_until(lambda: {known.node_id for known in raw.ask(everything, 12).brokers} == {1, 2}, "it is missed", 60)


def test_they_wait_for_a_broker_that_is_away_and_comes_back(tmp_path: Path) -> None:
    """Else they would have a replica too few from then on."""
    cluster = ClusterProcesses(tmp_path)
    try:
        with RawClient(cluster.brokers[1].address) as raw:
            without_the_third(cluster, raw)
            for kind in TOPICS:
                assert ask(raw, kind) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            cluster.brokers[3].start()
            for kind, topic in TOPICS.items():
                find_coordinator(raw, "a", kind)
                assert replicas_of(raw, topic) == {(1, 2, 3)}
    finally:
        cluster.finish()


def test_metadata_requests_create_them_with_their_own_replication_factors(tmp_path: Path) -> None:
    """Not with `default.replication.factor`, nor with more replicas than there are brokers."""
    factors = {"offsets.topic.replication.factor": REPLICAS + 2, "transaction.state.log.replication.factor": 2}
    cluster = ClusterProcesses(tmp_path, settings=factors)
    try:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "allow.auto.create.topics": True})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for topic, count in ((TOPICS[GROUP], REPLICAS), (TOPICS[TRANSACTION], 2)):

            def has_partitions(topic: str = topic) -> bool:  # the first answer may be LEADER_NOT_AVAILABLE
                return len(producer.list_topics(topic, timeout=60).topics[topic].partitions) == 50

            wait_until(has_partitions, f"{topic} exists", 60)
            with RawClient(cluster.brokers[1].address) as raw:
                assert {len(replicas) for replicas in replicas_of(raw, topic)} == {count}
            resource = ConfigResource(ResourceType.TOPIC, topic)
            assert admin.describe_configs([resource])[resource].result()["cleanup.policy"].value == "compact"
    finally:
        cluster.finish()


def test_coordinators_are_found_only_when_they_are_loaded(own_broker: Callable[..., BrokerProcess]) -> None:
    """librdkafka tries a commit three times within 0.3 s, and then gives it up: too few for a broker that is busy."""
    broker = own_broker()
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.address)) for _ in range(10)]
        for number, raw in enumerate(clients):
            key = f"group-{number}"
            raw.send(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=(key,)), 6)
            raw.send(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=key, topics=None)]), 8)
        for raw in clients:
            assert raw.receive().coordinators[0].error_code == ErrorCode.NONE
            assert raw.receive().groups[0].error_code == ErrorCode.NONE


@pytest.mark.slow
def test_they_are_made_without_one_that_stays_away(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    try:
        with RawClient(cluster.brokers[1].address) as raw:
            without_the_third(cluster, raw)
            assert ask(raw, GROUP) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            wait_until(lambda: ask(raw, GROUP) is ErrorCode.NONE, "it is there", 2 * AWAY_S)
            assert replicas_of(raw, TOPICS[GROUP]) == {(1, 2)}
            assert "internal_topic_created_without_brokers" in cluster.brokers[1].log
    finally:
        cluster.finish()
