"""A replica whose fsync has failed in an earlier process may lack what was acknowledged. It is not elected before a
replica that has everything is back, though it was in sync; other replicas of the same broker are."""

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.log.checkpoint import FAILED_SYNC_FILE
from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses

COUNT = 50
WHOLE, FAILED = 1, 2
"""The brokers. Of the second, the fsync of one log fails."""
NO_LEADER = -1


def log_folder(broker: BrokerProcess, number: int) -> Path:
    (found,) = (broker.data_dir / "logs" / "orders").glob(f"{number}.*")
    return found


def leaders_and_isrs(broker: BrokerProcess) -> list[tuple[int, list[int]]]:
    """By partition."""
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    partitions = admin.list_topics("orders", timeout=60).topics["orders"].partitions
    return [(partitions[number].leader, sorted(partitions[number].isrs)) for number in sorted(partitions)]


def fill(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    topic = NewTopic("orders", 2, replica_assignment=[[WHOLE, FAILED]] * 2, config={"flush": "os"})
    admin.create_topics([topic])["orders"].result(60)
    producer = Producer({"bootstrap.servers": broker.kafka, "acks": "all"})
    failures: list[object] = []
    for number in range(COUNT):
        for partition in (0, 1):
            producer.produce(
                "orders", f"{number}", partition=partition, on_delivery=lambda error, _: failures.append(error)
            )
    assert producer.flush(60) == 0
    assert failures == [None] * 2 * COUNT


def test_a_replica_with_a_failed_fsync_waits_for_one_that_has_everything(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, count=2)
    try:
        whole, failed = cluster.brokers[WHOLE], cluster.brokers[FAILED]
        fill(whole)
        assert leaders_and_isrs(whole) == [(WHOLE, [1, 2])] * 2
        cluster.lose(WHOLE, FAILED)
        mark = log_folder(failed, 0) / FAILED_SYNC_FILE
        mark.touch()
        failed.start()
        wait_until(lambda: leaders_and_isrs(failed)[1][0] == FAILED, "the replica with everything is elected")
        assert leaders_and_isrs(failed)[0] == (NO_LEADER, [WHOLE])
        whole.start()
        wait_until(lambda: leaders_and_isrs(whole)[0] == (WHOLE, [1, 2]), "the other one has fetched what it lacked")
        assert not mark.exists()
        cluster.finish()
    finally:
        cluster.kill()
