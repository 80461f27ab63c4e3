"""Produce: refused records, idempotence, and when records are acknowledged."""

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.foundation.codes import ErrorCode
from penstock.records.batch import CRC_AT, MAGIC_AT
from penstock.records.build import Record, build_batch
from penstock.records.compression import Codec
from tests.brokers import BrokerProcess

from .conftest import ADMIN_DRIVERS, NO_KCAT, name_of
from .driver_aiokafka import AiokafkaDriver
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver
from .driver_kcat import KcatDriver
from .drivers import COMPRESSIONS, NOW_MS, AdminDriver, Driver, Outgoing, refused
from .proxy import LossyProxy
from .raw import Closed, RawClient, batch_of, produce_request, records_of
from .waiting import PATIENCE_S, wait_until

HOUR_MS = 3_600_000


def delivery_errors(confluent: ConfluentDriver, topic: str, **message: Any) -> list[int]:
    """The codes of what confluent-kafka reports for one message."""
    errors: list[KafkaError] = []
    producer = confluent.producer()
    producer.produce(topic, on_delivery=lambda error, _: errors.append(error), **message)
    assert producer.flush(PATIENCE_S) == 0
    return [error.code() for error in errors if error is not None]


def send_with_aiokafka(driver: AiokafkaDriver, topic: str, **message: Any) -> None:
    async def run() -> None:
        async with driver.producer() as producer:
            await producer.send_and_wait(topic, **message)

    asyncio.run(run())


def send_with_kafka_python(driver: KafkaPythonDriver, topic: str, **message: Any) -> None:
    with driver.producer() as producer:
        producer.send(topic, **message).get(PATIENCE_S)


class TestTooLargeMessages:
    TOO_LARGE = b"x" * 3000

    @pytest.fixture
    def small_topic(self, confluent: ConfluentDriver, topic: str) -> str:
        confluent.create_topic(topic, configs={"max.message.bytes": "2000"})
        return topic

    def test_confluent_kafka_gets_the_error(self, confluent: ConfluentDriver, small_topic: str) -> None:
        codes = delivery_errors(confluent, small_topic, value=self.TOO_LARGE)
        assert codes == [KafkaError.MSG_SIZE_TOO_LARGE]
        assert delivery_errors(confluent, small_topic, value=b"small") == []

    def test_aiokafka_gets_the_error(self, broker: BrokerProcess, small_topic: str) -> None:
        driver = AiokafkaDriver(broker.kafka)
        with refused(driver, ErrorCode.MESSAGE_TOO_LARGE):
            send_with_aiokafka(driver, small_topic, value=self.TOO_LARGE)
        send_with_aiokafka(driver, small_topic, value=b"small")
        assert driver.range(small_topic) == (0, 1)

    def test_kafka_python_gets_the_error(self, broker: BrokerProcess, small_topic: str) -> None:
        driver = KafkaPythonDriver(broker.kafka)
        with refused(driver, ErrorCode.MESSAGE_TOO_LARGE):
            send_with_kafka_python(driver, small_topic, value=self.TOO_LARGE)
        send_with_kafka_python(driver, small_topic, value=b"small")
        assert driver.range(small_topic) == (0, 1)

    @NO_KCAT
    def test_kcat_gets_the_error(self, broker: BrokerProcess, small_topic: str) -> None:
        driver = KcatDriver(broker.kafka)
        with pytest.raises(AssertionError, match="Message size too large"):
            driver.produce(small_topic, [Outgoing(value=self.TOO_LARGE)])
        assert driver.range(small_topic) == (0, 0)

    def test_the_limit_counts_what_is_sent_not_what_it_holds(self, client: Driver, small_topic: str) -> None:
        client.produce(small_topic, [Outgoing(value=self.TOO_LARGE)], compression="gzip")
        assert client.consume(small_topic, 0, 1)[0].value == self.TOO_LARGE


