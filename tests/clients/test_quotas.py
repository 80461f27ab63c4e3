"""Client quotas (KIP-13, -124, -546, -599) with real clients: who is throttled, by how much, and who is not."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.client.address import parse_bootstrap
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.client.errors import ConnectionFailed
from penstock.cluster.client_quotas import (
    CONNECTION_RATE,
    CONSUMER_RATE,
    MUTATION_RATE,
    PRODUCER_RATE,
    REQUEST_PERCENTAGE,
)
from penstock.foundation.codes import ErrorCode
from penstock.foundation.quota_entities import CLIENT_ID, IP, USER
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    QuotaAlteration,
    QuotaOp,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, QuotaComponent
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest
from tests.brokers import BrokerProcess
from tests.clients.driver_confluent import QUIET
from tests.clients.waiting import PATIENCE_S

TOPIC = "orders"
Names = dict[str, str | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("quotas")).start()
    admin = AdminClient({"bootstrap.servers": process.kafka, **QUIET})
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_S)
    yield process
    process.finish()


async def connect(broker: BrokerProcess, client_id: str = "admin") -> Connection:
    return await open_connection(parse_bootstrap(broker.kafka)[0], ConnectionSettings(client_id=client_id))


async def alter(connection: Connection, names: Names, validate_only: bool = False, **quotas: float | None) -> Any:
    entity = [AlteredQuotaEntity(entity_type=kind, entity_name=name) for kind, name in names.items()]
    ops = [QuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    request = AlterClientQuotasRequest(entries=[QuotaAlteration(entity=entity, ops=ops)], validate_only=validate_only)
    (result,) = (await connection.request(request)).entries
    return result


async def describe(connection: Connection, *components: QuotaComponent, strict: bool = False) -> list[Any]:
    answer = await connection.request(DescribeClientQuotasRequest(components=components, strict=strict))
    assert answer.error_code == 0, answer
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries
    ]


def set_quotas(broker: BrokerProcess, names: Names, **quotas: float | None) -> None:
    async def run() -> None:
        admin = await connect(broker)
        try:
            result = await alter(admin, names, **quotas)
            assert result.error_code == 0, result
        finally:
            await admin.close()

    uvloop.run(run())


def test_quotas_are_set_listed_and_removed(broker: BrokerProcess) -> None:
    async def check() -> None:
        admin = await connect(broker)
        both: Names = {CLIENT_ID: "c", USER: "ann"}
        default: Names = {USER: None}
        try:
            assert (await alter(admin, both, **{PRODUCER_RATE: 1000.0, REQUEST_PERCENTAGE: 12.5})).error_code == 0
            assert (await alter(admin, default, **{CONSUMER_RATE: 2000.0})).error_code == 0
            assert (await alter(admin, {USER: "bob"}, validate_only=True, **{CONSUMER_RATE: 1.0})).error_code == 0
            every_user = QuotaComponent(entity_type=USER, match_type=2, match=None)
            expected = [(both, {PRODUCER_RATE: 1000.0, REQUEST_PERCENTAGE: 12.5}), (default, {CONSUMER_RATE: 2000.0})]
            assert sorted(await describe(admin, every_user), key=str) == sorted(expected, key=str)
            assert await describe(admin, every_user, strict=True) == expected[1:]
            assert await describe(admin, QuotaComponent(entity_type=USER, match_type=0, match="ann")) == expected[:1]
            assert await describe(admin, QuotaComponent(entity_type=USER, match_type=1, match=None)) == expected[1:]
            assert (await alter(admin, both, **{PRODUCER_RATE: None})).error_code == 0
            assert (await describe(admin, every_user))[0][1] == {REQUEST_PERCENTAGE: 12.5}
            assert (await alter(admin, both, **{REQUEST_PERCENTAGE: None})).error_code == 0
            assert (await alter(admin, default, **{CONSUMER_RATE: None})).error_code == 0
            assert await describe(admin) == []
        finally:
            await admin.close()

    uvloop.run(check())


@pytest.mark.parametrize(
    ("names", "quotas", "reason"),
    [
        ({}, {PRODUCER_RATE: 1.0}, "Invalid empty client quota entity"),
        ({"host": "a"}, {PRODUCER_RATE: 1.0}, "Unhandled client quota entity type: host"),
        ({USER: "a", IP: "10.0.0.1"}, {"connection_creation_rate": 1.0}, "Invalid client quota entity combination"),
        ({IP: "example.org"}, {"connection_creation_rate": 1.0}, "not a valid IP address"),
        ({IP: "10.0.0.1"}, {PRODUCER_RATE: 1.0}, "Invalid configuration key producer_byte_rate"),
        ({USER: "a"}, {"bytes": 1.0}, "Invalid configuration key bytes"),
        ({USER: "a"}, {PRODUCER_RATE: 0.0}, "must be greater than 0"),
        ({USER: "a"}, {PRODUCER_RATE: float("inf")}, "must be greater than 0"),
        ({USER: "a"}, {PRODUCER_RATE: float("nan")}, "must be greater than 0"),
        ({USER: "a"}, {PRODUCER_RATE: 1.5}, "must be a whole number"),
        ({USER: "x" * 300}, {PRODUCER_RATE: 1.0}, "has 1 to 255 characters"),
    ],
)
def test_bad_quotas_are_refused(broker: BrokerProcess, names: Names, quotas: dict[str, float], reason: str) -> None:
    async def check() -> None:
        admin = await connect(broker)
        try:
            result = await alter(admin, names, **quotas)
            assert result.error_code == ErrorCode.INVALID_REQUEST
            assert reason in result.error_message
        finally:
            await admin.close()

    uvloop.run(check())


def send(broker: BrokerProcess, client_id: str, *sizes: int) -> tuple[float, list[float]]:
    """Sends messages one after the other; returns the seconds that it took, and the throttle times."""
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.kafka,
            "client.id": client_id,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
            **QUIET,
        }
    )
    producer.list_topics(TOPIC, PATIENCE_S)
    began_s = time.monotonic()
    for size in sizes:
        producer.produce(TOPIC, bytes(size))
        assert producer.flush(PATIENCE_S) == 0
    seconds = time.monotonic() - began_s
    producer.poll(0)
    return seconds, throttled


RATE, FREE = 10_000, 100_000
"""Bytes per second of the tests' quotas, and the bytes that a client may send at once."""
SIZE = FREE + 2 * RATE
"""Of a message that throttles a client for two seconds."""


