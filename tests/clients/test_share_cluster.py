"""Share groups of three brokers: the leader of a partition delivers it, and acknowledgements survive a leader."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import NewTopic

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.clusters import ClusterProcesses

from .conftest import QUICK_SHARING
from .driver_confluent import QUIET, ConfluentDriver
from .raw import RawClient
from .share_raw import ACCEPT, RELEASE, ShareMember, earliest
from .waiting import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 6
COUNT = 600
PATIENCE_S = 120.0
SETTINGS = {**QUICK_SHARING, "default.replication.factor": 3, "min.insync.replicas": 2}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path_factory.mktemp("cluster"), settings=SETTINGS)
    yield made
    made.finish()


def create(cluster: ClusterProcesses, topic: str, partitions: int = PARTITIONS) -> None:
    admin = ConfluentDriver(cluster.bootstrap).admin
    (made,) = admin.create_topics([NewTopic(topic, partitions, 3)]).values()
    made.result(PATIENCE_S)


def coordinator(cluster: ClusterProcesses, group: str) -> int:
    """The id of the broker that knows the group."""
    with RawClient(cluster.brokers[1].address) as raw:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))

        def ask() -> Any:
            (found,) = raw.ask(request, 4).coordinators
            return found if found.error_code == 0 else None

        return int(wait_until(ask, "the coordinator is known", timeout_s=PATIENCE_S).node_id)


def leaders(cluster: ClusterProcesses, topic: str, node: int = 1) -> dict[int, int]:
    with RawClient(cluster.brokers[node].address) as raw:
        return {entry.partition_index: entry.leader_id for entry in raw.describe(topic).partitions}


def test_nothing_is_lost_and_nothing_done_twice_when_a_leader_is_killed(cluster: ClusterProcesses) -> None:
    create(cluster, "jobs")
    earliest(cluster.brokers[1], "g")
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "max.poll.records": 20, **QUIET}
    consumers = [ShareConsumer({**options, "share.acknowledgement.mode": "explicit"}) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(["jobs"])
    producer = ConfluentDriver(cluster.bootstrap).producer(acks="all", enable_idempotence=True)
    for number in range(COUNT):
        producer.produce("jobs", f"job-{number}".encode())
    assert producer.flush(PATIENCE_S) == 0
    done: list[bytes] = []

    def work() -> int:
        for consumer in consumers:
            found = {}
            for message in consumer.poll(0.2):
                if message.error() is None:
                    found.setdefault((message.topic(), message.partition()), []).append(message.value())
                    consumer.acknowledge(message)
            for place, error in consumer.commit_sync(20).items():
                if error is None:  # else it may come again, and counts then
                    done.extend(found.pop((place.topic, place.partition), ()))
        return len(done)

    wait_until(lambda: work() >= COUNT // 3, "some are done", timeout_s=PATIENCE_S, seen=done)
    victim = leaders(cluster, "jobs", 1)[0]
    cluster.lose(victim)
    wait_until(lambda: work() >= COUNT, "all are done", timeout_s=PATIENCE_S)
    assert sorted(done) == sorted(f"job-{number}".encode() for number in range(COUNT)), "each of them once"
    for consumer in consumers:
        consumer.close()
    cluster.brokers[victim].start()


def test_receipts_and_counts_outlive_a_leader(cluster: ClusterProcesses) -> None:
    create(cluster, "one", partitions=1)
    leader = leaders(cluster, "one")[0]
    # Of a group whose coordinator is another one: it goes on while the partition is taken over.
    group = next(name for number in range(99) if coordinator(cluster, name := f"g{number}") != leader)
    home = coordinator(cluster, group)
    earliest(cluster.brokers[home], group, share_record_lock_duration_ms="60000")
    driver = ConfluentDriver(cluster.bootstrap)
    producer = driver.producer(acks="all")
    for number in range(4):
        producer.produce("one", f"v{number}".encode())
    assert producer.flush(PATIENCE_S) == 0
    keeper = ShareMember(cluster.brokers[home], group, "one", "keeper").join()
    worker = ShareMember(cluster.brokers[leader], group, "one", "keeper")
    assert sorted(worker.take(4)) == [0, 1, 2, 3]
    assert worker.acknowledge((0, 0, [ACCEPT]), (1, 1, [RELEASE])) == ErrorCode.NONE
    cluster.lose(leader)

    def moved() -> int:
        found = leaders(cluster, "one", home)[0]
        return found if found not in (leader, -1) else 0

    heir = wait_until(moved, "another one leads", timeout_s=PATIENCE_S)
    again = ShareMember(cluster.brokers[heir], group, "one", "other")

    def acquired() -> list[tuple[int, int, int]]:
        got = again.fetch(max_wait_ms=1000).get(0)
        return got.acquired if got is not None else []

    got = wait_until(acquired, "it delivers", timeout_s=PATIENCE_S)
    assert got == [(1, 1, 2)], "what was released is there, with its count; what is done or held is not"
    late = ShareMember(cluster.brokers[heir], group, "one", "keeper")
    late.fetch()
    assert late.acknowledge((2, 3, [ACCEPT])) == ErrorCode.NONE, "it is still in flight at the same member"
    assert keeper.described(0)[0].lag == 1
    for member in (keeper, worker, again, late):
        member.close_connection()
    cluster.brokers[leader].start()


def test_a_coordinator_asks_the_leaders_on_other_brokers(cluster: ClusterProcesses) -> None:
    create(cluster, "wide")
    home = coordinator(cluster, "g")
    assert len(set(leaders(cluster, "wide").values())) > 1, "several brokers lead"
    with RawClient(cluster.brokers[home].address) as raw:
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=0)
            for number in range(PARTITIONS)
        ]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name="wide", partitions=partitions)]
        request = AlterShareGroupOffsetsRequest(group_id="g", topics=topics)
        answer = wait_until(
            lambda: (found := raw.ask(request, 0)).error_code == 0 and found, "it is set", timeout_s=PATIENCE_S
        )
        assert [entry.error_code for entry in answer.responses[0].partitions] == [0] * PARTITIONS
        wanted = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
        )
        (found,) = raw.ask(wanted, 1).groups
        seen = {entry.partition_index: (entry.start_offset, entry.lag) for entry in found.topics[0].partitions}
        assert seen == dict.fromkeys(range(PARTITIONS), (0, 0))
        (deleted,) = raw.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
        assert deleted.error_code == 0
        raw.ask(request, 0)
        (found,) = raw.ask(wanted, 1).groups
        assert found.error_code == 0
