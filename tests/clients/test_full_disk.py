"""A disk that is full: writers get errors, readers go on, and writers do again when there is free space."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from penstock.broker.config_admin import Resource
from penstock.broker.handlers.incremental_alter_configs import Operation
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.brokers import BrokerProcess

from .conftest import QUICK_MAINTENANCE
from .driver_aiokafka import AiokafkaDriver
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver
from .drivers import Outgoing, refused
from .raw import RawClient, batch_of
from .waiting import PATIENCE_S, wait_until

OFFSETS_FILES = 2 * 50
"""Of the topic that groups are kept in, which is made when a consumer first asks for its coordinator."""
MIB = 1 << 20


class SmallDisk:
    """A file system of its own that is soon full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_bsize

    def leave(self, free_bytes: int) -> None:
        """Fill it up but for some bytes."""
        self._filler.write_bytes(bytes(self.free_bytes - free_bytes))

    def make_room(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small file system can only be mounted by root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield SmallDisk(folder)
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def broker_on(disk: SmallDisk, own_broker: Callable[..., BrokerProcess]) -> Iterator[BrokerProcess]:
    broker = own_broker(QUICK_MAINTENANCE, data_dir=disk.folder / "data")
    yield broker
    broker.finish()  # before the disk goes


def write_until_full(raw: RawClient, topic: str, size: int) -> int:
    """Write until the broker refuses, for the right reason; how many messages the topic then has."""
    written = raw.fetch(topic, 0).high_watermark
    while (answer := raw.produce(topic, batch_of([b"%d " % written + bytes(size)]))).error_code == 0:
        assert answer.base_offset == written
        written += 1
    assert ErrorCode(answer.error_code) is ErrorCode.KAFKA_STORAGE_ERROR, answer.error_message
    return written


def numbers(raw: RawClient, topic: str) -> list[int]:
    """The number that each message of a topic begins with."""
    return [int(record.value.split()[0]) for _, records in raw.batches(topic) for record in records]


CONFIGS = {
    "plain": {},
    "small-segments": {"segment.bytes": "20000"},
    "broker-time": {"message.timestamp.type": "LogAppendTime"},
    "flushed": {"flush": "group"},
    "recompressed": {"compression.type": "gzip"},
}


def test_nothing_acknowledged_is_lost_and_writing_goes_on_when_there_is_room(
    disk: SmallDisk, broker_on: BrokerProcess
) -> None:
    confluent = ConfluentDriver(broker_on.kafka)
    for topic, configs in CONFIGS.items():
        confluent.create_topic(topic, configs=configs)
    written = {}
    with RawClient(broker_on.address) as raw:
        disk.leave(MIB)
        for size in (50_000, 2000, 10):  # until not even the smallest fits
            for topic in CONFIGS:
                written[topic] = write_until_full(raw, topic, size)
        for topic in CONFIGS:
            assert numbers(raw, topic) == list(range(written[topic]))
            assert confluent.range(topic) == (0, written[topic])
        assert broker_on.is_running
        disk.make_room()
        for topic in CONFIGS:
            assert raw.produce(topic, batch_of([b"%d " % written[topic]])).base_offset == written[topic]
    broker_on.kill()
    broker_on.start()
    with RawClient(broker_on.address) as raw:
        for topic in CONFIGS:
            assert numbers(raw, topic) == list(range(written[topic] + 1))


def test_a_sequence_goes_on_after_a_batch_that_did_not_fit(disk: SmallDisk, broker_on: BrokerProcess) -> None:
    ConfluentDriver(broker_on.kafka).create_topic("orders")
    with RawClient(broker_on.address) as raw:
        identity = {"producer_id": raw.producer_id(), "producer_epoch": 0}
        assert raw.produce("orders", batch_of([b"x"], base_sequence=0, **identity)).error_code == 0
        disk.leave(50_000)
        large = batch_of([bytes(100_000)], base_sequence=1, **identity)
        assert raw.produce("orders", large).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.make_room()
        assert raw.produce("orders", large).base_offset == 1
        assert raw.produce("orders", large).base_offset == 1


def test_producers_wait_for_room_and_then_deliver(disk: SmallDisk, broker_on: BrokerProcess) -> None:
    """For a client the error is one to try again after."""
    confluent = ConfluentDriver(broker_on.kafka)
    confluent.create_topic("orders")
    disk.leave(50_000)
    errors: list[KafkaError | None] = []
    producer = confluent.producer(enable_idempotence=True, retry_backoff_ms=20)
    for number in range(3):
        value = b"%d" % number + bytes(100_000)
        producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(1) > 0
    assert errors == []
    disk.make_room()
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None, None, None]
    assert [message.value[:1] for message in confluent.consume("orders", 0, 3)] == [b"0", b"1", b"2"]


