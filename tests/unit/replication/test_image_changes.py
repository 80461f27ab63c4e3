"""Partitions follow the image step by step: logs are opened and removed by slow threads."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.foundation.errors import StorageError
from penstock.log.disk import OsDisk
from penstock.replication.partition import Partition
from penstock.replication.partitions import Partitions
from tests.simulation.clock import FakeClock
from tests.simulation.threads import FakeThreads

from ..log.builders import NOW_MS, FullDisk, batch, values_in
from .broker_state import settings_of

ME, OTHER = 1, 2
ORDERS, AGAIN = b"\1" * 16, b"\2" * 16
COMPANION = b"\3" * 16


class Steps:
    """Work for later: done when a test runs it."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def __call__(self, step: Callable[[], None]) -> None:
        self.waiting.append(step)

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for step in waiting:
            step()


class Broker:
    """One broker's partitions; its threads and its event loop are run by the test."""

    def __init__(self, folder: Path, slice_size: int = 100, disk: object = None) -> None:
        self.threads = FakeThreads(Random(1))
        self.soon = Steps()
        self.progress = 0
        self.partitions = Partitions(
            node_id=ME,
            disk=disk or OsDisk(folder),  # type: ignore[arg-type]
            clock=FakeClock(),
            boot_id="boot",
            settings_of=settings_of,
            run=self.threads.run,
            soon=self.soon,
            slice_size=slice_size,
        )
        self.partitions.broker_epoch = 7
        self.partitions.on_progress = self._count

    def _count(self) -> None:
        self.progress += 1

    def rest(self) -> None:
        while self.soon.waiting or not self.threads.is_idle:
            self.soon.run()
            self.threads.run_all()

    def led(self, topic: str = "orders") -> list[int]:
        return sorted(self.partitions.by_name.get(topic, ()))

    def one(self, number: int = 0) -> Partition:
        found = self.partitions.find("orders", number)
        assert found is not None
        return found

    def close(self) -> bool:
        calls: list[bool] = []
        self.partitions.close(calls.append)
        self.rest()
        (is_well,) = calls
        return is_well


def state(leader: int = ME, *replicas: int, epoch: int = 1) -> PartitionState:
    held = replicas or (leader,)
    return PartitionState(
        replicas=held, leader=leader, leader_epoch=epoch, isr=held, leader_broker_epoch=7, version=epoch
    )


def topic(
    count: int = 1, topic_id: bytes = ORDERS, *, version: int = 1, companion: bytes = b"", **configs: str
) -> Topic:
    return Topic(
        topic_id=topic_id,
        name="orders",
        version=version,
        companion=companion,
        configs={name.replace("_", "."): value for name, value in configs.items()},
        partitions={number: state() for number in range(count)},
    )


def image(*topics: Topic) -> ClusterImage:
    return ClusterImage(
        topics={found.topic_id: found for found in topics}, by_name={found.name: found for found in topics}
    )


def folders(tmp_path: Path) -> int:
    return len(list((tmp_path / "logs").glob("*/*")))


