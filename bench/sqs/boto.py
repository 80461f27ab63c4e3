"""boto3, in a process of its own: it sends messages, receives them and deletes them, one request after another.

python -m bench.sqs.boto PORT EACH SECONDS BROKER_PID
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from bench.cache import BENCH, NotRun
from bench.load import Sample
from bench.measure import cpu_s, machine_cpu_s
from bench.sqs.blocking_client import KEYS, VISIBILITY_S, SqsServer
from bench.sqs.runs import ACTIONS, BODY

RUN_S_MAX: Final = 120


def run(server: SqsServer, each: int, seconds: float) -> dict[str, Sample]:
    """The three loads in a fresh process, counted in messages."""
    words = [str(server.http_port), str(each), str(seconds), str(server.pid)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.sqs.boto", *words],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        cwd=BENCH.parent,
        check=False,
    )
    if done.returncode:
        raise NotRun(f"boto3 failed against {server.name}: {done.stderr[-300:]}")
    found = json.loads(done.stdout)
    return {action: Sample(bytes_each=len(BODY), **found[action]) for action in ACTIONS}


class Boto:
    """One client and its queue. Every step moves so many messages, and says how many."""

    def __init__(self, port: int, each: int) -> None:
        import boto3

        self._client: Any = boto3.client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name=KEYS.region,
            aws_access_key_id=KEYS.access_key,
            aws_secret_access_key=KEYS.secret_key,
        )
        attributes = {"VisibilityTimeout": str(VISIBILITY_S)}
        made = self._client.create_queue(QueueName=f"boto-{time.time_ns()}", Attributes=attributes)
        self.url: Final[str] = made["QueueUrl"]
        self._each = each
        self._handles: list[str] = []

    def send(self) -> int:
        if self._each == 1:
            self._client.send_message(QueueUrl=self.url, MessageBody=BODY)
            return 1
        entries = [{"Id": str(at), "MessageBody": BODY} for at in range(self._each)]
        return len(self._client.send_message_batch(QueueUrl=self.url, Entries=entries)["Successful"])

    def receive(self) -> int:
        answer = self._client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=self._each)
        found = [message["ReceiptHandle"] for message in answer.get("Messages", [])]
        self._handles += found
        return len(found)

    def delete(self) -> int:
        part, self._handles = self._handles[: self._each], self._handles[self._each :]
        if not part:
            return 0
        if self._each == 1:
            self._client.delete_message(QueueUrl=self.url, ReceiptHandle=part[0])
            return 1
        entries = [{"Id": str(at), "ReceiptHandle": handle} for at, handle in enumerate(part)]
        return len(self._client.delete_message_batch(QueueUrl=self.url, Entries=entries)["Successful"])

    def close(self) -> None:
        self._client.delete_queue(QueueUrl=self.url)


def measure(step: Callable[[], int], seconds: float, broker_pid: int) -> dict[str, float]:
    """Until the time is up, or there is nothing left to do."""
    began_s, client_s = time.perf_counter(), time.process_time()
    broker_s, machine_s = cpu_s(broker_pid), machine_cpu_s()
    moved = 0
    while time.perf_counter() < began_s + seconds and (count := step()):
        moved += count
    return {
        "answered": moved,
        "answered_total": moved,
        "seconds": time.perf_counter() - began_s,
        "client_cpu_s": time.process_time() - client_s,
        "broker_cpu_s": cpu_s(broker_pid) - broker_s,
        "machine_cpu_s": machine_cpu_s() - machine_s,
    }


def main() -> None:
    port, each, seconds, broker_pid = sys.argv[1:]
    boto = Boto(int(port), int(each))
    steps = (boto.send, boto.receive, boto.delete)
    found = {
        action: measure(step, float(seconds), int(broker_pid)) for action, step in zip(ACTIONS, steps, strict=True)
    }
    boto.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
