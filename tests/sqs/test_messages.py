"""Messages, with boto3 in both protocols: sent, received, deleted, delayed, released."""

import threading
from typing import Any

import pytest

from penstock.queues.messages import Receipt

from .queue_calls import bodies, code_of, counts, message_of, receive, receive_all, refused

ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "é & <ü> 'x' \"y\""},
    "number": {"DataType": "Number.int", "StringValue": "-5.25"},
    "bytes": {"DataType": "Binary.png", "BinaryValue": bytes(range(256))},
}
BODY = "a body with <, &, \", ', é, 𝄞,\ttabs,\nlines and\r\nreturns; 50% + more = ?"


def test_a_message_comes_back_as_it_was_sent(sqs: Any, queue: str) -> None:
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    sent = sqs.send_message(
        QueueUrl=queue, MessageBody=BODY, MessageAttributes=ATTRIBUTES, MessageSystemAttributes=trace
    )
    (found,) = receive(sqs, queue, 1, 20, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert (found["Body"], found["MessageAttributes"]) == (BODY, ATTRIBUTES)
    assert found["MessageId"] == sent["MessageId"]
    assert found["MD5OfBody"] == sent["MD5OfMessageBody"]  # botocore has checked it as well
    assert found["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert sent["MD5OfMessageSystemAttributes"]
    attributes = found["Attributes"]
    assert attributes["AWSTraceHeader"] == trace["AWSTraceHeader"]["StringValue"]
    assert attributes["ApproximateReceiveCount"] == "1"
    assert abs(int(attributes["ApproximateFirstReceiveTimestamp"]) - int(attributes["SentTimestamp"])) < 60_000


def test_the_trace_header_of_a_request_is_that_of_its_messages(sqs: Any, queue: str) -> None:
    """AWS's integration of SQS with X-Ray: the system attribute wins over the HTTP header."""
    header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-own"}}
    event = "before-sign.sqs"

    def add(request: Any, **kwargs: Any) -> None:
        request.headers["X-Amzn-Trace-Id"] = header

    sqs.meta.events.register(event, add)
    try:
        sent = sqs.send_message(QueueUrl=queue, MessageBody="header")
        sqs.send_message(QueueUrl=queue, MessageBody="own", MessageSystemAttributes=own)
        sqs.send_message_batch(QueueUrl=queue, Entries=[{"Id": "a", "MessageBody": "batch"}])
        header = "x" * 1025
        sqs.send_message(QueueUrl=queue, MessageBody="too long")
    finally:
        sqs.meta.events.unregister(event, add)
    assert "MD5OfMessageSystemAttributes" not in sent
    found = {each["Body"]: each["Attributes"].get("AWSTraceHeader") for each in traced(sqs, queue, 4)}
    assert found == {
        "header": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
        "own": "Root=1-own",
        "batch": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
        "too long": None,
    }


def traced(sqs: Any, url: str, count: int) -> list[dict[str, Any]]:
    return receive_all(sqs, url, count, AttributeNames=["AWSTraceHeader", "SentTimestamp"])


def test_only_what_is_asked_for_is_shown(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=ATTRIBUTES)
    (plain,) = receive(sqs, queue, 1, 20, VisibilityTimeout=0)
    assert sorted(plain) == ["Body", "MD5OfBody", "MessageId", "ReceiptHandle"]
    (everything,) = receive(sqs, queue, 1, 20, VisibilityTimeout=0, MessageAttributeNames=["*"])
    assert everything["MessageAttributes"] == ATTRIBUTES
    (some,) = receive(
        sqs, queue, 1, 20, MessageAttributeNames=["te.*"], MessageSystemAttributeNames=["ApproximateReceiveCount"]
    )
    assert some["MessageAttributes"] == {"text": ATTRIBUTES["text"]}
    assert some["Attributes"] == {"ApproximateReceiveCount": "3"}


def test_a_message_is_seen_by_one_until_it_is_deleted_or_its_time_is_up(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (held,) = receive(sqs, queue, 1, 20, VisibilityTimeout=43_200)
    assert receive(sqs, queue) == []
    assert counts(sqs, queue) == (0, 1, 0)
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=held["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = receive(sqs, queue, 1, 20, AttributeNames=["ApproximateReceiveCount"])
    assert again["MessageId"] == held["MessageId"]
    assert again["ReceiptHandle"] != held["ReceiptHandle"]
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=again["ReceiptHandle"])
    assert counts(sqs, queue) == (0, 0, 0)


def test_a_delete_is_refused_once_another_consumer_has_the_message(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (first,) = receive(sqs, queue, 1, 20, VisibilityTimeout=0)
    (second,) = receive(sqs, queue, 1, 20)
    with refused() as raised:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"])
    assert code_of(raised) == "InvalidParameterValue"
    assert message_of(raised).endswith("Reason: The receipt handle has expired.")
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"])
    assert counts(sqs, queue) == (0, 0, 0)


def test_a_late_receipt_is_valid_unless_the_message_was_received_again(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (held,) = receive(sqs, queue, 1, 20, VisibilityTimeout=0)
    handle = {"QueueUrl": queue, "ReceiptHandle": held["ReceiptHandle"]}
    sqs.change_message_visibility(VisibilityTimeout=43_200, **handle)
    assert receive(sqs, queue) == []
    assert counts(sqs, queue) == (0, 1, 0)
    sqs.change_message_visibility(VisibilityTimeout=0, **handle)
    sqs.delete_message(**handle)
    assert counts(sqs, queue) == (0, 0, 0)


def test_an_older_receipt_changes_the_visibility_of_the_message(sqs: Any, queue: str) -> None:
    """As AWS: recorded by LocalStack's test_terminate_visibility_timeout_after_receive."""
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (older,) = receive(sqs, queue, 1, 20, VisibilityTimeout=0)
    (newer,) = receive(sqs, queue, 1, 20, VisibilityTimeout=43_200)
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=older["ReceiptHandle"], VisibilityTimeout=0)
    (newest,) = receive(sqs, queue, 1, 20, VisibilityTimeout=0)
    entries = [
        {"Id": str(at), "ReceiptHandle": each["ReceiptHandle"], "VisibilityTimeout": 43_200}
        for at, each in enumerate((older, newer))
    ]
    assert len(sqs.change_message_visibility_batch(QueueUrl=queue, Entries=entries)["Successful"]) == 2
    assert receive(sqs, queue) == []
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=newest["ReceiptHandle"])
    assert counts(sqs, queue) == (0, 0, 0)


def test_the_visibility_of_a_message_that_is_not_in_flight_cannot_be_changed(sqs: Any, queue: str) -> None:
    for body, delay_s in (("later", 900), ("now", 0)):
        sqs.send_message(QueueUrl=queue, MessageBody=body, DelaySeconds=delay_s)
    (held,) = receive(sqs, queue, 1, 20)
    made_up = Receipt.of(held["ReceiptHandle"])._replace(offset=0).to_handle()
    with refused() as raised:
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=made_up, VisibilityTimeout=5)
    assert code_of(raised) == "AWS.SimpleQueueService.MessageNotInflight"


def test_deleting_twice_is_no_error_and_extending_what_is_gone_is_one(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (held,) = receive(sqs, queue, 1, 20)
    handle = held["ReceiptHandle"]
    for _ in range(2):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=handle)
    with refused() as raised:
        sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=handle, VisibilityTimeout=5)
    assert code_of(raised) == "InvalidParameterValue"
    assert "Message does not exist or is not available" in message_of(raised)


@pytest.mark.parametrize("handle", ["nonsense", "AQ==", "é", "x" * 5000])
def test_a_receipt_that_is_none_is_refused(sqs: Any, queue: str, handle: str) -> None:
    with refused() as raised:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=handle)
    assert code_of(raised) == "ReceiptHandleIsInvalid"