def test_a_new_partition_is_not_found_before_its_log_is_open(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.partitions.apply(image(topic(3)))
    assert broker.led() == []
    assert broker.progress == 0
    broker.rest()
    assert broker.led() == [0, 1, 2]
    assert broker.progress > 0
    assert broker.one().append(batch(b"x"), NOW_MS).base_offset == 0


def test_waiting_for_a_topic_ends_when_all_of_it_is_open(tmp_path: Path) -> None:
    broker = Broker(tmp_path, slice_size=1)
    broker.partitions.apply(image(topic(3)))
    calls: list[list[int]] = []
    broker.partitions.when_settled(ORDERS, lambda: calls.append(broker.led()))
    broker.partitions.when_settled(AGAIN, lambda: calls.append([]))
    assert calls == [[]], "nothing is to be done for the other topic"
    broker.rest()
    assert calls == [[], [0, 1, 2]]


def test_partitions_are_looked_at_a_slice_at_a_time(tmp_path: Path) -> None:
    broker = Broker(tmp_path, slice_size=2)
    broker.partitions.apply(image(topic(5)))
    broker.rest()
    calls: list[int] = []
    broker.partitions.on_follow = lambda topic, partition: calls.append(partition.name.partition)
    broker.partitions.register(8)
    broker.partitions.apply(image(topic(5)))
    assert calls == [0, 1]
    broker.soon.run()
    assert calls == [0, 1, 2, 3]
    broker.soon.run()
    assert calls == [0, 1, 2, 3, 4]
    assert not broker.soon.waiting


def test_a_deleted_topic_of_any_size_is_not_found_from_then_on(tmp_path: Path) -> None:
    broker = Broker(tmp_path, slice_size=1)
    broker.partitions.apply(image(topic(4)))
    broker.rest()
    found = list(broker.partitions)
    broker.partitions.apply(image())
    assert broker.led() == []
    assert not any(partition.is_online for partition in found)
    assert folders(tmp_path) == 4, "its files go when there is time"
    broker.rest()
    assert folders(tmp_path) == 0


def test_a_topic_that_is_deleted_while_it_is_opened_leaves_nothing(tmp_path: Path) -> None:
    for steps in range(8):
        folder = tmp_path / str(steps)
        folder.mkdir()
        broker = Broker(folder, slice_size=1)
        broker.partitions.apply(image(topic(3, companion=COMPANION)))
        for _ in range(steps):
            broker.threads.step()
            broker.soon.run()
        broker.partitions.apply(image())
        broker.rest()
        assert folders(folder) == 0
        assert list(broker.partitions) == []
        assert broker.close()


def test_a_topic_that_is_made_again_while_the_old_one_is_removed_is_another(tmp_path: Path) -> None:
    for steps in range(8):
        folder = tmp_path / str(steps)
        folder.mkdir()
        broker = Broker(folder, slice_size=1)
        broker.partitions.apply(image(topic(2)))
        broker.rest()
        old = broker.one()
        old.append(batch(b"old"), NOW_MS)
        broker.partitions.apply(image())
        for _ in range(steps):
            broker.threads.step()
            broker.soon.run()
        broker.partitions.apply(image(topic(2, AGAIN)))
        with pytest.raises(StorageError):
            old.append(batch(b"lost"), NOW_MS)
        broker.rest()
        assert broker.one().append(batch(b"new"), NOW_MS).base_offset == 0
        assert values_in(broker.one().log) == [b"new"]
        assert folders(folder) == 2


def test_a_replica_that_is_moved_away_and_back_begins_anew(tmp_path: Path) -> None:
    for steps in range(8):
        folder = tmp_path / str(steps)
        folder.mkdir()
        broker = Broker(folder, slice_size=1)
        mine = topic(1)
        broker.partitions.apply(image(mine))
        broker.rest()
        broker.one().append(batch(b"old"), NOW_MS)
        broker.partitions.apply(image(replace(mine, partitions={0: state(OTHER, epoch=2)})))
        for _ in range(steps):
            broker.threads.step()
            broker.soon.run()
        broker.partitions.apply(image(replace(mine, partitions={0: state(ME, epoch=3)})))
        broker.rest()
        assert values_in(broker.one().log) == []
        assert broker.one().leader_epoch == 3
        assert folders(folder) == 1


def test_changes_of_a_partition_while_it_is_opened_are_applied(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    mine = topic(1)
    broker.partitions.apply(image(mine))
    broker.threads.step()
    broker.partitions.apply(image(replace(mine, partitions={0: state(OTHER, ME, OTHER, epoch=5)})))
    broker.rest()
    assert broker.led() == []
    (replica,) = broker.partitions
    assert replica.following is not None
    assert replica.leader_epoch == 5


def test_a_broker_that_registers_again_while_logs_are_opened_leads_nothing_of_before(tmp_path: Path) -> None:
    broker = Broker(tmp_path, slice_size=1)
    broker.partitions.apply(image(topic(3)))
    for _ in range(3):
        broker.threads.step()
    broker.partitions.register(8)
    broker.partitions.apply(image(topic(3)))
    broker.rest()
    assert broker.led() == []
    assert len(list(broker.partitions)) == 3


def test_companion_logs_are_open_before_their_partition_is_found(tmp_path: Path) -> None:
    broker = Broker(tmp_path, slice_size=1)
    broker.partitions.apply(image(topic(3, companion=COMPANION)))
    while len(broker.led()) < 3:
        broker.threads.step()
        broker.soon.run()
        assert all(partition.companion for partition in broker.partitions.by_name.get("orders", {}).values())
    assert sorted(broker.partitions.companions[COMPANION]) == [0, 1, 2]


def test_a_broker_that_stops_while_logs_are_opened_closes_them(tmp_path: Path) -> None:
    for steps in range(10):
        folder = tmp_path / str(steps)
        folder.mkdir()
        broker = Broker(folder, slice_size=1)
        broker.partitions.apply(image(topic(2)))
        broker.rest()
        broker.one().append(batch(b"kept"), NOW_MS)
        broker.partitions.apply(image(topic(4, companion=COMPANION, version=2)))
        for _ in range(steps):
            broker.threads.step()
            broker.soon.run()
        assert broker.close()
        assert not any(partition.is_online for partition in broker.partitions)
        again = Broker(folder)
        again.partitions.apply(image(topic(4, companion=COMPANION, version=2)))
        again.rest()
        assert values_in(again.one().log) == [b"kept"]
        assert again.one().log.checkpoint.synced_to == 1
        assert again.close()


def test_a_broker_that_stops_while_logs_are_removed_waits_for_the_thread(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.partitions.apply(image(topic(2)))
    broker.rest()
    broker.partitions.apply(image())
    calls: list[bool] = []
    broker.partitions.close(calls.append)
    assert calls == []
    broker.rest()
    assert calls == [True]


def test_new_partitions_that_a_full_disk_puts_off_are_not_waited_for(tmp_path: Path) -> None:
    disk = FullDisk(OsDisk(tmp_path), free_bytes=0)
    broker = Broker(tmp_path, disk=disk)
    broker.partitions.apply(image(topic(3)))
    calls: list[str] = []
    broker.partitions.when_settled(None, lambda: calls.append("settled"))
    broker.rest()
    assert calls == ["settled"]
    assert broker.partitions.is_incomplete
    disk.free_bytes = 1 << 30
    broker.partitions.retry()
    broker.rest()
    assert not broker.partitions.is_incomplete
    assert broker.led() == [0, 1, 2]


def test_a_small_topic_does_not_wait_for_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.replication.replica_logs.OPEN_BATCH", 4)
    monkeypatch.setattr("penstock.replication.replica_logs.OPEN_JOBS", 1)
    broker = Broker(tmp_path)
    large, small = topic(30), replace(topic(1, AGAIN), name="small")
    broker.partitions.apply(image(large))
    broker.partitions.apply(image(large, small))
    while not broker.led("small"):
        broker.threads.step()
        broker.soon.run()
    assert len(broker.led()) <= 8


def test_a_follower_that_is_elected_while_its_log_is_truncated_leads_afterwards(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    followed = topic(1)
    followed = replace(followed, partitions={0: state(OTHER, ME, OTHER)})
    broker.partitions.apply(image(followed))
    broker.rest()
    (replica,) = broker.partitions
    following = replica.following
    assert following is not None
    replica.log.append(batch(b"a"), 1, NOW_MS)
    replica.log.append(batch(b"b"), 1, NOW_MS)
    replica.change_log(lambda: following.truncate(1, NOW_MS), lambda outcome: None)
    assert not replica.is_online
    broker.partitions.apply(image(replace(followed, partitions={0: state(ME, ME, OTHER, epoch=2)})))
    assert broker.led() == []
    broker.rest()
    assert broker.led() == [0]
    assert replica.leader_epoch == 2
    assert values_in(replica.log) == [b"a"]


def test_a_topic_that_is_deleted_while_a_log_is_truncated_is_removed_after_that(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    followed = replace(topic(1), partitions={0: state(OTHER, ME, OTHER)})
    broker.partitions.apply(image(followed))
    broker.rest()
    (replica,) = broker.partitions
    calls: list[str] = []
    replica.change_log(lambda: calls.append("truncated"), lambda outcome: calls.append("back"))
    broker.partitions.apply(image())
    broker.rest()
    assert calls == ["truncated"]
    assert not replica.is_online
    assert folders(tmp_path) == 0


def test_nothing_is_committed_before_the_role_of_a_replica_is_known(tmp_path: Path) -> None:
    """A flush that ends in between must not take what the log has for committed: the leader may not have it."""
    first = Broker(tmp_path)
    first.partitions.apply(image(topic()))
    first.rest()
    first.one().append(batch(b"never replicated"), NOW_MS)
    first.close()

    broker = Broker(tmp_path, slice_size=1)
    followed = replace(topic(), partitions={0: state(OTHER, OTHER, ME)})
    broker.partitions.apply(image(followed))
    while not (found := list(broker.partitions)):
        if not broker.threads.step():
            broker.soon.run()
    (replica,) = found
    assert replica.log.end_offset == 1
    assert replica.leader_epoch == -1, "its role is known already: this tests nothing"
    replica.mark_durable(replica.log.end_offset)
    assert replica.high_watermark == 0
    broker.rest()
    assert replica.following is not None
    assert replica.high_watermark == 0
    broker.close()
