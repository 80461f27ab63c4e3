"""Topics are created, grow and are deleted, and clients see it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.brokers import BrokerProcess

from .conftest import NO_KCAT
from .driver_aiokafka import AiokafkaDriver
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver, KafkaTimeoutError
from .driver_kafka_python import TopicPartition as TopicPartitionOfKafkaPython
from .driver_kcat import KcatDriver
from .drivers import AdminDriver, Outgoing, refused
from .raw import PRODUCE_VERSION, RawClient, batch_of, produce_request, records_of
from .waiting import PATIENCE_S, wait_until

ILLEGAL_NAMES = ["white space", "slash/slash", "..", "\u00fcmlaut", "x" * 250]


def test_a_client_describes_the_cluster(admin_client: AdminDriver, broker: BrokerProcess) -> None:
    cluster_id, controller, brokers = admin_client.cluster()
    assert len(cluster_id) == 22
    assert controller == 1
    assert brokers == [(1, *broker.address)]


def test_kafka_python_describes_topics_page_by_page(broker: BrokerProcess, topic: str) -> None:
    driver = KafkaPythonDriver(broker.kafka)
    driver.create_topic(topic, partitions=5)
    with driver.admin() as admin:
        first = admin.describe_topic_partitions([topic], response_partition_limit=3)
        second = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert first["next_cursor"] == {"topic_name": topic, "partition_index": 3}
    assert second["next_cursor"] is None
    pages = [[part["partition_index"] for part in page["topics"][0]["partitions"]] for page in (first, second)]
    assert pages == [[0, 1, 2], [3, 4]]


def test_kafka_python_describes_log_sizes_and_producers(broker: BrokerProcess, topic: str) -> None:
    driver = KafkaPythonDriver(broker.kafka)
    driver.produce(topic, [Outgoing(value=bytes(5000))], idempotent=True)
    with driver.admin() as admin:
        (described,) = admin.describe_log_dirs()
        producers = admin.describe_producers([TopicPartitionOfKafkaPython(topic, 0)])
    (log_dir,) = described["log_dirs"]
    (found,) = [entry for entry in log_dir["topics"] if entry["name"] == topic]
    assert 5000 < found["partitions"][0]["partition_size"] < 6000
    (producer,) = producers[TopicPartitionOfKafkaPython(topic, 0)].active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 0)


@NO_KCAT
def test_kcat_lists_topics_with_their_partitions(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, partitions=2)
    listed = KcatDriver(confluent.bootstrap).run("-L", "-t", topic).decode()
    assert f'topic "{topic}" with 2 partitions:' in listed
    assert "partition 1, leader 1, replicas: 1, isrs: 1" in listed


@pytest.fixture(scope="module")
def strict_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that does not create topics on demand."""
    settings = {"auto.create.topics.enable": False, "num.partitions": 3}
    process = BrokerProcess(tmp_path_factory.mktemp("strict"), settings).start()
    yield process
    process.finish()


def test_an_unknown_topic_stays_unknown_to_confluent_kafka(strict_broker: BrokerProcess) -> None:
    confluent = ConfluentDriver(strict_broker.kafka)
    errors: list[KafkaError] = []
    producer = confluent.producer(topic_metadata_propagation_max_ms=100)
    producer.produce("nowhere", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error.code() for error in errors] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert confluent.topics() == set()


def test_an_unknown_topic_stays_unknown_to_kafka_python(strict_broker: BrokerProcess) -> None:
    """It asks again and again, and says in the end that it waited in vain."""
    driver = KafkaPythonDriver(strict_broker.kafka)
    with driver.producer(max_block_ms=300) as producer, pytest.raises(KafkaTimeoutError):
        producer.send("nowhere", b"x")
    assert driver.topics() == set()


