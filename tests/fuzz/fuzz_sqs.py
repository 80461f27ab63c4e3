"""Fuzzing of the SQS API: HTTP, both codecs, signatures, and what actions read from parameters.

Not a part of `make test`; see fuzz_wire.py. Anything but a value or one of our own errors is a crash.

    pip install atheris
    python tests/fuzz/fuzz_sqs.py -max_total_time=600
"""

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["penstock"]):
    from penstock.cluster.queues import Queue, QueueSettings
    from penstock.foundation.errors import PenstockError
    from penstock.foundation.http import HttpRequest
    from penstock.security.credentials import AccessKey, Credentials, parse_credentials
    from penstock.security.sigv4 import Verifier
    from penstock.sqs import attributes, json_codec, query_codec
    from penstock.sqs.batches import read_entries
    from penstock.sqs.checks import Params
    from penstock.sqs.message_attributes import Filter, from_headers, shown
    from penstock.sqs.moving import read_handle
    from penstock.sqs.paging import page_of
    from penstock.sqs.sending import read_message
    from penstock.sqs.settling import deletion, renewal

QUEUES = (
    Queue(name="jobs", topic_id=bytes(16)),
    Queue(
        name="jobs.fifo", topic_id=bytes(16), settings=QueueSettings(is_fifo=True, content_based_deduplication=True)
    ),
)
VERIFIER = Verifier(Credentials(keys={"AKID": AccessKey(access_key="AKID", secret="a-secret")}))
EVERYTHING = Filter.of(["All"])


def fuzz(data: bytes) -> None:
    """The first byte chooses what the rest is read as."""
    choice, rest = data[:1], data[1:]
    try:
        match int.from_bytes(choice, "big") % 5:
            case 0:
                use(json_codec.decode(rest))
            case 1:
                use(query_codec.decode(HttpRequest(b"POST", "/", "", {}, rest))[1])
            case 2:
                use(query_codec.decode(HttpRequest(b"GET", "/", rest.decode("latin-1"), {}, b""))[1])
            case 3:
                fuzz_signature(rest)
            case _:
                parse_credentials(rest.decode("utf-8", "replace"))
    except PenstockError:
        pass


def use(params: Params) -> None:
    """Whatever any action would make of parameters. What we keep of a message must be shown as it was sent."""
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
        raise AssertionError("nobody has signed it")


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz)
    atheris.Fuzz()
