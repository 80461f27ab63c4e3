import asyncio
from pathlib import Path

import pytest

from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.consumer import Consumer, ConsumerSettings, read_batches
from penstock.client.errors import ServerError
from penstock.client.offsets import LogRange, Origin, Start, When, list_offsets, log_ranges, resolve_start
from penstock.client.producer import Producer, ProducerSettings
from penstock.foundation.errors import CorruptMessage, OffsetOutOfRange
from penstock.foundation.ids import TopicPartition
from penstock.records.build import Record, build_batch, skip_marker
from penstock.records.compression import Codec
from tests.ports import free_port

from .nodes import LOCAL, running_node


async def publish(client: KafkaClient, topic: str, values: list[bytes], *, batch_bytes: int = 64 << 10) -> None:
    """One second apart, from 1,700,000,000,000 on."""
    async with Producer(client, ProducerSettings(batch_bytes=batch_bytes)) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=0, timestamp_ms=1_700_000_000_000 + 1000 * number)


async def read_to(consumer: Consumer, name: TopicPartition, end: int) -> list[Record]:
    records: list[Record] = []
    while consumer.position(name) < end:
        records += [record for _, record in await consumer.poll()]
    return records


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (Start(Origin.EARLIEST), 0),
        (Start(Origin.OFFSET, 4), 4),
        (Start(Origin.BACK, 3), 7),
        (Start(Origin.BACK, 300), 0),
        (Start(Origin.TIME, 1_700_000_005_500), 6),
        (Start(Origin.TIME, 1), 0),
    ],
)
async def test_reading_starts_where_it_was_asked_to(bootstrap: str, topic: str, start: Start, first: int) -> None:
    name = TopicPartition(topic, 0)
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        await publish(client, topic, [b"%d" % number for number in range(10)])
        consumer = Consumer(client)
        consumer.assign(await resolve_start(client, start, await log_ranges(client, [name])))
        records = await read_to(consumer, name, 10)
        await consumer.close()
        assert [record.offset for record in records] == list(range(first, 10))
        assert [record.value for record in records] == [b"%d" % number for number in range(first, 10)]


@pytest.mark.parametrize("start", [Start(Origin.LATEST), Start(Origin.TIME, 9_000_000_000_000)])
async def test_reading_from_the_end_shows_only_what_comes_after(bootstrap: str, topic: str, start: Start) -> None:
    name = TopicPartition(topic, 0)
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        await publish(client, topic, [b"old"])
        consumer = Consumer(client)
        consumer.assign(await resolve_start(client, start, await log_ranges(client, [name])))
        await publish(client, topic, [b"new"])
        assert [record.value for record in await read_to(consumer, name, 2)] == [b"new"]
        assert consumer.high_watermarks[name] == 2
        await consumer.close()


async def test_an_offset_must_be_in_one_partition_and_the_others_start_at_their_nearer_end() -> None:
    names = [TopicPartition("t", number) for number in range(3)]
    held = dict(zip(names, [LogRange(0, 10), LogRange(5, 100), LogRange(40, 50)], strict=True))
    client = KafkaClient("127.0.0.1:1")  # is not asked anything
    assert list((await resolve_start(client, Start(Origin.OFFSET, 20), held)).values()) == [10, 20, 40]
    with pytest.raises(OffsetOutOfRange, match="offset 101 is not there; t-0 holds 0 to 10, t-1 holds 5 to 100"):
        await resolve_start(client, Start(Origin.OFFSET, 101), held)


async def test_a_fetch_that_ends_inside_a_batch_goes_on_with_that_batch(bootstrap: str, topic: str) -> None:
    """Small limits cut answers in the middle of batches; batches that are larger than the limit come all the same."""
    name = TopicPartition(topic, 0)
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        values = [bytes([number]) * (10 if number % 3 else 900) for number in range(90)]
        await publish(client, topic, values, batch_bytes=400)
        consumer = Consumer(client, ConsumerSettings(partition_max_bytes=700, max_bytes=700))
        consumer.assign({name: 0})
        records = await read_to(consumer, name, 90)
        await consumer.close()
        assert [record.value for record in records] == values


async def test_no_partition_is_starved_by_a_limit_that_others_fill(bootstrap: str, topic: str) -> None:
    names = [TopicPartition(topic, number) for number in range(4)]
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=4)
        async with Producer(client, ProducerSettings(batch_bytes=1000)) as producer:
            for number in range(400):
                await producer.send(topic, bytes(100), partition=number % 4)
        consumer = Consumer(client, ConsumerSettings(partition_max_bytes=500, max_bytes=500))
        consumer.assign(dict.fromkeys(names, 0))
        turns = [(await consumer.poll())[0].partition for _ in range(8)]
        assert set(turns[:4]) == set(turns[4:]) == set(names)
        await consumer.close()


async def test_a_poll_waits_for_the_next_record_and_returns_when_it_comes(bootstrap: str, topic: str) -> None:
    name = TopicPartition(topic, 0)
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        consumer = Consumer(client, ConsumerSettings(max_wait_ms=60_000))
        consumer.assign({name: 0})
        polling = asyncio.create_task(consumer.poll())
        await publish(client, topic, [b"at last"])
        async with asyncio.timeout(10):
            assert [record.value for _, record in await polling] == [b"at last"]
        await consumer.close()