def test_an_unknown_topic_stays_unknown_to_aiokafka(strict_broker: BrokerProcess) -> None:
    driver = AiokafkaDriver(strict_broker.kafka)

    async def send() -> None:
        async with driver.producer(request_timeout_ms=300) as producer:
            await producer.send_and_wait("nowhere", b"x")

    with refused(driver, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        asyncio.run(send())
    assert driver.topics() == set()


@NO_KCAT
def test_an_unknown_topic_stays_unknown_to_kcat(strict_broker: BrokerProcess) -> None:
    listed = KcatDriver(strict_broker.kafka).run("-L", "-t", "nowhere").decode()
    assert 'topic "nowhere" with 0 partitions: Broker: Unknown topic or partition' in listed


def test_a_topic_made_without_a_number_of_partitions_gets_the_brokers(strict_broker: BrokerProcess) -> None:
    confluent = ConfluentDriver(strict_broker.kafka)
    confluent.admin.create_topics([NewTopic("orders")])["orders"].result(PATIENCE_S)
    assert len(confluent.admin.list_topics(timeout=PATIENCE_S).topics["orders"].partitions) == 3
    confluent.delete_topic("orders")


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_an_illegal_name_is_called_so_even_then(strict_broker: BrokerProcess, name: str) -> None:
    with RawClient(strict_broker.address) as raw:
        assert raw.describe(name, allow_auto_topic_creation=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_an_illegal_topic_name_is_refused(confluent: ConfluentDriver, raw: RawClient, name: str) -> None:
    with refused(confluent, ErrorCode.INVALID_TOPIC_EXCEPTION):
        confluent.create_topic(name)
    for allowed in (True, False):
        assert raw.describe(name, allow_auto_topic_creation=allowed).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_that_differ_only_in_dots_and_underscores_collide(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(f"{topic}.a_b")
    with refused(confluent, ErrorCode.INVALID_TOPIC_EXCEPTION):
        confluent.create_topic(f"{topic}_a.b")


def test_a_topic_is_made_once(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic)
    with refused(admin_client, ErrorCode.TOPIC_ALREADY_EXISTS):
        admin_client.create_topic(topic)


def test_a_topic_that_is_not_there_cannot_be_deleted(admin_client: AdminDriver, topic: str) -> None:
    with refused(admin_client, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        admin_client.delete_topic(topic)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        pytest.param({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS, id="no-partitions"),
        pytest.param({"num_partitions": 10_001}, ErrorCode.INVALID_PARTITIONS, id="too-many-partitions"),
        pytest.param(
            {"num_partitions": 1, "replication_factor": 2},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            id="more-replicas-than-brokers",
        ),
        pytest.param(
            {"num_partitions": 1, "replica_assignment": [[7]]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            id="a-broker-that-is-not",
        ),
    ],
)
def test_a_topic_that_cannot_be_is_not_made(
    confluent: ConfluentDriver, topic: str, wanted: dict[str, Any], code: ErrorCode
) -> None:
    with refused(confluent, code):
        confluent.admin.create_topics([NewTopic(topic, **wanted)])[topic].result(PATIENCE_S)
    assert topic not in confluent.topics()


def test_partitions_may_be_assigned_by_hand(confluent: ConfluentDriver, topic: str) -> None:
    wanted = NewTopic(topic, 2, replica_assignment=[[1], [1]])
    confluent.admin.create_topics([wanted])[topic].result(PATIENCE_S)
    partitions = confluent.admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    assert {number: found.replicas for number, found in partitions.items()} == {0: [1], 1: [1]}


def test_a_topic_is_tried_without_being_made(confluent: ConfluentDriver, topic: str) -> None:
    confluent.admin.create_topics([NewTopic(topic, 2)], validate_only=True)[topic].result(PATIENCE_S)
    assert topic not in confluent.topics()


def test_one_bad_topic_does_not_keep_the_others_from_being_made(confluent: ConfluentDriver, topic: str) -> None:
    futures = confluent.admin.create_topics([NewTopic(topic, 1), NewTopic("bad name", 1)])
    assert futures[topic].result(PATIENCE_S) is None
    with refused(confluent, ErrorCode.INVALID_TOPIC_EXCEPTION):
        futures["bad name"].result(PATIENCE_S)


def test_a_topic_made_again_under_its_old_name_is_another_one(
    admin_client: AdminDriver, raw: RawClient, topic: str
) -> None:
    admin_client.create_topic(topic)
    admin_client.produce(topic, [Outgoing(value=b"old %d" % number) for number in range(5)])
    old_id = raw.describe(topic).topic_id
    admin_client.delete_topic(topic)
    assert raw.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    admin_client.create_topic(topic)
    assert admin_client.range(topic) == (0, 0)
    admin_client.produce(topic, [Outgoing(value=b"new")])
    assert [(message.offset, message.value) for message in admin_client.consume_from_start(topic, 1)] == [(0, b"new")]
    new_id = raw.describe(topic).topic_id
    assert new_id != old_id
    assert fetch_by_id(raw, old_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert [record.value for record in records_of(fetch_by_id(raw, new_id).records)] == [b"new"]


def fetch_by_id(raw: RawClient, topic_id: bytes) -> Any:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])], rack_id=""
    )
    return raw.ask(request, 16).responses[0].partitions[0]


def test_a_consumer_and_a_producer_live_through_the_deletion_of_their_topic(
    confluent: ConfluentDriver, topic: str
) -> None:
    confluent.create_topic(topic)
    producer = confluent.producer(enable_idempotence=True, topic_metadata_refresh_interval_ms=100)
    for number in range(5):
        producer.produce(topic, b"old %d" % number)
    assert producer.flush(PATIENCE_S) == 0
    options = {"auto_offset_reset": "earliest", "topic_metadata_refresh_interval_ms": 100}
    with confluent.consumer(**options) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert len(consumer.consume(5, PATIENCE_S)) == 5
        confluent.delete_topic(topic)
        try:
            confluent.create_topic(topic)
        except KafkaException as error:
            # The producer asks for it all the time, and by that makes it itself if it is the first.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

        def sees_the_new_one() -> bool:
            # A producer that has not heard of it yet may lose this one to the old topic: no matter.
            producer.produce(topic, b"new")
            producer.poll(0)
            message = consumer.poll(0.1)
            return message is not None and message.error() is None and message.value() == b"new"

        wait_until(sees_the_new_one, "the consumer reads from the topic that was made again")
    producer.purge()


@pytest.mark.parametrize("flush", ["os", "group"])
def test_a_topic_is_deleted_while_it_is_written_to(
    confluent: ConfluentDriver, raw: RawClient, topic: str, flush: str
) -> None:
    for _ in range(5):
        confluent.create_topic(topic, configs={"flush": flush, "segment.bytes": "1024"})
        for number in range(200):
            raw.send(produce_request(topic, batch_of([b"%d" % number * 50])), PRODUCE_VERSION)
        confluent.delete_topic(topic)
        codes = [raw.receive().responses[0].partition_responses[0].error_code for _ in range(200)]
        written = codes.count(0)
        assert codes[:written] == [0] * written
        assert set(codes[written:]) <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR}


