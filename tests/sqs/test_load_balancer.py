"""Three brokers that check signatures behind a real nginx: any of them answers, and one may die."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import BrokerProcess
from tests.coordination.servers import EtcdEnsemble
from tests.deploy.balancers import balanced, find
from tests.sqs_clients import PROTOCOLS, sqs_client

from .queue_calls import code_of, receive, refused

KEYS = "keys: [{access_key: AKTEST, secret: a-secret-of-tests}]"
SETTINGS = {"default.replication.factor": 3, "min.insync.replicas": 2}
SESSION_S = 3.0
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    find("nginx")  # before anything is started for it
    reason = EtcdEnsemble.why_not()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "etcd").mkdir()
    (folder / "keys.yaml").write_text(KEYS)
    etcd = EtcdEnsemble(folder / "etcd")
    etcd.start()
    made: list[BrokerProcess] = []
    for node_id in (1, 2, 3):
        where = folder / f"broker-{node_id}"
        where.mkdir()
        broker = BrokerProcess(where, SETTINGS)
        config = where / "penstock.toml"
        top = {
            "node_id": node_id,
            "store": etcd.url("/penstock"),
            "session_s": SESSION_S,
            "credentials": str(folder / "keys.yaml"),
        }
        config.write_text(
            "".join(f"{name} = {json.dumps(value)}\n" for name, value in top.items()) + config.read_text()
        )
        made.append(broker.start())
    yield made
    for broker in made:
        broker.finish()
    etcd.stop()


@pytest.fixture(scope="module")
def front(brokers: list[BrokerProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("nginx")
    with balanced("nginx", find("nginx"), folder, [broker.http for broker in brokers]) as address:
        yield address


def client(front: str, protocol: str, models: Path, secret: str = "a-secret-of-tests", attempts: int = 10) -> Any:
    return sqs_client(
        front,
        protocol,
        models,
        key="AKTEST",
        secret=secret,
        retries={"mode": "standard", "total_max_attempts": attempts},
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_signature_for_the_load_balancers_host_is_valid_at_every_broker(
    brokers: list[BrokerProcess], front: str, models: Path, protocol: str
) -> None:
    sqs = client(front, protocol, models)
    url = sqs.create_queue(QueueName=f"signed-{protocol}")["QueueUrl"]
    assert url == f"http://{front}/000000000000/signed-{protocol}"
    for number in range(12):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    found: set[str] = set()
    while len(found) < 12:
        for message in receive(sqs, url, 10, 20):
            found.add(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    with refused() as raised:
        client(front, protocol, models, secret="another-secret", attempts=1).list_queues()
    assert code_of(raised) == "SignatureDoesNotMatch"


def test_a_queue_is_there_for_all_as_soon_as_it_is_made(front: str, models: Path) -> None:
    sqs = client(front, "json", models, attempts=1)
    for number in range(10):
        for _ in range(3):  # each broker has its turn
            with refused() as raised:
                sqs.get_queue_url(QueueName=f"new-{number}")
            assert code_of(raised) == "AWS.SimpleQueueService.NonExistentQueue"
        url = sqs.create_queue(QueueName=f"new-{number}")["QueueUrl"]
        for _ in range(3):
            assert sqs.get_queue_url(QueueName=f"new-{number}")["QueueUrl"] == url
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        dead = sqs.create_queue(QueueName=f"dead-{number}")["QueueUrl"]
        policy = {"deadLetterTargetArn": f"{arn.rpartition(':')[0]}:dead-{number}", "maxReceiveCount": 3}
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
        sqs.tag_queue(QueueUrl=dead, Tags={"a": "b"})


def test_a_broker_that_is_killed_is_not_missed(brokers: list[BrokerProcess], front: str, models: Path) -> None:
    sqs = client(front, "json", models)
    url = sqs.create_queue(QueueName="killed", Attributes={"PenstockPartitions": "3"})["QueueUrl"]
    wanted = {str(number) for number in range(60)}
    for number in range(60):
        if number == 20:
            brokers[1].kill()
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    found: set[str] = set()
    while found != wanted:
        for message in receive(sqs, url, 10, 5):
            found.add(message["Body"])
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    brokers[1].start()
