"""FIFO queues, with boto3 in both protocols: in order, one worker at a time for each group, no duplicates."""

import threading
from typing import Any

import pytest

from .queue_calls import bodies, code_of, counts, message_of, receive, refused


def send(sqs: Any, url: str, body: str, group: str = "g", **more: Any) -> Any:
    return sqs.send_message(
        QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=more.pop("id", body), **more
    )


def test_a_group_is_in_order_and_in_one_pair_of_hands(sqs: Any, fifo: str) -> None:
    for number in range(3):
        send(sqs, fifo, f"a{number}", "a")
        send(sqs, fifo, f"b{number}", "b")
    (first,) = receive(sqs, fifo, 1, 20)
    assert first["Body"] == "a0"
    others = receive(sqs, fifo, 10, 20)
    assert bodies(others) == ["b0", "b1", "b2"]
    assert receive(sqs, fifo) == []
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"])
    assert bodies(receive(sqs, fifo, 10, 20)) == ["a1", "a2"]


def test_as_many_as_possible_of_one_group_come_first_and_in_order(sqs: Any, fifo: str) -> None:
    for number in range(4):
        for group in "abc":
            send(sqs, fifo, f"{group}{number}", group)
    assert bodies(receive(sqs, fifo, 3, 20)) == ["a0", "a1", "a2"]
    assert bodies(receive(sqs, fifo, 10, 20)) == ["b0", "b1", "b2", "b3", "c0", "c1", "c2", "c3"]


def test_a_message_that_is_visible_again_comes_at_once_and_those_behind_one_in_flight_wait(
    sqs: Any, fifo: str
) -> None:
    """As AWS: recorded by LocalStack's test_fifo_message_group_visibility_after_terminate_visibility_timeout."""
    for number in range(3):
        send(sqs, fifo, f"a{number}", "a")
    held = receive(sqs, fifo, 2, 20)
    sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=held[0]["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = receive(sqs, fifo, 10, 20)
    assert again["Body"] == "a0"
    sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=held[1]["ReceiptHandle"], VisibilityTimeout=0)
    assert receive(sqs, fifo) == []
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=again["ReceiptHandle"])
    assert bodies(receive(sqs, fifo, 10, 20)) == ["a1", "a2"]


def test_a_long_poll_gets_a_visible_message_though_one_behind_it_is_in_flight(sqs: Any, fifo: str) -> None:
    for number in range(2):
        send(sqs, fifo, f"a{number}", "a")
    held = receive(sqs, fifo, 2, 20)
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(receive(sqs, fifo, 10, 20)))
    waiting.start()
    sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=held[0]["ReceiptHandle"], VisibilityTimeout=0)
    waiting.join(60)
    assert bodies(found) == ["a0"]


def test_a_receipt_is_no_good_after_the_visibility_timeout(sqs: Any, fifo: str) -> None:
    """As AWS: recorded by LocalStack's test_fifo_delete_after_visibility_timeout."""
    send(sqs, fifo, "x")
    (held,) = receive(sqs, fifo, 1, 20, VisibilityTimeout=0)
    handle = held["ReceiptHandle"]
    said = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    for ask in (
        lambda: sqs.delete_message(QueueUrl=fifo, ReceiptHandle=handle),
        lambda: sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=handle, VisibilityTimeout=5),
    ):
        with refused() as raised:
            ask()
        assert (code_of(raised), message_of(raised)) == ("InvalidParameterValue", said)
    entry = {"Id": "a", "ReceiptHandle": handle}
    (failed,) = sqs.delete_message_batch(QueueUrl=fifo, Entries=[entry])["Failed"]
    assert (failed["Code"], failed["Message"]) == ("ReceiptHandleIsInvalid", "The receipt handle has expired")
    changed = sqs.change_message_visibility_batch(QueueUrl=fifo, Entries=[{**entry, "VisibilityTimeout": 5}])
    assert [(each["Code"], each["Message"]) for each in changed["Failed"]] == [("InvalidParameterValue", said)]
    (again,) = receive(sqs, fifo, 1, 20)
    sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=again["ReceiptHandle"], VisibilityTimeout=60)
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=again["ReceiptHandle"])
    assert counts(sqs, fifo) == (0, 0, 0)


def test_sequence_numbers_grow(sqs: Any, fifo: str) -> None:
    sent = [send(sqs, fifo, str(number))["SequenceNumber"] for number in range(5)]
    assert sent == sorted(sent)
    assert {len(number) for number in sent} == {20}
    found = receive(sqs, fifo, 10, 20, AttributeNames=["All"])
    assert [message["Attributes"]["SequenceNumber"] for message in found] == sent
    assert {message["Attributes"]["MessageGroupId"] for message in found} == {"g"}
    assert [message["Attributes"]["MessageDeduplicationId"] for message in found] == list("01234")


