"""What clients may not do to internal topics, asked with raw frames and with confluent-kafka."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from penstock.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.queue_claim import PREPARE, QueueClaimRequest
from penstock.wire.schema import NIL_UUID
from tests.brokers import BrokerProcess
from tests.sqs_clients import JSON, sqs_client

from .raw import RawClient, batch_of
from .raw_members import GROUP, TRANSACTION, RawProducer, find_coordinator

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
INTERNAL = {OFFSETS: GROUP, TRANSACTIONS: TRANSACTION}
PARTITIONS = 50
TOPIC_RESOURCE = 2
BY_ID_VERSION = 13
both = pytest.mark.parametrize("topic", INTERNAL)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose internal topics are there."""
    process = BrokerProcess(tmp_path_factory.mktemp("internal")).start()
    with RawClient(process.address) as client:
        for kind in INTERNAL.values():
            find_coordinator(client, "a", kind)
    yield process
    process.finish()


@pytest.fixture
def raw(process: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(process.address) as client:
        yield client


@pytest.fixture
def admin(process: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": process.kafka})


def ends(raw: RawClient, topic: str) -> list[int]:
    """The end offset of each partition."""
    return [raw.fetch(topic, 0, partition).high_watermark for partition in range(PARTITIONS)]


def code_of(error: KafkaException) -> int:
    return error.args[0].code()


# -- producing


@both
@pytest.mark.parametrize("acks", [1, -1])
def test_produce_is_refused_for_each_partition(raw: RawClient, topic: str, acks: int) -> None:
    before = ends(raw, topic)
    for partition in (0, PARTITIONS - 1):
        answer = raw.produce(topic, batch_of([b"x"]), partition, acks)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        assert "only brokers write" in answer.error_message
    assert ends(raw, topic) == before


@both
def test_the_client_id_of_kafkas_own_admin_client_changes_nothing(
    raw: RawClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.clients.raw.NAME", "__admin_client")
    assert raw.produce(topic, batch_of([b"x"])).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@both
def test_a_topic_id_instead_of_the_name_changes_nothing(raw: RawClient, topic: str) -> None:
    data = PartitionProduceData(index=0, records=batch_of([b"x"]))
    topics = [TopicProduceData(topic_id=raw.describe(topic).topic_id, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
    for _ in range(3):  # the second one might take the fast path
        answer = raw.ask(request, BY_ID_VERSION).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@both
def test_an_idempotent_producer_is_refused(raw: RawClient, topic: str) -> None:
    batch = batch_of([b"x"], producer_id=raw.producer_id(), producer_epoch=0, base_sequence=0)
    assert raw.produce(topic, batch).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_without_acknowledgements_the_connection_is_closed(process: BrokerProcess) -> None:
    with RawClient(process.address) as raw:
        data = PartitionProduceData(index=0, records=batch_of([b"x"]))
        topics = [TopicProduceData(name=OFFSETS, partition_data=[data])]
        raw.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=topics), 9)
        assert raw.is_closed_by_the_broker()


@both
@pytest.mark.parametrize("version", [4, 5])
def test_a_transaction_cannot_reach_an_internal_topic(raw: RawClient, topic: str, version: int) -> None:
    """By AddPartitionsToTxn (as Kafka refuses it), nor by the first batch of a transaction (KIP-890)."""
    producer = RawProducer(raw, f"tx-{topic}-{version}", version=version)
    assert producer.init() is ErrorCode.NONE
    assert producer.add(topic, 0) == {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    before = ends(raw, topic)
    assert producer.produce(topic, b"x") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert ends(raw, topic)[0] == before[0]


def test_offsets_within_a_transaction_are_committed_as_before(raw: RawClient) -> None:
    """Brokers still write to the topic themselves, and add its partition to the transaction."""
    for version in (4, 5):
        producer = RawProducer(raw, f"offsets-{version}", version=version)
        producer.init()
        group = f"group-{version}"
        find_coordinator(raw, group)
        if version == 4:
            assert producer.add_offsets(group) is ErrorCode.NONE
        assert producer.commit_offset(group, "orders", 7) in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert producer.commit() is ErrorCode.NONE


@both
def test_confluent_reports_the_refusal_to_the_producer(process: BrokerProcess, topic: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": process.kafka})
    producer.produce(topic, b"x", key=b"k", on_delivery=lambda error, _: errors.append(error))
    producer.flush(20)
    assert [error.code() for error in errors] == [KafkaError.TOPIC_EXCEPTION]


# -- administration


@both
def test_records_are_not_deleted(raw: RawClient, topic: str) -> None:
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
    answer = raw.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000), 2)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@both
def test_topics_are_not_deleted_by_name_or_id(raw: RawClient, admin: AdminClient, topic: str) -> None:
    known = raw.describe(topic)
    for wanted in (
        DeleteTopicState(name=topic, topic_id=NIL_UUID),
        DeleteTopicState(name=None, topic_id=known.topic_id),
    ):
        answer = raw.ask(DeleteTopicsRequest(topics=[wanted], topic_names=(), timeout_ms=10_000), 6)
        assert answer.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "holds the state of coordinators" in answer.responses[0].error_message
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic])[topic].result()
    assert code_of(refused.value) == KafkaError.TOPIC_EXCEPTION
    assert raw.describe(topic).topic_id == known.topic_id


@both
def test_partitions_are_not_added(raw: RawClient, admin: AdminClient, topic: str) -> None:
    for validate_only in (True, False):
        wanted = CreatePartitionsTopic(name=topic, count=60, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=validate_only)
        assert raw.ask(request, 3).results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 60)])[topic].result()
    assert code_of(refused.value) == KafkaError.TOPIC_EXCEPTION
    assert len(raw.describe(topic).partitions) == PARTITIONS


