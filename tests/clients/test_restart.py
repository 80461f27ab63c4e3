"""A broker that is stopped or killed, and started again, continues where it was."""

import asyncio
import gc
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka import Message as ProducedMessage

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.brokers import BrokerProcess

from .conftest import ADMIN_DRIVERS, INSTALLED_DRIVERS, name_of
from .driver_aiokafka import AiokafkaDriver
from .driver_aiokafka import TopicPartition as AiokafkaPartition
from .driver_aiokafka import read as read_with_aiokafka
from .driver_confluent import ConfluentDriver, read
from .driver_kafka_python import KafkaPythonDriver
from .driver_kafka_python import TopicPartition as KafkaPythonPartition
from .driver_kafka_python import read as read_with_kafka_python
from .drivers import NOW_MS, Driver, Message, Outgoing
from .raw import FETCH_VERSION, RawClient, batch_of, fetch_request
from .waiting import PATIENCE_S

CONFIGS = {
    "small-segments": {"segment.bytes": "2048"},
    "flushed": {"flush": "group"},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "zstd"},
}


def end(broker: BrokerProcess, how: str) -> None:
    {"stopped": broker.stop, "killed": broker.kill}[how]()


@pytest.fixture(params=["stopped", "killed"])
def restart(request: pytest.FixtureRequest) -> Callable[[BrokerProcess], None]:
    """Ends a broker, gracefully or not, and starts it again."""

    def run(broker: BrokerProcess) -> None:
        end(broker, request.param)
        broker.start()

    return run


def test_everything_that_was_acknowledged_is_there_and_offsets_go_on(
    own_broker: Callable[..., BrokerProcess], restart: Callable[[BrokerProcess], None]
) -> None:
    """Each client has a topic of its own; those with other settings are confluent-kafka's."""
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    clients: dict[str, Driver] = {driver.name: driver(broker.kafka) for driver in INSTALLED_DRIVERS}
    clients |= dict.fromkeys(CONFIGS, confluent)
    sent = [Outgoing(key=b"%d" % number, value=b"value %d" % number, headers=(("h", b"v"),)) for number in range(100)]
    before: dict[str, list[Message]] = {}
    for topic, client in clients.items():
        confluent.create_topic(topic, configs=CONFIGS.get(topic))
        client.produce(topic, sent, compression="gzip", idempotent=True)
        before[topic] = client.consume(topic, 0, 100)
    described = {topic: confluent.config(topic, "segment.bytes") for topic in CONFIGS}
    restart(broker)
    assert confluent.topics() - {"__consumer_offsets"} == set(clients)
    assert described == {topic: confluent.config(topic, "segment.bytes") for topic in CONFIGS}
    for topic, client in clients.items():
        client.produce(topic, [Outgoing(key=b"k", value=b"after")])
        after = client.consume(topic, 0, 101)
        assert after[:100] == before[topic]
        assert (after[100].offset, after[100].value) == (100, b"after")


def test_a_trim_and_a_deletion_are_not_undone(
    own_broker: Callable[..., BrokerProcess], restart: Callable[[BrokerProcess], None]
) -> None:
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    for topic in ("kept", "deleted"):
        confluent.produce(topic, [Outgoing(value=b"%d" % number) for number in range(10)])
    confluent.trim("kept", 7)
    confluent.delete_topic("deleted")
    restart(broker)
    assert confluent.topics() == {"kept"}
    assert confluent.range("kept") == (7, 10)
    confluent.produce("deleted", [Outgoing(value=b"made again")])
    assert confluent.range("deleted") == (0, 1)


