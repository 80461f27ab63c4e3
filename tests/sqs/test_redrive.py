"""Dead letters with boto3 in both protocols: after too many receives, and redriven."""

import json
import time
from typing import Any

import pytest

from .queue_calls import bodies, code_of, counts, message_of, receive, receive_all, refused

PATIENCE_S = 60


def arn(name: str) -> str:
    return f"arn:aws:sqs:eu-west-1:000000000000:{name}"


def made_pair(sqs: Any, name: str, count: int = 1) -> tuple[str, str]:
    """A queue and its dead-letter queue."""
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": arn(f"{name}-dead"), "maxReceiveCount": count}
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": json.dumps(policy)})["QueueUrl"]
    return url, dead


def killed(sqs: Any, url: str, dead: str, names: list[str]) -> None:
    """Messages that were sent, received once too often, and are dead letters now."""
    for body in names:
        sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}}
        )
    receive_all(sqs, url, len(names), VisibilityTimeout=0)
    until(lambda: (receive(sqs, url), counts(sqs, dead)[0])[1] == len(names))


def until(is_so: Any) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come to be so"
        time.sleep(0.05)


def test_a_message_that_is_received_too_often_becomes_a_dead_letter_with_its_history(sqs: Any, name: str) -> None:
    url, dead = made_pair(sqs, name, count=2)
    sent = sqs.send_message(
        QueueUrl=url, MessageBody="poison", MessageAttributes={"a": {"DataType": "Number", "StringValue": "5"}}
    )
    for count in ("1", "2"):
        (found,) = receive(sqs, url, 1, 20, VisibilityTimeout=0, AttributeNames=["All"])
        assert found["Attributes"]["ApproximateReceiveCount"] == count
    assert receive(sqs, url) == []
    (letter,) = receive(sqs, dead, 1, 20, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert (letter["Body"], letter["MessageId"]) == ("poison", sent["MessageId"])
    assert letter["MessageAttributes"] == {"a": {"DataType": "Number", "StringValue": "5"}}
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn(name)
    assert letter["Attributes"]["ApproximateReceiveCount"] == "3"
    assert letter["Attributes"]["SentTimestamp"] == found["Attributes"]["SentTimestamp"]
    assert counts(sqs, url) == (0, 0, 0)


def test_dead_letters_are_moved_back_to_where_they_came_from(sqs: Any, name: str) -> None:
    url, dead = made_pair(sqs, name)
    killed(sqs, url, dead, ["a", "b", "c"])
    handle = sqs.start_message_move_task(SourceArn=arn(f"{name}-dead"))["TaskHandle"]
    assert handle
    found = receive_all(sqs, url, 3, MessageAttributeNames=["All"])
    assert sorted(bodies(found)) == ["a", "b", "c"]
    assert found[0]["MessageAttributes"] == {"a": {"DataType": "String", "StringValue": "b"}}

    def latest() -> dict[str, Any]:
        (task,) = sqs.list_message_move_tasks(SourceArn=arn(f"{name}-dead"))["Results"]
        return task

    until(lambda: latest()["Status"] == "COMPLETED")
    task = latest()
    assert task["SourceArn"] == arn(f"{name}-dead")
    assert task["ApproximateNumberOfMessagesMoved"] == 3
    assert task["ApproximateNumberOfMessagesToMove"] == 3
    assert abs(task["StartedTimestamp"] / 1000 - time.time()) < 600
    assert "TaskHandle" not in task
    assert "DestinationArn" not in task
    assert counts(sqs, dead) == (0, 0, 0)


def test_dead_letters_are_moved_to_a_queue_that_is_named(sqs: Any, name: str) -> None:
    url, dead = made_pair(sqs, name)
    killed(sqs, url, dead, ["a"])
    other = sqs.create_queue(QueueName=f"{name}-other")["QueueUrl"]
    sqs.start_message_move_task(
        SourceArn=arn(f"{name}-dead"), DestinationArn=arn(f"{name}-other"), MaxNumberOfMessagesPerSecond=500
    )
    assert bodies(receive_all(sqs, other, 1)) == ["a"]
    (task,) = sqs.list_message_move_tasks(SourceArn=arn(f"{name}-dead"), MaxResults=10)["Results"]
    assert task["DestinationArn"] == arn(f"{name}-other")
    assert task["MaxNumberOfMessagesPerSecond"] == 500


def test_a_task_that_runs_can_be_cancelled_and_is_the_only_one(sqs: Any, name: str) -> None:
    url, dead = made_pair(sqs, name)
    killed(sqs, url, dead, [str(number) for number in range(10)])
    source = arn(f"{name}-dead")
    handle = sqs.start_message_move_task(SourceArn=source, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    with refused() as raised:
        sqs.start_message_move_task(SourceArn=source)
    assert message_of(raised).startswith("There is already a task running.")
    (task,) = sqs.list_message_move_tasks(SourceArn=source)["Results"]
    assert (task["Status"], task["TaskHandle"]) == ("RUNNING", handle)
    assert sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"] < 10

    def status() -> str:
        (found,) = sqs.list_message_move_tasks(SourceArn=source)["Results"]
        return str(found["Status"])

    until(lambda: status() == "CANCELLED")
    assert counts(sqs, dead)[0] > 0
    with refused() as raised:
        sqs.cancel_message_move_task(TaskHandle=handle)
    assert code_of(raised) == "ResourceNotFoundException"


def test_tasks_that_make_no_sense_are_refused(sqs: Any, name: str, queue: str) -> None:
    made_pair(sqs, f"{name}-x")
    for params, code in (
        ({"SourceArn": arn(f"{name}-none")}, "ResourceNotFoundException"),
        ({"SourceArn": "nonsense"}, "InvalidParameterValue"),
        ({"SourceArn": arn(name)}, "InvalidParameterValue"),  # it is no dead-letter queue
        ({"SourceArn": arn(f"{name}-x-dead"), "DestinationArn": arn(f"{name}-none")}, "ResourceNotFoundException"),
        ({"SourceArn": arn(f"{name}-x-dead"), "DestinationArn": arn(f"{name}-x-dead")}, "InvalidParameterValue"),
        ({"SourceArn": arn(f"{name}-x-dead"), "MaxNumberOfMessagesPerSecond": 501}, "InvalidParameterValue"),
    ):
        with refused() as raised:
            sqs.start_message_move_task(**params)
        assert code_of(raised) == code, params
    with refused() as raised:
        sqs.list_message_move_tasks(SourceArn=arn(f"{name}-none"))
    assert code_of(raised) == "ResourceNotFoundException"
    assert "Results" not in sqs.list_message_move_tasks(SourceArn=arn(name))


@pytest.mark.parametrize("handle", ["nonsense", "e30=", "é"])
def test_a_handle_that_is_none_is_refused(sqs: Any, handle: str) -> None:
    with refused() as raised:
        sqs.cancel_message_move_task(TaskHandle=handle)
    assert code_of(raised) == "InvalidParameterValue"