def test_duplicates_are_not_sent_again(sqs: Any, fifo: str) -> None:
    first = send(sqs, fifo, "one", id="same")
    again = send(sqs, fifo, "another body", id="same")
    assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    (found,) = receive(sqs, fifo, 10, 20)
    assert found["Body"] == "one"
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=found["ReceiptHandle"])
    send(sqs, fifo, "one", id="same")
    assert counts(sqs, fifo) == (0, 0, 0), "not even after it was deleted"


def test_after_a_purge_what_was_sent_before_may_be_sent_again(sqs: Any, fifo: str) -> None:
    """As AWS: recorded by LocalStack's test_purge_queue_clears_fifo_deduplication_cache."""
    first = send(sqs, fifo, "one", id="same")
    sqs.purge_queue(QueueUrl=fifo)
    again = send(sqs, fifo, "another body", id="same")
    assert again["MessageId"] != first["MessageId"]
    assert send(sqs, fifo, "a third body", id="same")["MessageId"] == again["MessageId"]
    assert bodies(receive(sqs, fifo, 10, 20)) == ["another body"]


def test_the_content_may_be_the_id(sqs: Any, name: str) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    for body in ("a", "a", "b"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")
    assert bodies(receive(sqs, url, 10, 20)) == ["a", "b"]


def test_ids_may_count_within_their_group(sqs: Any, name: str) -> None:
    attributes = {
        "FifoQueue": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
        "PenstockPartitions": "3",
    }
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    for group in ("a", "b", "a"):
        send(sqs, url, group, group, id="same")
    assert counts(sqs, url) == (2, 0, 0)


def test_a_batch_keeps_its_order_and_knows_its_duplicates(sqs: Any, fifo: str) -> None:
    entries = [
        {"Id": f"e{at}", "MessageBody": f"{at}", "MessageGroupId": "g", "MessageDeduplicationId": f"{at % 4}"}
        for at in range(8)
    ]
    sent = sqs.send_message_batch(QueueUrl=fifo, Entries=entries)["Successful"]
    assert [entry["Id"] for entry in sent] == [f"e{at}" for at in range(8)]
    assert [entry["MessageId"] for entry in sent[:4]] == [entry["MessageId"] for entry in sent[4:]]
    assert bodies(receive(sqs, fifo, 10, 20)) == list("0123")


def test_a_batch_without_groups_or_ids_fails_as_a_whole(sqs: Any, fifo: str) -> None:
    for entry, said in (
        ({"MessageDeduplicationId": "d"}, "The request must contain the parameter MessageGroupId."),
        ({"MessageGroupId": "g"}, "The queue should either have ContentBasedDeduplication enabled"),
    ):
        with refused() as raised:
            sqs.send_message_batch(QueueUrl=fifo, Entries=[{"Id": "a", "MessageBody": "x", **entry}])
        assert code_of(raised) == "InvalidParameterValue"
        assert message_of(raised).startswith(said)


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"MessageDeduplicationId": "d"}, "MissingParameter"),
        ({"MessageGroupId": "g"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g g", "MessageDeduplicationId": "d"}, "InvalidParameterValue"),
        ({"MessageGroupId": "g", "MessageDeduplicationId": "d" * 129}, "InvalidParameterValue"),
        ({"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 2}, "InvalidParameterValue"),
    ],
)
def test_a_message_that_is_not_for_a_fifo_queue_is_refused(
    sqs: Any, fifo: str, params: dict[str, Any], code: str
) -> None:
    with refused() as raised:
        sqs.send_message(QueueUrl=fifo, MessageBody="x", **params)
    assert code_of(raised) == code


def test_the_same_attempt_gets_the_same_messages_again(sqs: Any, fifo: str) -> None:
    for number in range(3):
        send(sqs, fifo, str(number))
    first = receive(sqs, fifo, 2, 20, ReceiveRequestAttemptId="try")
    again = receive(sqs, fifo, 2, 20, ReceiveRequestAttemptId="try")
    assert again == first
    assert receive(sqs, fifo, ReceiveRequestAttemptId="another") == []


def test_the_delay_of_a_fifo_queue_is_that_of_all_its_messages(sqs: Any, name: str) -> None:
    attributes = {"FifoQueue": "true", "DelaySeconds": "1"}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    for number in range(2):
        send(sqs, url, str(number), DelaySeconds=0)
    assert counts(sqs, url) == (0, 0, 2)
    assert bodies(receive(sqs, url, 10, 20))[0] == "0"