def test_partitions_are_added_while_a_producer_runs(admin_client: AdminDriver, topic: str) -> None:
    admin_client.create_topic(topic, partitions=1)
    sent = produce_until_partition(admin_client, topic, 1, lambda: grow(admin_client, topic, 2))
    for partition in (0, 1):
        expected = [value for value, where in sent if where == partition]
        got = admin_client.consume(topic, 0, len(expected), partition)
        assert [message.value for message in got] == expected


def grow(driver: AdminDriver, topic: str, partitions: int) -> None:
    confluent = ConfluentDriver(driver.bootstrap)
    confluent.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)


def produce_until_partition(
    driver: AdminDriver, topic: str, partition: int, when_running: Callable[[], None]
) -> list[tuple[bytes, int]]:
    """One producer writes one message after another until one of them lands in a partition."""
    sent: list[tuple[bytes, int]] = []
    deadline_s = time.monotonic() + PATIENCE_S

    def goes_on() -> bool:
        assert time.monotonic() < deadline_s, "the producer never heard of the new partition"
        if len(sent) == 3:
            when_running()
        return not sent or sent[-1][1] != partition

    def next_value() -> bytes:
        return b"%d" % len(sent)

    if isinstance(driver, ConfluentDriver):
        producer = driver.producer(topic_metadata_refresh_interval_ms=100, linger_ms=0)
        while goes_on():
            producer.produce(
                topic, next_value(), on_delivery=lambda error, got: sent.append((got.value(), got.partition()))
            )
            assert producer.flush(PATIENCE_S) == 0
    elif isinstance(driver, KafkaPythonDriver):
        with driver.producer(metadata_max_age_ms=100) as producer:
            while goes_on():
                value = next_value()
                sent.append((value, producer.send(topic, value).get(PATIENCE_S).partition))
    else:

        async def run() -> None:
            async with driver.producer(metadata_max_age_ms=100) as producer:
                while await asyncio.to_thread(goes_on):
                    value = next_value()
                    sent.append((value, (await producer.send_and_wait(topic, value)).partition))

        asyncio.run(run())
    return sent


def test_a_topic_does_not_shrink(confluent: ConfluentDriver, topic: str) -> None:
    confluent.create_topic(topic, partitions=3)
    with refused(confluent, ErrorCode.INVALID_PARTITIONS):
        grow(confluent, topic, 2)


def test_an_unknown_partition_is_unknown(confluent: ConfluentDriver, raw: RawClient, topic: str) -> None:
    confluent.create_topic(topic, partitions=2)
    assert raw.fetch(topic, 0, partition=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with confluent.consumer() as consumer, pytest.raises(KafkaException) as caught:
        consumer.get_watermark_offsets(TopicPartition(topic, 2), PATIENCE_S)
    assert caught.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
