from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.client.admin import Admin
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.errors import ConnectionFailed, ServerError, check
from penstock.client.offsets import When, list_offsets
from penstock.client.send_settings import SendSettings
from penstock.client.sender import SenderClosed
from penstock.client.transactional import (
    BatchProducer,
    ProducerFenced,
    TransactionalProducer,
    find_coordinator,
    transaction_states,
)
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.node import Address
from penstock.records.build import Record, build_batch
from penstock.wire.keys import ApiKey
from tests.ports import free_port

from .nodes import LOCAL, ForgetfulProxy, running_node
from .test_producer import read_all

QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}


async def send(producer: BatchProducer, name: TopicPartition, *values: bytes) -> None:
    """One batch of these values."""
    producer_id, epoch, sequence = producer.reserve(name, len(values))
    batch = build_batch(
        [Record(key=None, value=value, timestamp_ms=1_700_000_000_000) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=isinstance(producer, TransactionalProducer),
    )
    await producer.send(name, batch)


async def stable_end(client: KafkaClient, name: TopicPartition) -> int:
    """Where a reader of committed records is held back."""
    return (await list_offsets(client, [name], When.LATEST, committed=True))[name].offset


async def until_stable(client: KafkaClient, name: TopicPartition, offset: int) -> None:
    async def look() -> None:
        found = await stable_end(client, name)
        check(ErrorCode.NONE if found == offset else ErrorCode.OFFSET_NOT_AVAILABLE, f"{found} is not {offset}")

    await client.retrying(look)


async def values(client: KafkaClient, topic: str) -> dict[int, list[bytes | None]]:
    return {
        number: [record.value for record in records] for number, records in (await read_all(client, topic)).items()
    }


async def test_committed_records_can_be_read_and_the_next_transaction_is_independent(
    bootstrap: str, topic: str
) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=2)
        producer = await TransactionalProducer.open(client, f"{topic}-id")
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        before = producer.identity
        await send(producer, first, b"a", b"b")
        await send(producer, second, b"c")
        await send(producer, first, b"d")
        await producer.flush()
        assert (await transaction_states(client, [f"{topic}-id"])) == {f"{topic}-id": "Ongoing"}
        assert await stable_end(client, first) == 0
        await producer.commit()
        await until_stable(client, first, 4)  # three records and the marker
        assert producer.identity.producer_id == before.producer_id
        assert producer.identity.epoch == before.epoch + 1
        assert producer.reserve(first, 0).base_sequence == 0
        await send(producer, first, b"e")
        await producer.commit()
        await until_stable(client, first, 6)
        assert await values(client, topic) == {0: [b"a", b"b", b"d", b"e"], 1: [b"c"]}