class TestCompactedTopics:
    @pytest.fixture
    def compacted(self, confluent: ConfluentDriver, topic: str) -> str:
        confluent.create_topic(topic, configs={"cleanup.policy": "compact"})
        return topic

    def test_confluent_kafka_may_not_leave_out_the_key(self, confluent: ConfluentDriver, compacted: str) -> None:
        assert delivery_errors(confluent, compacted, value=b"v") == [KafkaError.INVALID_RECORD]
        assert delivery_errors(confluent, compacted, value=b"v", key=b"k") == []

    def test_aiokafka_may_not_leave_out_the_key(self, broker: BrokerProcess, compacted: str) -> None:
        """It has no name for this error, and shows it as an unknown one."""
        driver = AiokafkaDriver(broker.kafka)
        with refused(driver, ErrorCode.UNKNOWN_SERVER_ERROR):
            send_with_aiokafka(driver, compacted, value=b"v")
        send_with_aiokafka(driver, compacted, value=b"v", key=b"k")

    def test_kafka_python_may_not_leave_out_the_key(self, broker: BrokerProcess, compacted: str) -> None:
        driver = KafkaPythonDriver(broker.kafka)
        with refused(driver, ErrorCode.INVALID_RECORD):
            send_with_kafka_python(driver, compacted, value=b"v")
        send_with_kafka_python(driver, compacted, value=b"v", key=b"k")

    @pytest.mark.parametrize("compression", COMPRESSIONS)
    def test_the_answer_names_the_records_without_a_key(
        self, raw: RawClient, compacted: str, compression: str
    ) -> None:
        records = [Record(key=b"k" if number % 2 else None, value=b"v", timestamp_ms=NOW_MS) for number in range(4)]
        answer = raw.produce(compacted, build_batch(records, codec=Codec[compression.upper()]))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [0, 2]
        assert raw.fetch(compacted, 0).high_watermark == 0

    def test_an_empty_key_is_a_key(self, confluent: ConfluentDriver, compacted: str) -> None:
        assert delivery_errors(confluent, compacted, value=b"v", key=b"") == []

    def test_producers_that_write_at_the_same_moment_do_not_get_each_others_messages(
        self, broker: BrokerProcess, confluent: ConfluentDriver, topic: str
    ) -> None:
        """The broker finds all of these requests waiting when it wakes up."""
        count = 20
        confluent.create_topic(topic, partitions=count, configs={"cleanup.policy": "compact"})
        clients = [RawClient(broker.address) for _ in range(count)]
        for client in clients:
            assert client.describe(topic).error_code == 0
        os.kill(broker.pid, signal.SIGSTOP)
        for number, client in enumerate(clients):
            record = Record(key=b"%04d" % number, value=b"%04d" % number, timestamp_ms=NOW_MS)
            client.send(produce_request(topic, build_batch([record]), number), 9)
        os.kill(broker.pid, signal.SIGCONT)
        for number, client in enumerate(clients):
            with client:
                assert client.receive().responses[0].partition_responses[0].error_code == 0
                (record,) = records_of(client.fetch(topic, 0, number).records)
                assert record.value == b"%04d" % number


@pytest.mark.parametrize("wanted", COMPRESSIONS)
def test_a_topic_may_have_a_compression_of_its_own(admin_client: AdminDriver, topic: str, wanted: str) -> None:
    if wanted not in admin_client.compressions:
        pytest.skip(f"{admin_client.name} has no {wanted} here: pip install python-snappy")
    configs = {"compression.type": "uncompressed" if wanted == "none" else wanted}
    admin_client.create_topic(topic, configs=configs)
    sent = []
    for used in ("none", "gzip"):
        some = [
            Outgoing(key=b"k", value=b"%d" % n * 50, timestamp_ms=NOW_MS, headers=(("h", b"v"),)) for n in range(9)
        ]
        admin_client.produce(topic, some, compression=used)
        sent += some
    got = admin_client.consume(topic, 0, len(sent))
    assert [(m.key, m.value, m.headers, m.timestamp_ms) for m in got] == [
        (m.key, m.value, m.headers, m.timestamp_ms) for m in sent
    ]


# -- batches that no client library would send


def with_wrong_crc(batch: bytearray) -> bytearray:
    batch[CRC_AT] ^= 0xFF
    return batch