@both
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", None),
        ("retention.ms", "1000"),
        ("retention.bytes", "1000"),
        ("delivery.delay.ms", "1000"),
        ("delayed.messages", "true"),
        ("max.message.bytes", "1000"),
        ("storage", "memory"),
    ],
)
def test_settings_that_would_lose_state_are_refused(
    admin: AdminClient, topic: str, name: str, value: str | None
) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([resource])[resource].result()
    assert code_of(refused.value) == KafkaError.INVALID_CONFIG
    assert _config(admin, topic)["cleanup.policy"] == "compact"


@both
def test_other_settings_can_be_changed(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("min.cleanable.dirty.ratio", "0.25", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    assert _config(admin, topic)["min.cleanable.dirty.ratio"] == "0.25"


@both
def test_replacing_all_settings_cannot_leave_the_cleanup_policy_out(raw: RawClient, topic: str) -> None:
    def replace_by(configs: dict[str, str]) -> ErrorCode:
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic,
            configs=[AlterableConfig(name=name, value=value) for name, value in configs.items()],
        )
        answer = raw.ask(AlterConfigsRequest(resources=[resource], validate_only=False), 2)
        return ErrorCode(answer.responses[0].error_code)

    assert replace_by({"segment.bytes": "1048576"}) is ErrorCode.INVALID_CONFIG
    assert replace_by({"segment.bytes": "1048576", "cleanup.policy": "compact"}) is ErrorCode.NONE


@both
def test_share_groups_get_no_delivery_state_on_them(raw: RawClient, topic: str) -> None:
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])
    answer = raw.ask(AlterShareGroupOffsetsRequest(group_id="sharers", topics=[wanted]), 0)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    claim = QueueClaimRequest(action=PREPARE, group="sharers", topic_id=raw.describe(topic).topic_id)
    assert raw.ask(claim, 0).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@both
def test_dead_letters_of_share_groups_do_not_go_there(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("errors.deadletterqueue.topic.name", topic, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "sharers", incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([resource])[resource].result()
    assert code_of(refused.value) == KafkaError.INVALID_CONFIG


# -- creating


def _created_as_brokers_do(raw: RawClient, admin: AdminClient, topic: str) -> None:
    known = raw.describe(topic)
    assert (known.is_internal, len(known.partitions)) == (True, PARTITIONS)
    configs = _config(admin, topic)
    assert (configs["cleanup.policy"], configs["segment.bytes"]) == ("compact", str(100 << 20))


@both
def test_asking_for_metadata_creates_them_as_brokers_do(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    process = own_broker()
    producer = Producer({"bootstrap.servers": process.kafka, "allow.auto.create.topics": True})
    listed = producer.list_topics(topic, timeout=60).topics[topic]
    assert len(listed.partitions) == PARTITIONS
    with RawClient(process.address) as raw:
        _created_as_brokers_do(raw, AdminClient({"bootstrap.servers": process.kafka}), topic)


@both
def test_creating_them_by_hand_creates_them_as_brokers_do(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    process = own_broker()
    admin = AdminClient({"bootstrap.servers": process.kafka})
    with RawClient(process.address) as raw:
        for count, factor, configs, code in [
            (1, -1, {}, ErrorCode.INVALID_PARTITIONS),
            (PARTITIONS, 3, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
            (-1, -1, {"cleanup.policy": "delete"}, ErrorCode.INVALID_CONFIG),
            (-1, -1, {"storage": "memory"}, ErrorCode.INVALID_CONFIG),
            (-1, -1, {"retention.ms": "1000"}, ErrorCode.INVALID_CONFIG),
            (-1, -1, {"view.of": "orders", "view.where": "key = 'a'"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]:
            assert _create(raw, topic, count, factor, configs) is code
        assert raw.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert raw.describe(topic).is_internal
        described = raw.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)], response_partition_limit=1), 0
        )
        assert described.topics[0].is_internal
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"min.cleanable.dirty.ratio": "0.1"})])[
            topic
        ].result()
        _created_as_brokers_do(raw, admin, topic)
        assert _create(raw, topic, -1, -1, {}) is ErrorCode.TOPIC_ALREADY_EXISTS


@both
def test_a_queue_neither_gets_their_name_nor_is_attached_to_them(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path, topic: str
) -> None:
    process = own_broker()
    client = sqs_client(process.http, JSON, tmp_path)
    with pytest.raises(client.exceptions.QueueNameExists):
        client.create_queue(QueueName=topic)
    with RawClient(process.address) as raw:
        assert raw.describe(topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        find_coordinator(raw, "a", INTERNAL[topic])
        with pytest.raises(client.exceptions.ClientError):
            client.create_queue(QueueName="jobs", Attributes={"PenstockTopic": topic})
        _created_as_brokers_do(raw, AdminClient({"bootstrap.servers": process.kafka}), topic)


def _create(raw: RawClient, topic: str, count: int, factor: int, configs: dict[str, str]) -> ErrorCode:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=count,
        replication_factor=factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    if "view.of" in configs:
        source = CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        raw.ask(CreateTopicsRequest(topics=[source], timeout_ms=10_000), 7)
    answer = raw.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
    return ErrorCode(answer.topics[0].error_code)


def _config(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result().items()}
