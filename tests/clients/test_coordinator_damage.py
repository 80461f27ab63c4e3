"""A coordinator whose log is damaged on one broker: another replica takes over, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType

from tests.clusters import ClusterProcesses
from tests.damaged_internal_topics import OFFSETS, commit_all, committed, damage, make_topic

from .driver_confluent import ConfluentDriver
from .test_reassignments import elect, placed
from .waiting import wait_until

GROUPS = ["one", "two", "three"]
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "auto.leader.rebalance.enable": False,
    "default.replication.factor": 3,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path, settings=SETTINGS)
    yield made
    made.kill()


def test_another_replica_leads_when_the_leaders_log_is_damaged(cluster: ClusterProcesses) -> None:
    everyone = [1, 2, 3]
    make_topic(cluster.bootstrap)
    wanted = commit_all(cluster.bootstrap, GROUPS)
    ((damaged, replicas, _),) = placed(cluster, OFFSETS)
    assert replicas[0] == damaged, "the preferred leader leads"
    broker = cluster.brokers[damaged]
    broker.stop()
    damage(broker.data_dir, OFFSETS, 0)
    broker.start()
    wait_until(lambda: placed(cluster, OFFSETS)[0][2] == everyone, "it is in sync again", 60)
    assert elect(ConfluentDriver(cluster.bootstrap), ElectionType.PREFERRED, (OFFSETS, 0)) == {(OFFSETS, 0): None}
    wait_until(lambda: f"state_not_loaded partition={OFFSETS}-0" in broker.log, "the damage is found", 60)
    wait_until(lambda: placed(cluster, OFFSETS)[0][0] not in (damaged, -1), "another replica leads", 60)
    assert committed(cluster.bootstrap, GROUPS) == wanted
    broker.kill()
    broker.start()
    assert committed(cluster.bootstrap, GROUPS) == wanted