def with_a_flipped_bit(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def of_format_1(batch: bytearray) -> bytearray:
    batch[MAGIC_AT] = 1
    return batch


def with_a_length_beyond_its_end(batch: bytearray) -> bytearray:
    return batch[:-1]


def twice(batch: bytearray) -> bytearray:
    return batch + batch


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        pytest.param(with_wrong_crc(batch_of([b"x"])), ErrorCode.CORRUPT_MESSAGE, id="wrong-crc"),
        pytest.param(with_a_flipped_bit(batch_of([b"x"])), ErrorCode.CORRUPT_MESSAGE, id="flipped-bit"),
        pytest.param(with_a_length_beyond_its_end(batch_of([b"x"])), ErrorCode.CORRUPT_MESSAGE, id="cut-short"),
        pytest.param(bytearray(b"x" * 40), ErrorCode.CORRUPT_MESSAGE, id="garbage"),
        pytest.param(of_format_1(batch_of([b"x"])), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, id="old-format"),
        pytest.param(twice(batch_of([b"x"])), ErrorCode.INVALID_RECORD, id="two-batches"),
        pytest.param(batch_of([b"x"], control=True), ErrorCode.INVALID_RECORD, id="control-batch"),
        pytest.param(batch_of([b"x"], last_offset_delta=5), ErrorCode.CORRUPT_MESSAGE, id="offsets-with-gaps"),
        pytest.param(
            batch_of([b"x"], timestamp_ms=NOW_MS + 24 * HOUR_MS), ErrorCode.INVALID_TIMESTAMP, id="tomorrow"
        ),
    ],
)
def test_a_batch_that_is_not_right_is_refused_and_leaves_no_trace(
    raw: RawClient, confluent: ConfluentDriver, topic: str, batch: bytearray, code: ErrorCode
) -> None:
    confluent.create_topic(topic)
    assert raw.produce(topic, batch_of([b"before"])).base_offset == 0
    assert ErrorCode(raw.produce(topic, batch).error_code) is code
    assert raw.produce(topic, batch_of([b"after"])).base_offset == 1
    assert [message.value for message in confluent.consume(topic, 0, 2)] == [b"before", b"after"]


def test_a_request_without_records_is_refused(raw: RawClient, confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic)
    assert raw.produce(topic, None).error_code != 0
    assert raw.fetch(topic, 0).high_watermark == 0


