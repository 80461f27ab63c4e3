"""What a follower that lags gets of a throttled leader: a raw client stands for the follower."""

import time

from confluent_kafka.admin import ResourceType

from penstock.records.batch import batches
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .raw import FETCH_VERSION, RawClient, batch_of
from .waiting import PATIENCE_S

FOLLOWER = 2
RATE = 200_000
LEADERS = "leader.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
NOT_EXPRESS = {"flush": "group"}
"""A partition that has no followers, as these have none in truth, is read on the express lane by whoever asks."""


def follow(raw: RawClient, topic: str, offset: int, max_wait_ms: int = 200) -> bytes:
    """What follower 2, which is not in the ISR, gets from an offset on."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=FOLLOWER,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    data = raw.ask(request, FETCH_VERSION).responses[0].partitions[0]
    assert data.error_code == 0
    return bytes(data.records)


def next_offset(data: bytes, offset: int) -> int:
    for _, header in batches(data):
        offset = header.next_offset
    return offset


def test_a_follower_that_lags_gets_no_more_than_the_rate(own_broker: object) -> None:
    broker: BrokerProcess = own_broker()  # type: ignore[operator]
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic("orders", configs={LEADERS: "0:1", **NOT_EXPRESS})
    with RawClient(broker.address) as raw:
        for _ in range(30):
            assert raw.produce("orders", batch_of([b"x" * 50_000])).error_code == 0
        confluent.incremental(ResourceType.BROKER, "1", [(LEADER_RATE, "SET", str(RATE))])
        began_s, got, offset, largest = time.monotonic(), 0, 0, 0
        while offset < 30:
            data = follow(raw, "orders", offset)
            offset, got, largest = next_offset(data, offset), got + len(data), max(largest, len(data))
            # Never more than the rate, a second's worth saved up, and what went whole.
            assert got <= RATE * (time.monotonic() - began_s + 1) + 60_000
            assert time.monotonic() - began_s < 3 * PATIENCE_S
        assert largest <= RATE + 60_000
        assert broker.metric("penstock_throttled_bytes_total") == got


def test_by_a_rate_of_nothing_a_follower_waits_and_a_consumer_does_not(own_broker: object) -> None:
    broker: BrokerProcess = own_broker()  # type: ignore[operator]
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic("orders", configs={LEADERS: "*", **NOT_EXPRESS})
    confluent.incremental(ResourceType.BROKER, "1", [(LEADER_RATE, "SET", "0")])
    with RawClient(broker.address) as raw:
        raw.produce("orders", batch_of([b"hello"]))
        began_s = time.monotonic()
        assert follow(raw, "orders", 0, max_wait_ms=300) == b""
        assert time.monotonic() - began_s >= 0.25, "it waits for its time to be up"
        assert raw.fetch("orders", 0).records
        confluent.incremental(ResourceType.TOPIC, "orders", [(LEADERS, "SET", "0:7")])
        assert follow(raw, "orders", 0)


def test_a_follower_that_waits_is_answered_when_it_may_have_more(own_broker: object) -> None:
    broker: BrokerProcess = own_broker()  # type: ignore[operator]
    confluent = ConfluentDriver(broker.kafka)
    confluent.create_topic("orders", configs={LEADERS: "0:1", **NOT_EXPRESS})
    with RawClient(broker.address) as raw:
        raw.produce("orders", batch_of([b"x" * 50_000]))
        raw.produce("orders", batch_of([b"y" * 50_000]))
        confluent.incremental(ResourceType.BROKER, "1", [(LEADER_RATE, "SET", "50000")])
        first = follow(raw, "orders", 0, max_wait_ms=15_000)
        assert next_offset(first, 0) == 1, "one batch, though there are two"
        assert next_offset(follow(raw, "orders", 1, max_wait_ms=15_000), 1) == 2