def test_a_receipt_of_another_queue_is_refused(sqs: Any, name: str, queue: str) -> None:
    other = sqs.create_queue(QueueName=f"{name}-other")["QueueUrl"]
    sqs.send_message(QueueUrl=other, MessageBody="x")
    (held,) = receive(sqs, other, 1, 20)
    with refused() as raised:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=held["ReceiptHandle"])
    assert code_of(raised) == "ReceiptHandleIsInvalid"


def test_a_delayed_message_waits(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="later", DelaySeconds=900)
    sqs.send_message(QueueUrl=queue, MessageBody="soon", DelaySeconds=1)
    sqs.send_message(QueueUrl=queue, MessageBody="now")
    assert bodies(receive(sqs, queue, 1, 20)) == ["now"]
    assert bodies(receive(sqs, queue, 1, 20)) == ["soon"]
    assert counts(sqs, queue) == (0, 2, 1)


def test_the_delay_of_a_queue_is_that_of_messages_which_have_none(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "900"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="later")
    sqs.send_message(QueueUrl=url, MessageBody="now", DelaySeconds=0)
    assert bodies(receive(sqs, url, wait_s=20)) == ["now"]
    assert counts(sqs, url) == (0, 1, 1)


def test_a_delay_that_is_changed_counts_for_messages_that_wait(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "900"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="sooner")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    assert bodies(receive(sqs, url, wait_s=20)) == ["sooner"]


