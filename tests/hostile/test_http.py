"""HTTP requests, of the SQS API and others, whose bytes are meant to keep the event loop busy."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.brokers import BrokerProcess

from .probe import MONITOR_SETTINGS, Probe
from .raw_http import MIB, Answer, call, exchange, form, get

QUEUE = "hostile"
LARGE_QUEUE = "large"
URL = f"http://x/000000000000/{QUEUE}"
QUOTED = json.dumps(URL).encode()
AUTHORIZATION = "Authorization: AWS4-HMAC-SHA256 "


@pytest.fixture(scope="module", autouse=True)
def queues(target: BrokerProcess) -> None:
    """A queue with fifty tags and a message with ten attributes."""
    attributes = {f"name{n}": {"DataType": "String", "StringValue": "x"} for n in range(10)}
    for action, params in (
        ("CreateQueue", {"QueueName": QUEUE}),
        ("CreateQueue", {"QueueName": LARGE_QUEUE}),
        ("TagQueue", {"QueueUrl": URL, "Tags": {f"tag{n}": "x" for n in range(50)}}),
        ("SendMessage", {"QueueUrl": URL, "MessageBody": "x", "MessageAttributes": attributes}),
    ):
        (answer,) = exchange(target.http, call(action, params))
        assert answer.status == 200, answer


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that asks for signatures."""
    folder = tmp_path_factory.mktemp("guarded")
    process = with_credentials(folder).start()
    yield process
    process.finish()


def with_credentials(folder: Path) -> BrokerProcess:
    keys = folder / "keys.yaml"
    keys.write_text("keys:\n  - {access_key: AKADMIN, secret: admin-secret}\n")
    process = BrokerProcess(folder, MONITOR_SETTINGS)
    config = folder / "penstock.toml"
    config.write_text(f"credentials = {json.dumps(str(keys))}\n{config.read_text()}")
    return process


@pytest.fixture(scope="module")
def guarded_probe(guarded: BrokerProcess) -> Probe:
    return Probe(guarded)


def kind_of(answer: Answer) -> str:
    """The type of an error in JSON, or the code of one in XML."""
    text = answer.body.decode()
    if text.startswith("{"):
        return str(json.loads(text).get("__type", "")).partition("#")[2]
    return text.partition("<Code>")[2].partition("</Code>")[0]


def bomb() -> str:
    """Lists, which take long to parse: a third of a second, for these."""
    return "[" + "[]," * 900_000 + "0]"


def names(count: int, text: str = "n{}") -> bytes:
    return b",".join(json.dumps(text.format(number)).encode() for number in range(count))


