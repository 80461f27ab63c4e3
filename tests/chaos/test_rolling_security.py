"""A cluster goes from plaintext to SASL_SSL, step by step as docs/security.md describes, while clients use it."""

import json
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.clients.driver_confluent import QUIET
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.clusters import ClusterProcesses
from tests.fork_server import PENSTOCK
from tests.ports import free_port

OPEN, SECURE = "PLAINTEXT", "SASL_SSL"
TOPIC, PARTITIONS = "orders", 6
PAUSE_S, UNANSWERED_MAX = 0.01, 1000
USER, PASSWORD = "broker", "between-brokers"
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Load(threading.Thread):
    """A producer and a member of a group on one listener, until they are stopped; what they saw stays."""

    def __init__(self, name: str, options: dict[str, object]) -> None:
        super().__init__()
        self.acknowledged: set[str] = set()
        self.read: dict[int, list[str]] = defaultdict(list)
        self.errors: list[str] = []
        self._prefix = name
        self._ended = threading.Event()
        self._producer = Producer({**options, **QUIET, "enable.idempotence": True, "linger.ms": 2})
        self._consumer = Consumer(
            {
                **options,
                **QUIET,
                "group.id": "readers",
                "group.instance.id": name,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self._consumer.subscribe([TOPIC])

    def run(self) -> None:
        number = 0
        while not self._ended.wait(PAUSE_S):
            for _ in range(10 if len(self._producer) < UNANSWERED_MAX else 0):
                value = f"{self._prefix}-{number}"
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0)
            self._take(0.02)
        self._producer.flush(PATIENCE_S)
        del self._producer  # which closes its connections

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(f"a message was not delivered: {error}")
        else:
            self.acknowledged.add(str(message.value(), "utf-8"))

    def _take(self, seconds: float) -> int:
        messages = self._consumer.consume(500, seconds)
        for message in messages:
            if message.error() is not None:
                self.errors.append(f"the consumer got an error: {message.error()}")
            else:
                self.read[message.partition()].append(str(message.value(), "utf-8"))
        return len(messages)

    def end(self) -> None:
        """Ends the producer, then reads on until nothing more comes for a while, commits and leaves the group."""
        self._ended.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()
        while self._take(3.0):
            pass
        self._consumer.close()


def test_a_cluster_goes_from_plaintext_to_logins_and_tls_under_load(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "certificates")
    certificate = made.server()
    settings = {"min.insync.replicas": 2, "offsets.topic.replication.factor": 3, "auto.leader.rebalance.enable": True}
    cluster = ClusterProcesses(tmp_path, 3, settings, listeners={OPEN: OPEN})
    brokers = cluster.brokers
    opened = {node_id: broker.kafka for node_id, broker in brokers.items()}
    secured = {node_id: f"127.0.0.1:{free_port()}" for node_id in brokers}
    secure = {
        "security.protocol": SECURE,
        "ssl.ca.location": str(made.trust),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    old = {"bootstrap.servers": ",".join(opened.values())}
    new = {"bootstrap.servers": ",".join(secured.values()), **secure}
    loads: list[Load] = []
    try:
        admin = AdminClient({**old, **QUIET})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(PATIENCE_S)
        del admin
        loads.append(Load("old", old))
        loads[0].start()
        command = [PENSTOCK, "user", "create", USER, "--password-file", "-", "--bootstrap", opened[1]]
        subprocess.run(command, input=PASSWORD, text=True, check=True, capture_output=True, timeout=PATIENCE_S)

        certificates = {"ssl.keystore.location": str(certificate), "ssl.truststore.location": str(made.trust)}
        login = {f"listener.name.{SECURE.lower()}.scram-sha-512.sasl.jaas.config": JAAS}
        for node_id in brokers:
            both = f"{OPEN}://{opened[node_id]},{SECURE}://{secured[node_id]}"
            protocols = {"listener.security.protocol.map": f"{OPEN}:{OPEN},{SECURE}:{SECURE}"}
            change(brokers[node_id], {"listeners": both, **protocols, **certificates, **login}, old)
        loads.append(Load("new", new))
        loads[1].start()
        for node_id in brokers:
            change(brokers[node_id], {"inter.broker.listener.name": SECURE}, old)
        loads[0].end()
        metric = rf'penstock_listener_connections\{{listener="{OPEN}"\}}'
        wait_until(lambda: sum(broker.metric(metric) for broker in brokers.values()) == 0, "no client is left")
        for node_id in brokers:
            change(brokers[node_id], {"listeners": f"{SECURE}://{secured[node_id]}"}, new)
        loads[1].end()
        for load in loads:
            assert load.errors == []
            assert load.acknowledged
        check(loads)
        for broker in brokers.values():
            assert "login_failed" not in broker.log
            assert broker.metric(r'penstock_refused_total\{reason="session_expired"\}') == 0
        cluster.finish()
    finally:
        cluster.kill()


def change(broker: BrokerProcess, settings: dict[str, str], options: dict[str, object]) -> None:
    """Restarts a broker with other settings, and waits until all replicas are in sync."""
    broker.stop()
    config = broker.folder / "penstock.toml"
    lines = [
        line for line in config.read_text().splitlines() if not line.startswith(tuple(map(json.dumps, settings)))
    ]
    lines += [f"{json.dumps(name)} = {json.dumps(text)}" for name, text in settings.items()]
    config.write_text("\n".join([*lines, ""]))
    broker.start()
    admin = AdminClient({**options, **QUIET})

    def is_whole() -> bool:
        topics = admin.list_topics(timeout=PATIENCE_S).topics.values()
        return all(len(each.isrs) == len(each.replicas) for topic in topics for each in topic.partitions.values())

    wait_until(is_whole, "all replicas are in sync", pause_s=0.1)


def check(loads: list[Load]) -> None:
    """Every acknowledged message was read; and those of a producer in their order, apart from what was read again."""
    acknowledged = set().union(*(load.acknowledged for load in loads))
    seen = {value for load in loads for values in load.read.values() for value in values}
    assert acknowledged - seen == set()
    total = sum(len(values) for load in loads for values in load.read.values())
    sys.stdout.write(f"{len(acknowledged):,} messages acknowledged, {total - len(seen):,} read twice\n")
    for load in loads:
        for values in load.read.values():
            for name in ("old", "new"):
                numbers = [int(value.split("-")[1]) for value in dict.fromkeys(values) if value.startswith(name)]
                assert numbers == sorted(numbers)