def test_a_partition_or_topic_that_is_not_there_is_refused(
    raw: RawClient, confluent: ConfluentDriver, topic: str
) -> None:
    confluent.create_topic(topic)
    assert raw.produce(topic, batch_of([b"x"]), partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.produce(f"{topic}-x", batch_of([b"x"])).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delivery_errors(confluent, topic, value=b"x", partition=1) == [KafkaError._UNKNOWN_PARTITION]


# -- exactly once


class TestIdempotence:
    """Batches as an idempotent producer sends them, and sends them again when it got no answer."""

    @pytest.fixture
    def target(self, confluent: ConfluentDriver, topic: str) -> str:
        confluent.create_topic(topic)
        return topic

    @staticmethod
    def batch(producer_id: int, sequence: int, count: int = 3, epoch: int = 0) -> bytearray:
        some = [b"sequence %d" % number for number in range(sequence, sequence + count)]
        return batch_of(some, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    def test_a_batch_that_is_sent_again_is_written_once(self, raw: RawClient, target: str) -> None:
        producer_id = raw.producer_id()
        offsets = [raw.produce(target, self.batch(producer_id, 3 * n)).base_offset for n in range(5)]
        assert offsets == [0, 3, 6, 9, 12]
        again = [raw.produce(target, self.batch(producer_id, 3 * n)) for n in range(5)]
        assert [(answer.error_code, answer.base_offset) for answer in again] == [(0, offset) for offset in offsets]
        assert raw.fetch(target, 0).high_watermark == 15

    def test_a_batch_whose_answer_was_lost_is_written_once(
        self, broker: BrokerProcess, raw: RawClient, target: str
    ) -> None:
        producer_id = raw.producer_id()
        with RawClient(broker.address) as vanishing:
            vanishing.send(produce_request(target, self.batch(producer_id, 0)), 9)
        wait_until(lambda: raw.fetch(target, 0).high_watermark == 3, "the batch is written")
        answer = raw.produce(target, self.batch(producer_id, 0))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert raw.fetch(target, 0).high_watermark == 3

    def test_a_gap_in_the_sequence_is_refused(self, raw: RawClient, target: str) -> None:
        producer_id = raw.producer_id()
        assert raw.produce(target, self.batch(producer_id, 0)).error_code == 0
        answer = raw.produce(target, self.batch(producer_id, 6))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert raw.produce(target, self.batch(producer_id, 3)).base_offset == 3

    def test_a_batch_from_long_ago_is_not_taken_for_a_new_one(self, raw: RawClient, target: str) -> None:
        producer_id = raw.producer_id()
        for number in range(6):
            assert raw.produce(target, self.batch(producer_id, 3 * number)).error_code == 0
        answer = raw.produce(target, self.batch(producer_id, 0))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert raw.fetch(target, 0).high_watermark == 18

    def test_an_older_epoch_is_fenced(self, raw: RawClient, target: str) -> None:
        producer_id = raw.producer_id()
        assert raw.produce(target, self.batch(producer_id, 0, epoch=0)).error_code == 0
        assert raw.produce(target, self.batch(producer_id, 0, epoch=1)).error_code == 0
        answer = raw.produce(target, self.batch(producer_id, 3, epoch=0))
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert raw.fetch(target, 0).high_watermark == 6

    def test_a_new_epoch_begins_at_zero(self, raw: RawClient, target: str) -> None:
        producer_id = raw.producer_id()
        assert raw.produce(target, self.batch(producer_id, 0, epoch=0)).error_code == 0
        answer = raw.produce(target, self.batch(producer_id, 3, epoch=1))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_sequences_begin_again_at_zero_after_the_largest_number(self, raw: RawClient, target: str) -> None:
        producer_id = raw.producer_id()
        largest = 2**31 - 1
        assert raw.produce(target, self.batch(producer_id, largest - 1, count=2)).error_code == 0
        assert raw.produce(target, self.batch(producer_id, 0)).base_offset == 2

    def test_every_producer_gets_an_id_of_its_own(self, raw: RawClient) -> None:
        ids = [raw.producer_id() for _ in range(50)]
        assert len(set(ids)) == 50


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyProxy]:
    """A broker behind a network that loses answers."""
    proxy = LossyProxy()
    process = BrokerProcess(tmp_path_factory.mktemp("behind-a-proxy"), advertise=proxy.address).start()
    proxy.broker = process.address
    yield proxy
    proxy.close()
    process.finish()


@pytest.mark.parametrize("driver", ADMIN_DRIVERS, ids=name_of)
def test_an_idempotent_producer_loses_and_repeats_nothing_when_answers_get_lost(
    lossy: LossyProxy, driver: type, topic: str
) -> None:
    client: AdminDriver = driver(lossy.address)
    client.create_topic(topic)
    sent = [Outgoing(value=b"%d" % number * 200) for number in range(1000)]
    cuts_before = lossy.cuts
    lossy.lose_every(7)
    client.produce(topic, sent, idempotent=True)
    lossy.lose_every(0)
    assert lossy.cuts > cuts_before
    assert client.range(topic) == (0, len(sent))
    assert [message.value for message in client.consume(topic, 0, len(sent))] == [message.value for message in sent]


# -- acknowledgements


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("flush", ["os", "group"])
def test_messages_are_written_with_every_acks_setting(
    confluent: ConfluentDriver, topic: str, acks: str, flush: str
) -> None:
    confluent.create_topic(topic, configs={"flush": flush})
    producer = confluent.producer(acks=acks, linger_ms=0)
    for number in range(100):
        producer.produce(topic, b"%d" % number)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert [message.value for message in confluent.consume(topic, 0, 100)] == [
        b"%d" % number for number in range(100)
    ]


def test_records_acknowledged_after_a_flush_can_be_read_at_once(client: Driver, topic: str) -> None:
    ConfluentDriver(client.bootstrap).create_topic(topic, configs={"flush": "group"})
    for number in range(3):
        client.produce(topic, [Outgoing(value=b"%d" % number)], idempotent=True)
        assert client.range(topic) == (0, number + 1)
    assert [message.value for message in client.consume(topic, 0, 3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("acks", [2, -2])
def test_an_unknown_acks_value_is_refused(raw: RawClient, confluent: ConfluentDriver, topic: str, acks: int) -> None:
    confluent.create_topic(topic)
    assert raw.produce(topic, batch_of([b"x"]), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert raw.fetch(topic, 0).high_watermark == 0


def test_a_producer_that_wants_no_answer_is_hung_up_on_when_something_goes_wrong(
    raw: RawClient, confluent: ConfluentDriver, topic: str
) -> None:
    confluent.create_topic(topic)
    raw.send(produce_request(topic, batch_of([b"good"]), acks=0), 9)
    raw.send(produce_request(topic, with_wrong_crc(batch_of([b"bad"])), acks=0), 9)
    with pytest.raises(Closed):
        raw.receive_frame()
    assert [message.value for message in confluent.consume(topic, 0, 1)] == [b"good"]
