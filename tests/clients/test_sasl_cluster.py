"""A cluster whose listeners all need a login: brokers log in to each other, and the first user is in the store."""

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.certificates import Certificates
from tests.clients.driver_confluent import QUIET
from tests.clients.tls_lab import read_in_group
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.clusters import ClusterProcesses
from tests.fork_server import PENSTOCK

BETWEEN, CLIENTS = "BETWEEN", "CLIENTS"
USER, PASSWORD = "broker", "between-brokers"
LIFETIME_MS = 3000
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'


@pytest.mark.parametrize("kind", ["etcd", pytest.param("zookeeper", marks=pytest.mark.slow)])
def test_brokers_log_in_to_each_other(tmp_path: Path, kind: str) -> None:
    """All replicas need every message, for longer than a session lasts; a group needs requests between brokers."""
    made = Certificates(tmp_path / "certificates")
    password = tmp_path / "password"
    password.write_text(PASSWORD)

    def create_user(store: str) -> None:
        command = [PENSTOCK, "user", "create", USER, "--password-file", password, "--store", store]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (again.returncode, again.stderr) == (1, f"Error: user {USER!r} exists in this store\n")

    settings = {
        "ssl.keystore.location": str(made.server()),
        "ssl.truststore.location": str(made.trust),
        "listener.name.between.scram-sha-512.sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": LIFETIME_MS,
        "group.initial.rebalance.delay.ms": 0,
        "min.insync.replicas": 3,
        "offsets.topic.replication.factor": 3,
        "auto.leader.rebalance.enable": False,
    }
    listeners = {BETWEEN: "SASL_SSL", CLIENTS: "SASL_PLAINTEXT"}
    cluster = ClusterProcesses(tmp_path, 3, settings, listeners=listeners, kind=kind, prepare=create_user)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    try:
        at = ",".join(broker.at[CLIENTS] for broker in cluster.brokers.values())
        options = {"bootstrap.servers": at, **login, **QUIET}
        admin, topic = AdminClient(options), NewTopic("orders", 3, replication_factor=3)
        admin.create_topics([topic])["orders"].result(PATIENCE_S)
        producer = Producer(options)
        sent = 0
        logins = logins_of(cluster)

        def is_over() -> bool:
            """Whether brokers have logged in to each other again, and again, while messages were replicated."""
            nonlocal sent
            producer.produce("orders", value=b"%d" % sent, partition=sent % 3)
            assert producer.flush(PATIENCE_S) == 0
            sent += 1
            return logins_of(cluster) >= logins + 24

        wait_until(is_over, "brokers log in again", pause_s=0.05)
        values = [b"%d" % number for number in range(sent)]
        assert sorted(read_in_group(at, "orders", sent, login), key=int) == values
        for broker in cluster.brokers.values():
            assert broker.metric(r'penstock_refused_total\{reason="session_expired"\}') == 0
            assert "login_failed" not in broker.log
        cluster.finish()
    finally:
        cluster.kill()


def logins_of(cluster: ClusterProcesses) -> float:
    name = r'penstock_request_seconds_count\{api="sasl_handshake"\}'
    return sum(broker.metric(name) for broker in cluster.brokers.values())