def test_a_producer_is_throttled(broker: BrokerProcess) -> None:
    """By the bytes beyond what its quota allows in the window; others are not."""
    set_quotas(broker, {CLIENT_ID: "slow"}, **{PRODUCER_RATE: float(RATE)})
    seconds, throttled = send(broker, "slow", SIZE, 1)
    assert 2 <= max(throttled) < 3
    assert seconds >= 2
    assert send(broker, "fast", SIZE, 1)[1] == []
    set_quotas(broker, {CLIENT_ID: "slow"}, **{PRODUCER_RATE: None})
    assert send(broker, "slow", SIZE, 1)[1] == []


def test_a_consumer_is_throttled(broker: BrokerProcess) -> None:
    """Each client by itself, by a default quota."""
    send(broker, "filler", SIZE, SIZE)
    set_quotas(broker, {CLIENT_ID: None}, **{CONSUMER_RATE: float(RATE)})
    for client_id in ("one", "two"):
        throttled: list[float] = []
        consumer = Consumer(
            {
                "bootstrap.servers": broker.kafka,
                "client.id": client_id,
                "group.id": client_id,
                "message.max.bytes": SIZE,
                "fetch.max.bytes": SIZE + 1000,
                "fetch.message.max.bytes": SIZE + 1000,
                "queued.min.messages": 1,
                "throttle_cb": lambda event, found=throttled: found.append(event.throttle_time),
                **QUIET,
            }
        )
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        while not throttled:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
        assert max(throttled) >= 2
        consumer.close()
    set_quotas(broker, {CLIENT_ID: None}, **{CONSUMER_RATE: None})