SERIALIZATION = "SerializationException"
INVALID = "InvalidParameterValueException"
JSON_CASES: dict[str, Callable[[], tuple[str, Any, str]]] = {
    "28,000 parameters": lambda: (
        "SendMessage",
        b"{" + b",".join(b'"n%d":%d' % (n, n) for n in range(28_000)) + b"}",
        SERIALIZATION,
    ),
    "20,000 parameters, one twice": lambda: (
        "SendMessage",
        b"{" + b",".join(b'"n%d":0' % n for n in range(20_000)) + b',"n19999":1}',
        SERIALIZATION,
    ),
    "a small body of names": lambda: (
        "SendMessage",
        b"{" + b",".join(b'"%d":0' % n for n in range(40_000)) + b"}",
        SERIALIZATION,
    ),
    "1,300,000 lists": lambda: (
        "SendMessage",
        b'{"a":' + ("[" + "[]," * 1_300_000 + "0]").encode() + b"}",
        SERIALIZATION,
    ),
    "1,300,000 maps": lambda: ("SendMessage", b'{"a":[' + b"{}," * 1_300_000 + b"0]}", SERIALIZATION),
    "400,000 names in a map": lambda: (
        "SendMessage",
        b'{"a":{' + b",".join(b'"%x":1' % n for n in range(400_000)) + b"}}",
        SERIALIZATION,
    ),
    "2,000,000 escapes and a name that is a text": lambda: (
        "SendMessage",
        b'{"QueueUrl":' + QUOTED + b',"a":"QueueUrl","MessageBody":"' + b"\\\\" * (2 * MIB - 100) + b'"}',
        INVALID,
    ),
    "nested 200,000 deep": lambda: ("SendMessage", b'{"a":' * 200_000 + b"1" + b"}" * 200_000, SERIALIZATION),
    "100,000 entries": lambda: (
        "SendMessageBatch",
        b'{"QueueUrl":' + QUOTED + b',"Entries":[' + b"{}," * 100_000 + b"{}]}",
        "TooManyEntriesInBatchRequest",
    ),
    "1,000,000 entries": lambda: (
        "DeleteMessageBatch",
        b'{"QueueUrl":' + QUOTED + b',"Entries":[' + b"{}," * 1_000_000 + b"{}]}",
        SERIALIZATION,
    ),
    "50,000 attribute names": lambda: (
        "GetQueueAttributes",
        b'{"QueueUrl":' + QUOTED + b',"AttributeNames":[' + b",".join([b'"All"'] * 50_000) + b"]}",
        INVALID,
    ),
    "300,000 prefixes of attribute names": lambda: (
        "ReceiveMessage",
        b'{"QueueUrl":'
        + QUOTED
        + b',"VisibilityTimeout":0,"MessageAttributeNames":['
        + names(300_000, "p{}.*")
        + b"]}",
        SERIALIZATION,
    ),
    "25,000 prefixes of attribute names": lambda: (
        "ReceiveMessage",
        b'{"QueueUrl":'
        + QUOTED
        + b',"VisibilityTimeout":0,"MessageAttributeNames":['
        + names(25_000, "{}.*")
        + b"]}",
        INVALID,
    ),
    "300,000 keys of tags": lambda: (
        "UntagQueue",
        b'{"QueueUrl":' + QUOTED + b',"TagKeys":[' + names(300_000) + b"]}",
        SERIALIZATION,
    ),
    "30,000 keys of tags": lambda: (
        "UntagQueue",
        b'{"QueueUrl":' + QUOTED + b',"TagKeys":[' + names(30_000) + b"]}",
        INVALID,
    ),
    "20,000 tags": lambda: ("TagQueue", {"QueueUrl": URL, "Tags": {f"k{n}": "" for n in range(20_000)}}, INVALID),
    "20,000 attributes": lambda: (
        "SetQueueAttributes",
        {"QueueUrl": URL, "Attributes": {f"k{n}": "" for n in range(20_000)}},
        INVALID,
    ),
    "20,000 message attributes": lambda: (
        "SendMessage",
        {"QueueUrl": URL, "MessageBody": "x", "MessageAttributes": {f"k{n}": {} for n in range(20_000)}},
        INVALID,
    ),
    "a receipt handle of 4 MB": lambda: (
        "DeleteMessage",
        {"QueueUrl": URL, "ReceiptHandle": "A" * (4 * MIB - 200)},
        "ReceiptHandleIsInvalid",
    ),
    "an id of 4 MB": lambda: (
        "DeleteMessageBatch",
        {"QueueUrl": URL, "Entries": [{"Id": "a" * (4 * MIB - 200)}]},
        "InvalidBatchEntryId",
    ),
    "a token of 4 MB": lambda: ("ListQueues", {"NextToken": "A" * (4 * MIB - 200)}, INVALID),
    "a task handle of lists": lambda: (
        "CancelMessageMoveTask",
        {"TaskHandle": base64.b64encode(bomb().encode()).decode()},
        INVALID,
    ),
    "a RedrivePolicy of lists": lambda: (
        "SetQueueAttributes",
        {"QueueUrl": URL, "Attributes": {"RedrivePolicy": bomb()}},
        INVALID,
    ),
    "an ARN of 4 MB": lambda: (
        "ListMessageMoveTasks",
        {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:" + "a" * (4 * MIB - 200)},
        INVALID,
    ),
    "a Policy of 4 MB": lambda: (
        "SetQueueAttributes",
        {"QueueUrl": URL, "Attributes": {"Policy": "a" * (4 * MIB - 200)}},
        "InvalidAttributeValue",
    ),
    "a queue URL of 4 MB": lambda: (
        "SendMessage",
        {"QueueUrl": "a" * (4 * MIB - 100), "MessageBody": "x"},
        "QueueDoesNotExist",
    ),
    "a queue URL of slashes": lambda: (
        "SendMessage",
        {"QueueUrl": "/" * (4 * MIB - 100), "MessageBody": "x"},
        "QueueDoesNotExist",
    ),
    "a queue name of 4 MB": lambda: ("CreateQueue", {"QueueName": "a" * (4 * MIB - 100)}, INVALID),
    "a message of 4 MB": lambda: ("SendMessage", {"QueueUrl": URL, "MessageBody": "x" * (4 * MIB - 200)}, INVALID),
    "a message of 1 MB in JSON": lambda: ("SendMessage", {"QueueUrl": URL, "MessageBody": '{"a":[]},' * 116_000}, ""),
    "a message of 1 MB with escapes": lambda: ("SendMessage", {"QueueUrl": URL, "MessageBody": "é" * 524_000}, ""),
    "a binary attribute of 1 MB": lambda: (
        "SendMessage",
        {
            "QueueUrl": URL,
            "MessageBody": "x",
            "MessageAttributes": {
                "b": {"DataType": "Binary", "BinaryValue": base64.b64encode(bytes(MIB - 1000)).decode()}
            },
        },
        "",
    ),
}


@pytest.mark.parametrize("case", JSON_CASES)
def test_json_costs_little(target: BrokerProcess, probe: Probe, case: str) -> None:
    action, params, kind = JSON_CASES[case]()
    with probe.watch(case):
        (answer,) = exchange(target.http, call(action, params))
    assert kind_of(answer) == kind, answer
    assert len(answer.body) < 4000


SEND = b"Action=SendMessage&QueueUrl=" + quote(URL, safe="").encode() + b"&MessageBody="
MALFORMED = "MalformedQueryString"
QUERY_CASES: dict[str, Callable[[], tuple[bytes, str]]] = {
    "a form of 1,000,000 escapes": lambda: (form(SEND + b"%41" * (MIB - 100)), ""),
    "a form of 4,000,000 wrong escapes": lambda: (form(SEND + b"%" * (4 * MIB - 200)), MALFORMED),
    "a form of wrong escapes": lambda: (form(SEND + b"%zz" * 1_300_000), MALFORMED),
    "a form of 4,000,000 spaces": lambda: (form(SEND + b"+" * (4 * MIB - 200)), "InvalidParameterValue"),
    "4,000,000 empty parameters": lambda: (form(b"Action=SendMessage" + b"&" * (4 * MIB - 100)), MALFORMED),
    "1,300,000 parameters": lambda: (form(b"Action=SendMessage" + b"&a=" * 1_300_000), MALFORMED),
    "1,900 parameters of escapes": lambda: (
        form(b"Action=SendMessage&" + b"&".join(b"Tag.%d.Key=%s" % (n, b"%41" * 600) for n in range(1900))),
        MALFORMED,
    ),
    "900 parameters of escapes": lambda: (
        form(b"Action=ListQueues&" + b"&".join(b"Tag.%d.Key=%s%d" % (n, b"%41" * 1400, n) for n in range(900))),
        "",
    ),
    "a name of 500,000 parts": lambda: (form(b"Action=SendMessage&" + b"a." * 500_000 + b"=1"), MALFORMED),
    "900 names of 900 parts": lambda: (
        form(b"Action=SendMessage&" + b"&".join(b"a%d." % n + b"b." * 900 + b"=1" for n in range(900))),
        MALFORMED,
    ),
    "a URL of 30,000 parameters": lambda: (get("/?Action=ListQueues&" + "a&" * 30_000), MALFORMED),
    "a URL of 20,000 escapes": lambda: (get("/?Action=ListQueues&a=" + "%41" * 20_000), ""),
}


@pytest.mark.parametrize("case", QUERY_CASES)
def test_forms_and_urls_cost_little(target: BrokerProcess, probe: Probe, case: str) -> None:
    data, kind = QUERY_CASES[case]()
    with probe.watch(case):
        (answer,) = exchange(target.http, data)
    assert kind_of(answer) == kind, answer


def test_ten_messages_of_a_megabyte_are_received_a_message_at_a_time(target: BrokerProcess, probe: Probe) -> None:
    url = f"http://x/000000000000/{LARGE_QUEUE}"
    for _ in range(10):
        (sent,) = exchange(
            target.http, call("SendMessage", {"QueueUrl": url, "MessageBody": '<"' * (MIB // 2 - 100)})
        )
        assert sent.status == 200
    params = {"QueueUrl": url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0, "AttributeNames": ["All"]}
    with probe.watch("10 MB received in JSON"):
        (answer,) = exchange(target.http, call("ReceiveMessage", params))
    messages = json.loads(answer.body)["Messages"]
    assert [len(message["Body"]) for message in messages] == [MIB - 200] * len(messages)
    assert len(messages) == 10
    by_query = b"Action=ReceiveMessage&MaxNumberOfMessages=10&VisibilityTimeout=0&QueueUrl=" + quote(url).encode()
    with probe.watch("10 MB received in XML"):
        (answer,) = exchange(target.http, form(by_query))
    assert answer.body.count(b"&lt;") == 10 * (MIB // 2 - 100)


# -- signatures


def scope() -> tuple[str, str]:
    now = time.gmtime()
    return time.strftime("%Y%m%d", now), time.strftime("%Y%m%dT%H%M%SZ", now)


def authorization(signed_headers: str) -> str:
    day, _ = scope()
    credential = f"AKADMIN/{day}/us-east-1/sqs/aws4_request"
    return f"{AUTHORIZATION}Credential={credential}, SignedHeaders={signed_headers}, Signature=00"


def presigned(more: str) -> str:
    day, stamp = scope()
    credential = f"AKADMIN%2F{day}%2Fus-east-1%2Fsqs%2Faws4_request"
    signature = f"X-Amz-Credential={credential}&X-Amz-Date={stamp}&X-Amz-Expires=60&X-Amz-SignedHeaders=host"
    algorithm = "X-Amz-Algorithm=AWS4-HMAC-SHA256"
    return f"/?Action=ListQueues&{algorithm}&{signature}&X-Amz-Signature=00&{more}"


INCOMPLETE = "IncompleteSignatureException"
SIGNATURES: dict[str, Callable[[], tuple[bytes, str]]] = {
    "an Authorization header of letters": lambda: (call("ListQueues", {}, AUTHORIZATION + "a" * 60_000), INCOMPLETE),
    "an Authorization header of spaces": lambda: (
        call("ListQueues", {}, AUTHORIZATION + "Credential=" + " " * 30_000 + "x" + " " * 25_000 + ","),
        INCOMPLETE,
    ),
    "an Authorization header of commas": lambda: (call("ListQueues", {}, AUTHORIZATION + "," * 60_000), INCOMPLETE),
    "25,000 signed headers": lambda: (
        call(
            "ListQueues",
            {},
            f"X-Amz-Date: {scope()[1]}",
            "X: " + "a  " * 1000,
            authorization("host;" + "x;" * 25_000 + "x-amz-target"),
        ),
        INCOMPLETE,
    ),
    "a Date header of numbers": lambda: (
        call("ListQueues", {}, "Date: " + "1 " * 28_000, authorization("host;x-amz-target")),
        INCOMPLETE,
    ),
    "a Date header with a year of many digits": lambda: (
        call("ListQueues", {}, "Date: Mon, 01 Jan 99999999999999 00:00:00 GMT", authorization("host;x-amz-target")),
        INCOMPLETE,
    ),
    "a signed URL of 30,000 parameters": lambda: (get(presigned("b&" * 30_000)), "IncompleteSignature"),
    "a signed URL of 900 parameters": lambda: (
        get(presigned("&".join(f"b{n:03d}=" + "%C3%A9" * 10 for n in range(900)))),
        "SignatureDoesNotMatch",
    ),
    "a signed URL of wrong escapes": lambda: (get(presigned("a=" + "%" * 60_000)), "IncompleteSignature"),
    "a signed URL of dots": lambda: (get("/" + "%41../" * 9000 + presigned("")[1:]), "SignatureDoesNotMatch"),
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_signatures_cost_little(guarded: BrokerProcess, guarded_probe: Probe, case: str) -> None:
    data, kind = SIGNATURES[case]()
    with guarded_probe.watch(case):
        (answer,) = exchange(guarded.http, data)
    assert kind_of(answer) == kind, answer


def test_a_signature_that_is_not_checked_costs_little(target: BrokerProcess, probe: Probe) -> None:
    """Its region is shown in ARNs, so that it is read all the same."""
    params = {"QueueUrl": URL, "AttributeNames": ["All"]}
    with probe.watch("an Authorization header that is not checked"):
        (answer,) = exchange(target.http, call("GetQueueAttributes", params, AUTHORIZATION + "a" * 60_000))
    assert answer.status == 200


# -- HTTP itself

CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.ListQueues\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE_HEADERS = b"GET /healthz HTTP/1.1\r\n"
HEADS: dict[str, Callable[[], tuple[bytes, int]]] = {
    "65,000 headers": lambda: (LARGE_HEADERS + b"a:\r\n" * 65_000 + b"\r\n", 431),
    "13,000 different headers": lambda: (
        LARGE_HEADERS + b"".join(b"%d:\r\n" % n for n in range(13_000)) + b"\r\n",
        431,
    ),
    "a header without an end": lambda: (LARGE_HEADERS + b"x: " + b"a" * (50 * MIB), 431),
    "a header's name without an end": lambda: (LARGE_HEADERS + b"a" * (50 * MIB), 431),
    "a URL without an end": lambda: (b"GET /" + b"a" * (20 * MIB), 414),
    "1,000,000 chunks": lambda: (CHUNKED + b"1\r\n \r\n" * MIB + b"0\r\n\r\n", 400),
    "a chunk extension without an end": lambda: (CHUNKED + b"2;" + b"a" * (20 * MIB), 400),
    "65,000 trailers": lambda: (CHUNKED + b"2\r\n{}\r\n0\r\n" + b"a:\r\n" * 65_000 + b"\r\n", 200),
    "a trailer without an end": lambda: (CHUNKED + b"2\r\n{}\r\n0\r\nx: " + b"a" * (20 * MIB), 400),
}


@pytest.mark.parametrize("case", HEADS)
def test_heads_and_chunks_cost_little(target: BrokerProcess, probe: Probe, case: str) -> None:
    data, status = HEADS[case]()
    before_kib = target.rss_anon_kib()
    with probe.watch(case):
        (answer,) = exchange(target.http, data)
    assert answer.status == status, answer
    assert target.rss_anon_kib() - before_kib < 20 << 10, "what is refused is not kept"


def test_a_trailer_is_no_header(target: BrokerProcess) -> None:
    """It would have named an action that was not signed."""
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
    (answer,) = exchange(target.http, head + b"0\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n\r\n")
    assert (answer.status, answer.body) == (404, b"<UnknownOperationException/>")


PIPELINES: dict[str, Callable[[], tuple[bytes, int, int]]] = {
    "10,000 pipelined health checks": lambda: (get("/healthz"), 10_000, 200),
    "10,000 pipelined errors": lambda: (b"GET /?Action=X HTTP/1.1\r\n\r\n", 10_000, 400),
    "5,000 pipelined ListQueues": lambda: (call("ListQueues", {}), 5000, 200),
    "200 pipelined lists": lambda: (call("ListQueues", b'{"a":[' + b"[]," * 20_000 + b"0]}"), 200, 200),
    "300 pipelined scrapes": lambda: (get("/metrics"), 300, 200),
}


@pytest.mark.parametrize("case", PIPELINES)
def test_pipelined_requests_leave_others_their_turn(target: BrokerProcess, probe: Probe, case: str) -> None:
    data, count, status = PIPELINES[case]()
    with probe.watch(case):
        answers = exchange(target.http, data * count, count)
    assert [answer.status for answer in answers] == [status] * count
