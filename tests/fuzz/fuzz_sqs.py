"""Fuzzing of the SQS API: HTTP, both codecs, signatures, and what actions read from parameters.

Not a part of `make test`; see fuzz_wire.py. Anything but a value or one of our own errors is a crash, and so is what
takes longer than `-timeout` seconds. It begins with SEEDS, which once took long or failed.

    pip install atheris
    python tests/fuzz/fuzz_sqs.py -max_total_time=600
"""

import contextlib

import atheris
from corpus import run

with atheris.instrument_imports(include=["penstock"]):
    from penstock.cluster.queues import Queue, QueueSettings
    from penstock.foundation.errors import PenstockError
    from penstock.foundation.http import HttpRequest
    from penstock.network.http_reader import RequestReader
    from penstock.security.credentials import AccessKey, Credentials, parse_credentials
    from penstock.security.sigv4 import Verifier
    from penstock.sqs import attributes, json_codec, query_codec
    from penstock.sqs.acknowledgement import deletion, renewal
    from penstock.sqs.batches import read_entries
    from penstock.sqs.checks import Params
    from penstock.sqs.message_attributes import Filter, from_headers, shown
    from penstock.sqs.move_tasks import read_handle
    from penstock.sqs.pagination import page_of
    from penstock.sqs.sent_message import read_message

QUEUES = (
    Queue(name="jobs", topic_id=bytes(16)),
    Queue(
        name="jobs.fifo", topic_id=bytes(16), settings=QueueSettings(is_fifo=True, content_based_deduplication=True)
    ),
)
VERIFIER = Verifier(Credentials(keys={"AKID": AccessKey(access_key="AKID", secret="a-secret")}))
EVERYTHING = Filter.of(["All"])
JSON, FORM, URL, SIGNATURE, CREDENTIALS, HTTP = (bytes([number]) for number in range(6))
_SCOPE = b"Credential=AKID/19700101/us-east-1/sqs/aws4_request"
_CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
SEEDS = (
    JSON + b"{" + b",".join(b'"n%d":%d' % (number, number) for number in range(3000)) + b"}",
    JSON + b"{" + b",".join(b'"n%d":"n%d\\n"' % (number, number) for number in range(2000)) + b',"n0":1}',
    JSON + b'{"QueueUrl":"a","Queue\\u0055rl":"b","x":"QueueUrl"}',
    JSON + b'{"a":[' + b"[]," * 3000 + b"0]}",
    JSON + b'{"a":' * 500 + b"1" + b"}" * 500,
    JSON + b'{"a":"a","MessageBody":"' + b'\\"\\\\' * 2000 + b'"}',
    JSON + b'{"Entries":[' + b'{"Id":"a"},' * 2000 + b"{}]}",
    JSON + b'{"MessageAttributeNames":[' + b'"a.*",' * 2000 + b'"b"]}',
    JSON + b'{"Attributes":{"RedrivePolicy":"' + b"[" * 9000 + b'"}}',
    JSON
    + b'{"ReceiptHandle":"'
    + b"A" * 9000
    + b'","TaskHandle":"'
    + b"W" * 9000
    + b'","NextToken":"'
    + b"A" * 9000
    + b'"}',
    FORM + b"Action=SendMessage&MessageBody=" + b"%41%C3%A9+" * 2000,
    FORM + b"Action=SendMessage&MessageBody==%41" + b"=" * 2000,
    FORM + b"Action=SendMessage&MessageBody=" + b"%" * 2000,
    FORM + b"Action=SendMessage" + b"&a=" * 2000,
    FORM + b"Action=SendMessage&" + b"a." * 2000 + b"=1",
    URL + b"Action=ListQueues&" + b"a&" * 2000,
    SIGNATURE + b"AWS4-HMAC-SHA256 " + b"a" * 9000,
    SIGNATURE + b"AWS4-HMAC-SHA256 Credential=" + b" " * 9000 + b"x,",
    SIGNATURE
    + b"AWS4-HMAC-SHA256 "
    + _SCOPE
    + b", SignedHeaders=host"
    + b";x" * 3000
    + b", Signature=00\n19700101T000000Z",
    SIGNATURE
    + b"AWS4-HMAC-SHA256 "
    + _SCOPE
    + b", SignedHeaders=host, Signature=00\nMon, 01 Jan 99999999999999 00:00:00 GMT",
    SIGNATURE + b"X-Amz-Algorithm=AWS4-HMAC-SHA256&" + b"a=%41&" * 2000,
    HTTP + b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 3000 + b"\r\n",
    HTTP + b"GET / HTTP/1.1\r\nx: " + b"a" * 9000,
    HTTP + _CHUNKED + b"1\r\nx\r\n" * 2000 + b"0\r\n\r\n",
    HTTP + _CHUNKED + b"2;" + b"e" * 900 + b"\r\n{}\r\n0\r\nAuthorization: x\r\nHost: y\r\n\r\n",
    HTTP + b"GET / HTTP/1.1\r\n\r\n" * 500,
)


