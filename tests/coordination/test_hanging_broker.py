"""The controller's event loop hangs, while the threads of its store's client go on: another broker takes over."""

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

HANGING_LOOP = Path(__file__).parent.parent / "hanging_loop"
SESSION_S = 8.0
TAKEOVER_S = 180.0
"""On a busy machine; else it takes as long as a session lasts."""
PARTITIONS = 4
TOPIC = "orders"
OTHER = {1: 2, 2: 1}


def leaders(bootstrap: str) -> list[int]:
    """The leader of each partition, as a client learns it; -1 for none."""
    partitions = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=60).topics[TOPIC].partitions
    return [partitions[number].leader for number in sorted(partitions)]


@pytest.mark.parametrize("kind", ["zookeeper", pytest.param("etcd", marks=pytest.mark.slow)])
def test_other_brokers_take_over_from_one_whose_event_loop_hangs(tmp_path: Path, kind: str) -> None:
    """kazoo sends its heartbeats from a thread, so that the session would last as long as the process."""
    path = os.pathsep.join([str(HANGING_LOOP), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path}
    cluster = ClusterProcesses(tmp_path, 2, session_s=SESSION_S, kind=kind, environment=environment)
    try:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2)])[TOPIC].result(60)
        controller = admin.list_topics(timeout=60).controller_id
        hanging, other = cluster.brokers[controller], cluster.brokers[OTHER[controller]]
        assert controller in leaders(other.kafka)
        os.kill(hanging.pid, signal.SIGUSR1)
        wait_until(
            lambda: leaders(other.kafka) == [OTHER[controller]] * PARTITIONS, "the other broker leads all partitions"
        )
        producer = Producer({"bootstrap.servers": other.kafka, "acks": "all"})
        failures: list[object] = []
        for number in range(PARTITIONS):
            producer.produce(TOPIC, b"x", partition=number, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(60) == 0
        assert failures == [None] * PARTITIONS
        assert hanging.is_running
        hanging.kill()
        cluster.finish()
    finally:
        cluster.kill()
