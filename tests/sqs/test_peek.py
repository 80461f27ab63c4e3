"""Endpoints of LocalStack besides the API: its health endpoint, and peeking at messages."""

import http.client
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest

from tests.brokers import BrokerProcess
from tests.sqs_clients import sqs_client

from .queue_calls import code_of, counts, message_of, receive, refused
from .test_credentials import with_credentials
from .test_raw import ask

PATH = "/_aws/sqs/messages"
NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


@pytest.fixture
def web(broker: BrokerProcess) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(broker.http, timeout=60)
    yield connection
    connection.close()


def peek(web: http.client.HTTPConnection, **params: Any) -> Any:
    """The messages as JSON has them: one alone is no list."""
    status, headers, data = ask(web, "GET", f"{PATH}?{urlencode(params)}", Accept="application/json")
    assert (status, headers["content-type"]) == (200, "application/json")
    result = json.loads(data)["ReceiveMessageResponse"]["ReceiveMessageResult"]
    return None if result is None else result["Message"]


def attributes(message: dict[str, Any]) -> dict[str, str]:
    return {each["Name"]: each["Value"] for each in message["Attribute"]}


def test_health_has_the_format_of_localstack(web: http.client.HTTPConnection) -> None:
    status, headers, data = ask(web, "GET", "/_localstack/health")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert b'"sqs": "running"' in data, "scripts search for it, with the space"
    assert set(json.loads(data)) == {"services", "edition", "version"}
    assert ask(web, "HEAD", "/_localstack/health")[0] == 200


def test_messages_are_shown_and_not_taken(web: http.client.HTTPConnection, sqs: Any, queue: str) -> None:
    assert peek(web, QueueUrl=queue) is None
    sqs.send_message(
        QueueUrl=queue, MessageBody="m1", MessageAttributes={"a": {"DataType": "String", "StringValue": "x"}}
    )
    alone = peek(web, QueueUrl=queue)
    assert (alone["Body"], alone["MessageAttribute"]["Value"]["StringValue"]) == ("m1", "x")
    sqs.send_message(QueueUrl=queue, MessageBody="m2")
    for _ in range(2):
        found = peek(web, QueueUrl=queue)
        assert [each["Body"] for each in found] == ["m1", "m2"]
        assert {attributes(each)["ApproximateReceiveCount"] for each in found} == {"0"}
        assert "IsVisible" not in attributes(found[0])
    assert counts(sqs, queue) == (2, 0, 0)
    (held,) = receive(sqs, queue, 1, 20)
    assert held["MessageId"] == found[0]["MessageId"]
    assert peek(web, QueueUrl=queue)["Body"] == "m2"
    with refused() as raised:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=found[0]["ReceiptHandle"])
    assert code_of(raised) == "ReceiptHandleIsInvalid"


def test_invisible_and_delayed_messages_are_shown_if_asked_for(
    web: http.client.HTTPConnection, sqs: Any, queue: str
) -> None:
    for body in ("held", "free"):
        sqs.send_message(QueueUrl=queue, MessageBody=body)
    sqs.send_message(QueueUrl=queue, MessageBody="later", DelaySeconds=900)
    receive(sqs, queue, 1, 20, VisibilityTimeout=43_200)
    assert peek(web, QueueUrl=queue, ShowInvisible=False, ShowDelayed="0")["Body"] == "free"
    found = {each["Body"]: attributes(each) for each in peek(web, QueueUrl=queue, ShowInvisible=True)}
    assert {body: each["IsVisible"] for body, each in found.items()} == {"held": "false", "free": "true"}
    assert found["held"]["ApproximateReceiveCount"] == "1"
    found = {each["Body"]: attributes(each) for each in peek(web, QueueUrl=queue, ShowDelayed="1")}
    assert {body: each["IsDelayed"] for body, each in found.items()} == {"free": "false", "later": "true"}
    both = peek(web, QueueUrl=queue, ShowDelayed="true", ShowInvisible="TRUE")
    assert [each["Body"] for each in both] == ["held", "free", "later"]


