"""Dead letters with hundreds of thousands of headers, or of large batches: copied a few milliseconds at a time."""

import json
from typing import Any

from penstock.records.build import Record, build_batch
from tests.brokers import BrokerProcess
from tests.clients.raw import NOW_MS, RawClient
from tests.clients.waiting import wait_until

from .probe import Probe
from .raw_http import call, exchange

HEADERS = 150_000
"""Of one message; each has 5 bytes, and the message fits into 1 MiB."""
ARN = "arn:aws:sqs:us-east-1:000000000000:"


def _ask(target: BrokerProcess, action: str, params: Any) -> Any:
    (answer,) = exchange(target.http, call(action, params))
    assert answer.status == 200, answer
    return json.loads(answer.body or b"{}")


def _queues(target: BrokerProcess, name: str) -> tuple[str, str]:
    """A queue whose messages are dead letters when they were received once; the names of both topics."""
    dead = f"{name}-dead"
    _ask(target, "CreateQueue", {"QueueName": dead})
    policy = json.dumps({"deadLetterTargetArn": ARN + dead, "maxReceiveCount": 1})
    _ask(
        target, "CreateQueue", {"QueueName": name, "Attributes": {"RedrivePolicy": policy, "VisibilityTimeout": "0"}}
    )
    return name, dead


def _move_all(target: BrokerProcess, name: str, dead: str, count: int) -> None:
    """Receives until all messages have become dead letters."""
    url = f"http://{target.http}/000000000000/"

    def are_moved() -> bool:
        _ask(target, "ReceiveMessage", {"QueueUrl": url + name, "MaxNumberOfMessages": 10})
        wanted = {"QueueUrl": url + dead, "AttributeNames": ["ApproximateNumberOfMessages"]}
        found = _ask(target, "GetQueueAttributes", wanted)["Attributes"]["ApproximateNumberOfMessages"]
        return int(found) == count

    wait_until(are_moved, f"{count} messages are dead letters", 120.0)


def test_a_dead_letter_with_very_many_headers_is_copied_step_by_step(target: BrokerProcess, probe: Probe) -> None:
    name, dead = _queues(target, "headers")
    headers = tuple((f"{number % 100:02}", b"x") for number in range(HEADERS))
    record = Record(key=None, value=b"x", timestamp_ms=NOW_MS, headers=headers)
    with RawClient(target.address) as raw:
        assert raw.produce(name, build_batch([record])).error_code == 0
        with probe.watch("dead letter with 150,000 headers"):
            _move_all(target, name, dead, 1)
        ((_, (moved,)),) = raw.batches(dead)
    assert moved.headers[: len(headers)] == headers


def test_dead_letters_of_a_large_batch_are_copied_one_by_one(target: BrokerProcess, probe: Probe) -> None:
    name, dead = _queues(target, "large")
    values = [bytes([number]) * 50_000 for number in range(20)]
    records = [Record(key=None, value=value, timestamp_ms=NOW_MS) for value in values]
    with RawClient(target.address) as raw:
        assert raw.produce(name, build_batch(records)).error_code == 0
        with probe.watch("20 dead letters of a batch of 1 MB"):
            _move_all(target, name, dead, len(values))
        moved = {record.value for _, found in raw.batches(dead) for record in found}
    assert moved == set(values)
