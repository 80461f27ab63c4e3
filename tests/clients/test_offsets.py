"""Offsets, order and timestamps of consumers."""

import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition

from penstock.records.compression import Codec
from tests.brokers import BrokerProcess

from .conftest import name_of
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver
from .drivers import COMPRESSIONS, NOW_MS, AdminDriver, Driver, Outgoing
from .raw import RawClient, batch_of, records_of
from .waiting import PATIENCE_S

PARTITIONS = 3
BATCH = 10


def values(messages: list) -> list[bytes]:
    return [message.value for message in messages]


def test_offsets_are_contiguous_and_order_is_kept_in_each_partition(
    client: Driver, topic: str, raw: RawClient
) -> None:
    ConfluentDriver(client.bootstrap).create_topic(topic, PARTITIONS)
    sent = [Outgoing(value=b"%d" % number, partition=number % PARTITIONS) for number in range(300)]
    # kcat writes one partition a run.
    client.produce(topic, sorted(sent, key=lambda message: message.partition) if client.name == "kcat" else sent)
    for partition in range(PARTITIONS):
        got = client.consume(topic, 0, 100, partition)
        assert values(got) == [b"%d" % number for number in range(partition, 300, PARTITIONS)]
        assert [message.offset for message in got] == list(range(100))
        assert raw.fetch(topic, 0, partition).high_watermark == 100


def test_two_producers_on_one_partition_each_keep_their_order(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    producers = [confluent.producer(linger_ms=0, enable_idempotence=True) for _ in range(2)]
    offsets: list[int] = []
    for number in range(200):
        for name, producer in enumerate(producers):
            producer.produce(
                topic, b"%d %d" % (name, number), on_delivery=lambda _, sent: offsets.append(sent.offset())
            )
            producer.poll(0)
    assert [producer.flush(PATIENCE_S) for producer in producers] == [0, 0]
    assert sorted(offsets) == list(range(400))
    got = [value.split() for value in values(confluent.consume(topic, 0, 400))]
    for name in (b"0", b"1"):
        assert [int(number) for who, number in got if who == name] == list(range(200))


@pytest.fixture(scope="module")
def batches_by_codec(broker: BrokerProcess) -> str:
    """A topic with two batches in each partition, and another codec in each."""
    topic = "middle-of-a-batch"
    ConfluentDriver(broker.kafka).create_topic(topic, len(COMPRESSIONS))
    with RawClient(broker.address) as raw:
        for partition, compression in enumerate(COMPRESSIONS):
            for first in (0, BATCH):
                some = [b"value %d" % number for number in range(first, first + BATCH)]
                answer = raw.produce(topic, batch_of(some, codec=Codec[compression.upper()]), partition)
                assert (answer.error_code, answer.base_offset) == (0, first)
    return topic


@pytest.mark.parametrize("start", [3, BATCH - 1, BATCH, BATCH + 7])
def test_a_fetch_from_the_middle_of_a_batch_gives_exactly_the_records_from_there_on(
    client: Driver, batches_by_codec: str, start: int
) -> None:
    for partition, compression in enumerate(COMPRESSIONS):
        if compression not in client.compressions:
            continue
        got = client.consume(batches_by_codec, start, 2 * BATCH - start, partition)
        expected = [(offset, b"value %d" % offset) for offset in range(start, 2 * BATCH)]
        assert [(message.offset, message.value) for message in got] == expected, compression


def test_a_fetch_in_the_middle_of_a_batch_is_answered_with_the_whole_batch(
    raw: RawClient, batches_by_codec: str
) -> None:
    """Clients skip what they did not ask for; the broker does not open batches."""
    for partition in range(len(COMPRESSIONS)):
        data = raw.fetch(batches_by_codec, BATCH + 4, partition)
        assert [record.offset for record in records_of(data.records)] == list(range(BATCH, 2 * BATCH))


def test_times_are_the_producers_by_default(confluent: ConfluentDriver, topic: str) -> None:
    confluent.produce(topic, [Outgoing(value=b"x", timestamp_ms=NOW_MS - 12_345)])
    with confluent.consumer() as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(PATIENCE_S).timestamp() == (TIMESTAMP_CREATE_TIME, NOW_MS - 12_345)


def test_a_topic_with_log_append_time_has_the_brokers_timestamps(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    before_ms = time.time_ns() // 1_000_000
    for compression in ("none", "gzip"):
        sent = [Outgoing(value=b"%d" % number, timestamp_ms=1000 + number) for number in range(5)]
        admin_client.produce(topic, sent, compression=compression)
    after_ms = time.time_ns() // 1_000_000
    got = admin_client.consume(topic, 0, 10)
    assert values(got) == [b"0", b"1", b"2", b"3", b"4"] * 2
    assert all(before_ms <= message.timestamp_ms <= after_ms for message in got)
    assert admin_client.offset_at(topic, before_ms) == 0
    assert admin_client.offset_at(topic, got[5].timestamp_ms) == min(
        message.offset for message in got if message.timestamp_ms >= got[5].timestamp_ms
    )


def test_producers_and_consumers_get_the_timestamp_type(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    reports = []
    producer = confluent.producer()
    producer.produce(topic, b"x", timestamp=1000, on_delivery=lambda _, sent: reports.append(sent.timestamp()))
    assert producer.flush(PATIENCE_S) == 0
    with confluent.consumer() as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        kind, timestamp_ms = consumer.poll(PATIENCE_S).timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert reports == [(TIMESTAMP_LOG_APPEND_TIME, timestamp_ms)]


# Offsets 0 to 5, in two batches; times go back and forth, as producers' clocks do.
TIMES = [NOW_MS + 100, NOW_MS + 300, NOW_MS + 200, NOW_MS + 250, NOW_MS + 500, NOW_MS + 400]


@pytest.fixture(scope="module", params=["none", "zstd"])
def times(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    topic = f"times-{request.param}"
    driver = ConfluentDriver(broker.kafka)
    for half in (TIMES[:3], TIMES[3:]):
        sent = [Outgoing(value=b"some value", timestamp_ms=timestamp_ms) for timestamp_ms in half]
        driver.produce(topic, sent, compression=request.param)
    return topic


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [
        pytest.param(0, 0, id="before-all"),
        pytest.param(TIMES[0], 0, id="equal-to-the-first"),
        pytest.param(TIMES[0] + 1, 1, id="between"),
        pytest.param(TIMES[1], 1, id="equal-inside-a-batch"),
        pytest.param(TIMES[1] + 1, 4, id="in-the-next-batch"),
        pytest.param(TIMES[4], 4, id="equal-to-the-latest"),
        pytest.param(TIMES[4] + 1, None, id="after-all"),
    ],
)
def test_the_first_offset_at_or_after_a_time_is_found(
    client: Driver, times: str, timestamp_ms: int, offset: int | None
) -> None:
    assert client.offset_at(times, timestamp_ms) == offset


@pytest.mark.parametrize("driver", [ConfluentDriver, KafkaPythonDriver], ids=name_of)
def test_the_record_with_the_latest_time_is_found(broker: BrokerProcess, times: str, driver: type) -> None:
    """aiokafka and kcat cannot ask for it."""
    assert driver(broker.kafka).offset_of_latest_time(times) == 4


def test_an_empty_topic_has_no_offset_at_any_time(client: Driver, topic: str) -> None:
    ConfluentDriver(client.bootstrap).create_topic(topic)
    assert client.range(topic) == (0, 0)
    assert client.offset_at(topic, 0) is None