def test_the_answer_is_xml_unless_json_is_asked_for_and_the_queue_may_be_in_the_path(
    web: http.client.HTTPConnection, sqs: Any, name: str, queue: str
) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="<x>")
    accept = "text/html,application/xml;q=0.9,*/*;q=0.8"  # a browser's
    for path in (f"{PATH}?QueueUrl={queue}", f"{PATH}/eu-west-1/000000000000/{name}"):
        status, headers, data = ask(web, "GET", path, Accept=accept)
        assert (status, headers["content-type"]) == (200, "text/xml")
        tree = ElementTree.fromstring(data)
        assert [each.text for each in tree.iter(f"{NAMESPACE}Body")] == ["<x>"]
    form = urlencode({"Action": "ReceiveMessage", "QueueUrl": queue, "MaxNumberOfMessages": 1})
    kind = "application/x-www-form-urlencoded"
    assert b"<Body>&lt;x&gt;</Body>" in ask(web, "POST", PATH, form, Content_Type=kind)[2]


def test_an_sdk_may_have_it_as_its_endpoint(broker: BrokerProcess, sqs: Any, queue: str) -> None:
    sqs.send_message_batch(QueueUrl=queue, Entries=[{"Id": str(n), "MessageBody": f"m{n}"} for n in range(3)])
    client = boto3.client(
        "sqs",
        endpoint_url=f"http://{broker.http}{PATH}",
        region_name="eu-west-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    found = client.receive_message(QueueUrl=queue, MaxNumberOfMessages=1)["Messages"]
    assert sorted(each["Body"] for each in found) == ["m0", "m1", "m2"], "all of them"
    with refused() as raised:
        client.send_message(QueueUrl=queue, MessageBody="x")
    assert code_of(raised) == "InvalidRequest"
    assert message_of(raised) == "This endpoint only accepts ReceiveMessage calls"
    assert counts(sqs, queue) == (3, 0, 0)


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", PATH, "", "AWS.SimpleQueueService.NonExistentQueue"),
        ("GET", f"{PATH}?QueueUrl=http://x/1/none-such", "", "AWS.SimpleQueueService.NonExistentQueue"),
        ("GET", f"{PATH}/eu-west-1/none-such", "", "AWS.SimpleQueueService.NonExistentQueue"),
        ("GET", f"{PATH}/a/b/c/d", "", "AWS.SimpleQueueService.NonExistentQueue"),
        ("GET", f"{PATH}?QueueUrl=%zz", "", "MalformedQueryString"),
        ("POST", PATH, "Action=PurgeQueue&QueueUrl=x", "InvalidRequest"),
        ("POST", PATH, "QueueUrl=" + "x" * (300 << 10), "InvalidRequest"),
    ],
)
def test_invalid_peeks_are_refused(
    web: http.client.HTTPConnection, method: str, path: str, body: str, code: str
) -> None:
    status, _, data = ask(web, method, path, body, Accept="application/json")
    assert status in (400, 404)
    assert json.loads(data)["ErrorResponse"]["Error"]["Code"] == code
    assert ask(web, method, path, body)[1]["content-type"] == "text/xml"


def test_it_is_for_a_broker_that_only_this_machine_reaches_and_that_asks_for_no_keys(
    tmp_path: Path, models: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    guarded = with_credentials(tmp_path / "guarded").start()
    keys = {"key": "AKADMIN", "secret": "admin-secret"}
    sqs_client(guarded.http, "json", models, **keys).create_queue(QueueName="jobs")
    (tmp_path / "open").mkdir()
    everywhere = BrokerProcess(tmp_path / "open")
    everywhere.http = "0.0.0.0:0"
    everywhere.start()
    for address in (guarded.http, everywhere.http.replace("0.0.0.0", "127.0.0.1")):
        web = http.client.HTTPConnection(address, timeout=60)
        status, _, data = ask(web, "GET", f"{PATH}?QueueUrl=http://x/111122223333/jobs")
        assert (status, b"<Code>AccessDenied</Code>" in data) == (403, True)
        assert ask(web, "GET", "/_localstack/health")[0] == 200
        web.close()
    guarded.finish()
    everywhere.finish()
