"""Consumers that fetch so little that every response has one batch."""

from .driver_aiokafka import AiokafkaDriver
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver
from .driver_kcat import KcatDriver
from .drivers import Driver, Message


def consume_one_batch_a_fetch(client: Driver, topic: str, count: int) -> list[Message]:
    """The first messages of a topic. The broker returns a whole batch at least, so consumers make progress."""
    match client:
        case ConfluentDriver():
            return client.consume(topic, 0, count, max_partition_fetch_bytes=1)
        case AiokafkaDriver() | KafkaPythonDriver():
            return client.consume(topic, 0, count, max_partition_fetch_bytes=1)
        case KcatDriver():
            return client.consume(topic, 0, count, 0, "-X", "fetch.message.max.bytes=1")
    raise AssertionError(f"it is not known how {client.name} is configured to fetch less")
