"""The SQS API byte by byte: requests that no SDK sends, and those of other clients."""

import http.client
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import confluent_kafka
import pytest

from tests.brokers import BrokerProcess

JSON_TYPE = {"Content-Type": "application/x-amz-json-1.0"}


@pytest.fixture
def web(broker: BrokerProcess) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(broker.http, timeout=60)
    yield connection
    connection.close()


def ask(
    web: http.client.HTTPConnection, method: str, path: str, body: bytes | str = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    web.request(method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = web.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def call(web: http.client.HTTPConnection, action: str, params: Any) -> tuple[int, dict[str, str], Any]:
    body = params if isinstance(params, bytes) else json.dumps(params).encode()
    status, headers, data = ask(web, "POST", "/", body, X_Amz_Target=f"AmazonSQS.{action}", **JSON_TYPE)
    return status, headers, json.loads(data)


@pytest.fixture
def url(web: http.client.HTTPConnection, name: str) -> str:
    found: str = call(web, "CreateQueue", {"QueueName": name})[2]["QueueUrl"]
    return found


def test_an_error_in_json_is_as_aws_writes_it(web: http.client.HTTPConnection, name: str) -> None:
    status, headers, body = call(web, "SendMessage", {"QueueUrl": f"http://x/1/{name}", "MessageBody": "x"})
    assert status == 400
    assert body == {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "The specified queue does not exist."}
    assert headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert len(headers["x-amzn-requestid"]) == 36


def test_no_two_requests_have_the_same_id(web: http.client.HTTPConnection) -> None:
    ids = {call(web, "ListQueues", {})[1]["x-amzn-requestid"] for _ in range(20)}
    assert len(ids) == 20


@pytest.mark.parametrize(
    ("action", "params", "kind"),
    [
        ("Nonsense", {}, "UnknownOperationException"),
        ("SendMessage", b"{", "SerializationException"),
        ("SendMessage", b"[]", "SerializationException"),
        ("SendMessage", b"[" * 100_000, "SerializationException"),
        ("SendMessage", b'{"QueueUrl":"a","QueueUrl":"b"}', "SerializationException"),
        ("SendMessage", {"QueueUrl": 5}, "SerializationException"),
        ("SendMessage", {"QueueUrl": None}, "MissingRequiredParameterException"),
        ("SendMessage", {}, "MissingRequiredParameterException"),
        ("ReceiveMessage", {"QueueUrl": "URL", "MaxNumberOfMessages": "5"}, "SerializationException"),
        ("ReceiveMessage", {"QueueUrl": "URL", "AttributeNames": "All"}, "SerializationException"),
        ("ReceiveMessage", {"QueueUrl": "URL", "AttributeNames": [5]}, "SerializationException"),
        ("ReceiveMessage", {"QueueUrl": "URL", "WaitTimeSeconds": 1e3}, "SerializationException"),
        ("ReceiveMessage", {"QueueUrl": "URL", "WaitTimeSeconds": 10**30}, "SerializationException"),
        ("SendMessageBatch", {"QueueUrl": "URL", "Entries": {}}, "SerializationException"),
        ("SendMessageBatch", {"QueueUrl": "URL", "Entries": ["x"]}, "SerializationException"),
        ("DeleteMessage", {"QueueUrl": "URL", "ReceiptHandle": {}}, "SerializationException"),
        ("CreateQueue", {"QueueName": "x", "Attributes": []}, "SerializationException"),
        ("CreateQueue", {"QueueName": "x", "Attributes": {"DelaySeconds": 5}}, "SerializationException"),
        ("TagQueue", {"QueueUrl": "URL", "Tags": {"a": None}}, "SerializationException"),
    ],
)
def test_hostile_json_is_refused_and_the_connection_lives(
    web: http.client.HTTPConnection, url: str, action: str, params: Any, kind: str
) -> None:
    if isinstance(params, dict) and params.get("QueueUrl") == "URL":
        params = {**params, "QueueUrl": url}
    status, _, body = call(web, action, params)
    assert (status, body["__type"].partition("#")[2]) == (400, kind)
    assert body["message"]
    assert call(web, "ListQueues", {})[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/?Action=Nonsense", "", 400, "InvalidAction"),
        ("GET", "/000000000000/some?Action=ListQueues", "", 400, "InvalidAction"),
        ("POST", "/000000000000/some", "Action=CreateQueue&QueueName=x", 400, "InvalidAction"),
        ("GET", "/?Action=GetQueueUrl", "", 400, "MissingParameter"),
        ("GET", "/1/none?Action=PurgeQueue", "", 400, "AWS.SimpleQueueService.NonExistentQueue"),
        ("GET", "/?Action=ListQueues&MaxResults=x", "", 400, "InvalidParameterValue"),
        ("GET", "/?Action=ListQueues&MaxResults=1&MaxResults=2", "", 404, "MalformedQueryString"),
    ],
)
def test_an_error_by_query_is_as_aws_writes_it(
    web: http.client.HTTPConnection, method: str, path: str, body: str, status: int, code: str
) -> None:
    found, headers, data = ask(web, method, path, body)
    assert found == status
    assert headers["content-type"] == "text/xml"
    assert f"<Code>{code}</Code>" in data.decode()
    assert f"<RequestId>{headers['x-amzn-requestid']}</RequestId></ErrorResponse>" in data.decode()


def test_a_queue_can_be_used_by_get_and_by_its_path(web: http.client.HTTPConnection, url: str) -> None:
    path = "/" + url.split("/", 3)[3]
    status, _, data = ask(web, "GET", f"{path}?Action=SendMessage&MessageBody=a%20b+c&Version=2012-11-05")
    assert (status, b"<MessageId>" in data) == (200, True)
    form = urlencode({"Action": "ReceiveMessage", "AttributeName.1": "All", "WaitTimeSeconds": "20"})
    _, _, data = ask(web, "POST", path, form, Content_Type="application/x-www-form-urlencoded")
    assert b"<Body>a b c</Body>" in data
    assert b"<Attribute><Name>ApproximateReceiveCount</Name><Value>1</Value></Attribute>" in data


def test_the_url_has_the_host_and_the_scheme_that_the_client_has_used(
    web: http.client.HTTPConnection, name: str, url: str
) -> None:
    def found(**headers: str) -> str:
        body = json.dumps({"QueueName": name})
        data = ask(web, "POST", "/", body, X_Amz_Target="AmazonSQS.GetQueueUrl", **headers)[2]
        return str(json.loads(data)["QueueUrl"])

    assert found(Host="queues.example.org") == f"http://queues.example.org/000000000000/{name}"
    assert found(Host="q:81", X_Forwarded_Proto="https") == f"https://q:81/000000000000/{name}"
    assert found(Host="<script>") == url, "what is no host is not repeated"


def test_other_paths_are_answered_by_other_endpoints(web: http.client.HTTPConnection) -> None:
    assert ask(web, "GET", "/healthz")[2] == b"ok\n"
    assert ask(web, "GET", "/readyz")[2] == b"ready\n"
    assert ask(web, "HEAD", "/healthz")[1]["content-length"] == "3"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", ""),
        ("GET", "/000000000000/jobs", ""),
        ("GET", "/000000000000/jobs?Version=2012-11-05", ""),
        ("GET", "/?Action=", ""),
        ("POST", "/", ""),
        ("POST", "/000000000000/jobs", "Version=2012-11-05"),
        ("PUT", "/", ""),
    ],
)
def test_a_request_without_an_action_gets_what_sqs_answers(
    web: http.client.HTTPConnection, method: str, path: str, body: str
) -> None:
    for headers in ({}, {"Accept": "application/json"}, {"Accept": "*/*"}):
        status, headers, data = ask(web, method, path, body, **headers)
        assert (status, data) == (404, b"<UnknownOperationException/>")
        assert (headers["content-type"], len(headers["x-amzn-requestid"])) == ("text/xml", 36)
    assert ask(web, "HEAD", path)[0] == 404


