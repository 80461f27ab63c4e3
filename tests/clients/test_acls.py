"""ACLs as clients of other people see them: errors, listings, views, patterns, and permissions that end."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
)
from confluent_kafka.admin import ResourceType as AdminResourceType
from kafka import KafkaProducer
from kafka import errors as kafka_errors

from penstock.client.connection import Connection
from penstock.client.errors import ConnectionLost
from penstock.foundation.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from penstock.foundation.authorizer_settings import STANDARD_AUTHORIZER
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.brokers import BrokerProcess
from tests.clients.acl_lab import ADMIN, AclLab, Rule, grant, revoke_all
from tests.clients.driver_confluent import QUIET
from tests.clients.waiting import PATIENCE_S, wait_until

ORDERS, SECRET = "orders", "secret"
EVE, ANN, BOB, CAT, DAN = "eve", "ann", "bob", "cat", "dan"
ROW = b'{"region": "eu"}'


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclLab]:
    lab = AclLab(tmp_path_factory.mktemp("acls"), [EVE, ANN, BOB, CAT, DAN])
    for future in lab.admin.create_topics([NewTopic(ORDERS, 1), NewTopic(SECRET, 1)]).values():
        future.result(PATIENCE_S)
    yield lab
    lab.broker.finish()


def as_admin(lab: AclLab, *grants: tuple[str, Rule]) -> None:
    async def run() -> None:
        admin = await lab.connect(ADMIN)
        try:
            for user, rule in grants:
                await grant(admin, user, rule)
        finally:
            await admin.close()

    uvloop.run(run())


def revoke(lab: AclLab, user: str) -> None:
    async def run() -> None:
        admin = await lab.connect(ADMIN)
        try:
            assert await revoke_all(admin, user) > 0
        finally:
            await admin.close()

    uvloop.run(run())


def on(operation: Operation, topic: str = ORDERS, **how: Any) -> Rule:
    return Rule(operation, ResourceType.TOPIC, topic, **how)


def member_of(group: str) -> Rule:
    return Rule(Operation.READ, ResourceType.GROUP, group)


def write(lab: AclLab, user: str, topic: str = ORDERS, **options: Any) -> KafkaError | None:
    """Writes one message; returns the error."""
    errors: list[KafkaError | None] = []
    producer = Producer(lab.librdkafka(user, **options))
    producer.produce(topic, ROW, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return errors[0]


def is_denied(error: KafkaError | None) -> bool:
    return error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


class Reader:
    """A consumer of one topic from its beginning."""

    def __init__(self, lab: AclLab, user: str, topic: str, **options: Any) -> None:
        options = {"group.id": f"{user}-group", "auto.offset.reset": "earliest", **options}
        self.consumer = Consumer(lab.librdkafka(user, **options))
        self.consumer.subscribe([topic])

    def next(self) -> bytes | int:
        """Returns the next message, or the code of the error."""
        found = self.consumer.poll(PATIENCE_S)
        assert found is not None, "neither a message nor an error came"
        error = found.error()
        if error is not None:
            return int(error.code())
        return bytes(found.value() or b"")

    def close(self) -> None:
        self.consumer.close()


BINDING = AclBinding(
    AdminResourceType.TOPIC,
    "stock-",
    ResourcePatternType.PREFIXED,
    "User:zoe",
    "10.0.0.0/8",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)


def test_an_administrator_manages_acls(lab: AclLab) -> None:
    denial = AclBinding(
        AdminResourceType.TOPIC,
        "*",
        ResourcePatternType.LITERAL,
        "User:zoe",
        "*",
        AclOperation.DELETE,
        AclPermissionType.DENY,
    )
    for future in lab.admin.create_acls([BINDING, denial]).values():
        future.result(PATIENCE_S)
    of_stock = AclBindingFilter(
        AdminResourceType.TOPIC,
        "stock-eu",
        ResourcePatternType.MATCH,
        "User:zoe",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert set(lab.admin.describe_acls(of_stock).result(PATIENCE_S)) == {BINDING, denial}
    (deleted,) = lab.admin.delete_acls([of_stock]).values()
    assert set(deleted.result(PATIENCE_S)) == {BINDING, denial}
    assert lab.admin.describe_acls(of_stock).result(PATIENCE_S) == []


@pytest.mark.parametrize(
    ("name", "host", "reason"),
    [
        ("x" * 30_000, "*", "at most 1024 characters"),
        ("t", "example.org", "names of hosts are not looked up"),
        ("t", "10.0.0.1/8", "is not an IP address, a network"),
    ],
)
def test_a_bad_acl_is_refused(lab: AclLab, name: str, host: str, reason: str) -> None:
    bad = AclBinding(
        AdminResourceType.TOPIC,
        name,
        ResourcePatternType.LITERAL,
        "User:zoe",
        host,
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (future,) = lab.admin.create_acls([bad]).values()
    with pytest.raises(KafkaException, match=reason):
        future.result(PATIENCE_S)


def test_clients_without_permission_get_kafkas_errors(lab: AclLab) -> None:
    error = write(lab, EVE)
    assert error is not None
    assert error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    reader = Reader(lab, EVE, ORDERS)
    assert reader.next() == KafkaError.GROUP_AUTHORIZATION_FAILED
    reader.close()
    options = {
        "bootstrap_servers": lab.at,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": EVE,
        "sasl_plain_password": EVE,
    }
    producer = KafkaProducer(**options, enable_idempotence=False, max_block_ms=int(PATIENCE_S * 1000))
    with pytest.raises(kafka_errors.TopicAuthorizationFailedError):
        producer.send(SECRET, ROW).get(PATIENCE_S)
    producer.close()

    async def send() -> None:
        async with AIOKafkaProducer(**options) as async_producer:
            await async_producer.send_and_wait(SECRET, ROW)

    with pytest.raises(TopicAuthorizationFailedError):
        uvloop.run(send())


def test_permissions_are_enough(lab: AclLab) -> None:
    as_admin(lab, (ANN, on(Operation.WRITE)), (ANN, on(Operation.READ)), (ANN, member_of("ann-group")))
    as_admin(
        lab, (ANN, Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "ann-", pattern_type=PatternType.PREFIXED))
    )
    assert write(lab, ANN) is None
    producer = Producer(lab.librdkafka(ANN, **{"transactional.id": "ann-1"}))
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(ORDERS, ROW)
    producer.commit_transaction(PATIENCE_S)
    reader = Reader(lab, ANN, ORDERS)
    assert [reader.next(), reader.next()] == [ROW, ROW]
    reader.consumer.commit(asynchronous=False)
    reader.close()
    assert is_denied(write(lab, ANN, SECRET))


def test_listings_omit_what_a_client_may_not_know(lab: AclLab) -> None:
    as_admin(lab, (DAN, on(Operation.DESCRIBE)), (DAN, Rule(Operation.DESCRIBE, ResourceType.GROUP, "none")))
    producer = Producer(lab.librdkafka(ADMIN, **{"transactional.id": "of-admin"}))
    producer.init_transactions(PATIENCE_S)
    reader = Reader(lab, ADMIN, ORDERS)
    assert write(lab, ADMIN) is None
    assert reader.next() == ROW  # the group exists

    async def seen(connection: Connection, topic_id: bytes) -> tuple[list[str], list[str], list[str], list[int]]:
        topics = await connection.request(MetadataRequest(topics=None))
        groups = await connection.request(ListGroupsRequest())
        transactions = await connection.request(ListTransactionsRequest(state_filters=(), producer_id_filters=()))
        named = [
            MetadataRequestTopic(name=SECRET),
            MetadataRequestTopic(name="missing"),
            MetadataRequestTopic(topic_id=topic_id, name=None),
        ]
        of_named = await connection.request(MetadataRequest(topics=named, allow_auto_topic_creation=False))
        return (
            [topic.name for topic in topics.topics if not topic.is_internal],
            [group.group_id for group in groups.groups],
            [state.transactional_id for state in transactions.transaction_states],
            [topic.error_code for topic in of_named.topics],
        )

    async def check() -> None:
        admin, dan = await lab.connect(ADMIN), await lab.connect(DAN)
        try:
            known = await admin.request(MetadataRequest(topics=[MetadataRequestTopic(name=SECRET)]))
            topic_id = bytes(known.topics[0].topic_id)
            topics, groups, transactions, codes = await seen(admin, topic_id)
            assert {ORDERS, SECRET} <= set(topics)
            assert "admin-group" in groups
            assert "of-admin" in transactions
            assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
            topics, groups, transactions, codes = await seen(dan, topic_id)
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (topics, groups, transactions) == ([ORDERS], [], [])
            # A name does not tell whether the topic exists, nor does an id.
            assert codes == [denied, denied, ErrorCode.UNKNOWN_TOPIC_ID]
        finally:
            await admin.close()
            await dan.close()

    uvloop.run(check())
    reader.close()


def test_what_a_client_may_do_is_described(lab: AclLab) -> None:
    as_admin(lab, (CAT, on(Operation.WRITE)), (CAT, Rule(Operation.ALTER_CONFIGS)))

    async def check() -> None:
        cat = await lab.connect(CAT)
        try:
            answer = await cat.request(
                MetadataRequest(topics=[MetadataRequestTopic(name=ORDERS)], include_topic_authorized_operations=True)
            )
            expected = 1 << Operation.WRITE | 1 << Operation.DESCRIBE
            assert answer.topics[0].topic_authorized_operations == expected
        finally:
            await cat.close()

    uvloop.run(check())
    revoke(lab, CAT)


def test_a_permission_that_ends_ends_for_running_clients(lab: AclLab) -> None:
    """Also for requests that are answered without a handler, and for those that wait."""
    as_admin(lab, (BOB, on(Operation.WRITE)), (BOB, on(Operation.READ)), (BOB, member_of("bob-group")))
    reader = Reader(lab, BOB, ORDERS, **{"fetch.wait.max.ms": 2000})
    codes: list[int] = []
    producer = Producer(lab.librdkafka(BOB, acks=1, **{"enable.idempotence": False}))

    def on_delivery(error: KafkaError | None, _: Any) -> None:
        codes.append(0 if error is None else error.code())

    for _ in range(20):
        producer.produce(ORDERS, ROW, on_delivery=on_delivery)
        producer.flush(PATIENCE_S)
    assert codes == [0] * 20
    for _ in range(20):
        assert reader.next() == ROW
    revoke(lab, BOB)
    producer.produce(ORDERS, ROW, on_delivery=on_delivery)
    producer.flush(PATIENCE_S)
    assert codes[-1] == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert write(lab, ADMIN) is None  # a message that Bob must not get
    deadline_s = time.monotonic() + PATIENCE_S
    found = reader.next()
    while found == ROW and time.monotonic() < deadline_s:
        found = reader.next()  # fetched before
    assert found in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
    reader.close()


async def ask_on(client: Connection) -> None:
    """Asks until the connection is closed: a request that arrives together with the one before is answered."""
    while True:
        await client.request(MetadataRequest(topics=[]))


def test_a_denied_message_without_acks_closes_the_connection(lab: AclLab) -> None:
    as_admin(lab, (CAT, on(Operation.DESCRIBE, SECRET)))

    async def send() -> None:
        cat = await lab.connect(CAT)
        try:
            data = [PartitionProduceData(index=0, records=b"")]
            topics = [TopicProduceData(name=SECRET, partition_data=data)]
            await cat.send(
                ProduceRequest(transactional_id=None, acks=0, timeout_ms=1000, topic_data=topics), version_max=12
            )
            with pytest.raises(ConnectionLost):
                await asyncio.wait_for(ask_on(cat), PATIENCE_S)
        finally:
            await cat.close()

    uvloop.run(send())
    revoke(lab, CAT)


def test_a_view_is_read_without_its_topic(lab: AclLab) -> None:
    view = "orders-eu"
    config = {"view.of": ORDERS, "view.where": "$.region = 'eu'"}
    as_admin(lab, (CAT, on(Operation.CREATE, view)))
    cat = AdminClient(lab.librdkafka(CAT))
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        cat.create_topics([NewTopic(view, 1, config=config)])[view].result(PATIENCE_S)
    as_admin(lab, (CAT, on(Operation.READ)))
    cat.create_topics([NewTopic(view, 1, config=config)])[view].result(PATIENCE_S)
    revoke(lab, CAT)
    as_admin(lab, (CAT, on(Operation.READ, view)), (CAT, member_of("cat-group")))
    assert write(lab, ADMIN) is None
    reader = Reader(lab, CAT, view)
    assert reader.next() == ROW
    reader.close()
    reader = Reader(lab, CAT, ORDERS)
    assert reader.next() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    reader.close()
    revoke(lab, CAT)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_selects_only_topics_that_the_client_may_know(lab: AclLab, protocol: str) -> None:
    names = [f"{protocol}-open", f"{protocol}-closed"]
    for future in lab.admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(PATIENCE_S)
    group = f"pattern-{protocol}"
    as_admin(lab, (CAT, on(Operation.READ, names[0])), (CAT, member_of(group)))
    reader = Reader(lab, CAT, f"^{protocol}-.*", **{"group.id": group, "group.protocol": protocol})
    assert [write(lab, ADMIN, name) for name in names] == [None, None]
    assert reader.next() == ROW
    assert {part.topic for part in reader.consumer.assignment()} == {names[0]}
    as_admin(lab, (CAT, on(Operation.READ, names[1])))
    if protocol == "consumer":  # else the client looks for new topics every five minutes
        wait_until(
            lambda: (
                reader.consumer.poll(0.1) is None
                and {part.topic for part in reader.consumer.assignment()} == set(names)
            ),
            "the other topic is assigned",
        )
    reader.close()
    revoke(lab, CAT)


def test_a_denial_is_stronger_than_a_permission(lab: AclLab) -> None:
    everything = Rule(Operation.ALL, ResourceType.TOPIC, "*")
    as_admin(
        lab,
        (CAT, everything),
        (CAT, on(Operation.WRITE, "sec", permission=Permission.DENY, pattern_type=PatternType.PREFIXED)),
    )
    assert write(lab, CAT) is None
    assert is_denied(write(lab, CAT, SECRET))
    revoke(lab, CAT)


def test_rules_may_be_for_hosts(lab: AclLab) -> None:
    as_admin(lab, (CAT, on(Operation.WRITE, host="192.0.2.1")), (CAT, on(Operation.DESCRIBE)))
    assert is_denied(write(lab, CAT))
    as_admin(lab, (CAT, on(Operation.WRITE, host="127.0.0.1")))
    assert write(lab, CAT) is None
    as_admin(lab, (CAT, on(Operation.WRITE, host="127.0.0.0/8", permission=Permission.DENY)))
    assert is_denied(write(lab, CAT))
    revoke(lab, CAT)


def test_topics_are_created_only_with_permission(lab: AclLab) -> None:
    as_admin(lab, (CAT, on(Operation.WRITE, "new-", pattern_type=PatternType.PREFIXED)))
    assert is_denied(write(lab, CAT, "new-1"))
    as_admin(lab, (CAT, Rule(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)))
    assert write(lab, CAT, "new-1") is None
    revoke(lab, CAT)


def test_brokers_that_do_not_log_in_must_be_super_users(tmp_path: Path) -> None:
    """A single broker needs no permission, so that it starts; its log tells what is missing."""
    broker = BrokerProcess(tmp_path, {"authorizer.class.name": STANDARD_AUTHORIZER}).start()
    try:
        assert "broker_is_not_authorized principal='User:ANONYMOUS'" in broker.log
        admin = AdminClient({"bootstrap.servers": broker.kafka, **QUIET})
        with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
            admin.create_acls([BINDING])[BINDING].result(PATIENCE_S)
    finally:
        broker.finish()
