"""kafka-python."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .drivers import COMPRESSIONS, LINGER_MS, Message, Outgoing
from .waiting import PATIENCE_S

with warnings.catch_warnings():
    # Warnings are errors in tests, and kafka-python reads its definitions in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, ConfigSourceType, NewTopic, OffsetSpec
    from kafka.admin._groups import MemberToRemove
    from kafka.admin._transactions import AbortTransactionSpec
    from kafka.codec import has_snappy
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError, KafkaTimeoutError, ProducerFencedError
    from kafka.structs import OffsetAndMetadata

__all__ = [
    "AbortTransactionSpec",
    "ConfigResource",
    "ConfigResourceType",
    "CooperativeStickyAssignor",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "KafkaPythonDriver",
    "KafkaTimeoutError",
    "MemberToRemove",
    "OffsetAndMetadata",
    "OffsetSpec",
    "ProducerFencedError",
    "RangePartitionAssignor",
    "RoundRobinPartitionAssignor",
    "TopicPartition",
    "read",
]


class KafkaPythonDriver:
    name = "kafka-python"
    # Its snappy needs the package python-snappy beside it.
    compressions = tuple(codec for codec in COMPRESSIONS if codec != "snappy" or has_snappy())
    error = KafkaError

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    # -- messages

    @contextmanager
    def producer(self, **options: Any) -> Iterator[KafkaProducer]:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, **options)
        try:
            yield producer
        finally:
            producer.close(timeout=PATIENCE_S)

    def produce(
        self, topic: str, messages: Sequence[Outgoing], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        codec = None if compression == "none" else compression
        with self.producer(
            compression_type=codec, enable_idempotence=idempotent, acks="all", linger_ms=LINGER_MS
        ) as producer:
            futures = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            producer.flush(PATIENCE_S)
            for future in futures:
                future.get(PATIENCE_S)

    @contextmanager
    def consumer(self, **options: Any) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, fetch_max_wait_ms=100, **options
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def consume(self, topic: str, start: int, count: int, partition: int = 0, **options: Any) -> list[Message]:
        place = TopicPartition(topic, partition)
        with self.consumer(**options) as consumer:
            consumer.assign([place])
            consumer.seek(place, start)
            return read(consumer, count)

    def consume_from_start(self, topic: str, count: int, partition: int = 0) -> list[Message]:
        place = TopicPartition(topic, partition)
        with self.consumer() as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            return read(consumer, count)

    def consume_from_time(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        place = TopicPartition(topic, 0)
        with self.consumer() as consumer:
            consumer.assign([place])
            consumer.seek(place, consumer.offsets_for_times({place: timestamp_ms})[place].offset)
            return read(consumer, count)

    def consume_new(self, topic: str, count: int, when_ready: Callable[[], None]) -> list[Message]:
        place = TopicPartition(topic, 0)
        with self.consumer() as consumer:
            consumer.assign([place])
            consumer.seek_to_end(place)
            consumer.position(place)
            when_ready()
            return read(consumer, count)

    def range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        with self.consumer() as consumer:
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        place = TopicPartition(topic, partition)
        with self.consumer() as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            return None if found is None else found.offset

    # -- administration

    @staticmethod
    def code_of(error: KafkaError) -> int:
        return error.errno

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            yield admin
        finally:
            admin.close()

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        with self.admin() as admin:
            admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))])

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        with self.admin() as admin:
            answer = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])
            assert answer == {"topic": {topic: "OK"}}

    def config(self, topic: str, name: str) -> tuple[str, int]:
        with self.admin() as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})
            entry = admin.describe_configs([resource], config_filter="all")["topic"][topic][name]
            return entry["value"], ConfigSourceType[entry["config_source"]].value

    def trim(self, topic: str, before_offset: int) -> int:
        place = TopicPartition(topic, 0)
        with self.admin() as admin:
            return admin.delete_records({place: before_offset})[place]["low_watermark"]

    def delete_topic(self, topic: str) -> None:
        with self.admin() as admin:
            admin.delete_topics([topic])

    def topics(self) -> set[str]:
        with self.admin() as admin:
            return set(admin.list_topics())

    def cluster(self) -> tuple[str, int, list[tuple[int, str, int]]]:
        with self.admin() as admin:
            found = admin.describe_cluster()
        brokers = [(node["broker_id"], node["host"], node["port"]) for node in found["brokers"]]
        return found["cluster_id"], found["controller_id"], brokers

    def offset_of_latest_time(self, topic: str) -> int:
        place = TopicPartition(topic, 0)
        with self.admin() as admin:
            return admin.list_partition_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place].offset


def read(consumer: KafkaConsumer, count: int) -> list[Message]:
    """The next `count` messages of the consumer's assignment."""
    found: list[Message] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline_s, f"got {len(found)} messages, expected {count}"
        for records in consumer.poll(timeout_ms=500, max_records=count - len(found)).values():
            found += [
                Message(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
                for record in records
            ]
    return found
