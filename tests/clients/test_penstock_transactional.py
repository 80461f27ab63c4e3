"""Penstock's own transactional producer against a broker process that is killed, read by another client."""

import asyncio
from collections.abc import Callable, Iterable

from penstock.client.cluster import KafkaClient
from penstock.client.send_settings import SendSettings
from penstock.client.transactional import TransactionalProducer
from penstock.foundation.ids import TopicPartition
from penstock.records.build import Record, build_batch
from penstock.records.compression import Codec
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .drivers import NOW_MS
from .transactional_producers import READ_UNCOMMITTED, read_to_end
from .waiting import wait_until

PARTITIONS = 3


async def write(producer: TransactionalProducer, name: TopicPartition, values: Iterable[bytes]) -> None:
    records = [Record(key=None, value=value, timestamp_ms=NOW_MS) for value in values]
    producer_id, epoch, sequence = producer.reserve(name, len(records))
    batch = build_batch(
        records,
        codec=Codec.ZSTD,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    await producer.send(name, batch)


def test_a_transaction_goes_on_over_a_broker_that_is_killed_again_and_again(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker()
    ConfluentDriver(broker.kafka).create_topic(topic, PARTITIONS)

    async def publish(committed: bool) -> None:
        async with KafkaClient(broker.kafka) as client:
            await client.topic(topic)
            settings = SendSettings(delivery_timeout_s=60)
            producer = await TransactionalProducer.open(client, f"{topic}-id", settings=settings)
            for start in range(0, 3000, 10):
                name = TopicPartition(topic, start // 10 % PARTITIONS)
                await write(producer, name, [b"%d" % number for number in range(start, start + 10)])
                if start in (1000, 2000):
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
            await producer.flush()
            await (producer.commit() if committed else producer.abort())
            await producer.close()

    asyncio.run(publish(committed=True))
    expected = {
        part: [b"%d" % number for number in range(3000) if number // 10 % PARTITIONS == part]
        for part in range(PARTITIONS)
    }
    wait_until(
        lambda: all(read_to_end(broker.kafka, topic, part) == expected[part] for part in range(PARTITIONS)),
        "everything is committed, once and in order",
    )
    asyncio.run(publish(committed=False))
    assert len(read_to_end(broker.kafka, topic, 0, READ_UNCOMMITTED)) == 2000
    assert read_to_end(broker.kafka, topic) == expected[0]
