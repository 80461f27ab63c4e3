"""Every client reads what every other client wrote, with every compression."""

import pytest

from penstock.records.batch import batches
from penstock.records.compression import Codec
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.schema import Buffer
from tests.brokers import BrokerProcess

from .conftest import EVERY_DRIVER, name_of
from .driver_confluent import ConfluentDriver
from .drivers import COMPRESSIONS, NOW_MS, Driver, Message, Outgoing
from .raw import RawClient, records_of

HEADERS = (("content-type", b"text/plain"), ("retries", b"3"), ("empty", b""))
COUNT = 40


def messages(writer: Driver, partition: int) -> list[Outgoing]:
    """Keys, values, nulls and headers in all combinations that every client can send."""
    timestamps = {} if writer.name == "kcat" else {"timestamp_ms": NOW_MS - 1000}
    plain = [
        Outgoing(
            key=b"key %d" % number if number % 3 else None,
            value=b"value %d, " % number * 10 if number % 3 == 0 or number % 5 else None,
            partition=partition,
            **timestamps,
        )
        for number in range(COUNT - 2)
    ]
    with_headers = [
        Outgoing(key=b"h", value=value, headers=HEADERS, partition=partition, **timestamps)
        for value in (b"with headers", None)
    ]
    return plain + with_headers


@pytest.fixture(scope="module", params=EVERY_DRIVER, ids=lambda driver: f"by-{name_of(driver)}")
def written(request: pytest.FixtureRequest, broker: BrokerProcess) -> tuple[str, dict[int, list[Message]]]:
    """A topic whose partitions one client wrote, each in another compression, and what stands in them."""
    writer: Driver = request.param(broker.kafka)
    topic = f"interop-{writer.name}"
    ConfluentDriver(broker.kafka).create_topic(topic, partitions=len(COMPRESSIONS))
    expected = {}
    with RawClient(broker.address) as raw:
        for partition, compression in enumerate(COMPRESSIONS):
            if compression not in writer.compressions:
                continue
            sent = messages(writer, partition)
            writer.produce(topic, sent, compression=compression)
            answer = raw.fetch(topic, 0, partition)
            assert (answer.error_code, answer.high_watermark) == (0, COUNT)
            data = answer.records
            check_codec(data, compression_used(writer, compression, raw))
            expected[partition] = [
                Message(offset, record.timestamp_ms, out.key, out.value, out.headers)
                for offset, (record, out) in enumerate(zip(records_of(data), sent, strict=True))
            ]
            assert {out.timestamp_ms for out in sent} in ({None}, {NOW_MS - 1000})
            assert all(found.timestamp_ms >= NOW_MS - 1000 for found in expected[partition])
    return topic, expected


def compression_used(writer: Driver, compression: str, raw: RawClient) -> str:
    """librdkafka compresses with lz4 only for brokers that serve FindCoordinator, which comes with groups."""
    if compression != "lz4" or writer.name not in ("confluent-kafka", "kcat"):
        return compression
    served = {api.api_key for api in raw.ask(ApiVersionsRequest(), 0).api_keys}
    return "lz4" if ApiKey.FIND_COORDINATOR in served else "none"


def check_codec(data: Buffer, compression: str) -> None:
    """The batches are kept as they were sent. A client may send some of them uncompressed: librdkafka does so with
    what compression would make larger, and about once in 4,000 times it sends each message in a batch of its own."""
    codecs = {header.codec for _, header in batches(data)}
    wanted = Codec[compression.upper()]
    assert wanted in codecs
    assert codecs <= {wanted, Codec.NONE}


def test_every_client_reads_what_a_client_wrote(
    written: tuple[str, dict[int, list[Message]]], client: Driver
) -> None:
    topic, expected = written
    assert expected
    for partition, wanted in expected.items():
        if COMPRESSIONS[partition] in client.compressions:
            assert client.consume(topic, 0, COUNT, partition) == wanted, COMPRESSIONS[partition]
