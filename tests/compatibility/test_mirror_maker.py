"""MirrorMaker 2 copies topics, records, topic configs and the offsets of consumer groups to a second cluster."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until

from .conftest import SETTINGS, Target
from .connect_workers import write_properties
from .java_applications import JavaApplications, compile_applications, create_topic, kafka_artifacts, words_after

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ARTIFACTS = [*kafka_artifacts("connect-runtime", "connect-file", "connect-mirror"), "org.slf4j:slf4j-simple:1.7.36"]
TOPIC = "mirrored-orders"
REMOTE = f"source.{TOPIC}"
PARTITIONS = 2
WAIT_S = 240.0
ATTEMPT_S = 15.0
Record = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_applications(ARTIFACTS, ("TranslateOffsets",), tmp_path_factory.mktemp("classes"))


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The cluster that is mirrored to."""
    folder = tmp_path / "copy"
    folder.mkdir()
    broker = BrokerProcess(folder, SETTINGS).start()
    yield broker
    broker.finish()


@pytest.fixture
def applications(classpath: str, tmp_path: Path, copy: BrokerProcess) -> Iterator[JavaApplications]:
    applications = JavaApplications(classpath, tmp_path)
    yield applications
    applications.end()


def write_settings(path: Path, target: Target, copy: BrokerProcess) -> Path:
    """Writes the configuration of a MirrorMaker that copies from the target, and looks for changes every second."""
    internal = ("config.storage", "offset.storage", "status.storage", "checkpoints.topic", "heartbeats.topic")
    settings: dict[str, object] = {f"{name}.replication.factor": 1 for name in internal}
    return write_properties(
        path,
        settings
        | {
            "clusters": "source,copy",
            "source.bootstrap.servers": target.bootstrap,
            "copy.bootstrap.servers": copy.kafka,
            "source->copy.enabled": "true",
            "source->copy.topics": "mirrored-.*",
            "source->copy.groups": "mirrored-.*",
            "copy->source.enabled": "false",
            "copy->source.emit.heartbeats.enabled": "false",
            "tasks.max": 2,
            "replication.factor": 1,
            "offset-syncs.topic.replication.factor": target.replicas,
            "refresh.topics.interval.seconds": 1,
            "refresh.groups.interval.seconds": 1,
            "sync.topic.configs.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "offset.lag.max": 0,
            # Workers take their settings only with the alias of the cluster that they write to.
            "copy.offset.flush.interval.ms": 500,
        },
    )


