"""Fetch: how long it waits, how much it returns, and fetch sessions."""

import os
import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ResourceType

from penstock.foundation.codes import ErrorCode
from penstock.records.compression import Codec
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.schema import NIL_UUID
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver, read
from .driver_kafka_python import KafkaPythonDriver
from .driver_kafka_python import TopicPartition as KafkaPythonPartition
from .driver_kafka_python import read as read_with_kafka_python
from .drivers import Driver, Outgoing
from .one_batch_a_fetch import consume_one_batch_a_fetch
from .raw import FETCH_VERSION, RawClient, batch_of, by_partition, fetch_request, records_of

LONG_MS = 50_000
"""How long a fetch may wait in tests in which it must not."""
SOON_S = 40.0
"""Well under that, however slow the machine."""


@pytest.fixture
def three_partitions(confluent: ConfluentDriver, topic: str) -> str:
    confluent.create_topic(topic, partitions=3)
    return topic


# -- waiting


def test_a_fetch_that_waits_is_answered_when_data_arrives(
    broker: BrokerProcess, raw: RawClient, three_partitions: str
) -> None:
    raw.send(fetch_request(three_partitions, {0: 0, 1: 0, 2: 0}, max_wait_ms=LONG_MS), FETCH_VERSION)
    with RawClient(broker.address) as other:
        assert other.produce(three_partitions, batch_of([b"news"]), partition=1).error_code == 0
    began_s = time.monotonic()
    answer = by_partition(raw.receive())
    assert time.monotonic() - began_s < SOON_S
    assert [record.value for record in records_of(answer[1].records)] == [b"news"]
    assert not answer[0].records


def test_a_consumer_that_waits_gets_a_message_at_once(confluent: ConfluentDriver, topic: str) -> None:
    confluent.produce(topic, [Outgoing(value=b"old")])
    with confluent.consumer(fetch_wait_max_ms=LONG_MS) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert read(consumer, 1)[0].value == b"old"  # the next fetch waits
        for number in range(3):
            confluent.produce(topic, [Outgoing(value=b"%d" % number)])
            began_s = time.monotonic()
            assert read(consumer, 1)[0].value == b"%d" % number
            assert time.monotonic() - began_s < SOON_S


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(
    broker: BrokerProcess, raw: RawClient, three_partitions: str
) -> None:
    raw.send(fetch_request(three_partitions, {0: 0, 1: 0}, max_wait_ms=LONG_MS, min_bytes=1000), FETCH_VERSION)
    with RawClient(broker.address) as other:
        assert other.produce(three_partitions, batch_of([b"x" * 400]), partition=0).error_code == 0
        assert other.produce(three_partitions, batch_of([b"y" * 700]), partition=1).error_code == 0
    began_s = time.monotonic()
    answer = by_partition(raw.receive())
    assert time.monotonic() - began_s < SOON_S
    assert [len(records_of(answer[number].records)) for number in (0, 1)] == [1, 1]


def test_a_fetch_that_waited_in_vain_is_answered_with_what_there_is(raw: RawClient, three_partitions: str) -> None:
    raw.produce(three_partitions, batch_of([b"little"]))
    began_s = time.monotonic()
    data = raw.fetch(three_partitions, 0, max_wait_ms=200, min_bytes=1000)
    assert 0.2 <= time.monotonic() - began_s < SOON_S
    assert [record.value for record in records_of(data.records)] == [b"little"]


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(
    confluent: ConfluentDriver, raw: RawClient, three_partitions: str
) -> None:
    raw.send(fetch_request(three_partitions, {0: 0}, max_wait_ms=LONG_MS), FETCH_VERSION)
    confluent.delete_topic(three_partitions)
    began_s = time.monotonic()
    answer = by_partition(raw.receive())
    assert time.monotonic() - began_s < SOON_S
    assert answer[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- how much


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.name.lower())
def test_a_client_that_wants_less_than_a_batch_still_gets_on(
    client: Driver, raw: RawClient, topic: str, codec: Codec
) -> None:
    ConfluentDriver(client.bootstrap).create_topic(topic)
    values = [b"%d " % number * 200 for number in range(40)]
    for first in range(0, 40, 10):
        assert raw.produce(topic, batch_of(values[first : first + 10], codec=codec)).error_code == 0
    got = consume_one_batch_a_fetch(client, topic, len(values))
    assert [message.value for message in got] == values


