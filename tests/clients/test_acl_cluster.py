"""ACLs in a cluster: brokers may do what they must between them, and a change takes effect on all of them."""

import time
from pathlib import Path

import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import penstock
from penstock.client.address import parse_bootstrap
from penstock.client.connection import Connection, ConnectionSettings, open_connection
from penstock.client.security import SecuritySettings
from penstock.foundation.acls import Operation, PatternType, ResourceType
from penstock.foundation.authorizer_settings import STANDARD_AUTHORIZER
from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.clients.acl_lab import MODULE, Rule, grant, revoke_all
from tests.clients.driver_confluent import QUIET
from tests.clients.tls_lab import read_in_group
from tests.clients.waiting import PATIENCE_S
from tests.clusters import ClusterProcesses

LISTENER, BROKER, ANN, TOPIC = "SASL", "broker", "ann", "orders"
MESSAGES = 30


def login(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": user,
    }


async def connect(at: str, user: str) -> Connection:
    settings = ConnectionSettings(security=SecuritySettings.parse(login(user)))
    return await open_connection(parse_bootstrap(at)[0], settings)


def test_acls_in_a_cluster(tmp_path: Path) -> None:
    """With transactions, a group and a queue, which need requests between brokers that only brokers may send."""
    users = " ".join(f'user_{name}="{name}"' for name in (BROKER, ANN))
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{BROKER}",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{MODULE} username="{BROKER}" password="{BROKER}" {users};',
        "group.initial.rebalance.delay.ms": 0,
        "min.insync.replicas": 3,
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.replication.factor": 3,
    }
    cluster = ClusterProcesses(tmp_path, 3, settings, listeners={LISTENER: "SASL_PLAINTEXT"})
    try:
        places = [broker.at[LISTENER] for broker in cluster.brokers.values()]
        at = ",".join(places)
        admin = AdminClient({"bootstrap.servers": at, **login(BROKER), **QUIET})
        admin.create_topics([NewTopic(TOPIC, 3, replication_factor=3)])[TOPIC].result(PATIENCE_S)
        uvloop.run(allow(places[0]))
        producer = Producer({"bootstrap.servers": at, **login(ANN), **QUIET, "transactional.id": "ann-1"})
        producer.init_transactions(PATIENCE_S)
        for batch in range(3):
            producer.begin_transaction()
            for number in range(batch, MESSAGES, 3):
                producer.produce(TOPIC, value=b"%d" % number, partition=number % 3)
            producer.commit_transaction(PATIENCE_S)
        read = sorted(map(int, read_in_group(at, TOPIC, MESSAGES, login(ANN))))
        assert read == list(range(MESSAGES))
        with penstock.connect(at, security=login(BROKER)) as mq:
            queue = mq.create_queue("jobs")
            for number in range(MESSAGES):
                queue.send(str(number))
            received = set()
            while len(received) < MESSAGES:
                for job in queue.receive(max=10, wait="5s"):
                    received.add(int(job.body))
                    job.delete()
            assert received == set(range(MESSAGES))
        seconds = uvloop.run(deny(places))
        print(f"ACLs took effect on all brokers within {seconds * 1000:.0f} ms")  # noqa: T201
        cluster.finish()
    finally:
        cluster.kill()


async def allow(at: str) -> None:
    admin = await connect(at, BROKER)
    try:
        own_ids = Rule(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "ann-", pattern_type=PatternType.PREFIXED)
        groups = Rule(Operation.READ, ResourceType.GROUP, "group-of-", pattern_type=PatternType.PREFIXED)
        await grant(admin, ANN, own_ids, groups)
        await grant(
            admin, ANN, *(Rule(each, ResourceType.TOPIC, TOPIC) for each in (Operation.READ, Operation.WRITE))
        )
    finally:
        await admin.close()


async def deny(places: list[str]) -> float:
    """Takes all permissions away, and returns how long it takes until all brokers know."""
    admin, readers = await connect(places[0], BROKER), [await connect(at, ANN) for at in places]
    try:
        began_s = time.perf_counter()
        assert await revoke_all(admin, ANN) == 4
        left = readers
        while left:
            assert time.perf_counter() < began_s + PATIENCE_S, "a broker does not know of the change"
            left = [each for each in left if not await is_denied(each)]
        return time.perf_counter() - began_s
    finally:
        for connection in (admin, *readers):
            await connection.close()


async def is_denied(connection: Connection) -> bool:
    answer = await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    return bool(answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED)