async def test_a_poll_with_nothing_to_read_comes_back_empty(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        consumer = Consumer(client, ConsumerSettings(max_wait_ms=1))
        assert await consumer.poll() == []
        consumer.assign({TopicPartition(topic, 0): 0})
        assert await consumer.poll() == []
        await consumer.close()


async def test_a_partition_that_is_dropped_or_moved_while_it_is_polled_shows_nothing_old(
    bootstrap: str, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        await publish(client, topic, [b"%d" % number for number in range(10)])
        consumer = Consumer(client)
        consumer.assign({name: 0})
        polling = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0)
        consumer.assign({name: 8})
        assert await polling == []
        assert [record.value for record in await read_to(consumer, name, 10)] == [b"8", b"9"]
        consumer.drop(name)
        assert consumer.assigned == []
        await consumer.close()


async def test_an_offset_that_was_trimmed_away_is_an_error_or_is_skipped_as_asked(bootstrap: str, topic: str) -> None:
    name = TopicPartition(topic, 0)
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        await publish(client, topic, [b"%d" % number for number in range(10)])
        await Admin(client).trim({name: 6})
        strict = Consumer(client)
        strict.assign({name: 2})
        with pytest.raises(OffsetOutOfRange, match=f"partition {topic}-0 holds offsets 6 to 10, not 2"):
            await strict.poll()
        await strict.close()
        lenient = Consumer(client, ConsumerSettings(skip_trimmed=True))
        lenient.assign({name: 2})
        assert [record.value for record in await read_to(lenient, name, 10)] == [b"6", b"7", b"8", b"9"]
        lenient.assign({name: 99})  # the future is not trimmed
        with pytest.raises(OffsetOutOfRange, match="holds offsets 6 to 10, not 99"):
            await lenient.poll()
        await lenient.close()


async def test_a_reader_goes_on_where_it_was_after_its_broker_was_restarted(tmp_path: Path) -> None:
    port = free_port()
    name = TopicPartition("orders", 0)
    async with running_node(tmp_path, port=port):
        client = KafkaClient(f"{LOCAL}:{port}")
        await Admin(client).create("orders")
        await publish(client, "orders", [b"1", b"2"])
        consumer = Consumer(client)
        consumer.assign({name: 0})
        assert len(await read_to(consumer, name, 2)) == 2
        polling = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0)
    async with running_node(tmp_path, port=port):
        await publish(client, "orders", [b"3"])
        assert [record.value for _, record in await polling] == [b"3"]
        await consumer.close()
        await client.close()


async def test_a_topic_that_is_deleted_while_it_is_read_ends_the_reading(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        consumer = Consumer(client, ConsumerSettings(max_wait_ms=60_000))
        consumer.assign({TopicPartition(topic, 0): 0})
        polling = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0)
        await Admin(client).delete(topic)
        with pytest.raises(ServerError, match=f"there is no topic '{topic}'"):
            await polling
        await consumer.close()


async def test_offsets_are_listed_by_time_and_at_both_ends(bootstrap: str, topic: str) -> None:
    names = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=2)
        await publish(client, topic, [b"a", b"b"])
        assert [found.offset for found in (await list_offsets(client, names, When.EARLIEST)).values()] == [0, 0]
        assert [found.offset for found in (await list_offsets(client, names, When.LATEST)).values()] == [2, 0]
        found = await list_offsets(client, names, 1_700_000_000_500)
        assert found[names[0]] == (1, 1_700_000_001_000)
        assert found[names[1]].offset == -1


# -- answers as bytes

NAME = TopicPartition("t", 0)


def batch(base_offset: int, *values: bytes) -> bytes:
    records = [Record(key=None, value=value, timestamp_ms=0) for value in values]
    return bytes(build_batch(records, base_offset=base_offset, codec=Codec.ZSTD))


def test_records_before_the_asked_offset_are_left_out_and_a_cut_batch_waits() -> None:
    whole = batch(10, b"a", b"b", b"c") + batch(13, b"d")
    consumed, next_offset = read_batches(NAME, whole + batch(14, b"e")[:-1], 11)
    assert [(name, record.offset, record.value) for name, record in consumed] == [
        (NAME, 11, b"b"),
        (NAME, 12, b"c"),
        (NAME, 13, b"d"),
    ]
    assert next_offset == 14
    assert read_batches(NAME, batch(14, b"e")[:40], 14) == ([], 14)


def test_a_control_batch_shows_nothing_and_is_passed() -> None:
    consumed, next_offset = read_batches(NAME, batch(0, b"a") + skip_marker(41, 0), 0)
    assert [record.value for _, record in consumed] == [b"a"]
    assert next_offset == 42


def test_a_batch_with_a_wrong_crc_is_an_error_that_names_its_place() -> None:
    damaged = bytearray(batch(7, b"hello"))
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage, match=r"partition t-0 is damaged at offset 7: .* CRC"):
        read_batches(NAME, damaged, 7)
