"""Topics with schema.validation=true accept only records whose schema id is registered, on every way in."""

import asyncio
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.foundation.codes import ErrorCode
from penstock.foundation.delays import DELAY
from penstock.records.build import Record, build_batch
from penstock.records.compression import Codec
from penstock.wire.messages.produce import ProduceRequest
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import ConfluentDriver
from tests.clients.raw import PRODUCE_VERSION, RawClient, batch_of, produce_request
from tests.clients.raw_members import RawProducer
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses
from tests.spark_tasks import write
from tests.sqs_clients import JSON, sqs_client

from .rest_client import RestClient, record

ON = {"schema.validation": "true"}
TOPIC_NAME = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
RECORD_NAME = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
TOPIC_RECORD_NAME = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"
NEVER_AN_ID = 2**31 - 1


def value(schema_id: int, payload: bytes = b"\2") -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def create(broker: BrokerProcess, topic: str, **configs: str) -> None:
    ConfluentDriver(broker.kafka).create_topic(topic, configs=ON | configs)


@pytest.fixture
def topic(broker: BrokerProcess, new_name: Callable[[], str]) -> str:
    name = new_name()
    create(broker, name)
    return name


@pytest.fixture
def known_id(rest: RestClient, topic: str) -> int:
    return registered(rest, f"{topic}-value")


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        yield client


def registered(rest: RestClient, subject: str, *fields: str) -> int:
    answer = rest.register(subject, record("id:long", *fields))
    assert answer.status == 200, answer
    return int(answer.body["id"])


