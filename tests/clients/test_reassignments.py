"""Reassignments and elections by the clients that support them, on one broker and on three with etcd."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import NewTopic, ResourceType

from penstock.cluster.elections import Election
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.brokers import BrokerProcess
from tests.clusters import ClusterProcesses

from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver
from .driver_kafka_python import TopicPartition as KafkaPythonPartition
from .drivers import Outgoing
from .raw import RawClient
from .waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Three brokers that tests share: they differ in their topics."""
    made = ClusterProcesses(tmp_path_factory.mktemp("cluster"), settings={"auto.leader.rebalance.enable": False})
    yield made
    made.finish()


def placed(cluster: ClusterProcesses, topic: str) -> list[tuple[int, list[int], list[int]]]:
    """Leader, replicas and ISR of each partition, as a broker that runs sees them."""
    address = next(broker.address for broker in cluster.brokers.values() if broker.is_running)
    with RawClient(address) as raw:
        found = sorted(raw.describe(topic).partitions, key=lambda one: one.partition_index)
    return [(one.leader_id, list(one.replica_nodes), sorted(one.isr_nodes)) for one in found]


def place(driver: ConfluentDriver, topic: str, *replicas: list[int], **configs: str) -> None:
    """Make a topic whose partitions lie where a test wants them."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    wanted = NewTopic(topic, num_partitions=len(replicas), replica_assignment=list(replicas), config=named)
    driver.admin.create_topics([wanted])[topic].result(PATIENCE_S)


def elect(driver: ConfluentDriver, kind: ElectionType, *names: tuple[str, int]) -> dict[tuple[str, int], int | None]:
    """The code of what went wrong with each; None where nothing did."""
    wanted = [TopicPartition(topic, number) for topic, number in names]
    found = driver.admin.elect_leaders(kind, wanted or None).result(PATIENCE_S)
    return {(one.topic, one.partition): error.code() if error else None for one, error in found.items()}


# -- one broker


def alter(
    raw: RawClient, topics: dict[str, dict[int, list[int] | None]], version: int = 1, **options: object
) -> AlterPartitionReassignmentsResponse:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=number, replicas=replicas)
                    for number, replicas in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ],
        **options,
    )
    return raw.ask(request, version)


def codes(response: AlterPartitionReassignmentsResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, entry.partition_index): entry.error_code
        for topic in response.responses
        for entry in topic.partitions
    }


def test_each_partition_has_its_own_answer(confluent: ConfluentDriver, raw: RawClient, topic: str) -> None:
    confluent.create_topic(topic, 4)
    response = alter(raw, {topic: {0: [1], 1: [1, 9], 2: [], 3: None, 7: [1]}, "no-such": {0: [1]}})
    assert response.error_code == 0
    assert codes(response) == {
        (topic, 0): ErrorCode.NONE,
        (topic, 1): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        (topic, 2): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        (topic, 3): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    said = [entry.error_message for one in response.responses for entry in one.partitions]
    assert said[0] is None
    assert "unknown or offline brokers: [9]" in said[1]
    assert all(said[1:])


@pytest.mark.parametrize("replicas", [[1, 1], [1, -1]])
def test_replicas_that_cannot_be_are_refused(
    confluent: ConfluentDriver, raw: RawClient, topic: str, replicas: list[int]
) -> None:
    confluent.create_topic(topic)
    assert codes(alter(raw, {topic: {0: replicas}}, version=0)) == {(topic, 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT}


def test_where_nothing_moves_nothing_is_listed(confluent: ConfluentDriver, raw: RawClient, topic: str) -> None:
    confluent.create_topic(topic)
    for topics in (None, [ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0, 5])]):
        response = raw.ask(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.topics) == (0, [])
    unknown = [ListPartitionReassignmentsTopics(name="no-such", partition_indexes=[0])]
    assert raw.ask(ListPartitionReassignmentsRequest(topics=unknown), 0).topics == []


def elections(response: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (one.topic, entry.partition_id): entry.error_code
        for one in response.replica_election_results
        for entry in one.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_is_not_needed_where_the_leader_is_the_right_one(
    confluent: ConfluentDriver, raw: RawClient, topic: str, version: int
) -> None:
    confluent.create_topic(topic)
    wanted = [TopicPartitions(topic=topic, partitions=[0, 3]), TopicPartitions(topic="no-such", partitions=[1])]
    response = raw.ask(ElectLeadersRequest(topic_partitions=wanted), version)
    assert response.error_code == 0
    assert elections(response) == {
        (topic, 0): ErrorCode.ELECTION_NOT_NEEDED,
        (topic, 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_unclean_election_is_not_needed_while_there_is_a_leader(
    confluent: ConfluentDriver, raw: RawClient, topic: str
) -> None:
    confluent.create_topic(topic)
    assert elect(confluent, ElectionType.UNCLEAN, (topic, 0)) == {(topic, 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_an_election_of_all_tells_only_of_those_that_needed_one(confluent: ConfluentDriver, raw: RawClient) -> None:
    response = raw.ask(ElectLeadersRequest(election_type=Election.PREFERRED, topic_partitions=None), 2)
    assert (response.error_code, elections(response)) == (0, {})


def test_an_election_of_an_unknown_kind_is_refused(confluent: ConfluentDriver, raw: RawClient, topic: str) -> None:
    confluent.create_topic(topic)
    wanted = [TopicPartitions(topic=topic, partitions=[0])]
    response = raw.ask(ElectLeadersRequest(election_type=7, topic_partitions=wanted), 2)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert elections(response) == {(topic, 0): ErrorCode.INVALID_REQUEST}


def test_kafka_pythons_administrator_is_answered(broker: BrokerProcess, topic: str) -> None:
    driver = KafkaPythonDriver(broker.kafka)
    driver.create_topic(topic, 2)
    first, second = KafkaPythonPartition(topic, 0), KafkaPythonPartition(topic, 1)
    with driver.admin() as admin:
        found = admin.alter_partition_reassignments({first: [1], second: None})
        assert found[first] is None
        assert found[second].errno == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert admin.list_partition_reassignments() == {}
        assert admin.list_partition_reassignments({topic: [0, 1]}) == {}


# -- three brokers


def test_a_partition_moves_with_all_that_is_in_it(cluster: ClusterProcesses, topic: str) -> None:
    confluent, python = ConfluentDriver(cluster.bootstrap), KafkaPythonDriver(cluster.bootstrap)
    place(confluent, topic, [1, 3], [1, 2])
    sent = [Outgoing(value=b"%d" % number, partition=number % 2) for number in range(2000)]
    confluent.produce(topic, sent)
    with python.admin() as admin:
        found = admin.alter_partition_reassignments(
            {KafkaPythonPartition(topic, 0): [2], KafkaPythonPartition(topic, 1): [2, 3]}
        )
        assert set(found.values()) == {None}
        wait_until(lambda: not admin.list_partition_reassignments({topic: [0, 1]}), "all is moved")
    moved = [([2], [2]), ([2, 3], [2, 3])]
    wait_until(lambda: [each[1:] for each in placed(cluster, topic)] == moved, "it is seen")
    for partition in (0, 1):
        read = confluent.consume_from_start(topic, 1000, partition)
        assert [message.value for message in read] == [b"%d" % number for number in range(partition, 2000, 2)]


def throttle(confluent: ConfluentDriver, topic: str, rate: int | None) -> None:
    """Let the copies of a topic crawl, or run again."""
    operation = "SET" if rate is not None else "DELETE"
    for name in ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"):
        confluent.incremental(ResourceType.TOPIC, topic, [(name, operation, "*" if rate is not None else None)])
    value = None if rate is None else str(rate)
    for node in ("1", "2", "3"):
        names = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        confluent.incremental(ResourceType.BROKER, node, [(name, operation, value) for name in names])


def test_an_ongoing_reassignment_is_listed_replaced_and_cancelled(cluster: ClusterProcesses, topic: str) -> None:
    confluent, python = ConfluentDriver(cluster.bootstrap), KafkaPythonDriver(cluster.bootstrap)
    place(confluent, topic, [1])
    confluent.produce(topic, [Outgoing(value=b"x" * 100_000, partition=0) for _ in range(20)])
    name = KafkaPythonPartition(topic, 0)
    throttle(confluent, topic, 1)
    with python.admin() as admin:
        assert admin.alter_partition_reassignments({name: [2]}) == {name: None}
        assert admin.list_partition_reassignments() == {
            name: {"replicas": [2, 1], "adding_replicas": [2], "removing_replicas": [1]}
        }
        assert admin.alter_partition_reassignments({name: [3]}) == {name: None}
        assert admin.list_partition_reassignments([name]) == {
            name: {"replicas": [3, 1], "adding_replicas": [3], "removing_replicas": [1]}
        }
        assert admin.alter_partition_reassignments({name: None}) == {name: None}
        assert admin.list_partition_reassignments() == {}
    wait_until(lambda: placed(cluster, topic) == [(1, [1], [1])], "it is as it was")
    throttle(confluent, topic, None)
    assert len(confluent.consume_from_start(topic, 20)) == 20


def test_a_move_may_not_change_how_many_there_are_if_that_is_not_allowed(
    cluster: ClusterProcesses, topic: str
) -> None:
    confluent = ConfluentDriver(cluster.bootstrap)
    place(confluent, topic, [1, 2])
    with RawClient(cluster.brokers[2].address) as raw:
        refused = alter(raw, {topic: {0: [1, 2, 3]}}, allow_replication_factor_change=False)
        assert not refused.allow_replication_factor_change
        assert codes(refused) == {(topic, 0): ErrorCode.INVALID_REPLICATION_FACTOR}
        moved = alter(raw, {topic: {0: [2, 3]}}, allow_replication_factor_change=False)
        assert codes(moved) == {(topic, 0): 0}
    wait_until(lambda: placed(cluster, topic)[0][1:] == ([2, 3], [2, 3]), "it is moved")


def test_leaders_are_elected_back(cluster: ClusterProcesses, topic: str) -> None:
    confluent = ConfluentDriver(cluster.bootstrap)
    place(confluent, topic, [1, 2], [2, 3], [3, 1])
    with RawClient(cluster.brokers[1].address) as raw:
        # The order of replicas alone changes: the leader stays.
        assert set(codes(alter(raw, {topic: {0: [2, 1], 1: [3, 2]}})).values()) == {0}
    wait_until(lambda: [each[1][0] for each in placed(cluster, topic)] == [2, 3, 3], "others are preferred")
    assert [each[0] for each in placed(cluster, topic)] == [1, 2, 3]
    assert elect(confluent, ElectionType.PREFERRED, (topic, 0), (topic, 2)) == {
        (topic, 0): None,
        (topic, 2): ErrorCode.ELECTION_NOT_NEEDED,
    }
    found = elect(confluent, ElectionType.PREFERRED)
    assert found[topic, 1] is None
    assert (topic, 0) not in found
    wait_until(lambda: [each[0] for each in placed(cluster, topic)] == [2, 3, 3], "they lead")


def test_a_throttled_replica_catches_up_no_faster_than_it_may(cluster: ClusterProcesses, topic: str) -> None:
    """And one that is in sync is not held back at all."""
    confluent, python = ConfluentDriver(cluster.bootstrap), KafkaPythonDriver(cluster.bootstrap)
    place(confluent, topic, [1, 2])
    confluent.produce(topic, [Outgoing(value=b"x" * 50_000, partition=0) for _ in range(20)])
    rate = 200_000
    throttle(confluent, topic, rate)
    name = KafkaPythonPartition(topic, 0)
    with python.admin() as admin:
        before, began_s = cluster.brokers[3].metric("penstock_throttled_bytes_total"), time.monotonic()
        admin.alter_partition_reassignments({name: [1, 2, 3]})
        # Produced to all that are in sync meanwhile: 2 is, and is named by the throttle too.
        confluent.produce(topic, [Outgoing(value=b"y", partition=0)])
        assert admin.list_partition_reassignments() != {}, "a megabyte takes five seconds"
        wait_until(lambda: not admin.list_partition_reassignments(), "it has caught up", 60)
        copied = cluster.brokers[3].metric("penstock_throttled_bytes_total") - before
        assert copied >= 1_000_000
        # But for what was saved up, and one answer that may go whole.
        assert time.monotonic() - began_s >= (copied - 2 * rate) / rate
    assert cluster.brokers[1].metric("penstock_throttled_bytes_total") >= 1_000_000
    throttle(confluent, topic, None)


def test_reassignments_show_in_the_metrics(cluster: ClusterProcesses, topic: str) -> None:
    confluent = ConfluentDriver(cluster.bootstrap)
    place(confluent, topic, [1, 2, 3], min_insync_replicas="2")
    brokers = cluster.brokers.values()
    assert sum(broker.metric("penstock_is_controller") for broker in brokers) == 1
    assert {broker.metric("penstock_brokers") for broker in brokers} == {3}
    assert all(broker.metric("penstock_replicas") >= 1 for broker in brokers)
    assert cluster.brokers[1].metric("penstock_leaders") >= 1
    for name in ("leaderless", "under_replicated", "under_min_isr", "reassigning"):
        wait_until(
            lambda name=name: sum(broker.metric(f"penstock_{name}_partitions") for broker in brokers) == 0, name
        )
    assert all(broker.metric("penstock_follower_lag_max") >= 0 for broker in brokers)
