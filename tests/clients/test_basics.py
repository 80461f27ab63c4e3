"""Every client library does the basics: create, produce, consume, list offsets, alter, trim, delete.

Not possible with kcat, and so tested with the others only: altering settings, trimming, deleting (driver_kcat.py).
"""

import random
import time

import pytest

from .driver_confluent import ConfluentDriver
from .drivers import COMPRESSIONS, NOW_MS, AdminDriver, Driver, Outgoing
from .raw import RawClient

TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5
"""Sources in DescribeConfigs."""
MEGABYTE = 1_000_000


def contents(messages: list) -> list[tuple]:
    return [(message.key, message.value, message.headers) for message in messages]


def numbered(count: int) -> list[Outgoing]:
    return [Outgoing(value=b"message %d" % number) for number in range(count)]


def seconds_apart(count: int) -> list[Outgoing]:
    return [Outgoing(value=b"%d" % second, timestamp_ms=NOW_MS + 1000 * second) for second in range(count)]


def test_a_client_makes_a_topic_by_asking_for_it(client: Driver, topic: str, raw: RawClient) -> None:
    client.create_topic(topic)
    assert raw.describe(topic).error_code == 0
    assert client.range(topic) == (0, 0)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_produced_messages_are_consumed(client: Driver, topic: str, compression: str) -> None:
    if compression not in client.compressions:
        pytest.skip(f"{client.name} has no {compression} here: pip install python-snappy")
    sent = [Outgoing(key=b"key %d" % (number % 7), value=b"value %d " % number * 20) for number in range(300)]
    client.produce(topic, sent, compression=compression)
    got = client.consume_from_start(topic, len(sent))
    assert contents(got) == contents(sent)
    assert [message.offset for message in got] == list(range(len(sent)))
    assert all(NOW_MS <= message.timestamp_ms <= time.time_ns() // 1_000_000 for message in got)


def test_an_idempotent_producer_writes_everything_once_and_in_order(client: Driver, topic: str) -> None:
    sent = numbered(1000)
    client.produce(topic, sent, idempotent=True)
    assert contents(client.consume_from_start(topic, len(sent))) == contents(sent)
    assert client.range(topic) == (0, len(sent))


def test_headers_null_keys_and_null_values_arrive_as_they_were_sent(client: Driver, topic: str) -> None:
    # A header's name may repeat; no library here sends a null value without a key.
    some = (("trace", b"abc"), ("trace", b"def"), ("empty", b""), ("unicode \u00fc", "\u20ac".encode()))
    sent = [
        Outgoing(key=b"key", value=b"with headers", headers=some),
        Outgoing(key=None, value=b"no key"),
        Outgoing(key=b"tombstone", value=None),
        Outgoing(key=b"tombstone", value=None, headers=some),
    ]
    client.produce(topic, sent)
    assert contents(client.consume_from_start(topic, len(sent))) == contents(sent)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_messages_of_a_megabyte_go_through(client: Driver, topic: str, compression: str, rng: random.Random) -> None:
    # Hexadecimal, so that kcat can show it; compression halves it.
    sent = [Outgoing(value=rng.randbytes(MEGABYTE // 2).hex().encode()) for _ in range(3)]
    client.produce(topic, sent, compression=compression)
    assert contents(client.consume_from_start(topic, len(sent))) == contents(sent)


def test_a_consumer_begins_at_an_offset(client: Driver, topic: str) -> None:
    client.produce(topic, numbered(20))
    assert [message.offset for message in client.consume(topic, 7, 13)] == list(range(7, 20))


def test_a_consumer_begins_at_the_end(client: Driver, topic: str) -> None:
    client.produce(topic, numbered(3))
    got = client.consume_new(topic, 1, lambda: client.produce(topic, [Outgoing(value=b"news")]))
    assert [(message.offset, message.value) for message in got] == [(3, b"news")]


def test_a_consumer_begins_at_a_time(client: Driver, confluent: ConfluentDriver, topic: str) -> None:
    confluent.produce(topic, seconds_apart(10))
    assert client.consume_from_time(topic, NOW_MS + 4000, 1)[0].value == b"4"
    assert client.consume_from_time(topic, NOW_MS + 4001, 1)[0].value == b"5"


def test_offsets_are_listed(client: Driver, confluent: ConfluentDriver, topic: str) -> None:
    confluent.produce(topic, seconds_apart(10))
    confluent.trim(topic, 2)
    assert client.range(topic) == (2, 10)
    assert client.offset_at(topic, NOW_MS + 5000) == 5


def test_settings_of_a_topic_are_altered(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic)
    value, source = admin_client.config(topic, "retention.ms")
    assert (value, source) == (str(7 * 86_400_000), DEFAULT_CONFIG)
    admin_client.alter_configs(topic, {"retention.ms": "86400000"})
    assert admin_client.config(topic, "retention.ms") == ("86400000", TOPIC_CONFIG)


def test_a_topic_is_trimmed(admin_client: AdminDriver, topic: str) -> None:
    admin_client.produce(topic, numbered(10))
    assert admin_client.trim(topic, 4) == 4
    assert admin_client.range(topic) == (4, 10)
    assert [message.offset for message in admin_client.consume_from_start(topic, 6)] == [4, 5, 6, 7, 8, 9]


def test_a_topic_is_deleted(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic, partitions=3)
    assert topic in admin_client.topics()
    admin_client.delete_topic(topic)
    assert topic not in admin_client.topics()