async def test_an_aborted_transaction_does_not_delay_readers(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        name = TopicPartition(topic, 0)
        producer = await TransactionalProducer.open(client, f"{topic}-id")
        await send(producer, name, b"never")
        await producer.flush()
        await producer.abort()
        await until_stable(client, name, 2)
        await send(producer, name, b"after")
        await producer.commit()
        await until_stable(client, name, 4)


async def test_nothing_written_is_committed_and_aborted_without_a_transaction(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        producer = await TransactionalProducer.open(client, f"{topic}-id")
        await producer.commit()
        await producer.abort()
        assert (await transaction_states(client, [f"{topic}-id", f"{topic}-unknown"])).keys() == {f"{topic}-id"}


async def test_a_second_producer_of_an_id_fences_the_first(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        name = TopicPartition(topic, 0)
        old = await TransactionalProducer.open(client, f"{topic}-id")
        await send(old, name, b"old")
        await old.flush()
        new = await TransactionalProducer.open(client, f"{topic}-id")
        assert new.identity.epoch > old.identity.epoch
        await send(old, name, b"zombie")
        with pytest.raises(ProducerFenced, match="has another producer now"):
            await old.flush()
        with pytest.raises(ProducerFenced):
            await send(old, name, b"more")
        with pytest.raises(ProducerFenced):
            await old.abort()
        await send(new, name, b"new")
        await new.commit()
        await until_stable(client, name, 4)  # old, its marker, new, its marker


async def test_a_transaction_that_lasts_too_long_is_gone(tmp_path: Path) -> None:
    async with running_node(tmp_path, settings=QUICK) as node, KafkaClient(str(node.listen)) as client:
        await Admin(client).create("orders")
        name = TopicPartition("orders", 0)
        producer = await TransactionalProducer.open(client, "slow", timeout_ms=100)
        await send(producer, name, b"late")
        await producer.flush()
        await until_stable(client, name, 2)
        with pytest.raises(ProducerFenced, match="lasted longer than its timeout"):
            await producer.commit()


async def test_a_timeout_that_the_brokers_do_not_allow_is_named(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        with pytest.raises(
            ServerError, match=r"2000000000 ms is longer than the brokers allow.*max\.timeout"
        ) as caught:
            await TransactionalProducer.open(client, topic, timeout_ms=2_000_000_000)
        assert caught.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_many_batches_are_under_way_and_each_partition_stays_in_order(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=3)
        producer = await TransactionalProducer.open(client, f"{topic}-id")
        for number in range(600):
            await send(producer, TopicPartition(topic, number % 3), b"%d" % number)
        await producer.commit()
        await until_stable(client, TopicPartition(topic, 0), 201)
        assert await values(client, topic) == {
            partition: [b"%d" % number for number in range(partition, 600, 3)] for partition in range(3)
        }


async def test_sending_waits_while_too_much_is_under_way(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        producer = await BatchProducer.open(client, SendSettings(buffer_bytes_max=10_000))
        most = 0
        for _ in range(100):
            await send(producer, TopicPartition(topic, 0), bytes(1000))
            most = max(most, producer.buffered_bytes)
        await producer.flush()
        assert 10_000 <= most < 12_000
        assert producer.buffered_bytes == 0
        assert len((await values(client, topic))[0]) == 100


@asynccontextmanager
async def behind_a_forgetful_proxy(folder: Path) -> AsyncIterator[tuple[KafkaClient, ForgetfulProxy]]:
    async with ForgetfulProxy(ApiKey.PRODUCE) as proxy:
        address = Address(host=LOCAL, port=proxy.port)
        async with running_node(folder, advertise=address) as node:
            proxy.target = node.listen.port
            async with KafkaClient(str(address)) as client:
                await Admin(client).create("orders")
                yield client, proxy


@pytest.mark.parametrize("transactional", [False, True])
async def test_batches_whose_answers_are_lost_are_kept_once_and_in_order(tmp_path: Path, transactional: bool) -> None:
    async with behind_a_forgetful_proxy(tmp_path) as (client, proxy):
        name = TopicPartition("orders", 0)
        producer: BatchProducer
        producer = await (TransactionalProducer.open(client, "id") if transactional else BatchProducer.open(client))
        expected = []
        for lost in (1, 0, 3, 2):
            proxy.lose = lost
            for number in range(8):
                expected.append(b"%d-%d" % (lost, number))
                await send(producer, name, expected[-1])
            await producer.flush()
        if isinstance(producer, TransactionalProducer):
            await producer.commit()
            await until_stable(client, name, len(expected) + 1)
        assert proxy.lost == 6
        assert (await values(client, "orders"))[0] == expected


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_broker_that_is_restarted_in_between_loses_and_doubles_nothing(
    tmp_path: Path, transactional: bool
) -> None:
    port = free_port()
    name = TopicPartition("orders", 0)
    expected = [b"%d" % number for number in range(400)]
    client = KafkaClient(f"{LOCAL}:{port}")
    async with running_node(tmp_path, port=port):
        await Admin(client).create("orders")
        producer: BatchProducer
        producer = await (TransactionalProducer.open(client, "id") if transactional else BatchProducer.open(client))
        await client.topic("orders")
        for value in expected[:200]:
            await send(producer, name, value)
    # Requests in flight or waiting have no broker now; the next one comes at the same address.
    for value in expected[200:]:
        await send(producer, name, value)
    async with running_node(tmp_path, port=port):
        await producer.flush()
        if isinstance(producer, TransactionalProducer):
            await producer.commit()
            await until_stable(client, name, len(expected) + 1)
        assert (await values(client, "orders"))[0] == expected
        await client.close()


async def test_after_a_fatal_error_every_call_raises_it(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, configs={"max.message.bytes": "500"})
        producer = await TransactionalProducer.open(client, f"{topic}-id")
        await send(producer, TopicPartition(topic, 0), bytes(1000))
        with pytest.raises(ServerError, match=r"max\.message\.bytes is 500"):
            await producer.flush()
        with pytest.raises(ServerError, match=r"max\.message\.bytes is 500"):
            await send(producer, TopicPartition(topic, 0), b"small")
        await producer.abort()
        await until_stable(client, TopicPartition(topic, 0), 1)  # nothing but the marker
        await send(producer, TopicPartition(topic, 0), b"small")
        await producer.commit()
        await until_stable(client, TopicPartition(topic, 0), 3)


async def test_a_missing_topic_or_partition_is_reported(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        producer = await BatchProducer.open(client)
        await send(producer, TopicPartition(topic, 0), b"lost")
        with pytest.raises(ServerError, match=f"there is no topic '{topic}'"):
            await producer.flush()
        await producer.close()
        with pytest.raises(ServerError):
            await producer.flush()


async def test_a_producer_that_is_closed_refuses(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        producer = await BatchProducer.open(client)
        await send(producer, TopicPartition(topic, 0), b"perhaps")
        await producer.close()
        with pytest.raises(SenderClosed, match="create a new one"):
            await send(producer, TopicPartition(topic, 0), b"late")


async def test_brokers_that_are_gone_are_waited_for_and_then_named(tmp_path: Path) -> None:
    impatient = ClientSettings(retry_for_s=0.3, backoff_first_s=0.01, backoff_max_s=0.05)
    async with running_node(tmp_path) as node:
        client = KafkaClient(str(node.listen), settings=impatient)
        await Admin(client).create("orders")
        producer = await BatchProducer.open(client, SendSettings(delivery_timeout_s=0.3))
        await client.topic("orders")
        await node.stop()
        await send(producer, TopicPartition("orders", 0), b"nowhere")
        with pytest.raises(ConnectionFailed):
            await producer.flush()
        with pytest.raises(ConnectionFailed):
            await find_coordinator(client, "id")
        await client.close()
