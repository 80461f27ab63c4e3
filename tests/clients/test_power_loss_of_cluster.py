"""All brokers of a cluster lose power at once. What was synced before it was acknowledged is served as soon as one
broker is back. What was not waits for the last of them, which may have what the others lost, or for an operator."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses
from tests.power_loss import lose_power

NODES = (1, 2, 3)
COUNT = 50
SYNCED, UNSYNCED, GIVEN_UP = "synced", "unsynced", "given-up"
FLUSH = {SYNCED: "group", UNSYNCED: "os", GIVEN_UP: "os"}
NO_LEADER = -1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path, settings={"min.insync.replicas": 2})
    try:
        yield made
        made.finish()
    finally:
        made.kill()


def _fill(cluster: ClusterProcesses) -> None:
    """Topics of one partition with three replicas, whose messages are acknowledged by all."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [NewTopic(name, 1, 3, config={"flush": flush}) for name, flush in FLUSH.items()]
    for future in admin.create_topics(topics).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failures: list[object] = []
    for name in FLUSH:
        for number in range(COUNT):
            producer.produce(name, f"{number}", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert failures == [None] * len(FLUSH) * COUNT


def _stop_the_power(cluster: ClusterProcesses) -> None:
    # Machines take longer to restart than sessions last. Else the first broker to restart might still take the others
    # for brokers that run, and the one whose session ends last would be left in the ISR instead of the third.
    cluster.lose(*NODES)
    assert sum(lose_power(cluster.brokers[node].data_dir) for node in NODES) > 0, "there was nothing to lose"


def _leader(cluster: ClusterProcesses, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_topics(TopicCollection([topic])).values()
    (partition,) = next(iter(described)).result(60).partitions
    return partition.leader.id if partition.leader is not None else NO_LEADER


def _messages(cluster: ClusterProcesses, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,  # two brokers cannot make the topic of offsets, which has three replicas
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while (message := wait_until(lambda: consumer.poll(1.0), f"messages of {topic}")).error() is None:
            found.append(int(message.value()))
    finally:
        consumer.close()
    return found


def _elect_uncleanly(cluster: ClusterProcesses, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    elected = admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)]).result(60)
    assert list(elected.values()) == [None]


def test_synced_partitions_are_served_and_others_wait_for_the_last_broker(cluster: ClusterProcesses) -> None:
    _fill(cluster)
    _stop_the_power(cluster)
    cluster.brokers[1].start()
    cluster.brokers[2].start()
    wait_until(lambda: _leader(cluster, SYNCED) in (1, 2), "a leader is elected for what was synced")
    assert _messages(cluster, SYNCED) == list(range(COUNT))
    for name in (UNSYNCED, GIVEN_UP):
        wait_until(
            lambda name=name: _leader(cluster, name) == NO_LEADER, "the third one may have what these have lost"
        )

    _elect_uncleanly(cluster, GIVEN_UP)
    wait_until(lambda: _leader(cluster, GIVEN_UP) in (1, 2), "an operator can go on without it")
    assert _leader(cluster, UNSYNCED) == NO_LEADER

    cluster.brokers[3].start()
    wait_until(lambda: _leader(cluster, UNSYNCED) == 3, "the last one in sync leads")
    kept = {name: _messages(cluster, name) for name in (UNSYNCED, GIVEN_UP)}
    assert all(found == list(range(len(found))) for found in kept.values()), f"a prefix, in order: {kept}"
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for name in kept:
        producer.produce(name, f"{COUNT}")
    assert producer.flush(90) == 0
    assert {name: _messages(cluster, name) for name in kept} == {name: [*kept[name], COUNT] for name in kept}