def send(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(
            TOPIC,
            key=f"key-{number % 7}",
            value=f"order-{number}",
            partition=number % PARTITIONS,
            timestamp=1_700_000_000_000 + number,
            headers=[("number", str(number).encode())],
        )
    assert producer.flush(60) == 0


class Side:
    """One of the clusters: its records, configs and committed offsets."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def _consumer(self, group: str) -> Consumer:
        settings = {"enable.auto.commit": False, "enable.partition.eof": True}
        return Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, **settings})

    def partitions(self) -> int:
        topic = self.admin.list_topics(timeout=60).topics.get(self._topic)
        return len(topic.partitions) if topic else 0

    def read(self) -> dict[int, list[Record]]:
        """Returns all records up to the end of each partition, by partition."""
        records: dict[int, list[Record]] = {number: [] for number in range(PARTITIONS)}
        ended: set[int] = set()
        consumer = self._consumer("unused")
        consumer.assign([TopicPartition(self._topic, number, 0) for number in records])

        def at_the_end() -> bool:
            for message in consumer.consume(1000, 0.5):
                error, headers = message.error(), tuple(message.headers() or ())
                if error is None:
                    record = (message.key(), message.value(), message.timestamp()[1], headers)
                    records[message.partition()].append(record)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
            return len(ended) == PARTITIONS

        try:
            wait_until(at_the_end, f"the end of {self._topic}", WAIT_S)
        finally:
            consumer.close()
        return records

    def config(self, name: str) -> str | None:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        try:
            return self.admin.describe_configs([resource])[resource].result(60)[name].value
        except KafkaException:
            return None

    def set_config(self, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self._topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(60)

    def commit(self, group: str, offset: int) -> None:
        """Commits the same offset of every partition."""
        consumer = self._consumer(group)
        consumer.commit(
            offsets=[TopicPartition(self._topic, number, offset) for number in range(PARTITIONS)], asynchronous=False
        )
        consumer.close()

    def committed(self, group: str) -> list[int]:
        consumer = self._consumer(group)
        found = consumer.committed([TopicPartition(self._topic, number) for number in range(PARTITIONS)], timeout=60)
        consumer.close()
        return [partition.offset for partition in found]


def translated(applications: JavaApplications, copy: BrokerProcess, group: str) -> list[int]:
    """Returns the offsets of a group at the copy, of each partition, by MirrorMaker's checkpoints."""
    translator = applications.start("TranslateOffsets", copy.kafka, "source", group)
    translator.wait()
    offsets = {(topic, int(number)): int(offset) for topic, number, offset in words_after(translator, "translated")}
    assert set(offsets) == {(REMOTE, number) for number in range(PARTITIONS)}
    return [offsets[REMOTE, number] for number in range(PARTITIONS)]


def wait_mirrored(source: Side, mirror: Side) -> None:
    """Waits until the mirror has every record. One may be there again after a restart of MirrorMaker."""
    expected = source.read()

    def mirrored() -> bool:
        return {number: list(dict.fromkeys(records)) for number, records in mirror.read().items()} == expected

    wait_until(mirrored, "every record is mirrored", WAIT_S)


def wait_translated(target: Target, source: Side, mirror: Side, group: str) -> None:
    """Waits until a group that is at the end of the source is at the end of the mirror, too.

    MirrorMaker loses pending offset syncs when its tasks are configured anew, and writes new ones for new records
    only: each attempt sends more.
    """

    def translated_exactly() -> bool:
        send(target.bootstrap, sum(map(len, source.read().values())), PARTITIONS)
        wait_mirrored(source, mirror)
        source.commit(group, len(source.read()[0]))
        ends = [len(records) for records in mirror.read().values()]
        deadline_s = time.monotonic() + ATTEMPT_S
        while mirror.committed(group) != ends and time.monotonic() < deadline_s:
            pass
        return mirror.committed(group) == ends

    wait_until(translated_exactly, f"the offsets of {group} are translated", WAIT_S)


def test_topics_records_configs_and_group_offsets_are_mirrored(
    target: Target, copy: BrokerProcess, applications: JavaApplications, tmp_path: Path
) -> None:
    create_topic(target, TOPIC, PARTITIONS, {"retention.ms": "987654321987"})
    settings = write_settings(tmp_path / "mirror.properties", target, copy)
    source, mirror = Side(target.bootstrap, TOPIC), Side(copy.kafka, REMOTE)
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    maker = applications.start(main, settings)
    wait_until(lambda: mirror.partitions() == PARTITIONS, "the topic is mirrored", WAIT_S)
    send(target.bootstrap, 0, 1000)
    wait_mirrored(source, mirror)
    wait_until(lambda: mirror.config("retention.ms") == "987654321987", "the topic's config is mirrored", WAIT_S)

    wait_translated(target, source, mirror, "mirrored-end")
    source.commit("mirrored-middle", 250)
    wait_until(lambda: min(mirror.committed("mirrored-middle")) >= 0, "offsets in the middle are translated", WAIT_S)
    # A translated offset may lie before the exact one, but no record is left out.
    assert max(mirror.committed("mirrored-middle")) <= 250
    for group in ("mirrored-end", "mirrored-middle"):
        # A checkpoint is there before its offsets are committed.
        wait_until(
            lambda group=group: translated(applications, copy, group) == mirror.committed(group),
            f"the checkpoints of {group} are its committed offsets",
            WAIT_S,
        )

    maker.kill()
    send(target.bootstrap, sum(map(len, source.read().values())), 1000)
    source.set_config("retention.ms", "987654321988")
    source.admin.create_partitions([NewPartitions(TOPIC, PARTITIONS + 1)])[TOPIC].result(60)
    maker = applications.start(main, settings)
    wait_until(lambda: mirror.partitions() == PARTITIONS + 1, "the new partition is mirrored", WAIT_S)
    wait_until(lambda: mirror.config("retention.ms") == "987654321988", "the new config is mirrored", WAIT_S)
    wait_mirrored(source, mirror)
    wait_translated(target, source, mirror, "mirrored-middle")
    maker.stop()
