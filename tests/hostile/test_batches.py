"""Record batches with wrong headers, or a thousand times larger when decompressed."""

from pathlib import Path
from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.records.batch import assemble
from penstock.records.build import Record, build_batch
from penstock.records.compression import Codec, compress
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.drivers import NOW_MS
from tests.clients.raw import RawClient, batch_of, records_of
from tests.clients.share_raw import ShareMember, earliest
from tests.sqs_clients import JSON, sqs_client

from .probe import Probe

MIB = 1 << 20
BOMB_BYTES = 120 * MIB


def sealed(body: bytes, count: int, codec: Codec) -> bytearray:
    """A batch of any contents with a valid checksum."""
    return assemble(
        compress(codec, body),
        count=count,
        attributes=codec,
        base_offset=0,
        last_offset_delta=count - 1,
        leader_epoch=-1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


@pytest.fixture(scope="module")
def bomb() -> bytearray:
    """A few kilobytes that decompress to 120 MiB, of which all but the first are the value of one record."""
    inside = bytearray(batch_of([bytes(BOMB_BYTES)]))[61:]
    return sealed(bytes(inside), 1, Codec.ZSTD)


@pytest.fixture
def topic(target: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = f"batches-{abs(hash(request.node.name))}"
    ConfluentDriver(target.kafka).create_topic(name)
    return name


@pytest.mark.parametrize("count", [20_000_000, 2**31 - 1])
def test_a_share_group_passes_over_a_batch_that_claims_millions_of_records(
    target: BrokerProcess, probe: Probe, topic: str, count: int
) -> None:
    with RawClient(target.address) as raw:
        assert raw.produce(topic, sealed(b"", count, Codec.ZSTD)).error_code == 0
        assert raw.produce(topic, batch_of([b"after"])).error_code == 0
    group = f"g-{topic}"
    earliest(target, group)
    before_kib = target.rss_anon_kib()
    with probe.watch(f"share-fetch-of-{count}-claimed-records"):
        member = ShareMember(target, group, topic).join()
        assert member.take(max_records=2**31 - 1, max_wait_ms=1000) == [count]
        member.close_connection()
    assert target.rss_anon_kib() - before_kib < 100 << 10


def test_a_share_fetch_for_any_number_of_records_takes_no_more_than_its_locks(
    target: BrokerProcess, probe: Probe, topic: str
) -> None:
    with RawClient(target.address) as raw:
        for _ in range(4):
            assert raw.produce(topic, batch_of([b"x"] * 30_000)).error_code == 0
    group = f"g-{topic}"
    earliest(target, group)
    with probe.watch("share-fetch-of-all-records"):
        member = ShareMember(target, group, topic).join()
        assert len(member.take(max_records=2**31 - 1, max_wait_ms=1000)) == 2000
        member.close_connection()


@pytest.mark.parametrize(
    "configs",
    [{"cleanup.policy": "compact"}, {"compression.type": "lz4"}, {"delayed.messages": "true"}],
    ids=["compacted", "recompressed", "delayed"],
)
def test_a_decompression_bomb_is_refused_where_the_broker_must_open_it(
    target: BrokerProcess, probe: Probe, topic: str, bomb: bytearray, configs: dict[str, str]
) -> None:
    assert len(bomb) < 16 << 10
    name = f"{topic}-opened"
    ConfluentDriver(target.kafka).create_topic(name, configs=configs)
    before_kib = target.rss_anon_kib()
    with probe.watch(f"bomb-to-a-topic-with-{next(iter(configs))}"), RawClient(target.address) as raw:
        for _ in range(5):
            assert raw.produce(name, bomb).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert target.rss_anon_kib() - before_kib < 100 << 10


@pytest.mark.parametrize(("limit", "code"), [(100_000, ErrorCode.MESSAGE_TOO_LARGE), (300_000, ErrorCode.NONE)])
def test_the_limit_of_decompressed_bytes_is_a_setting_of_the_topic(
    target: BrokerProcess, topic: str, limit: int, code: ErrorCode
) -> None:
    name = f"{topic}-limited"
    configs = {"compression.type": "lz4", "decompressed.batch.max.bytes": str(limit)}
    ConfluentDriver(target.kafka).create_topic(name, configs=configs)
    inside = bytes(batch_of([bytes(200_000)])[61:])
    with RawClient(target.address) as raw:
        assert raw.produce(name, sealed(inside, 1, Codec.ZSTD)).error_code == code


def test_a_decompression_bomb_is_fetched_as_it_is(
    target: BrokerProcess, probe: Probe, topic: str, bomb: bytearray
) -> None:
    """Kafka bounds the compressed size only: what the broker need not open is not its business."""
    with probe.watch("bomb-to-a-plain-topic"), RawClient(target.address) as raw:
        assert raw.produce(topic, bomb).error_code == 0
        (found,) = records_of(raw.fetch(topic, 0).records)
    assert len(found.value) == BOMB_BYTES


def test_offsets_by_time_are_searched_in_slices(
    target: BrokerProcess, probe: Probe, topic: str, bomb: bytearray
) -> None:
    count = 250_000
    many = sealed(bytes(bytearray(batch_of([b""] * count))[61:]), count, Codec.GZIP)
    with RawClient(target.address) as raw:
        raw.socket.settimeout(90.0)
        assert raw.produce(topic, bomb).error_code == 0
        assert raw.produce(topic, many).error_code == 0
        times = [NOW_MS - 1, NOW_MS, -3] + [NOW_MS + 1 + number for number in range(150)]
        wanted = [ListOffsetsPartition(partition_index=0, timestamp=time_ms) for time_ms in times]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
        )
        with probe.watch("list-offsets-in-large-batches"):
            found = raw.ask(request, 7).topics[0].partitions
    assert [each.error_code for each in found] == [0] * len(times)
    assert [each.offset for each in found[:2]] == [0, 0]


def test_a_queue_goes_on_behind_a_decompression_bomb(
    target: BrokerProcess, probe: Probe, topic: str, bomb: bytearray, tmp_path: Path
) -> None:
    sqs: Any = sqs_client(target.http, JSON, tmp_path)
    url = sqs.create_queue(QueueName=f"{topic}-queue", Attributes={"PenstockTopic": topic})["QueueUrl"]
    before_kib = target.rss_anon_kib()
    with probe.watch("bomb-in-a-queue"), RawClient(target.address) as raw:
        for _ in range(3):
            assert raw.produce(topic, bomb).error_code == 0
        assert raw.produce(topic, batch_of([b"after"])).error_code == 0
        (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "after"
    assert target.rss_anon_kib() - before_kib < 200 << 10
    sqs.close()


def test_a_view_goes_on_behind_a_decompression_bomb(
    target: BrokerProcess, probe: Probe, topic: str, bomb: bytearray
) -> None:
    driver = ConfluentDriver(target.kafka)
    view = f"{topic}-view"
    driver.create_topic(view, configs={"view.of": topic, "view.where": "$.n = 1"})
    before_kib = target.rss_anon_kib()
    with probe.watch("bomb-behind-a-view"), RawClient(target.address) as raw:
        for _ in range(3):
            assert raw.produce(topic, bomb).error_code == 0
        assert raw.produce(topic, batch_of([b'{"n": 0}', b'{"n": 1}'])).error_code == 0
        found = driver.consume_from_start(view, 1)
    assert [each.value for each in found] == [b'{"n": 1}']
    assert target.rss_anon_kib() - before_kib < 200 << 10


def test_records_with_very_many_headers_are_received_with_the_first_of_them(
    target: BrokerProcess, probe: Probe, topic: str, tmp_path: Path
) -> None:
    sqs: Any = sqs_client(target.http, JSON, tmp_path)
    url = sqs.create_queue(QueueName=f"{topic}-queue", Attributes={"PenstockTopic": topic})["QueueUrl"]
    headers = (("h", b""),) * 90_000
    with probe.watch("records-with-90,000-headers"), RawClient(target.address) as raw:
        for number in range(5):
            record = Record(key=None, value=b"%d" % number, headers=headers, timestamp_ms=NOW_MS)
            assert raw.produce(topic, build_batch([record])).error_code == 0
        bodies: list[str] = []
        while len(bodies) < 5:
            found = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, MaxNumberOfMessages=10)["Messages"]
            bodies += [message["Body"] for message in found]
    assert sorted(bodies) == ["0", "1", "2", "3", "4"]
    sqs.close()
