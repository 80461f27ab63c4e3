"""Views in a cluster of three: read from the leader or the nearest replica, before and after a leader is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from penstock.replication.settings import RACK_AWARE
from tests.clusters import ClusterProcesses

from .driver_confluent import ConfluentDriver, read
from .drivers import Outgoing
from .test_views import EXPRESSION, is_wanted, message, view_of
from .waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE_S = 120.0
PARTITIONS = 6
SETTINGS = {"default.replication.factor": 3, "min.insync.replicas": 2, "offsets.topic.replication.factor": 3}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path, settings=SETTINGS)
    yield made
    made.finish()


def fill(driver: ConfluentDriver, topic: str, start: int, count: int) -> None:
    rows: list[Outgoing] = [message(number, partition=number % PARTITIONS) for number in range(start, start + count)]
    driver.produce(topic, rows, compression="zstd")


def read_matches(driver: ConfluentDriver, view: str, end: int, **options: str) -> set[bytes | None]:
    wanted = sum(is_wanted(number) for number in range(end))
    with driver.consumer(**options) as consumer:
        consumer.assign([TopicPartition(view, number, 0) for number in range(PARTITIONS)])
        return {each.value for each in read(consumer, wanted)}


def expected(end: int) -> set[bytes | None]:
    return {message(number).value for number in range(end) if is_wanted(number)}


def test_a_view_outlives_the_leaders_of_its_topic(cluster: ClusterProcesses, topic: str) -> None:
    driver = ConfluentDriver(cluster.bootstrap)
    driver.admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(PATIENCE_S)
    view = view_of(driver, topic, EXPRESSION)
    fill(driver, topic, 0, 600)
    wait_until(lambda: view in driver.topics(), "the view is known", timeout_s=PATIENCE_S)
    assert read_matches(driver, view, 600) == expected(600)
    cluster.lose(1)
    survivors = ConfluentDriver(cluster.bootstrap)
    fill(survivors, topic, 600, 600)
    assert read_matches(survivors, view, 1200) == expected(1200)
    cluster.brokers[1].start()
    survivors.delete_topic(view)
    wait_until(lambda: view not in ConfluentDriver(cluster.bootstrap).topics(), "it is dropped", timeout_s=PATIENCE_S)


def test_a_view_is_read_from_a_replica_nearby(tmp_path: Path, topic: str) -> None:
    racked = ClusterProcesses(tmp_path, settings=SETTINGS | {"replica.selector.class": RACK_AWARE}, has_racks=True)
    try:
        driver = ConfluentDriver(racked.bootstrap)
        driver.admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(PATIENCE_S)
        view = view_of(driver, topic, EXPRESSION)
        fill(driver, topic, 0, 600)
        for near in (1, 2):
            before = racked.fetched_bytes()
            assert read_matches(driver, view, 600, client_rack=f"rack-{near}") == expected(600)
            sent = {node: after - before[node] for node, after in racked.fetched_bytes().items()}
            assert max(sent, key=sent.__getitem__) == near, f"bytes by broker: {sent}"
    finally:
        racked.finish()