def test_a_long_poll_gets_what_is_sent_meanwhile(sqs: Any, queue: str) -> None:
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(receive(sqs, queue, 10, 20)))
    waiting.start()
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    waiting.join(60)
    assert bodies(found) == ["x"]


def test_an_empty_poll_prints_nothing(sqs: Any, queue: str) -> None:
    for wait_s in (0, 1):
        assert "Messages" not in sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=wait_s)


def test_the_wait_of_a_queue_is_that_of_receives_which_have_none(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, Attributes={"ReceiveMessageWaitTimeSeconds": "20"})["QueueUrl"]
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(sqs.receive_message(QueueUrl=url).get("Messages", [])))
    waiting.start()
    sqs.send_message(QueueUrl=url, MessageBody="x")
    waiting.join(60)
    assert bodies(found) == ["x"]


def test_a_batch_is_sent_received_and_deleted(sqs: Any, queue: str) -> None:
    entries = [
        {"Id": f"m-{number}", "MessageBody": f"{BODY} {number}", "MessageAttributes": ATTRIBUTES}
        for number in range(10)
    ]
    sent = sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    assert "Failed" not in sent
    assert [entry["Id"] for entry in sent["Successful"]] == [entry["Id"] for entry in entries]
    found = receive_all(sqs, queue, 10, MessageAttributeNames=["All"])
    assert {message["MessageId"] for message in found} == {entry["MessageId"] for entry in sent["Successful"]}
    assert all(message["MessageAttributes"] == ATTRIBUTES for message in found)
    longer = sqs.change_message_visibility_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": f"{at}", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 100}
            for at, message in enumerate(found)
        ],
    )
    assert len(longer["Successful"]) == 10
    deleted = sqs.delete_message_batch(
        QueueUrl=queue,
        Entries=[{"Id": f"{at}", "ReceiptHandle": message["ReceiptHandle"]} for at, message in enumerate(found)],
    )
    assert [entry["Id"] for entry in deleted["Successful"]] == [str(at) for at in range(10)]
    assert counts(sqs, queue) == (0, 0, 0)


def test_some_of_a_batch_may_fail(sqs: Any, queue: str) -> None:
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"MaximumMessageSize": "1024"})
    sent = sqs.send_message_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "good", "MessageBody": "x"},
            {"Id": "long", "MessageBody": "x" * 1025},
            {"Id": "late", "MessageBody": "x", "DelaySeconds": 901},
            {"Id": "also-good", "MessageBody": "y"},
        ],
    )
    assert [entry["Id"] for entry in sent["Successful"]] == ["good", "also-good"]
    assert {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in sent["Failed"]} == {
        "long": ("InvalidParameterValue", True),
        "late": ("InvalidParameterValue", True),
    }
    found = receive_all(sqs, queue, 2)
    handles = [message["ReceiptHandle"] for message in found]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "a", "ReceiptHandle": handles[0], "VisibilityTimeout": 43_201},
            {"Id": "b", "ReceiptHandle": handles[1], "VisibilityTimeout": 43_200},
        ],
    )
    assert [entry["Id"] for entry in changed["Successful"]] == ["b"]
    assert [entry["Code"] for entry in changed["Failed"]] == ["InvalidParameterValue"]
    deleted = sqs.delete_message_batch(
        QueueUrl=queue,
        Entries=[{"Id": "a", "ReceiptHandle": "nonsense"}, {"Id": "b", "ReceiptHandle": handles[1]}],
    )
    assert [entry["Id"] for entry in deleted["Successful"]] == ["b"]
    assert [(entry["Id"], entry["Code"]) for entry in deleted["Failed"]] == [("a", "ReceiptHandleIsInvalid")]


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": "a", "MessageBody": "x"}, {"Id": "a", "MessageBody": "y"}], "BatchEntryIdsNotDistinct"),
        ([{"Id": str(number), "MessageBody": "x"} for number in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a b", "MessageBody": "x"}], "InvalidBatchEntryId"),
        ([{"Id": str(number), "MessageBody": "x" * 600_000} for number in range(2)], "BatchRequestTooLong"),
    ],
)
def test_a_batch_that_makes_no_sense_fails_as_a_whole(
    sqs: Any, queue: str, entries: list[dict[str, Any]], code: str
) -> None:
    with refused() as raised:
        sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    assert code_of(raised) == f"AWS.SimpleQueueService.{code}"
    assert counts(sqs, queue) == (0, 0, 0)