def test_only_the_first_batch_of_an_answer_may_be_too_large(raw: RawClient, three_partitions: str) -> None:
    for number in range(3):
        raw.produce(three_partitions, batch_of([b"x" * 5000]), partition=number)
        raw.produce(three_partitions, batch_of([b"y" * 5000]), partition=number)
    answer = by_partition(raw.ask(fetch_request(three_partitions, {0: 0, 1: 0, 2: 0}, max_bytes=100), FETCH_VERSION))
    assert [record.value[:1] for record in records_of(answer[0].records)] == [b"x"]
    assert not answer[1].records
    assert not answer[2].records


def test_a_limit_that_is_changed_holds_for_requests_that_were_seen_before(
    raw: RawClient, confluent: ConfluentDriver, three_partitions: str
) -> None:
    """The same request, over and over, takes a shorter way; what it learnt there must not outlive a setting."""
    for _ in range(4):
        raw.produce(three_partitions, batch_of([b"x" * 3000]))
    sizes = [len(raw.fetch(three_partitions, 0, max_bytes=1 << 20).records) for _ in range(3)]
    try:
        confluent.incremental(ResourceType.BROKER, "1", [("fetch.max.bytes", "SET", "4000")])
        sizes += [len(raw.fetch(three_partitions, 0, max_bytes=1 << 20).records) for _ in range(3)]
    finally:
        confluent.incremental(ResourceType.BROKER, "1", [("fetch.max.bytes", "DELETE", None)])
    sizes += [len(raw.fetch(three_partitions, 0, max_bytes=1 << 20).records) for _ in range(3)]
    assert [size > 12_000 for size in sizes] == [True] * 3 + [False] * 3 + [True] * 3, sizes


def test_a_busy_partition_does_not_starve_the_others(raw: RawClient, three_partitions: str) -> None:
    """In a session, a partition that was served goes to the end of the list (KIP-227)."""
    for number in range(3):
        for _ in range(3):
            raw.produce(three_partitions, batch_of([b"x" * 5000]), partition=number)
    offsets = {0: 0, 1: 0, 2: 0}
    session = Session(raw, three_partitions, offsets, max_bytes=100)
    answer = session.first
    for _ in range(9):
        moved = {number: offsets[number] + 1 for number, data in answer.items() if data.records}
        assert len(moved) == 1
        offsets |= moved
        assert max(offsets.values()) - min(offsets.values()) <= 1
        answer = by_partition(session.next(moved, max_bytes=100))
    assert offsets == {0: 3, 1: 3, 2: 3}


def test_an_offset_that_is_not_there_is_out_of_range(raw: RawClient, confluent: ConfluentDriver, topic: str) -> None:
    confluent.produce(topic, [Outgoing(value=b"%d" % number) for number in range(5)])
    confluent.trim(topic, 2)
    for offset in (0, 1, 6):
        data = raw.fetch(topic, offset)
        assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, offset
    assert raw.fetch(topic, 5).error_code == 0
    got = confluent.consume(topic, 0, 3, auto_offset_reset="earliest")
    assert [message.offset for message in got] == [2, 3, 4]


