"""Queues that are attached to topics: which ACLs their users need, and what the audit log says of HTTP requests."""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from penstock.client.access_keys import AccessKeys, NewAccessKey
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.connection import ConnectionSettings
from penstock.client.security import SecuritySettings
from penstock.foundation import acls
from penstock.foundation.acls import Operation
from tests.clients.acl_lab import ADMIN, AclLab, Rule, grant
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.fork_server import PENSTOCK
from tests.registry.rest_client import RestClient, record
from tests.sqs_clients import sqs_client

from .key_lab import SETTING, new_secret_key
from .queue_calls import bodies, code_of, message_of, receive, refused

ANN, EVE = "ann", "eve"


class QueueLab(AclLab):
    """Users with ACLs for topics and an access key each."""

    def __init__(self, folder: Path, models: Path) -> None:
        super().__init__(folder, [ANN, EVE], {SETTING: new_secret_key()})
        self._models = models
        self.keys: dict[str, NewAccessKey] = uvloop.run(self._create_keys())
        self.ann, self.eve = self.sqs(ANN), self.sqs(EVE)

    async def _create_keys(self) -> dict[str, NewAccessKey]:
        connection = ConnectionSettings(security=SecuritySettings.parse(self.properties(ADMIN)))
        async with KafkaClient(self.at, settings=ClientSettings(connection=connection)) as admin:
            ann = await AccessKeys(admin).create(ANN, queues=["*"])
            return {ANN: ann, EVE: await AccessKeys(admin).create(EVE, queues=["eve-*"])}

    def sqs(self, user: str) -> Any:
        key = self.keys[user]
        return sqs_client(self.broker.http, "json", self._models, key=key.access_key, secret=key.secret)

    def create_topic(self, name: str) -> str:
        self.admin.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_S)
        return name

    def allow(self, user: str, topic: str, *operations: Operation) -> None:
        async def run() -> None:
            admin = await self.connect(ADMIN)
            try:
                await grant(admin, user, *(Rule(each, acls.ResourceType.TOPIC, topic) for each in operations))
            finally:
                await admin.close()

        uvloop.run(run())

    def attach(self, sqs: Any, name: str, topic: str) -> str:
        return str(sqs.create_queue(QueueName=name, Attributes={"PenstockTopic": topic})["QueueUrl"])

    def wait_attached(self, sqs: Any, name: str, topic: str) -> str:
        """Attaches a queue as soon as the broker knows that the user may."""
        urls: list[str] = []

        wait_until(
            lambda: not _is_denied(sqs, lambda: urls.append(self.attach(sqs, name, topic))), "the queue is attached"
        )
        return urls[0]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[QueueLab]:
    lab = QueueLab(tmp_path_factory.mktemp("rights"), models)
    yield lab
    lab.ann.close()
    lab.eve.close()
    lab.broker.finish()


def arn(name: str) -> str:
    return f"arn:aws:sqs:eu-west-1:000000000000:{name}"


def test_attaching_needs_read_and_sending_needs_write(lab: QueueLab, name: str) -> None:
    topic = lab.create_topic(f"{name}-topic")
    for asked in (topic, f"{name}-none"):  # a topic that does not exist looks the same
        with refused() as raised:
            lab.attach(lab.eve, f"eve-{name}", asked)
        assert code_of(raised) == "AccessDenied"
        assert f"no ACL allows User:eve to read topic '{asked}'" in message_of(raised)
    lab.allow(EVE, topic, Operation.READ)
    url = lab.wait_attached(lab.eve, f"eve-{name}", topic)
    entries = [{"Id": "a", "MessageBody": "x"}]
    for send in (
        lambda: lab.eve.send_message(QueueUrl=url, MessageBody="x"),
        lambda: lab.eve.send_message_batch(QueueUrl=url, Entries=entries),
    ):
        with refused() as raised:
            send()
        assert f"no ACL allows User:eve to write topic '{topic}'" in message_of(raised)
    producer = Producer(lab.librdkafka(ADMIN))
    producer.produce(topic, value="published")
    assert producer.flush(PATIENCE_S) == 0
    assert bodies(receive(lab.eve, url, 1, 20)) == ["published"]
    lab.allow(EVE, topic, Operation.WRITE)

    def is_sent() -> bool:
        answer = lab.eve.send_message_batch(QueueUrl=url, Entries=entries)
        return not answer.get("Failed")

    wait_until(lambda: not _is_denied(lab.eve, is_sent), "the user may write")
    lab.eve.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(receive(lab.eve, url, 1, 20)) == ["x"]


