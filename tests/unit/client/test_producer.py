import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.client.accumulator import UNKNOWN_OFFSET, Published
from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.consumer import Consumer
from penstock.client.errors import ServerError
from penstock.client.offsets import Origin, Start, log_ranges, resolve_start
from penstock.client.partitioner import partition_of_key
from penstock.client.producer import Acks, Producer, ProducerClosed, ProducerSettings
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import InvalidTimestamp
from penstock.foundation.ids import TopicPartition
from penstock.node import Address
from penstock.records.build import Record
from penstock.records.compression import Codec
from penstock.wire.keys import ApiKey

from .nodes import LOCAL, ForgetfulProxy, running_node


async def read_all(client: KafkaClient, topic: str) -> dict[int, list[Record]]:
    """Everything that a topic holds now, by partition."""
    names = (await Admin(client).topic(topic)).tps
    held = await log_ranges(client, names)
    found: dict[int, list[Record]] = {name.partition: [] for name in names}
    consumer = Consumer(client)
    consumer.assign(await resolve_start(client, Start(Origin.EARLIEST), held))
    while any(consumer.position(name) < held[name].end for name in names):
        for name, record in await consumer.poll():
            found[name.partition].append(record)
    await consumer.close()
    return found


async def test_every_record_gets_its_partition_and_offset(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=4)
        values = [b"%d" % number for number in range(1000)]
        async with Producer(client, ProducerSettings(batch_bytes=500)) as producer:
            answers = [await producer.send(topic, value, key=value) for value in values]
            await producer.flush()
        found = await read_all(client, topic)
        for value, answer in zip(values, answers, strict=True):
            place = answer.result()
            assert place.partition == partition_of_key(value, 4)
            assert found[place.partition][place.offset].value == value


async def test_records_of_a_partition_stay_in_the_order_they_were_sent_in(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=3)
        async with Producer(client, ProducerSettings(batch_bytes=300)) as producer:
            for number in range(600):
                await producer.send(topic, b"%d" % number, partition=number % 3)
        found = await read_all(client, topic)
        for partition, records in found.items():
            assert [record.value for record in records] == [b"%d" % n for n in range(partition, 600, 3)]


