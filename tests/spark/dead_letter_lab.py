"""Queues with dead letters."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.spark.pipelines.brokers import Brokers
from penstock.spark.pipelines.claims import DeadLetters, open_queue, surveys
from tests.clients.waiting import wait_until
from tests.sqs_clients import JSON, sqs_client

PATIENCE_S = 300.0
_numbers = itertools.count()


class Letters:
    """One dead-letter queue, and queues whose messages die at once."""

    def __init__(self, kafka: str, http: str, folder: Path, *, is_fifo: bool = False) -> None:
        self.kafka = kafka
        self.sqs: Any = sqs_client(http, JSON, folder)
        self.is_fifo = is_fifo
        self.name = self._new("dead")
        self.urls = {self.name: self._create(self.name, {})}

    def _new(self, word: str) -> str:
        return f"{word}-{next(_numbers)}{'.fifo' if self.is_fifo else ''}"

    def _create(self, name: str, attributes: Mapping[str, str]) -> str:
        more = {"FifoQueue": "true"} if self.is_fifo else {}
        url: str = self.sqs.create_queue(QueueName=name, Attributes={**more, **attributes})["QueueUrl"]
        return url

    def source(self, word: str = "jobs", **attributes: str) -> str:
        """A queue whose messages are dead once they were received; its name."""
        name = self._new(word)
        policy = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{self.name}", "maxReceiveCount": 1}
        self.urls[name] = self._create(name, {"RedrivePolicy": json.dumps(policy), **attributes})
        return name

    def plain(self, word: str = "other") -> str:
        """A queue whose messages do not die."""
        name = self._new(word)
        self.urls[name] = self._create(name, {})
        return name

    def kill(self, source: str, bodies: Sequence[str], **more: Any) -> None:
        """Send messages, and let them die."""
        before = self.counts(self.name)[0]
        for number, body in enumerate(bodies):
            fifo = {"MessageGroupId": "ab"[number % 2], "MessageDeduplicationId": body} if self.is_fifo else {}
            self.sqs.send_message(QueueUrl=self.urls[source], MessageBody=body, **fifo, **more)
        wait_until(
            lambda: (self._sweep(source), self.counts(self.name)[0] == before + len(bodies))[1],
            "the messages are dead",
            timeout_s=PATIENCE_S,
        )

    def _sweep(self, source: str) -> None:
        self.sqs.receive_message(QueueUrl=self.urls[source], MaxNumberOfMessages=10, VisibilityTimeout=0)

    def receive(self, name: str, count: int = 0) -> list[Any]:
        """All that can be received, in the order in which it came; so many are waited for.

        Of a FIFO queue it is deleted as well: the next of its group wait for it.
        """
        found: list[Any] = []
        while True:
            messages = self._ask(name, VisibilityTimeout=600, WaitTimeSeconds=20 if len(found) < count else 0)
            if not messages:
                return found
            found += messages
            for message in messages if self.is_fifo else ():
                self.finish(name, message)

    def peek(self, name: str) -> list[Any]:
        """The first ten, which stay available to all; it counts as a delivery."""
        return self._ask(name, VisibilityTimeout=0)

    def take(self, name: str) -> Any:
        """Receives one message, with a long visibility timeout."""
        (message,) = self._ask(name, VisibilityTimeout=600, MaxNumberOfMessages=1)
        return message

    def _ask(self, name: str, **more: Any) -> list[Any]:
        wanted = {"MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        answer = self.sqs.receive_message(QueueUrl=self.urls[name], **{**wanted, **more})
        return list(answer.get("Messages", ()))

    def bodies(self, name: str, count: int = 0) -> list[str]:
        return [message["Body"] for message in self.receive(name, count)]

    def finish(self, name: str, message: Any) -> None:
        self.sqs.delete_message(QueueUrl=self.urls[name], ReceiptHandle=message["ReceiptHandle"])

    def counts(self, name: str) -> tuple[int, int]:
        """Messages that are available, and that are in flight."""
        answer = self.sqs.get_queue_attributes(QueueUrl=self.urls[name], AttributeNames=["All"])["Attributes"]
        return int(answer["ApproximateNumberOfMessages"]), int(answer["ApproximateNumberOfMessagesNotVisible"])

    def delete(self, name: str) -> None:
        self.sqs.delete_queue(QueueUrl=self.urls.pop(name))

    @property
    def dlq(self) -> DeadLetters:
        return open_queue(Brokers(self.kafka), self.name)

    def state(self) -> list[Any]:
        """The holders of the dead letters, and how often each was delivered."""
        return [survey.delivery_ranges for _, survey in sorted(surveys(self.dlq).items())]

    def close(self) -> None:
        self.sqs.close()


def orders(numbers: Iterable[int]) -> list[str]:
    """Orders, every second of them misspelt."""
    return [json.dumps({"id": number, "amont" if number % 2 else "amount": number * 10}) for number in numbers]
