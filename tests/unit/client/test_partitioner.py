import asyncio
import warnings
from random import Random

import pytest
from confluent_kafka import Producer as ConfluentProducer

from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.partitioner import PARTITIONERS, StickyPartitioner, murmur2

with warnings.catch_warnings():
    # kafka-python 3.0 loads its schemas in a way that Python 3.11 warns of, and warnings are errors here.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2 as kafka_python_murmur2


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_has_the_values_of_kafkas_own_tests(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


def test_murmur2_agrees_with_kafka_python_on_keys_of_every_length() -> None:
    rng = Random(1)
    for length in range(70):
        key = rng.randbytes(length)
        assert murmur2(key) == kafka_python_murmur2(key) % 2**32


@pytest.mark.parametrize(("theirs_is", "ours_is"), [("murmur2_random", "murmur2"), (None, "consistent")])
async def test_keys_land_where_librdkafka_puts_them(
    bootstrap: str, topic: str, theirs_is: str | None, ours_is: str
) -> None:
    keys = [f"customer-{number}".encode() for number in range(50)] + [b""]
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=7)
    theirs: dict[bytes, int] = {}
    config = {"bootstrap.servers": bootstrap}
    producer = ConfluentProducer(config if theirs_is is None else {**config, "partitioner": theirs_is})
    for key in keys:
        producer.produce(topic, b"v", key, on_delivery=lambda _, sent: theirs.update({sent.key(): sent.partition()}))
    assert await asyncio.to_thread(producer.flush, 20) == 0
    # librdkafka gives an empty key no partition of its own choosing; Java hashes it like any other.
    assert {key: theirs[key] for key in keys if key} == {key: PARTITIONERS[ours_is](key, 7) for key in keys if key}


def test_records_without_a_key_stay_in_a_partition_until_the_next_batch() -> None:
    sticky = StickyPartitioner(Random(5))
    first = sticky.choose([0, 1, 2])
    assert [sticky.choose([0, 1, 2]) for _ in range(10)] == [first] * 10
    sticky.move_on([0, 1, 2])
    assert sticky.choose([0, 1, 2]) != first


def test_a_topic_with_one_partition_has_nowhere_to_move_on_to() -> None:
    sticky = StickyPartitioner(Random(5))
    sticky.move_on([0])
    assert sticky.choose([0]) == 0
