"""A broker with thousands of partitions is killed and comes back: in sync, and leading, without long stalls."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

from .probe import LOOP_CPU_MAX_S, MONITOR_SETTINGS, NOTHING, histograms_of, worst_of

COUNT = 10_000
WAIT_S = 600.0
KILLED = 3


def leaders(raw: RawClient) -> tuple[dict[int, int], int]:
    """How many partitions each broker leads, and how many have replicas that are not in sync."""
    (topic,) = [
        topic
        for topic in raw.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9).topics
        if topic.name == "many"
    ]
    counts: dict[int, int] = {}
    for partition in topic.partitions:
        counts[partition.leader_id] = counts.get(partition.leader_id, 0) + 1
    return counts, sum(len(one.isr_nodes) < len(one.replica_nodes) for one in topic.partitions)


@contextmanager
def stalls_of(what: str, brokers: Mapping[int, BrokerProcess], *, fresh: int = 0) -> Iterator[None]:
    """Asserts the CPU time of the worst loop callback of each broker. `fresh`: one that is started meanwhile."""
    before = {node: NOTHING if node == fresh else histograms_of(one)["_cpu"] for node, one in brokers.items()}
    yield
    found = {node: worst_of(before[node], histograms_of(one)["_cpu"]) for node, one in brokers.items()}
    sys.stdout.write(f"\nhostile {COUNT:,} partitions: {what}: worst loop CPU by broker, in s: {found}")
    assert max(found.values()) <= LOOP_CPU_MAX_S, f"{what}: {found}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_broker_comes_back_to_thousands_of_partitions(tmp_path: Path) -> None:
    cluster = ClusterProcesses(
        tmp_path, settings=MONITOR_SETTINGS | {"leader.imbalance.check.interval.seconds": 20}, session_s=10.0
    )
    try:
        brokers = cluster.brokers
        wanted = CreatableTopic(name="many", num_partitions=COUNT, replication_factor=2, assignments=[], configs=[])
        with RawClient(brokers[1].address) as raw:
            raw.socket.settimeout(WAIT_S)
            created = raw.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=int(1000 * WAIT_S)), 7).topics[0]
            assert created.error_code == ErrorCode.NONE, created.error_message
            with stalls_of("a broker is killed", {node: brokers[node] for node in (1, 2)}):
                brokers[KILLED].kill()
                wait_until(lambda: leaders(raw)[0].keys() == {1, 2}, "others are elected", WAIT_S)
            with stalls_of("it comes back", brokers, fresh=KILLED):
                brokers[KILLED].start()
                wait_until(lambda: leaders(raw)[1] == 0, "all replicas are in sync", WAIT_S)
            with stalls_of("it leads again", brokers):
                wait_until(lambda: leaders(raw)[0].get(KILLED, 0) >= COUNT // 4, "it leads its share", WAIT_S)
    finally:
        cluster.kill()