def code_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def test_serialized_records_are_accepted_and_others_refused(broker: BrokerProcess, topic: str) -> None:
    with SchemaRegistryClient({"url": f"http://{broker.http}/registry"}) as client:
        serialize = AvroSerializer(client, record("id:long"))
        good = serialize({"id": 1}, SerializationContext(topic, MessageField.VALUE))
    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 0})
    for data in (good, b"{}", None):
        producer.produce(topic, key=b"k", value=data, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(120) == 0
    assert [error and error.code() for error in failures] == [None, KafkaError.INVALID_RECORD, None]
    assert broker.is_running


def test_the_response_names_the_records_that_are_refused(
    raw: RawClient, rest: RestClient, topic: str, known_id: int
) -> None:
    elsewhere = registered(rest, f"{topic}-other", "x:int")
    cells = [value(known_id), b"plain", None, value(NEVER_AN_ID), value(known_id), b"\0\0\0\0", value(elsewhere)]
    batch = build_batch([Record(key=b"k", value=each, timestamp_ms=-1) for each in cells])
    answer = raw.produce(topic, batch)
    assert code_of(answer) is ErrorCode.INVALID_RECORD
    reasons = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
    assert set(reasons) == {1, 5}, "a batch with other faults is refused without a look into the registry"
    assert reasons[1] == "the value does not start with the magic byte 0 and a schema id"
    assert answer.error_message.startswith("record 1 of the batch: the value does not start")
    del cells[5], cells[1]
    batch = build_batch([Record(key=b"k", value=each, timestamp_ms=-1) for each in cells])
    answer = raw.produce(topic, batch)
    reasons = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
    assert reasons == {
        2: f"schema id {NEVER_AN_ID} of the value is not registered under the subject '{topic}-value'",
        4: f"schema id {elsewhere} of the value is not registered under the subject '{topic}-value'",
    }
    assert raw.batches(topic) == []


@pytest.mark.parametrize("codec", list(Codec))
def test_a_bad_record_is_found_in_a_large_batch_of_any_codec(
    raw: RawClient, topic: str, known_id: int, codec: Codec
) -> None:
    cells = [value(known_id, b"%d" % number) for number in range(20_000)]
    assert code_of(raw.produce(topic, batch_of(cells, codec=codec))) is ErrorCode.NONE
    cells[12_345] = b"\1" + cells[12_345][1:]
    answer = raw.produce(topic, batch_of(cells, codec=codec))
    assert code_of(answer) is ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [12_345]


def test_many_different_ids_in_one_batch_are_all_looked_up(raw: RawClient, rest: RestClient, topic: str) -> None:
    assert rest.put(f"/config/{topic}-value", {"compatibility": "NONE"}).status == 200
    ids = [registered(rest, f"{topic}-value", f"f{number}:int") for number in range(300)]
    assert len(set(ids)) == 300
    assert code_of(raw.produce(topic, batch_of(map(value, ids)))) is ErrorCode.NONE
    answer = raw.produce(topic, batch_of(map(value, (*ids, NEVER_AN_ID))))
    assert [each.batch_index for each in answer.record_errors] == [300]


def test_a_schema_is_accepted_as_soon_as_it_is_registered(raw: RawClient, rest: RestClient, topic: str) -> None:
    guess = registered(rest, "guesses-value", f"f{topic}:int") + 1
    assert code_of(raw.produce(topic, batch_of([value(guess)]))) is ErrorCode.INVALID_RECORD
    assert registered(rest, f"{topic}-value", f"g{topic}:int") == guess
    assert code_of(raw.produce(topic, batch_of([value(guess)]))) is ErrorCode.NONE


def test_requests_of_the_same_layout_are_validated_too(
    broker: BrokerProcess, raw: RawClient, rest: RestClient, new_name: Callable[[], str]
) -> None:
    """The fast path remembers the layout of requests, and validation may be switched on between two of them."""
    topic = new_name()
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(topic)
    known = registered(rest, f"{topic}-value")
    for _ in range(5):
        assert code_of(raw.produce(topic, batch_of([value(NEVER_AN_ID)]))) is ErrorCode.NONE
    driver.alter_configs(topic, ON)
    wait_until(
        lambda: code_of(raw.produce(topic, batch_of([value(NEVER_AN_ID)]))) is ErrorCode.INVALID_RECORD,
        "validation is on",
    )
    for _ in range(5):
        assert code_of(raw.produce(topic, batch_of([value(known)]))) is ErrorCode.NONE
        assert code_of(raw.produce(topic, batch_of([value(NEVER_AN_ID)]))) is ErrorCode.INVALID_RECORD


def test_producers_with_transactions_are_validated(raw: RawClient, topic: str, known_id: int) -> None:
    for version in (4, 5):
        producer = RawProducer(raw, f"{topic}-{version}", version=version)
        assert producer.init() is ErrorCode.NONE
        if version == 4:
            producer.add(topic, 0)
        assert producer.produce(topic, value(NEVER_AN_ID)) is ErrorCode.INVALID_RECORD
        producer.sequences.clear()
        assert producer.produce(topic, value(known_id)) is ErrorCode.NONE
        assert producer.produce(topic, b"plain") is ErrorCode.INVALID_RECORD


def test_an_idempotent_producer_gets_the_error_and_goes_on(broker: BrokerProcess, topic: str, known_id: int) -> None:
    producer = Producer({"bootstrap.servers": broker.kafka, "enable.idempotence": True, "linger.ms": 0})
    errors: list[KafkaError | None] = []
    for data in (value(known_id), b"plain", value(known_id)):
        producer.produce(topic, data, on_delivery=lambda error, _: errors.append(error))
        producer.flush(120)
    assert [error and error.code() for error in errors] == [None, KafkaError.INVALID_RECORD, None]


def test_tasks_of_spark_are_validated(broker: BrokerProcess, topic: str, known_id: int) -> None:
    async def run() -> None:
        async with KafkaClient(broker.kafka) as client:
            await write(client, topic, f"task-{topic}", value(known_id))
            with pytest.raises(ServerError) as caught:
                await write(client, topic, f"bad-{topic}", b"plain")
            assert caught.value.code is ErrorCode.INVALID_RECORD

    asyncio.run(run())


def test_delayed_messages_are_validated_when_they_are_sent(
    broker: BrokerProcess, raw: RawClient, rest: RestClient, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    create(broker, topic, **{"delayed.messages": "true"})
    known = registered(rest, f"{topic}-value")

    def send(data: bytes) -> ErrorCode:
        cell = Record(key=None, value=data, headers=((DELAY, b"200ms"),), timestamp_ms=-1)
        return code_of(raw.produce(topic, build_batch([cell])))

    wait_until(lambda: send(value(known)) is ErrorCode.NONE, "delayed delivery is ready")
    assert send(b"plain") is ErrorCode.INVALID_RECORD
    assert send(value(NEVER_AN_ID)) is ErrorCode.INVALID_RECORD

    def delivered() -> set[bytes | None]:
        return {each.value for header, records in raw.batches(topic) if not header.is_control for each in records}

    assert wait_until(delivered, "it is due") == {value(known)}


def test_messages_of_queues_do_not_get_around_validation(
    broker: BrokerProcess, raw: RawClient, topic: str, tmp_path: Path
) -> None:
    sqs = sqs_client(broker.http, JSON, tmp_path)
    dead = sqs.create_queue(QueueName=f"dead-{topic}", Attributes={"PenstockTopic": topic})["QueueUrl"]
    with pytest.raises(sqs.exceptions.ClientError) as caught:
        sqs.send_message(QueueUrl=dead, MessageBody="plain")
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert "magic byte" in caught.value.response["Error"]["Message"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    jobs = sqs.create_queue(QueueName=f"jobs-{topic}", Attributes={"RedrivePolicy": redrive})["QueueUrl"]
    sqs.send_message(QueueUrl=jobs, MessageBody="poison")

    def is_refused() -> bool:
        sqs.receive_message(QueueUrl=jobs, VisibilityTimeout=0)
        return f"message_not_moved partition=jobs-{topic}-0 code=INVALID_RECORD" in broker.log

    wait_until(is_refused, "the dead letter is refused")
    assert raw.batches(topic) == []


def test_keys_and_other_subject_name_strategies_are_validated(
    broker: BrokerProcess, raw: RawClient, rest: RestClient, new_name: Callable[[], str]
) -> None:
    def send(topic: str, *, key: bytes | None = None, data: bytes | None = None) -> ErrorCode:
        return code_of(raw.produce(topic, build_batch([Record(key=key, value=data, timestamp_ms=-1)])))

    keyed, by_record, by_both = new_name(), new_name(), new_name()
    driver = ConfluentDriver(broker.kafka)
    driver.create_topic(keyed, configs={"confluent.key.schema.validation": "true"})
    key_id, event_id = registered(rest, f"{keyed}-key", "k:int"), registered(rest, f"shop.{keyed}", "e:int")
    assert send(keyed, key=value(key_id), data=b"plain") is ErrorCode.NONE
    assert send(keyed, key=b"plain") is ErrorCode.INVALID_RECORD
    assert send(keyed, key=value(event_id)) is ErrorCode.INVALID_RECORD
    assert send(keyed, key=None) is ErrorCode.NONE
    on = {"confluent.value.schema.validation": "true"}
    driver.create_topic(by_record, configs=on | {"confluent.value.subject.name.strategy": RECORD_NAME})
    assert send(by_record, data=value(event_id)) is ErrorCode.NONE
    assert send(by_record, data=value(NEVER_AN_ID)) is ErrorCode.INVALID_RECORD
    driver.create_topic(by_both, configs=on | {"confluent.value.subject.name.strategy": TOPIC_RECORD_NAME})
    assert send(by_both, data=value(event_id)) is ErrorCode.INVALID_RECORD
    assert send(by_both, data=value(registered(rest, f"{by_both}-shop.Event", "f:int"))) is ErrorCode.NONE
    with pytest.raises(KafkaException):
        driver.create_topic(new_name(), configs={"confluent.value.subject.name.strategy": "mine"})


def test_soft_deleted_schemas_stay_valid_and_aliases_count(
    raw: RawClient, rest: RestClient, topic: str, known_id: int
) -> None:
    assert rest.delete(f"/subjects/{topic}-value").status == 200
    assert code_of(raw.produce(topic, batch_of([value(known_id)]))) is ErrorCode.NONE
    other = registered(rest, f"{topic}-alias", "a:int")
    assert code_of(raw.produce(topic, batch_of([value(other)]))) is ErrorCode.INVALID_RECORD
    assert rest.put(f"/config/{topic}-value", {"alias": f"{topic}-alias"}).status == 200
    assert code_of(raw.produce(topic, batch_of([value(other)]))) is ErrorCode.NONE


def test_nothing_is_accepted_while_another_registry_owns_the_topic(own_broker: BrokerProcess) -> None:
    rest = RestClient(own_broker.http)
    create(own_broker, "orders")
    known = registered(rest, "orders-value")
    later = registered(rest, "orders-value", "b:int=0")
    with RawClient(own_broker.address) as raw:
        assert code_of(raw.produce("orders", batch_of([value(known)]))) is ErrorCode.NONE
        ConfluentDriver(own_broker.kafka).alter_configs("_schemas", {"write.access": "clients"})
        answer = wait_until(
            lambda: (found := raw.produce("orders", batch_of([value(later)]))).error_code and found,
            "it is given away",
        )
        assert code_of(answer) is ErrorCode.NOT_ENOUGH_REPLICAS, "the producer retries"
        assert "written by clients" in answer.error_message
        assert code_of(raw.produce("orders", batch_of([b"plain"]))) is ErrorCode.INVALID_RECORD
        assert code_of(raw.produce("orders", batch_of([value(known)]))) is ErrorCode.NONE, "it was looked up before"
        ConfluentDriver(own_broker.kafka).alter_configs("_schemas", {"write.access": "brokers"})
        wait_until(
            lambda: code_of(raw.produce("orders", batch_of([value(later)]))) is ErrorCode.NONE, "it is taken back"
        )


def test_a_broker_that_does_not_lead_the_registry_asks_the_one_that_does(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    try:
        brokers = list(cluster.brokers.values())
        ConfluentDriver(cluster.bootstrap).create_topic("orders", partitions=6, configs=ON)
        known = registered(RestClient(brokers[0].http), "orders-value")
        seen = set()
        for broker in brokers:
            with RawClient(broker.address) as raw:
                for part in raw.describe("orders").partitions:
                    if cluster.brokers[part.leader_id] is broker:
                        seen.add(broker.address)
                        send = _sender(raw, part.partition_index)
                        wait_until(lambda send=send: send(value(known)) is ErrorCode.NONE, "it is accepted")
                        assert send(value(known + 1)) is ErrorCode.INVALID_RECORD
        assert len(seen) == len(brokers), "each broker led a partition"
    finally:
        cluster.finish()


def _sender(raw: RawClient, partition: int) -> Callable[[bytes], ErrorCode]:
    return lambda data: code_of(raw.produce("orders", batch_of([data]), partition))


def test_later_batches_of_a_producer_wait_for_one_that_is_retried(own_broker: BrokerProcess) -> None:
    rest = RestClient(own_broker.http)
    create(own_broker, "orders")
    known, later = registered(rest, "orders-value"), registered(rest, "orders-value", "b:int=0")
    driver = ConfluentDriver(own_broker.kafka)
    with RawClient(own_broker.address) as raw:
        assert code_of(raw.produce("orders", batch_of([value(known)]))) is ErrorCode.NONE
        driver.alter_configs("_schemas", {"write.access": "clients"})
        producer = {"producer_id": raw.producer_id(), "producer_epoch": 0}

        def send(data: bytes, sequence: int) -> ErrorCode:
            batch = batch_of([data], base_sequence=sequence, **producer)
            return code_of(raw.produce("orders", batch))

        wait_until(
            lambda: code_of(raw.produce("orders", batch_of([value(later)]))) is ErrorCode.NOT_ENOUGH_REPLICAS,
            "it is given away",
        )
        assert send(value(later), 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert send(value(known), 1) is not ErrorCode.NONE, "it would overtake the first"
        driver.alter_configs("_schemas", {"write.access": "brokers"})
        wait_until(lambda: send(value(later), 0) is ErrorCode.NONE, "it is taken back")
        assert send(value(known), 1) is ErrorCode.NONE


def test_a_producer_without_acknowledgements_is_hung_up_on(broker: BrokerProcess, raw: RawClient, topic: str) -> None:
    request: ProduceRequest = produce_request(topic, batch_of([b"plain"]), acks=0)
    raw.send(request, PRODUCE_VERSION)
    assert raw.is_closed_by_the_broker()
    with RawClient(broker.address) as other:
        assert other.batches(topic) == []


def test_a_produced_batch_waits_for_no_other_connection(topic: str, known_id: int, broker: BrokerProcess) -> None:
    """Many connections with invented ids: all are refused, and one with a registered id is accepted meanwhile."""

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def flood(number: int) -> list[ErrorCode]:
            with RawClient(broker.address) as raw:
                cells = ([value(NEVER_AN_ID - 100 * number - each)] for each in range(20))
                return [code_of(raw.produce(topic, batch_of(cell))) for cell in cells]

        floods = [loop.run_in_executor(None, flood, number) for number in range(4)]
        with RawClient(broker.address) as raw:
            for _ in range(20):
                assert code_of(raw.produce(topic, batch_of([value(known_id)]))) is ErrorCode.NONE
        for codes in await asyncio.gather(*floods):
            assert set(codes) == {ErrorCode.INVALID_RECORD}

    asyncio.run(run())
