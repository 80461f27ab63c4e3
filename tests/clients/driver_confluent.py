"""confluent-kafka (librdkafka)."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .drivers import COMPRESSIONS, Message, Outgoing
from .waiting import PATIENCE_S

QUIET = {"log_level": 0}
"""Nothing on stderr: brokers come and go here on purpose."""
STAYS: Final = {"metadata.recovery.strategy": "none"}
"""librdkafka 2.16 begins anew when no broker is left (KIP-899), but remembers a group's coordinator from before. It
waits for that one for ever when it commits offsets in a transaction, and for minutes when it is asked about a group.
With one broker, every restart is such a case."""


class ConfluentDriver:
    name = "confluent-kafka"
    compressions = COMPRESSIONS
    error = KafkaException

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET, **STAYS})

    # -- messages

    def producer(self, **options: Any) -> Producer:
        """A producer, its options by librdkafka's names with `_` for `.`."""
        named = {name.replace("_", "."): value for name, value in options.items()}
        # The default limit counts a message with its framing, and is less than a message of 1 MB needs.
        return Producer(
            {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "message.max.bytes": 2_000_000, **QUIET, **named}
        )

    def produce(
        self, topic: str, messages: Sequence[Outgoing], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        producer = self.producer(compression_type=compression, enable_idempotence=idempotent, acks="all")
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: object) -> None:
            if error is not None:
                errors.append(error)

        for message in messages:
            timestamp = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=message.partition,
                on_delivery=on_delivery,
                **timestamp,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert not errors, errors

    @contextmanager
    def consumer(self, **options: Any) -> Iterator[Consumer]:
        named = {name.replace("_", "."): value for name, value in options.items()}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "not used: partitions are assigned by hand",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                **QUIET,
                **named,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def consume(self, topic: str, start: int, count: int, partition: int = 0, **options: Any) -> list[Message]:
        with self.consumer(**options) as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            return read(consumer, count)

    def consume_from_start(self, topic: str, count: int, partition: int = 0) -> list[Message]:
        return self.consume(topic, OFFSET_BEGINNING, count, partition)

    def consume_from_time(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        with self.consumer() as consumer:
            consumer.assign(consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], PATIENCE_S))
            return read(consumer, count)

    def consume_new(self, topic: str, count: int, when_ready: Callable[[], None]) -> list[Message]:
        with self.consumer(enable_partition_eof=True) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
            at_the_end = consumer.poll(PATIENCE_S)
            assert at_the_end is not None
            assert at_the_end.error().code() == KafkaError._PARTITION_EOF
            when_ready()
            return read(consumer, count)

    def range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        with self.consumer() as consumer:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_S)

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        with self.consumer() as consumer:
            wanted = TopicPartition(topic, partition, timestamp_ms)
            (found,) = consumer.offsets_for_times([wanted], PATIENCE_S)
            return None if found.offset == OFFSET_END else found.offset

    # -- administration

    @staticmethod
    def code_of(error: KafkaException) -> int:
        return error.args[0].code()

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, config=dict(configs or {}))])[topic].result(PATIENCE_S)

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self.incremental(ResourceType.TOPIC, topic, [(name, "SET", value) for name, value in configs.items()])

    def incremental(self, kind: ResourceType, name: str, changes: Sequence[tuple[str, str, str | None]]) -> None:
        """Changes of (setting, SET | DELETE | APPEND | SUBTRACT, value)."""
        entries = [
            ConfigEntry(setting, value, incremental_operation=AlterConfigOpType[operation])
            for setting, operation, value in changes
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def configs(self, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
        resource = ConfigResource(kind, name)
        return self.admin.describe_configs([resource])[resource].result(PATIENCE_S)

    def config(self, topic: str, name: str) -> tuple[str, int]:
        entry = self.configs(ResourceType.TOPIC, topic)[name]
        return entry.value, int(entry.source)

    def trim(self, topic: str, before_offset: int) -> int:
        wanted = TopicPartition(topic, 0, before_offset)
        return self.admin.delete_records([wanted])[wanted].result(PATIENCE_S).low_watermark

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(PATIENCE_S)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=PATIENCE_S).topics)

    def cluster(self) -> tuple[str, int, list[tuple[int, str, int]]]:
        found = self.admin.describe_cluster().result(PATIENCE_S)
        return found.cluster_id, found.controller.id, [(node.id, node.host, node.port) for node in found.nodes]

    def offset_of_latest_time(self, topic: str) -> int:
        wanted = TopicPartition(topic, 0)
        return self.admin.list_offsets({wanted: OffsetSpec.max_timestamp()})[wanted].result(PATIENCE_S).offset


def read(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` messages of the consumer's assignment."""
    found: list[Message] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline_s, f"got {len(found)} messages, expected {count}"
        for message in consumer.consume(count - len(found), 0.5):
            if message.error() is not None and message.error().code() == KafkaError._PARTITION_EOF:
                continue
            assert message.error() is None, message.error()
            _, timestamp_ms = message.timestamp()
            headers = tuple(message.headers() or ())
            found.append(Message(message.offset(), timestamp_ms, message.key(), message.value(), headers))
    return found