def test_a_browser_gets_a_list_of_endpoints(web: http.client.HTTPConnection) -> None:
    accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    status, headers, data = ask(web, "GET", "/", Accept=accept)
    assert (status, headers["content-type"].partition(";")[0]) == (404, "text/plain")
    assert b"/healthz" in data


def test_the_query_protocol_answers_in_json_if_that_is_asked_for(web: http.client.HTTPConnection, url: str) -> None:
    path = "/" + url.split("/", 3)[3]

    def query(action: str, form: str = "") -> dict[str, Any]:
        status, headers, data = ask(web, "POST", path, f"Action={action}{form}", Accept="application/json")
        assert (status, headers["content-type"]) == (200, "application/json")
        answer = json.loads(data)[f"{action}Response"]
        assert answer["ResponseMetadata"] == {"RequestId": headers["x-amzn-requestid"]}
        found: dict[str, Any] = answer.get(f"{action}Result", {})
        return found

    assert query("ReceiveMessage") == {"messages": None}
    value = "MessageAttribute.1.Value"
    attribute = f"&MessageAttribute.1.Name=a&{value}.DataType=String&{value}.StringValue=b"
    sent = query("SendMessage", f"&MessageBody=x{attribute}")
    assert sent["MessageId"]
    assert sent["SequenceNumber"] is None
    everything = "&AttributeName.1=All&MessageAttributeName.1=All"
    (message,) = query("ReceiveMessage", f"&WaitTimeSeconds=20{everything}")["messages"]
    assert message["Body"] == "x"
    assert {"Name": "ApproximateReceiveCount", "Value": "1"} in message["Attributes"]
    assert message["MessageAttributes"][0]["Value"]["StringValue"] == "b"
    assert query("DeleteMessage", f"&ReceiptHandle={message['ReceiptHandle']}") == {}
    names = {each["Name"] for each in query("GetQueueAttributes", "&AttributeName.1=All")["Attributes"]}
    assert {"QueueArn", "VisibilityTimeout"} <= names
    status, _, data = ask(web, "GET", f"{path}?Action=ListQueues", Accept="application/json")
    assert (status, json.loads(data)["Error"]) == (
        400,
        {
            "Code": "InvalidAction",
            "Message": "The action ListQueues is not valid for this endpoint.",
            "Type": "Sender",
        },
    )