def test_every_client_reads_on_while_the_disk_is_full(disk: SmallDisk, broker_on: BrokerProcess) -> None:
    confluent = ConfluentDriver(broker_on.kafka)
    confluent.produce("orders", [Outgoing(value=b"%d" % number) for number in range(20)])
    disk.leave(0)
    for driver in (ConfluentDriver, AiokafkaDriver, KafkaPythonDriver):
        client = driver(broker_on.kafka)
        assert [message.offset for message in client.consume("orders", 5, 15)] == list(range(5, 20)), client.name
        assert client.range("orders") == (0, 20)


def test_trimming_makes_room_on_a_full_disk(disk: SmallDisk, broker_on: BrokerProcess) -> None:
    confluent = ConfluentDriver(broker_on.kafka)
    confluent.create_topic("orders", configs={"segment.bytes": "100000"})
    with RawClient(broker_on.address) as raw:
        disk.leave(MIB)
        for size in (50_000, 100):
            written = write_until_full(raw, "orders", size)
        assert confluent.trim("orders", written) == written
        wait_until(lambda: disk.free_bytes > MIB // 2, "the segments are removed")
        assert raw.produce("orders", batch_of([bytes(50_000)])).base_offset == written


def test_settings_cannot_be_changed_on_a_full_disk_and_can_be_later(
    disk: SmallDisk, broker_on: BrokerProcess
) -> None:
    confluent = ConfluentDriver(broker_on.kafka)
    confluent.create_topic("orders")
    disk.leave(0)
    with refused(confluent, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        confluent.alter_configs("orders", {"retention.ms": "1000000"})
    disk.make_room()
    confluent.alter_configs("orders", {"retention.ms": "1000000"})
    assert confluent.config("orders", "retention.ms")[0] == "1000000"


def test_topics_made_and_deleted_on_a_full_disk_are_made_and_deleted(
    disk: SmallDisk, broker_on: BrokerProcess
) -> None:
    """The store may have room of its own when there is none for logs."""
    confluent = ConfluentDriver(broker_on.kafka)
    confluent.create_topic("orders")
    confluent.create_topic("old")
    with RawClient(broker_on.address) as raw:
        give_the_store_room(raw, "orders")
        for _ in range(10):
            raw.produce("old", batch_of([bytes(100_000)]))
        disk.leave(0)
        confluent.create_topic("new")
        assert raw.produce("new", batch_of([b"x"])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        confluent.delete_topic("old")
        wait_until(lambda: disk.free_bytes > MIB // 2, "the old topic's files are gone")
        wait_until(lambda: raw.produce("new", batch_of([b"x"])).error_code == 0, "the new topic is there")
        files = broker_on.open_files()
        disk.make_room()
        assert confluent.topics() == {"orders", "new"}
        assert confluent.range("new") == (0, 1)
        assert broker_on.open_files() <= files + OFFSETS_FILES + 5


def give_the_store_room(raw: RawClient, topic: str) -> None:
    """Change a setting until the store's journal has grown to its full size, and is used over again."""
    for number in range(600):
        change = AlterableConfig(name="retention.ms", config_operation=Operation.SET, value=str(10**9 + number))
        resource = AlterConfigsResource(resource_type=Resource.TOPIC, resource_name=topic, configs=[change])
        answer = raw.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert answer.responses[0].error_code == 0
