"""Common calls of tests of the SQS API."""

from typing import Any

import botocore.exceptions
import pytest


def code_of(raised: "pytest.ExceptionInfo[botocore.exceptions.ClientError]") -> str:
    """The code of the error that a client was given."""
    code: str = raised.value.response["Error"]["Code"]
    return code


def message_of(raised: "pytest.ExceptionInfo[botocore.exceptions.ClientError]") -> str:
    message: str = raised.value.response["Error"]["Message"]
    return message


def refused() -> "pytest.RaisesExc[botocore.exceptions.ClientError]":
    return pytest.raises(botocore.exceptions.ClientError)


def receive(sqs: Any, url: str, count: int = 10, wait_s: int = 0, **more: Any) -> list[dict[str, Any]]:
    """The messages of one receive; by default it does not wait."""
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=count, WaitTimeSeconds=wait_s, **more)
    messages: list[dict[str, Any]] = found.get("Messages", [])
    return messages


def receive_all(sqs: Any, url: str, count: int, **more: Any) -> list[dict[str, Any]]:
    """So many messages, however many receives it takes."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        got = receive(sqs, url, min(10, count - len(found)), 20, **more)
        assert got, f"{len(found)} of {count} messages came within 20 s each"
        found += got
    return found


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def attributes_of(sqs: Any, url: str, *names: str) -> dict[str, str]:
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names or ["All"]))
    found: dict[str, str] = answer.get("Attributes", {})  # left out if there are none
    return found


def counts(sqs: Any, url: str) -> tuple[int, int, int]:
    """Available, in flight, delayed."""
    found = attributes_of(sqs, url)
    available, in_flight, delayed = (
        int(found[f"ApproximateNumberOfMessages{suffix}"]) for suffix in ("", "NotVisible", "Delayed")
    )
    return available, in_flight, delayed
