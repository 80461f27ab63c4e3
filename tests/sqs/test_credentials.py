"""Signatures, with boto3 in both protocols against a broker that asks for them."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore import UNSIGNED
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.sqs_clients import PROTOCOLS, sqs_client

from .queue_calls import attributes_of, bodies, code_of, message_of, receive, refused

KEYS = """
keys:
  - {access_key: AKADMIN, secret: admin-secret, owner: "111122223333"}
  - access_key: AKSENDER
    secret: sender-secret
    owner: "111122223333"
    actions: [SendMessage, GetQueueUrl, ListQueues]
    queues: [shop-*]
"""


def with_credentials(folder: Path, text: str = KEYS) -> BrokerProcess:
    """A broker that has a file of keys."""
    folder.mkdir(exist_ok=True)
    keys = folder / "keys.yaml"
    keys.write_text(text)
    broker = BrokerProcess(folder)
    config = folder / "penstock.toml"  # what is not a setting stands above the table of settings
    config.write_text(f"credentials = {json.dumps(str(keys))}\n{config.read_text()}")
    return broker


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = with_credentials(tmp_path_factory.mktemp("guarded")).start()
    yield broker
    broker.finish()


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def admin(guarded: BrokerProcess, protocol: str, models: Path) -> Any:
    return sqs_client(guarded.http, protocol, models, key="AKADMIN", secret="admin-secret")


@pytest.fixture
def sender(guarded: BrokerProcess, protocol: str, models: Path) -> Any:
    return sqs_client(guarded.http, protocol, models, key="AKSENDER", secret="sender-secret")


def test_a_valid_signature_is_accepted_and_its_account_owns_new_queues(admin: Any, name: str) -> None:
    url = admin.create_queue(QueueName=name)["QueueUrl"]
    assert url.endswith(f"/111122223333/{name}")
    assert attributes_of(admin, url, "QueueArn") == {"QueueArn": f"arn:aws:sqs:eu-west-1:111122223333:{name}"}
    admin.send_message(QueueUrl=url, MessageBody="é" * 1000)
    (found,) = receive(admin, url, 1, 20, AttributeNames=["SenderId"])
    assert found["Attributes"] == {"SenderId": "111122223333"}


def test_a_wrong_secret_an_unknown_key_and_no_signature_are_three_errors(
    guarded: BrokerProcess, protocol: str, models: Path
) -> None:
    for options, code, status in (
        ({"key": "AKADMIN", "secret": "wrong-secret"}, "SignatureDoesNotMatch", 403),
        ({"key": "AKMISSING", "secret": "admin-secret"}, "InvalidClientTokenId", 403),
        ({"signature_version": UNSIGNED}, "MissingAuthenticationToken", 403),
    ):
        client = sqs_client(guarded.http, protocol, models, **options)
        with refused() as raised:
            client.list_queues()
        assert code_of(raised) == code
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_a_key_may_do_what_its_line_says_and_no_more(admin: Any, sender: Any, name: str) -> None:
    mine = admin.create_queue(QueueName=f"shop-{name}")["QueueUrl"]
    other = admin.create_queue(QueueName=f"bank-{name}")["QueueUrl"]
    assert sender.get_queue_url(QueueName=f"shop-{name}")["QueueUrl"] == mine
    sender.send_message(QueueUrl=mine, MessageBody="x")
    sender.send_message_batch(QueueUrl=mine, Entries=[{"Id": "a", "MessageBody": "y"}])
    for ask, action in (
        (lambda: sender.send_message(QueueUrl=other, MessageBody="x"), "sqs:sendmessage"),
        (lambda: sender.send_message(QueueUrl="http://x/1/bank-none", MessageBody="x"), "sqs:sendmessage"),
        (lambda: sender.receive_message(QueueUrl=mine), "sqs:receivemessage"),
        (lambda: sender.delete_queue(QueueUrl=mine), "sqs:deletequeue"),
        (lambda: sender.create_queue(QueueName=f"shop-{name}-2"), "sqs:createqueue"),
    ):
        with refused() as raised:
            ask()
        assert code_of(raised) == "AccessDenied"
        assert f"User: AKSENDER is not authorized to perform: {action}" in message_of(raised)
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    listed = sender.list_queues(QueueNamePrefix="")["QueueUrls"]
    assert mine in listed
    assert other not in listed
    assert bodies(receive(admin, mine, 10, 20)) == ["x", "y"]


def test_a_signed_url_is_enough(guarded: BrokerProcess, admin: Any, name: str) -> None:
    url = admin.create_queue(QueueName=name)["QueueUrl"]
    request = AWSRequest(method="GET", url=f"{url}?Action=SendMessage&MessageBody=by%20URL&Version=2012-11-05")
    SigV4QueryAuth(Credentials("AKADMIN", "admin-secret"), "sqs", "eu-west-1", expires=60).add_auth(request)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request.prepare().url, timeout=60) as answer:
        assert b"<MD5OfMessageBody>" in answer.read()
    assert bodies(receive(admin, url, 1, 20)) == ["by URL"]


def test_a_session_token_is_not_looked_at(guarded: BrokerProcess, models: Path) -> None:
    client = sqs_client(guarded.http, "json", models, key="AKADMIN", secret="admin-secret", token="a token")
    client.list_queues()


def test_health_needs_no_signature(guarded: BrokerProcess) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{guarded.http}/readyz", timeout=60) as answer:
        assert answer.read() == b"ready\n"


def test_keys_are_read_again_on_sighup(tmp_path: Path, models: Path) -> None:
    broker = with_credentials(tmp_path / "broker").start()
    new = {"key": "AKNEW", "secret": "new-secret"}
    client = sqs_client(broker.http, "json", models, **new)
    with refused() as raised:
        client.list_queues()
    assert code_of(raised) == "InvalidClientTokenId"
    file = tmp_path / "broker" / "keys.yaml"
    file.write_text("keys: [nonsense]")
    os.kill(broker.pid, signal.SIGHUP)
    wait_until(lambda: "credentials_not_read" in broker.log, "it says what is wrong")
    sqs_client(broker.http, "json", models, key="AKADMIN", secret="admin-secret").list_queues()
    file.write_text("keys: [{access_key: AKNEW, secret: new-secret}]")
    os.kill(broker.pid, signal.SIGHUP)
    wait_until(lambda: "credentials_read keys=1" in broker.log, "it says that it has read it")
    client.list_queues()
    with refused() as raised:
        sqs_client(broker.http, "json", models, key="AKADMIN", secret="admin-secret").list_queues()
    assert code_of(raised) == "InvalidClientTokenId"
    broker.stop()


def test_a_broker_does_not_start_with_a_file_that_it_cannot_use(tmp_path: Path) -> None:
    broker = with_credentials(tmp_path / "broker", "keys:\n  - {access_key: AK1}")
    with pytest.raises(AssertionError, match=r"keys\.yaml: key 1: secret is missing"):
        broker.start()


def test_a_short_secret_is_taken_and_warned_of(tmp_path: Path, models: Path) -> None:
    text = "keys: [{access_key: test, secret: test}, {access_key: AKLONG, secret: long-enough}]"
    broker = with_credentials(tmp_path / "broker", text).start()
    sqs_client(broker.http, "json", models, key="test", secret="test").list_queues()
    assert "secrets_are_short keys=test count=1" in broker.log
    (tmp_path / "broker" / "keys.yaml").write_text(text.replace("secret: test", "secret: long-now"))
    os.kill(broker.pid, signal.SIGHUP)
    wait_until(lambda: "credentials_read keys=2" in broker.log, "it has read them again")
    assert broker.log.count("secrets_are_short") == 1
    broker.finish()


def test_an_open_address_without_credentials_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    broker = BrokerProcess(tmp_path / "broker")
    broker.http = "0.0.0.0:0"
    broker.start()
    assert "queues_open_to_all" in broker.log
    broker.finish()


def test_an_address_of_this_machine_alone_is_not_warned_of(broker: BrokerProcess) -> None:
    assert "queues_open_to_all" not in broker.log