def test_empty_lists_are_read_as_older_boto3_sends_them(web: http.client.HTTPConnection, url: str) -> None:
    """The bodies that botocore 1.29.165 sends for `AttributeNames=[]`, `Entries=[]` and so on."""

    def query(form: dict[str, str]) -> tuple[int, str]:
        body = urlencode({**form, "Version": "2012-11-05", "QueueUrl": url})
        kind = "application/x-www-form-urlencoded; charset=utf-8"
        status, _, data = ask(web, "POST", "/", body, Content_Type=kind)
        return status, data.decode()

    status, data = query({"Action": "GetQueueAttributes", "AttributeNames": ""})
    assert (status, "<GetQueueAttributesResult></GetQueueAttributesResult>" in data) == (200, True)
    status, _ = query({"Action": "ReceiveMessage", "AttributeNames": "", "MessageAttributeNames": ""})
    assert status == 200
    for action in ("SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"):
        status, data = query({"Action": action, "Entries": ""})
        assert (status, "<Code>AWS.SimpleQueueService.EmptyBatchRequest</Code>" in data) == (400, True)
    status, data = query({"Action": "UntagQueue", "TagKeys": ""})
    assert (status, "<Code>MissingParameter</Code>" in data) == (400, True)


def test_curl_sends_a_large_body_after_it_has_asked(broker: BrokerProcess, url: str) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    body = json.dumps({"QueueUrl": url, "MessageBody": "x" * 1_048_576})
    command = [curl, "--silent", "--show-error", "--max-time", "60", "--noproxy", "*", "--data-binary", "@-"]
    command += ["-H", "X-Amz-Target: AmazonSQS.SendMessage", "-H", "Expect: 100-continue", f"http://{broker.http}/"]
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=True, timeout=90)
    assert json.loads(done.stdout)["MessageId"]


