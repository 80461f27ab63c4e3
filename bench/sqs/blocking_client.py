"""Signed requests of the SQS API in JSON, and a blocking conversation by them: for set-up and for checks."""

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

from bench.blocking_client import WrongAnswer
from bench.broker import topic_name
from penstock.client.signing import AccessKeys, signed

TIMEOUT_S: Final = 60.0
KEYS: Final = AccessKeys(access_key="AKIABENCH", secret_key="not-a-secret-at-all")
CREDENTIALS: Final = f"keys:\n  - access_key: {KEYS.access_key}\n    secret: {KEYS.secret_key}\n"
"""The file of keys for a broker that checks signatures."""
VISIBILITY_S: Final = 3600
"""Longer than any run: what was received once does not come back."""


class SqsServer(Protocol):
    """A server of the SQS API under load."""

    name: str
    forgets_deletions: bool
    """Whether what it answers is not always what it does, so that it cannot be held to it."""

    @property
    def pid(self) -> int: ...

    @property
    def http_port(self) -> int: ...


def headers_of(port: int, action: str, body: bytes) -> dict[str, str]:
    """Of one request: what an AWS SDK sends and a server needs, signed now. It is good for a quarter of an hour."""
    headers = {
        "content-type": "application/x-amz-json-1.0",
        "host": f"127.0.0.1:{port}",
        "x-amz-target": f"AmazonSQS.{action}",
    }
    return signed(headers, body, "/", KEYS, time.time_ns() // 1_000_000)


def encoded(port: int, action: str, params: Mapping[str, Any]) -> bytes:
    """A whole request, as it goes over the wire."""
    body = json.dumps(params).encode()
    lines = [f"{name}: {value}\r\n" for name, value in headers_of(port, action, body).items()]
    head = f"POST / HTTP/1.1\r\n{''.join(lines)}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class SqsBlockingClient:
    """One connection. Use it in a `with`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._link = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def __enter__(self) -> "SqsBlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def ask(self, action: str, params: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(params).encode()
        self._link.request("POST", "/", body, headers_of(self._port, action, body))
        answer = self._link.getresponse()
        found = answer.read()
        if answer.status != 200:
            raise WrongAnswer(f"{action}: status {answer.status}: {found[:300].decode(errors='replace')}")
        return json.loads(found) if found else {}

    # -- what the harness asks for

    def make_queue(self) -> str:
        """A new standard queue's URL, which ends in its name."""
        name = topic_name()
        attributes = {"VisibilityTimeout": str(VISIBILITY_S)}
        return str(self.ask("CreateQueue", {"QueueName": name, "Attributes": attributes})["QueueUrl"])

    def drop_queue(self, url: str) -> None:
        self.ask("DeleteQueue", {"QueueUrl": url})

    def messages_in(self, url: str) -> int:
        """All that are not deleted, in flight or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.ask("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": names})["Attributes"]
        return sum(int(found[name]) for name in names)