def test_dead_letters_and_redrives_go_where_their_user_may_write(lab: QueueLab, name: str) -> None:
    topic = lab.create_topic(f"{name}-topic")
    lab.allow(ANN, topic, Operation.READ, Operation.WRITE)
    lab.wait_attached(lab.ann, f"eve-{name}-dead", topic)
    plain, own = f"{name}-plain", f"eve-{name}"
    lab.ann.create_queue(QueueName=plain)
    url = lab.eve.create_queue(QueueName=own)["QueueUrl"]

    def redrive_to(target: str) -> dict[str, str]:
        return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn(target), "maxReceiveCount": 1})}

    for target in (plain, f"{name}-none"):  # her key is not for it, and does not tell whether it exists
        with refused() as raised:
            lab.eve.set_queue_attributes(QueueUrl=url, Attributes=redrive_to(target))
        assert (code_of(raised), target in message_of(raised)) == ("AccessDenied", True)
    for work in (
        lambda: lab.eve.set_queue_attributes(QueueUrl=url, Attributes=redrive_to(f"eve-{name}-dead")),
        lambda: lab.eve.create_queue(QueueName=f"{own}-2", Attributes=redrive_to(f"eve-{name}-dead")),
    ):
        with refused() as raised:
            work()
        assert f"no ACL allows User:eve to write topic '{topic}'" in message_of(raised)
    lab.ann.set_queue_attributes(QueueUrl=url, Attributes=redrive_to(f"eve-{name}-dead"))
    other = lab.create_topic(f"{name}-other")
    lab.allow(ANN, other, Operation.READ, Operation.WRITE)
    lab.wait_attached(lab.ann, f"eve-{name}-other", other)
    with refused() as raised:
        lab.eve.start_message_move_task(SourceArn=arn(f"eve-{name}-dead"), DestinationArn=arn(f"eve-{name}-other"))
    assert f"no ACL allows User:eve to write topic '{other}'" in message_of(raised)
    assert lab.eve.start_message_move_task(SourceArn=arn(f"eve-{name}-dead"))["TaskHandle"]


def test_the_dead_letters_of_a_share_group_go_where_its_administrator_may_write(lab: QueueLab, name: str) -> None:
    topic, group = lab.create_topic(f"{name}-dead"), f"{name}-group"

    async def allow() -> None:
        admin = await lab.connect(ADMIN)
        try:
            await grant(admin, EVE, Rule(Operation.ALTER_CONFIGS, acls.ResourceType.GROUP, group))
        finally:
            await admin.close()

    uvloop.run(allow())
    eve = AdminClient(lab.librdkafka(EVE))
    entry = ConfigEntry("errors.deadletterqueue.topic.name", topic, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])

    def error_code() -> int:
        try:
            eve.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    wait_until(lambda: error_code() != KafkaError.GROUP_AUTHORIZATION_FAILED, "the ACL applies")
    assert error_code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    lab.allow(EVE, topic, Operation.WRITE)
    wait_until(lambda: error_code() == 0, "the user may write to the topic")


def test_requests_for_queues_and_schemas_are_audited(lab: QueueLab, models: Path, name: str) -> None:
    topic = lab.create_topic(f"{name}-topic")
    with refused():
        lab.attach(lab.eve, f"eve-{name}", topic)
    with refused():
        lab.eve.create_queue(QueueName=name)
    url = lab.eve.create_queue(QueueName=f"eve-{name}")["QueueUrl"]
    lab.eve.delete_queue(QueueUrl=url)
    key = lab.keys[EVE].access_key
    forger = sqs_client(lab.broker.http, "json", models, key=key, secret="not-the-secret")
    with refused():
        forger.list_queues()
    forger.close()
    rest = RestClient(lab.broker.http)
    assert rest.register(name, record("id:long")).status == 401
    for user, secret in ((EVE, "wrong"), (ANN, lab.keys[ANN].secret)):
        login = base64.b64encode(f"{lab.keys[user].access_key}:{secret}".encode()).decode()
        rest.headers["authorization"] = f"Basic {login}"
        assert rest.register(name, record("id:long")).status == (200 if user == ANN else 401)
    lab.broker.stop()
    command = [PENSTOCK, "audit", "--data-dir", str(lab.broker.data_dir), "--json", "--max", "1000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    lab.broker.start()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    known = {(each["event"], each["principal"], each.get("operation"), each.get("name")) for each in events}
    assert known >= {
        ("denied", "User:eve", "read", topic),
        ("denied", "User:eve", "sqs:CreateQueue", name),
        ("change", "User:eve", "sqs:CreateQueue", f"eve-{name}"),
        ("change", "User:eve", "sqs:DeleteQueue", f"eve-{name}"),
        ("change", "User:ann", "registry:POST", f"/subjects/{name}/versions"),
    }
    failed = {
        (each["principal"], each["mechanism"], each["reason"]) for each in events if each["event"] == "login_failed"
    }
    assert failed == {
        (f"User:{key}", "SigV4", "SignatureDoesNotMatch"),
        ("User:", "Basic", "wrong access key or secret"),
        (f"User:{key}", "Basic", "wrong access key or secret"),
    }


def _is_denied(sqs: Any, work: Any) -> bool:
    try:
        work()
    except sqs.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "AccessDenied":
            raise
        return True
    return False