async def test_keys_headers_timestamps_and_nulls_arrive_as_they_were_sent(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        async with Producer(client) as producer:
            await producer.send(topic, None, key=b"k", timestamp_ms=1_700_000_000_000)
            await producer.send(topic, b"v", headers=[("tag", b"eu"), ("none", None)], timestamp_ms=0)
        first, second = (await read_all(client, topic))[0]
        assert (first.key, first.value, first.timestamp_ms) == (b"k", None, 1_700_000_000_000)
        assert (second.key, second.value, second.timestamp_ms) == (None, b"v", 0)
        assert second.headers == (("tag", b"eu"), ("none", None))


@pytest.mark.parametrize("codec", list(Codec))
async def test_batches_are_kept_in_the_codec_that_was_asked_for(tmp_path: Path, codec: Codec) -> None:
    async with running_node(tmp_path) as node, KafkaClient(str(node.listen)) as client:
        await Admin(client).create("orders")
        async with Producer(client, ProducerSettings(codec=codec)) as producer:
            for _ in range(100):
                await producer.send("orders", b"the same words over and over")
        (records,) = (await read_all(client, "orders")).values()
        assert [record.value for record in records] == [b"the same words over and over"] * 100
        (segment,) = tmp_path.glob("logs/orders/*/*.log")
        attributes = int.from_bytes(segment.read_bytes()[21:23], "big")
        assert attributes & 7 == codec


async def test_without_acknowledgement_nothing_is_waited_for_and_no_offset_is_known(
    bootstrap: str, topic: str
) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        async with Producer(client, ProducerSettings(acks=Acks.NONE)) as producer:
            answers = [await producer.send(topic, b"%d" % number) for number in range(10)]
            await producer.flush()
        assert [answer.result() for answer in answers] == [Published(0, UNKNOWN_OFFSET)] * 10
        # Asked on the same connection: the broker has handled what came before it.
        assert [record.value for record in (await read_all(client, topic))[0]] == [b"%d" % n for n in range(10)]


@asynccontextmanager
async def behind_a_forgetful_proxy(folder: Path) -> AsyncIterator[tuple[KafkaClient, ForgetfulProxy]]:
    async with ForgetfulProxy(ApiKey.PRODUCE) as proxy:
        address = Address(host=LOCAL, port=proxy.port)
        async with running_node(folder, advertise=address) as node:
            proxy.target = node.listen.port
            async with KafkaClient(str(address)) as client:
                await Admin(client).create("orders")
                yield client, proxy


async def test_an_idempotent_batch_whose_answer_was_lost_is_kept_once(tmp_path: Path) -> None:
    async with behind_a_forgetful_proxy(tmp_path) as (client, proxy):
        async with Producer(client) as producer:
            proxy.lose = 2
            first = await (await producer.send("orders", b"first"))
            second = await (await producer.send("orders", b"second"))
        assert proxy.lost == 2
        assert (first.offset, second.offset) == (0, 1)
        assert [record.value for record in (await read_all(client, "orders"))[0]] == [b"first", b"second"]


async def test_without_idempotence_a_batch_whose_answer_was_lost_is_kept_at_least_once(tmp_path: Path) -> None:
    async with behind_a_forgetful_proxy(tmp_path) as (client, proxy):
        async with Producer(client, ProducerSettings(acks=Acks.LEADER)) as producer:
            proxy.lose = 1
            assert (await (await producer.send("orders", b"twice"))).offset == 1
        assert [record.value for record in (await read_all(client, "orders"))[0]] == [b"twice", b"twice"]


async def test_a_batch_that_is_too_large_for_the_topic_is_split(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, configs={"max.message.bytes": "500"})
        async with Producer(client) as producer:
            answers = [await producer.send(topic, b"%0100d" % number) for number in range(50)]
            await producer.flush()
        assert [answer.result().offset for answer in answers] == list(range(50))
        assert [record.value for record in (await read_all(client, topic))[0]] == [b"%0100d" % n for n in range(50)]


async def test_a_record_that_is_refused_fails_alone_and_flush_tells(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, configs={"max.message.bytes": "500"})
        producer = Producer(client)
        answers = [await producer.send(topic, value) for value in (b"a", b"x" * 1000, b"b")]
        with pytest.raises(ServerError, match=r"max\.message\.bytes is 500") as caught:
            await producer.flush()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert isinstance(answers[1].exception(), ServerError)
        # The identity is a new one after that, and its sequences begin again.
        assert (await (await producer.send(topic, b"c"))).offset == 2
        await producer.close()
        assert [record.value for record in (await read_all(client, topic))[0]] == [b"a", b"b", b"c"]


async def test_sending_waits_while_too_much_is_under_way(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        settings = ProducerSettings(buffer_bytes_max=10_000, batch_bytes=2_000)
        most = 0
        async with Producer(client, settings) as producer:
            for _ in range(100):
                await producer.send(topic, bytes(1000))
                most = max(most, producer.buffered_bytes)
        assert 10_000 <= most < 12_000
        assert producer.buffered_bytes == 0


async def test_records_without_a_key_spread_over_the_partitions_batch_by_batch(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=3)
        async with Producer(client, ProducerSettings(batch_bytes=1000)) as producer:
            answers = [await producer.send(topic, bytes(100)) for _ in range(300)]
            await producer.flush()
        places = [answer.result().partition for answer in answers]
        changes = sum(before != after for before, after in itertools.pairwise(places))
        assert set(places) == {0, 1, 2}
        assert changes < 60  # not for every record


async def test_a_wrong_partition_or_time_is_refused_at_once(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        async with Producer(client) as producer:
            with pytest.raises(ServerError, match="has 1 partitions, asked for partition 5"):
                await producer.send(topic, b"", partition=5)
            with pytest.raises(InvalidTimestamp, match="-1 is out of range"):
                await producer.send(topic, b"", timestamp_ms=-1)


async def test_a_producer_that_is_closed_refuses_and_fails_what_it_had_not_sent(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        producer = Producer(client, ProducerSettings(linger_s=60))
        answer = await producer.send(topic, b"never")
        await producer.abort()
        with pytest.raises(ProducerClosed, match="before this record was sent"):
            await answer
        with pytest.raises(ProducerClosed, match="create a new one"):
            await producer.send(topic, b"late")


async def test_many_senders_share_a_producer(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=2)
        async with Producer(client) as producer:

            async def publish(number: int) -> Published:
                return await (await producer.send(topic, b"%d" % number, key=b"%d" % number))

            places = await asyncio.gather(*(publish(number) for number in range(200)))
        assert len(set(places)) == 200
        held = await log_ranges(client, [TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert sum(span.end for span in held.values()) == 200