def test_a_producer_is_remembered(
    own_broker: Callable[..., BrokerProcess], restart: Callable[[BrokerProcess], None]
) -> None:
    broker = own_broker()
    ConfluentDriver(broker.kafka).create_topic("orders")

    def batch(sequence: int, epoch: int = 1) -> bytearray:
        return batch_of([b"x", b"y"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    with RawClient(broker.address) as raw:
        producer_id = raw.producer_id()
        assert [raw.produce("orders", batch(2 * number)).base_offset for number in range(3)] == [0, 2, 4]
    restart(broker)
    with RawClient(broker.address) as raw:
        again = raw.produce("orders", batch(4))
        assert (again.error_code, again.base_offset) == (0, 4)
        assert raw.produce("orders", batch(8)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert raw.produce("orders", batch(6, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert raw.produce("orders", batch(6)).base_offset == 6
        assert raw.fetch("orders", 0).high_watermark == 8
        assert raw.producer_id() > producer_id


@pytest.mark.parametrize(("flush", "how"), [("os", "killed"), ("group", "killed"), ("group", "stopped")])
def test_a_producer_writes_everything_once_while_the_broker_is_restarted_again_and_again(
    own_broker: Callable[..., BrokerProcess], flush: str, how: str
) -> None:
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic("orders", configs={"flush": flush})
    producer = confluent.producer(
        enable_idempotence=True,
        linger_ms=0,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=100,
        retry_backoff_ms=10,
    )
    delivered: list[tuple[bytes, int]] = []
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, sent: ProducedMessage) -> None:
        if error is None:
            delivered.append((sent.value(), sent.offset()))
        else:
            errors.append(error)

    for number in range(3000):
        producer.produce("orders", b"%d" % number, on_delivery=on_delivery)
        producer.poll(0)
        if number in (500, 1500):
            end(broker, how)
            broker.start()
    assert producer.flush(PATIENCE_S) == 0
    assert errors == []
    assert confluent.range("orders") == (0, 3000)
    got = confluent.consume("orders", 0, 3000)
    assert [message.value for message in got] == [b"%d" % number for number in range(3000)]
    assert sorted(delivered, key=lambda pair: pair[1]) == [(message.value, message.offset) for message in got]


def values(messages: list[Message]) -> list[bytes]:
    return [message.value for message in messages]


def consuming(driver: Driver, topic: str) -> Iterator[list[bytes]]:
    """What one consumer, opened once, reads: two messages each time it is asked."""
    if isinstance(driver, ConfluentDriver):
        with driver.consumer(reconnect_backoff_max_ms=100) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            while True:
                yield values(read(consumer, 2))
    elif isinstance(driver, KafkaPythonDriver):
        with driver.consumer(reconnect_backoff_max_ms=100) as consumer:
            consumer.assign([KafkaPythonPartition(topic, 0)])
            consumer.seek(KafkaPythonPartition(topic, 0), 0)
            while True:
                yield values(read_with_kafka_python(consumer, 2))
    else:
        assert isinstance(driver, AiokafkaDriver)
        with asyncio.Runner() as runner:
            opened = driver.consumer()
            consumer = runner.run(opened.__aenter__())
            place = AiokafkaPartition(topic, 0)

            async def begin() -> None:
                consumer.assign([place])
                consumer.seek(place, 0)

            runner.run(begin())
            try:
                while True:
                    yield values(runner.run(read_with_aiokafka(consumer, 2)))
            finally:
                runner.run(opened.__aexit__(None, None, None))


@pytest.mark.parametrize("driver", ADMIN_DRIVERS, ids=name_of)
def test_a_consumer_goes_on_after_a_restart_and_sees_everything_once(
    own_broker: Callable[..., BrokerProcess], driver: type, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="kafka")  # what it logs would hold those sockets beyond the test
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    consumer = consuming(driver(broker.kafka), "orders")
    for how in ("stopped", "killed", "not at all"):
        confluent.produce("orders", [Outgoing(value=b"%s 1" % how.encode()), Outgoing(value=b"%s 2" % how.encode())])
        assert next(consumer) == [b"%s 1" % how.encode(), b"%s 2" % how.encode()]
        if how != "not at all":
            end(broker, how)
            broker.start()
    consumer.close()
    gc.collect()  # while those warnings are ignored


def test_a_broker_stops_soon_though_consumers_wait(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    ConfluentDriver(broker.kafka).create_topic("quiet")
    with RawClient(broker.address) as raw:
        raw.send(fetch_request("quiet", {0: 0}, max_wait_ms=60_000), FETCH_VERSION)
        began_s = time.monotonic()
        broker.stop()
        assert time.monotonic() - began_s < 40, "it does not wait for them"
        assert raw.is_closed_by_the_broker()


def test_a_client_with_an_older_leader_epoch_gets_an_error(own_broker: Callable[..., BrokerProcess]) -> None:
    """Every start is a new leader epoch, and where the older one ended can be asked (KIP-320)."""
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    confluent.produce("orders", [Outgoing(value=b"%d" % number) for number in range(5)])
    with RawClient(broker.address) as raw:
        old = raw.describe("orders").partitions[0].leader_epoch
    broker.stop()
    broker.start()
    confluent.produce("orders", [Outgoing(value=b"after")])
    with RawClient(broker.address) as raw:
        new = raw.describe("orders").partitions[0].leader_epoch
        assert new > old
        for epoch, code in (
            (old, ErrorCode.FENCED_LEADER_EPOCH),
            (new, 0),
            (new + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            wanted = FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=epoch
            )
            request = FetchRequest(
                max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[wanted])]
            )
            assert raw.ask(request, FETCH_VERSION).responses[0].partitions[0].error_code == code
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=old)
        topics = [OffsetForLeaderTopic(topic="orders", partitions=[asked])]
        (answer,) = raw.ask(OffsetForLeaderEpochRequest(topics=topics), 4).topics[0].partitions
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, old, 5)


def fetch_as_of(raw: RawClient, epoch: int) -> int:
    """The error of a fetch by a client that knows a leader epoch."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="orders", partitions=[wanted])])
    return raw.ask(request, FETCH_VERSION).responses[0].partitions[0].error_code


def test_messages_keep_their_times_through_a_restart(
    own_broker: Callable[..., BrokerProcess], restart: Callable[[BrokerProcess], None]
) -> None:
    broker = own_broker()
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic("orders", configs={"segment.bytes": "1024"})
    with RawClient(broker.address) as raw:
        for number in range(50):
            raw.produce("orders", batch_of([bytes(100)], timestamp_ms=NOW_MS + 1000 * number))
    restart(broker)
    assert confluent.offset_at("orders", NOW_MS + 20_500) == 21
    assert confluent.offset_of_latest_time("orders") == 49


def test_a_start_that_fails_does_not_forget_that_the_machine_lost_power(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    """Or the next one would be counted on for what may be gone."""
    broker = own_broker()
    noted = broker.data_dir / "last-run"

    def note() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(noted.read_text())
        return found

    broker.kill()
    boot_id = note()["boot_id"]
    noted.write_text(json.dumps({"boot_id": "another", "ended": False}).ljust(256))
    with socket.create_server(broker.address), pytest.raises(AssertionError, match="cannot listen"):
        broker.start()
    assert note() == {"boot_id": boot_id, "ended": False, "doubtful": True}
    broker.start()
    assert note() == {"boot_id": boot_id, "ended": False, "doubtful": False}
    broker.stop()
    assert note() == {"boot_id": boot_id, "ended": True, "doubtful": False}
