"""A cluster whose brokers connect to each other with TLS, each with a certificate."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.certificates import Certificates
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.drivers import Outgoing
from tests.clients.tls_lab import read_in_group
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.clusters import ClusterProcesses

BETWEEN, CLIENTS = "BETWEEN", "CLIENTS"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = Certificates(tmp_path / "certificates")
    settings = {
        "ssl.keystore.location": str(made.server()),
        "ssl.truststore.location": str(made.trust),
        "ssl.client.auth": "required",
        "group.initial.rebalance.delay.ms": 0,
        "min.insync.replicas": 3,
        "offsets.topic.replication.factor": 3,
        "auto.leader.rebalance.enable": False,
    }
    cluster = ClusterProcesses(tmp_path, 3, settings, listeners={BETWEEN: "SSL", CLIENTS: "PLAINTEXT"})
    try:
        yield cluster
        cluster.finish()
    finally:
        cluster.kill()


def test_brokers_replicate_with_tls(cluster: ClusterProcesses) -> None:
    """Every message needs all three replicas; a group needs requests between brokers."""
    at = ",".join(broker.at[CLIENTS] for broker in cluster.brokers.values())
    driver = ConfluentDriver(at)
    driver.admin.create_topics([NewTopic("orders", 3, replication_factor=3)])["orders"].result(PATIENCE_S)
    values = [b"%d" % number for number in range(30)]
    driver.produce("orders", [Outgoing(value=value, partition=int(value) % 3) for value in values])
    assert sorted(read_in_group(at, "orders", 30), key=int) == values
    one = cluster.brokers[2]
    one.stop()
    one.start()

    def are_all_in_sync() -> bool:
        partitions = driver.admin.list_topics("orders").topics["orders"].partitions.values()
        return all(len(partition.isrs) == 3 for partition in partitions)

    wait_until(are_all_in_sync, "the restarted broker catches up")
    for broker in cluster.brokers.values():
        assert "tls_handshake_failed" not in broker.log
