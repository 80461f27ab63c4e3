"""Delayed messages of three brokers: each comes once, whichever of them is killed."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from penstock.foundation.delays import DELAY
from tests.clusters import ClusterProcesses

from .driver_confluent import ConfluentDriver
from .drivers import Outgoing
from .raw import RawClient
from .waiting import wait_until

pytestmark = pytest.mark.slow

PATIENCE_S = 120.0
SETTINGS = {"default.replication.factor": 3, "min.insync.replicas": 2}
COUNT = 400
ROUNDS = 3


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path_factory.mktemp("cluster"), settings=SETTINGS)
    yield made
    made.finish()


def leader(cluster: ClusterProcesses, topic: str) -> int:
    def ask() -> int | None:
        running = next(process for process in cluster.brokers.values() if process.is_running)
        with RawClient(running.address) as raw:
            (found,) = raw.describe(topic).partitions
            is_there = found.leader_id in cluster.brokers and cluster.brokers[found.leader_id].is_running
            return found.leader_id if is_there else None

    return int(wait_until(ask, "the partition has a leader", timeout_s=PATIENCE_S))


@pytest.mark.timeout(600)
def test_each_message_comes_once_when_leaders_are_killed(cluster: ClusterProcesses) -> None:
    admin = ConfluentDriver(cluster.bootstrap).admin
    (made,) = admin.create_topics([NewTopic("orders", 1, 3, config={"delayed.messages": "true"})]).values()
    made.result(PATIENCE_S)
    sent = 0
    for _ in range(ROUNDS):
        client = ConfluentDriver(cluster.bootstrap)
        delays = [b"%dms" % (10 * number) for number in range(COUNT)]
        client.produce(
            "orders",
            [Outgoing(value=b"%d" % (sent + at), headers=((DELAY, delay),)) for at, delay in enumerate(delays)],
            idempotent=True,
        )
        sent += COUNT
        node = leader(cluster, "orders")
        cluster.lose(node)
        leader(cluster, "orders")
        cluster.brokers[node].start()
    found = ConfluentDriver(cluster.bootstrap).consume_from_start("orders", sent)
    assert sorted(int(message.value or b"-1") for message in found) == list(range(sent))
    ConfluentDriver(cluster.bootstrap).produce("orders", [Outgoing(value=b"end")])
    (last,) = ConfluentDriver(cluster.bootstrap).consume("orders", found[-1].offset + 1, 1)
    assert last.value == b"end"
