"""aiokafka."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from .drivers import COMPRESSIONS, Message, Outgoing
from .waiting import PATIENCE_S


class AiokafkaDriver:
    name = "aiokafka"
    compressions = COMPRESSIONS
    error = KafkaError

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    # -- messages

    def producer(self, **options: Any) -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options)

    def produce(
        self, topic: str, messages: Sequence[Outgoing], *, compression: str = "none", idempotent: bool = False
    ) -> None:
        async def run() -> None:
            codec = None if compression == "none" else compression
            options = {"enable_idempotence": True} if idempotent else {}
            async with self.producer(compression_type=codec, acks="all", linger_ms=5, **options) as producer:
                futures = [
                    await producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        partition=message.partition,
                        timestamp_ms=message.timestamp_ms,
                        headers=list(message.headers),
                    )
                    for message in messages
                ]
                await asyncio.wait_for(asyncio.gather(*futures), PATIENCE_S)

        asyncio.run(run())

    @asynccontextmanager
    async def consumer(self, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, fetch_max_wait_ms=100, **options
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    def consume(self, topic: str, start: int, count: int, partition: int = 0, **options: Any) -> list[Message]:
        async def run() -> list[Message]:
            place = TopicPartition(topic, partition)
            async with self.consumer(**options) as consumer:
                consumer.assign([place])
                consumer.seek(place, start)
                return await read(consumer, count)

        return asyncio.run(run())

    def consume_from_start(self, topic: str, count: int, partition: int = 0) -> list[Message]:
        async def run() -> list[Message]:
            place = TopicPartition(topic, partition)
            async with self.consumer() as consumer:
                consumer.assign([place])
                await consumer.seek_to_beginning(place)
                return await read(consumer, count)

        return asyncio.run(run())

    def consume_from_time(self, topic: str, timestamp_ms: int, count: int) -> list[Message]:
        async def run() -> list[Message]:
            place = TopicPartition(topic, 0)
            async with self.consumer() as consumer:
                consumer.assign([place])
                found = await consumer.offsets_for_times({place: timestamp_ms})
                consumer.seek(place, found[place].offset)
                return await read(consumer, count)

        return asyncio.run(run())

    def consume_new(self, topic: str, count: int, when_ready: Callable[[], None]) -> list[Message]:
        async def run() -> list[Message]:
            place = TopicPartition(topic, 0)
            async with self.consumer() as consumer:
                consumer.assign([place])
                await consumer.seek_to_end(place)
                await consumer.position(place)
                await asyncio.to_thread(when_ready)
                return await read(consumer, count)

        return asyncio.run(run())

    def range(self, topic: str, partition: int = 0) -> tuple[int, int]:
        async def run() -> tuple[int, int]:
            place = TopicPartition(topic, partition)
            async with self.consumer() as consumer:
                first = await consumer.beginning_offsets([place])
                end = await consumer.end_offsets([place])
                return first[place], end[place]

        return asyncio.run(run())

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        async def run() -> int | None:
            place = TopicPartition(topic, partition)
            async with self.consumer() as consumer:
                found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                return None if found is None else found.offset

        return asyncio.run(run())

    # -- administration

    @staticmethod
    def code_of(error: KafkaError) -> int:
        return error.errno

    def administer(self, work: Callable[[AIOKafkaAdminClient], Any]) -> Any:
        """What `work`, a coroutine function, makes of an admin client."""

        async def run() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await work(admin)
            finally:
                await admin.close()

        return asyncio.run(run())

    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        wanted = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        answer = self.administer(lambda admin: admin.create_topics([wanted]))
        check([code for _, code, *_ in answer.topic_errors])

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        answers = self.administer(lambda admin: admin.alter_configs([resource]))
        check([code for answer in answers for code, *_ in answer.resources])

    def config(self, topic: str, name: str) -> tuple[str, int]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})
        (answer,) = self.administer(lambda admin: admin.describe_configs([resource]))
        ((code, _, _, _, entries),) = answer.resources
        check([code])
        ((_, value, _, source, *_),) = entries
        return value, source

    def trim(self, topic: str, before_offset: int) -> int:
        place = TopicPartition(topic, 0)
        wanted = {place: RecordsToDelete(before_offset)}
        return self.administer(lambda admin: admin.delete_records(wanted))[place]

    def delete_topic(self, topic: str) -> None:
        answer = self.administer(lambda admin: admin.delete_topics([topic]))
        check([code for _, code, *_ in answer.topic_error_codes])

    def topics(self) -> set[str]:
        return set(self.administer(lambda admin: admin.list_topics()))

    def cluster(self) -> tuple[str, int, list[tuple[int, str, int]]]:
        found = self.administer(lambda admin: admin.describe_cluster())
        brokers = [(node["node_id"], node["host"], node["port"]) for node in found["brokers"]]
        return found["cluster_id"], found["controller_id"], brokers


def check(codes: Sequence[int]) -> None:
    """aiokafka's admin client returns most error codes: raise its own error for them."""
    for code in codes:
        if code:
            raise for_code(code)()


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Message]:
    """The next `count` messages of the consumer's assignment."""
    found: list[Message] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            record = await consumer.getone()
            found.append(Message(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)))
    return found