def test_many_requests_in_one_packet_are_all_answered_in_order(broker: BrokerProcess, url: str) -> None:
    def request(action: str, params: dict[str, Any]) -> bytes:
        body = json.dumps(params).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    bodies = [f"m{number}" for number in range(50)]
    data = b"".join(request("SendMessage", {"QueueUrl": url, "MessageBody": body}) for body in bodies)
    data += request("ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 20})
    host, _, port = broker.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(data)
        with connection.makefile("rb") as stream:
            answers = [read_answer(stream) for _ in range(51)]
    assert len({answer["MessageId"] for answer in answers[:50]}) == 50
    assert [message["Body"] for message in answers[50]["Messages"]] == bodies[:10]


def read_answer(stream: Any) -> dict[str, Any]:
    length = 0
    while (line := stream.readline().strip()) != b"":
        name, _, value = line.partition(b": ")
        if name == b"content-length":
            length = int(value)
    found: dict[str, Any] = json.loads(stream.read(length))
    return found


def test_a_client_that_disconnects_in_a_long_poll_takes_no_message(
    broker: BrokerProcess, web: http.client.HTTPConnection, url: str
) -> None:
    host, _, port = broker.http.rpartition(":")
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20, "VisibilityTimeout": 43_200})
    head = f"POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Length: {len(body)}\r\n\r\n"
    for _ in range(20):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall((head + body).encode())
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b"", "the broker has noticed"
    call(web, "SendMessage", {"QueueUrl": url, "MessageBody": "x"})
    status, _, found = call(web, "ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 20})
    assert (status, [message["Body"] for message in found["Messages"]]) == (200, ["x"])


def test_a_message_of_a_kafka_client_is_a_message_of_the_queue(
    broker: BrokerProcess, web: http.client.HTTPConnection, name: str, url: str
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka})
    producer.produce(name, value=b"\xff\x00", key=b"k", headers={"text": "é", "bytes": b"\xfe"})
    producer.produce(name, value="plain é")
    assert producer.flush(60) == 0
    params = {"QueueUrl": url, "WaitTimeSeconds": 20, "AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    found = [call(web, "ReceiveMessage", params)[2]["Messages"][0] for _ in range(2)]
    first, second = sorted(found, key=lambda message: message["Body"] == "plain é")
    assert (first["Body"], first["Attributes"]["PenstockBodyEncoding"]) == ("/wA=", "base64")
    assert first["Attributes"]["MessageGroupId"] == "k"
    assert first["MessageAttributes"] == {
        "text": {"DataType": "String", "StringValue": "é"},
        "bytes": {"DataType": "Binary", "BinaryValue": "/g=="},
    }
    assert second["Body"] == "plain é"


def test_a_queue_can_be_attached_to_a_topic_that_is_there(
    broker: BrokerProcess, web: http.client.HTTPConnection, name: str
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka})
    producer.produce(f"{name}-topic", value="published before")
    assert producer.flush(60) == 0
    status, _, found = call(web, "CreateQueue", {"QueueName": f"{name}-topic"})
    assert (status, found["__type"]) == (400, "com.amazonaws.sqs#QueueNameExists")
    params = {"QueueName": name, "Attributes": {"PenstockTopic": f"{name}-topic"}}
    url = call(web, "CreateQueue", params)[2]["QueueUrl"]
    assert call(web, "CreateQueue", params)[2]["QueueUrl"] == url
    producer.produce(f"{name}-topic", value="published after")
    assert producer.flush(60) == 0
    found = call(web, "ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 20})[2]
    assert found["Messages"][-1]["Body"] == "published after"
    params = {"QueueName": f"{name}-2", "Attributes": {"PenstockTopic": f"{name}-none"}}
    status, _, found = call(web, "CreateQueue", params)
    assert (status, found["__type"]) == (404, "com.amazonaws.sqs#ResourceNotFoundException")


def test_protocols_can_be_mixed(web: http.client.HTTPConnection, url: str) -> None:
    call(web, "SendMessage", {"QueueUrl": url, "MessageBody": "a\tb\r\n<c>"})
    path = "/" + url.split("/", 3)[3]
    data = ask(web, "GET", f"{path}?Action=ReceiveMessage&WaitTimeSeconds=20")[2].decode()
    assert "<Body>a\tb&#13;\n&lt;c&gt;</Body>" in data
    handle = data.partition("<ReceiptHandle>")[2].partition("<")[0]
    assert call(web, "DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle})[0] == 200


def test_requests_and_errors_are_counted(
    broker: BrokerProcess, web: http.client.HTTPConnection, name: str, url: str
) -> None:
    requests, errors = (f"penstock_sqs_{kind}_total" for kind in ("requests", "errors"))
    before = broker.metric(requests), broker.metric(errors)
    call(web, "GetQueueUrl", {"QueueName": name})
    call(web, "GetQueueUrl", {"QueueName": f"{name}-none"})
    call(web, "Nonsense", {})
    ask(web, "GET", "/?Action=Nonsense")
    assert (broker.metric(requests) - before[0], broker.metric(errors) - before[1]) == (4, 3)