def fuzz(data: bytes) -> None:
    """The first byte chooses what the rest is read as."""
    choice, rest = data[:1], data[1:]
    try:
        match int.from_bytes(choice, "big") % 6:
            case 0:
                use(json_codec.decode(rest))
            case 1:
                use(query_codec.decode(HttpRequest(b"POST", "/", "", {}, rest))[1])
            case 2:
                use(query_codec.decode(HttpRequest(b"GET", "/", rest.decode("latin-1"), {}, b""))[1])
            case 3:
                fuzz_signature(rest)
            case 4:
                parse_credentials(rest.decode("utf-8", "replace"))
            case _:
                fuzz_http(rest)
    except PenstockError:
        pass


def use(params: Params) -> None:
    """Reads parameters as any action would. A message must be received as it was sent."""
    for read in (attributes.new_settings, lambda given: attributes.changed(QueueSettings(), given)):
        given = params.get("Attributes")
        if isinstance(given, dict) and all(isinstance(value, str) for value in given.values()):
            refused_or(lambda read=read, given=given: attributes.shown(read(given), str))
    for queue in QUEUES:
        refused_or(lambda queue=queue: deletion(queue, params))
        refused_or(lambda queue=queue: renewal(queue, params))
        refused_or(lambda queue=queue: send(queue, params))
    refused_or(lambda: page_of(["a", "b"], params))
    refused_or(lambda: read_handle(str(params.get("TaskHandle"))))
    for entry in read_entries(params, "SendMessageBatch").values():
        refused_or(lambda entry=entry: send(QUEUES[0], entry))


def send(queue: Queue, params: Params) -> None:
    message = read_message(queue, {"QueueUrl": queue.name, "Id": "1", **params}, "sender").message
    found = shown(from_headers(message.headers, EVERYTHING))
    given = params.get("MessageAttributes") or {}
    assert found.keys() == given.keys(), (found, given)


def refused_or(work: object) -> None:
    assert callable(work)
    with contextlib.suppress(PenstockError):
        work()


def fuzz_signature(data: bytes) -> None:
    head, _, body = data.partition(b"\n")
    text = head.decode("latin-1")
    headers = {b"host": b"x", b"authorization": head, b"x-amz-date": body[:32], b"date": body}
    for request in (
        HttpRequest(b"POST", text, text, headers, body),
        HttpRequest(b"GET", "/", text, {b"host": b"x"}, b""),
    ):
        try:
            VERIFIER.verify(request, 0)
        except PenstockError:
            continue
        raise AssertionError("it was accepted without a valid signature")


class Reading:
    """Reads requests from bytes."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.reader = RequestReader(self, "127.0.0.1:9092")

    def head_read(self, body_bytes: int, expects_continue: bool) -> None:
        """Nothing is lent."""

    def request_read(self, request: HttpRequest, keeps_alive: bool, is_old: bool) -> None:
        self.requests.append(request)


def fuzz_http(data: bytes) -> None:
    """Requests do not depend on the pieces in which they arrive; nothing after a head is among the headers."""
    found = []
    for size in (len(data) or 1, 7):
        reading = Reading()
        with contextlib.suppress(PenstockError):
            for start in range(0, len(data), size):
                reading.reader.feed(data[start : start + size])
        found.append(reading.requests)
    shorter = min(map(len, found))  # what is refused at its end is refused with what came before it
    assert found[0][:shorter] == found[1][:shorter], found
    for request in found[0]:
        head = data.lower()
        assert all(name in head for name in request.headers), request


if __name__ == "__main__":
    run(fuzz, SEEDS)