def test_time_is_limited(broker: BrokerProcess) -> None:
    """A millionth of the time: the next request after a debt is throttled for a second at most."""
    set_quotas(broker, {USER: "ANONYMOUS"}, **{REQUEST_PERCENTAGE: 0.0001})

    async def check() -> None:
        client = await connect(broker, "busy")
        try:
            answers = [await client.request(MetadataRequest(topics=None)) for _ in range(3)]
            assert 0 < answers[-1].throttle_time_ms <= 1000
        finally:
            await client.close()

    uvloop.run(check())
    set_quotas(broker, {USER: "ANONYMOUS"}, **{REQUEST_PERCENTAGE: None})


def test_changes_of_partitions_are_limited(broker: BrokerProcess) -> None:
    """The request that exceeds the quota is done, and the next ones are refused, on other connections too."""
    set_quotas(broker, {CLIENT_ID: "creator"}, **{MUTATION_RATE: 0.5})

    async def check() -> None:
        client, again = await connect(broker, "creator"), await connect(broker, "creator")
        try:
            first = await create(client, "many", 50)
            assert (first.topics[0].error_code, first.throttle_time_ms > 0) == (0, True)
            second = await create(again, "more", 1)
            assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert second.throttle_time_ms > 0
        finally:
            await client.close()
            await again.close()

    uvloop.run(check())
    set_quotas(broker, {CLIENT_ID: "creator"}, **{MUTATION_RATE: None})


async def create(connection: Connection, name: str, partitions: int) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=())
    return await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=False))


def test_connections_of_a_host_are_limited(tmp_path: Path) -> None:
    """In number, and per second; a connection that ends makes room."""
    broker = BrokerProcess(tmp_path, {"max.connections.per.ip": 1000}).start()
    refused = r'penstock_refused_total\{reason="too_%s_of_host"\}'

    async def check() -> None:
        admin = await connect(broker)
        others: list[Connection] = []
        try:
            await set_config(admin, "max.connections.per.ip.overrides", "127.0.0.1:3")
            others += [await connect(broker), await connect(broker)]
            with pytest.raises(ConnectionFailed):
                await connect(broker)
            await others.pop().close()
            others.append(await connected(broker))
            await set_config(admin, "max.connections.per.ip.overrides", "")
            assert (await alter(admin, {IP: "127.0.0.1"}, **{CONNECTION_RATE: 1.0})).error_code == 0
            others += [await connect(broker) for _ in range(10)]  # as many as the quota allows in ten seconds
            with pytest.raises(ConnectionFailed):
                await connect_often(broker, others)
            assert (await alter(admin, {IP: "127.0.0.1"}, **{CONNECTION_RATE: None})).error_code == 0
            others.append(await connect(broker))
        finally:
            for connection in (admin, *others):
                await connection.close()

    try:
        uvloop.run(check())
        assert broker.metric(refused % "many") >= 1
        assert broker.metric(refused % "fast") == 1
    finally:
        broker.finish()


async def connect_often(broker: BrokerProcess, connections: list[Connection]) -> None:
    while len(connections) < 200:
        connections.append(await connect(broker))


async def connected(broker: BrokerProcess) -> Connection:
    """Connects as soon as the broker has noticed that another connection has ended."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await connect(broker)
        except ConnectionFailed:
            assert time.monotonic() < deadline_s, "there is no room for a connection"
            await asyncio.sleep(0.01)


async def set_config(connection: Connection, name: str, value: str) -> None:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    answer = await connection.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert answer.responses[0].error_code == 0, answer
