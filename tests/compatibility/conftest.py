"""Real applications against one broker, and against a cluster of three."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clusters import ClusterProcesses

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    # So that a member that was killed is missed soon.
    "group.consumer.session.timeout.ms": 6000,
    "group.share.min.session.timeout.ms": 1000,
    "group.share.session.timeout.ms": 6000,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 500,
    "group.streams.min.session.timeout.ms": 1000,
    "group.streams.session.timeout.ms": 6000,
    "group.streams.min.heartbeat.interval.ms": 100,
    "group.streams.heartbeat.interval.ms": 500,
}


@dataclass(frozen=True, slots=True)
class Target:
    """What an application is pointed at."""

    bootstrap: str
    http: str
    """Where queues are, of one broker."""
    replicas: int
    """How many replicas a topic can have."""
    all_http: tuple[str, ...]
    """Where each broker shows its metrics."""


@pytest.fixture(scope="module", params=[1, 3], ids=["one broker", "three brokers"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder: Path = tmp_path_factory.mktemp("target")
    if request.param == 1:
        broker = BrokerProcess(folder, SETTINGS).start()
        yield Target(broker.kafka, broker.http, 1, (broker.http,))
        broker.finish()
    else:
        replicated = {"default.replication.factor": 3, "min.insync.replicas": 2}
        cluster = ClusterProcesses(folder, 3, SETTINGS | replicated)
        yield Target(
            cluster.bootstrap, cluster.brokers[1].http, 3, tuple(each.http for each in cluster.brokers.values())
        )
        cluster.finish()