def test_the_largest_message_and_the_largest_batch_are_taken(sqs: Any, queue: str) -> None:
    body = "é" * (1 << 19)
    sqs.send_message(QueueUrl=queue, MessageBody=body)
    entries = [{"Id": str(number), "MessageBody": "x" * 104_857} for number in range(10)]
    assert len(sqs.send_message_batch(QueueUrl=queue, Entries=entries)["Successful"]) == 10
    assert sorted({len(text) for text in bodies(receive_all(sqs, queue, 11))}) == [104_857, 1 << 19]
    with refused() as raised:
        sqs.send_message(QueueUrl=queue, MessageBody=body + "x")
    assert code_of(raised) == "InvalidParameterValue"
    assert (
        message_of(raised)
        == "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."
    )


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"MaxNumberOfMessages": 11}, "Value 11 for parameter MaxNumberOfMessages is invalid."),
        ({"MaxNumberOfMessages": 0}, "Value 0 for parameter MaxNumberOfMessages is invalid."),
        ({"WaitTimeSeconds": 21}, "Value 21 for parameter WaitTimeSeconds is invalid."),
        ({"WaitTimeSeconds": -1}, "Value -1 for parameter WaitTimeSeconds is invalid."),
        ({"VisibilityTimeout": 43_201}, "Value 43201 for parameter VisibilityTimeout is invalid."),
        ({"ReceiveRequestAttemptId": "a"}, "Value a for parameter ReceiveRequestAttemptId is invalid."),
    ],
)
def test_a_receive_that_asks_for_too_much_is_refused(sqs: Any, queue: str, params: dict[str, Any], said: str) -> None:
    with refused() as raised:
        sqs.receive_message(QueueUrl=queue, **params)
    assert code_of(raised) == "InvalidParameterValue"
    assert message_of(raised).startswith(said)


def test_missing_parameters_are_named(sqs: Any, queue: str) -> None:
    for ask, name in (
        (lambda: sqs.send_message(QueueUrl=queue), "MessageBody"),
        (lambda: sqs.delete_message(QueueUrl=queue), "ReceiptHandle"),
        (lambda: sqs.get_queue_url(), "QueueName"),
        (lambda: sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle="x"), None),
    ):
        with refused() as raised:
            ask()
        if name is not None:
            assert code_of(raised) == "MissingParameter"
            assert message_of(raised) == f"The request must contain the parameter {name}."


def test_characters_that_xml_cannot_carry_are_refused(sqs: Any, queue: str) -> None:
    with refused() as raised:
        sqs.send_message(QueueUrl=queue, MessageBody="a\x00b")
    assert code_of(raised) == "InvalidMessageContents"
    entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(("\x01", "fine", "\uffff"))]
    result = sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in result["Successful"]] == ["1"]
    assert {each["Id"]: each["Code"] for each in result["Failed"]} == dict.fromkeys("02", "InvalidMessageContents")


# Botocore takes the URL of a queue for where to send a request, unless it is configured otherwise.
def test_the_host_in_a_url_does_not_count(sqs: Any, queue: str) -> None:
    path = queue.partition("://")[2].partition("/")[2]
    for url in (f"https://sqs.eu-west-1.amazonaws.com/{path}", f"http://balancer.example:81/{path}/", path):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    assert counts(sqs, queue) == (3, 0, 0)