def test_data_that_has_left_the_page_cache_is_read_from_the_disk(
    client: Driver, broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    ConfluentDriver(client.bootstrap).create_topic(topic, configs={"segment.bytes": str(1 << 20)})
    values = [b"%03d " % number * 25_000 for number in range(30)]
    for value in values:
        assert raw.produce(topic, batch_of([value])).error_code == 0
    for file in broker.data_dir.glob(f"logs/{topic}/*/*.log"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert [message.value for message in client.consume(topic, 0, len(values))] == values


def test_committed_data_is_read_under_read_committed_too(confluent: ConfluentDriver, topic: str) -> None:
    confluent.produce(topic, [Outgoing(value=b"x")])
    assert confluent.consume(topic, 0, 1, isolation_level="read_committed")[0].value == b"x"


# -- sessions


class Session:
    """A fetch session on one topic, kept by hand."""

    def __init__(self, raw: RawClient, topic: str, offsets: dict[int, int], **options: Any) -> None:
        self.raw = raw
        self.topic = topic
        response = raw.ask(fetch_request(topic, offsets, session_epoch=0, **options), FETCH_VERSION)
        self.first = by_partition(response)
        self.id = response.session_id
        self.epoch = 0

    def next(self, offsets: dict[int, int] | None = None, forget: tuple[int, ...] = (), **options: Any) -> Any:
        """The next answer of the session."""
        self.epoch += 1
        forgotten = [ForgottenTopic(topic=self.topic, partitions=list(forget))] if forget else []
        request = fetch_request(
            self.topic,
            offsets or {},
            session_id=self.id,
            session_epoch=self.epoch,
            forgotten=forgotten,
            **options,
        )
        return self.raw.ask(request, FETCH_VERSION)


def test_a_session_tells_only_what_changed(raw: RawClient, three_partitions: str) -> None:
    session = Session(raw, three_partitions, {0: 0, 1: 0, 2: 0})
    assert session.id != 0
    assert sorted(session.first) == [0, 1, 2]
    assert by_partition(session.next()) == {}
    raw.produce(three_partitions, batch_of([b"news"]), partition=1)
    answer = by_partition(session.next())
    assert list(answer) == [1]
    assert [record.value for record in records_of(answer[1].records)] == [b"news"]
    # Until the client says that it has moved on, it is given the same again.
    assert list(by_partition(session.next())) == [1]
    assert by_partition(session.next({1: 1})) == {}


def test_a_session_waits_for_all_its_partitions(broker: BrokerProcess, raw: RawClient, three_partitions: str) -> None:
    session = Session(raw, three_partitions, {0: 0, 1: 0, 2: 0})
    request = fetch_request(three_partitions, {}, session_id=session.id, session_epoch=1, max_wait_ms=LONG_MS)
    raw.send(request, FETCH_VERSION)
    with RawClient(broker.address) as other:
        other.produce(three_partitions, batch_of([b"news"]), partition=2)
    began_s = time.monotonic()
    assert list(by_partition(raw.receive())) == [2]
    assert time.monotonic() - began_s < SOON_S


def test_a_session_forgets_partitions_and_learns_new_ones(raw: RawClient, three_partitions: str) -> None:
    session = Session(raw, three_partitions, {0: 0, 1: 0})
    assert by_partition(session.next(forget=(1,))) == {}
    raw.produce(three_partitions, batch_of([b"forgotten"]), partition=1)
    raw.produce(three_partitions, batch_of([b"not yet known"]), partition=2)
    assert by_partition(session.next()) == {}
    answer = by_partition(session.next({2: 0}))
    assert [record.value for record in records_of(answer[2].records)] == [b"not yet known"]
    assert list(by_partition(session.next({1: 0, 2: 1}))) == [1]


def test_a_session_tells_of_a_trim(raw: RawClient, confluent: ConfluentDriver, three_partitions: str) -> None:
    confluent.produce(three_partitions, [Outgoing(value=b"x"), Outgoing(value=b"y")])
    session = Session(raw, three_partitions, {0: 2})
    assert by_partition(session.next()) == {}
    confluent.trim(three_partitions, 1)
    assert by_partition(session.next())[0].log_start_offset == 1


def test_a_session_repeats_an_error_until_it_is_gone(raw: RawClient, three_partitions: str) -> None:
    session = Session(raw, three_partitions, {0: 0, 7: 0})
    for answer in (session.first, by_partition(session.next()), by_partition(session.next())):
        assert answer[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_session_that_is_not_known_is_refused(raw: RawClient, three_partitions: str) -> None:
    request = fetch_request(three_partitions, {0: 0}, session_id=2**31 - 1, session_epoch=1)
    assert raw.ask(request, FETCH_VERSION).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_at_another_epoch_is_refused_and_goes_on_at_its_own(raw: RawClient, three_partitions: str) -> None:
    session = Session(raw, three_partitions, {0: 0})
    session.epoch = 4
    assert session.next().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = 0
    assert session.next().error_code == 0


def test_a_client_can_close_its_session(raw: RawClient, three_partitions: str) -> None:
    session = Session(raw, three_partitions, {0: 0})
    last = raw.ask(fetch_request(three_partitions, {0: 0}, session_id=session.id, session_epoch=-1), FETCH_VERSION)
    assert (last.error_code, last.session_id) == (0, 0)
    assert session.next().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("sessions", [True, False], ids=["sessions", "no-sessions"])
def test_kafka_python_reads_many_partitions_as_they_grow(broker: BrokerProcess, topic: str, sessions: bool) -> None:
    driver = KafkaPythonDriver(broker.kafka)
    driver.create_topic(topic, partitions=6)
    with driver.consumer(enable_incremental_fetch_sessions=sessions) as consumer:
        consumer.assign([KafkaPythonPartition(topic, number) for number in range(6)])
        consumer.seek_to_beginning()
        for round_ in range(4):
            sent = [Outgoing(value=b"%d %d" % (round_, number), partition=number) for number in (round_, round_ + 2)]
            driver.produce(topic, sent)
            got = read_with_kafka_python(consumer, len(sent))
            assert {message.value for message in got} == {message.value for message in sent}


# -- every version


def versions_of(key: ApiKey, broker: BrokerProcess) -> range:
    with RawClient(broker.address) as raw:
        served = {api.api_key: api for api in raw.ask(ApiVersionsRequest(), 0).api_keys}[key]
    return range(served.min_version, served.max_version + 1)


def test_every_version_of_produce_and_fetch_does_the_same_again_and_again(
    broker: BrokerProcess, raw: RawClient, confluent: ConfluentDriver, topic: str
) -> None:
    """The second request of a kind may be handled in another way than the first, without a visible difference."""
    confluent.create_topic(topic, partitions=2)
    topic_id = raw.describe(topic).topic_id
    written = 0
    for version in versions_of(ApiKey.PRODUCE, broker)[3:]:  # 0 to 2 are only advertised
        named = {"topic_id": topic_id} if version >= 13 else {"name": topic}
        for acks in (1, 1, -1, -1):
            batch = batch_of([b"version %d" % version, b"and another"])
            data = TopicProduceData(partition_data=[PartitionProduceData(index=1, records=batch)], **named)
            answer = raw.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]), version)
            result = answer.responses[0].partition_responses[0]
            assert (result.error_code, result.base_offset) == (0, written), version
            assert answer.responses[0].topic_id == (topic_id if version >= 13 else NIL_UUID)
            written += 2
    everything = [(record.offset, record.value) for record in records_of(raw.fetch(topic, 0, 1).records)]
    assert len(everything) == written
    for version in versions_of(ApiKey.FETCH, broker):
        named = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
        for offset in (0, 0, 4, written - 2):
            wanted = FetchPartition(partition=1, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(partitions=[wanted], **named)])
            (answer,) = raw.ask(request, version).responses
            (data,) = answer.partitions
            assert answer.topic_id == (topic_id if version >= 13 else NIL_UUID)
            assert (data.partition_index, data.error_code, data.high_watermark) == (1, 0, written), version
            got = [(record.offset, record.value) for record in records_of(data.records)]
            assert got == everything[offset:], version
