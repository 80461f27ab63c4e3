"""Queues on three brokers that are killed over and over: nothing is lost, and deleted messages are reclaimed."""

import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses
from tests.sqs_clients import JSON, sqs_client

from .queue_calls import attributes_of, counts, receive
from .test_cluster import PATIENCE_S, SETTINGS, retried

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEED = int(os.environ.get("SEED", "0"))
RUN_S = float(os.environ.get("RUN_S", "40"))
POISON = 200
VISIBILITY_S = 10
SESSION_S = 3.0
"""Some of those killed are back before, others after their session has expired."""
QUIET = (BotoCoreError, ClientError)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterProcesses]:
    monkeypatch.setattr("tests.brokers.START_S", PATIENCE_S)  # they start beside clients that are at work
    made = ClusterProcesses(tmp_path, settings=SETTINGS, session_s=SESSION_S)
    yield made
    made.kill()


class WorkerPool:
    """Clients in threads, each of whichever broker answers."""

    def __init__(self, cluster: ClusterProcesses, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._numbers = itertools.count()
        self.is_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.mistakes: list[BaseException] = []

    def client(self) -> tuple[Any, str]:
        """Of the next broker that runs, and where it listens."""
        running = [broker for broker in self._cluster.brokers.values() if broker.is_running]
        broker = running[next(self._numbers) % len(running)]
        return sqs_client(broker.http, JSON, self._folder, read_timeout=30), broker.http

    def work_off(
        self, queue: str, count: int, handle: Callable[[Any, str, dict[str, Any]], None], **asked: Any
    ) -> None:
        """Receives until nothing has come for longer than the visibility timeout."""
        sqs, http = self.client()
        last_s = time.monotonic()
        while not self.is_over.is_set() or time.monotonic() - last_s < VISIBILITY_S + 3:
            try:
                for message in receive(sqs, url_at(http, queue), count, 1, **asked):
                    last_s = time.monotonic()
                    handle(sqs, http, message)
            except QUIET:
                sqs, http = self.client()

    def join_in(self, work: Any, *args: Any) -> None:
        def run() -> None:
            try:
                work(*args)
            except BaseException as error:
                self.mistakes.append(error)
                raise

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *error: object) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join()

    def end(self) -> None:
        self.__exit__()
        assert not self.mistakes


def url_at(http: str, name: str) -> str:
    return f"http://{http}/000000000000/{name}"


def kill_now_and_then(cluster: ClusterProcesses, seconds: float) -> int:
    """One broker after another, each back before the next one goes; how many."""
    rng, until_s, kills = Random(SEED), time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        victim = cluster.brokers[rng.randint(1, 3)]
        victim.kill()
        kills += 1
        time.sleep(rng.uniform(0.5, 4.0))
        victim.start()
        wait_until(
            lambda: all(
                broker.metric("penstock_under_replicated_partitions") == 0 for broker in cluster.brokers.values()
            ),
            "all are in sync",
            PATIENCE_S,
        )
    return kills


class Work:
    """What was sent, delivered and deleted, as the clients know it."""

    def __init__(self, workers: WorkerPool, queue: str) -> None:
        self._workers = workers
        self._queue = queue
        self._lock = threading.Lock()
        self.sent: set[str] = set()
        self.maybe: set[str] = set()
        self.begun: set[str] = set()
        """Messages whose deletion has begun: its response may have been lost."""
        self.deleted: Counter[str] = Counter()
        self.after_delete: list[str] = []

    def send(self, name: str) -> None:
        sqs, http = self._workers.client()
        for number in itertools.count():
            if self._workers.is_over.is_set():
                return
            body = f"{name}-{number}"
            try:
                sqs.send_message(QueueUrl=url_at(http, self._queue), MessageBody=body)
            except QUIET:
                with self._lock:
                    self.maybe.add(body)
                sqs, http = self._workers.client()
            else:
                with self._lock:
                    self.sent.add(body)
            time.sleep(0.03)

    def receive(self) -> None:
        self._workers.work_off(self._queue, 10, self._delete)

    def _delete(self, sqs: Any, http: str, message: dict[str, Any]) -> None:
        body = message["Body"]
        with self._lock:
            if self.deleted[body]:
                self.after_delete.append(body)
            self.begun.add(body)
        sqs.delete_message(QueueUrl=url_at(http, self._queue), ReceiptHandle=message["ReceiptHandle"])
        with self._lock:
            self.deleted[body] += 1


def test_no_message_is_lost_and_none_comes_back_after_it_was_deleted(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    print(f"SEED={SEED}")  # noqa: T201
    with WorkerPool(cluster, tmp_path) as workers:
        sqs, _ = workers.client()
        sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": str(VISIBILITY_S)})
        work = Work(workers, "jobs")
        for number in range(3):
            workers.join_in(work.send, f"s{number}")
            workers.join_in(work.receive)
        kills = kill_now_and_then(cluster, RUN_S)
        workers.end()
    print(f"kills={kills} sent={len(work.sent)} maybe={len(work.maybe)} deleted={len(work.deleted)}")  # noqa: T201
    assert kills > 0
    assert len(work.begun - set(work.deleted)) <= 3 * kills, "only those in flight"
    assert not work.sent - work.begun
    assert work.begun <= work.sent | work.maybe
    # A message that was sent twice because its response was lost may be delivered twice, and no other.
    assert set(work.after_delete) <= work.maybe
    assert retried(lambda: counts(*queue_url(workers, "jobs"))) == (0, 0, 0)


def queue_url(workers: WorkerPool, name: str) -> tuple[Any, str]:
    sqs, http = workers.client()
    return sqs, url_at(http, name)


def test_every_poison_message_is_a_dead_letter_once(cluster: ClusterProcesses, tmp_path: Path) -> None:
    print(f"SEED={SEED}")  # noqa: T201
    with WorkerPool(cluster, tmp_path) as workers:
        sqs, http = workers.client()
        sqs.create_queue(QueueName="dead")
        arn = attributes_of(sqs, url_at(http, "dead"), "QueueArn")["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        sqs.create_queue(QueueName="poison", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"})
        for number in range(POISON):
            sqs.send_message(QueueUrl=url_at(http, "poison"), MessageBody=str(number))

        def taste() -> None:
            client, where = workers.client()
            while not workers.is_over.is_set():
                try:
                    receive(client, url_at(where, "poison"), 10, 0)
                except QUIET:
                    client, where = workers.client()
                time.sleep(0.1)

        workers.join_in(taste)
        kills = kill_now_and_then(cluster, RUN_S / 2)
        wait_until(lambda: retried(lambda: counts(*queue_url(workers, "poison"))) == (0, 0, 0), "all are dead", 120.0)
        workers.end()
    assert kills > 0
    assert retried(lambda: counts(*queue_url(workers, "dead"))) == (POISON, 0, 0)
    sqs, http = workers.client()
    seen: Counter[str] = Counter()
    while sum(seen.values()) < POISON:
        seen.update(message["Body"] for message in receive(sqs, url_at(http, "dead"), 10, 5))
    assert seen == Counter(str(number) for number in range(POISON))


def test_a_move_task_outlives_the_leaders_and_moves_each_message_once(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    print(f"SEED={SEED}")  # noqa: T201
    workers = WorkerPool(cluster, tmp_path)
    sqs, http = workers.client()
    sqs.create_queue(QueueName="dead")
    arn = attributes_of(sqs, url_at(http, "dead"), "QueueArn")["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 100})
    sqs.create_queue(QueueName="source", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "600"})
    for number in range(POISON):
        sqs.send_message(QueueUrl=url_at(http, "dead"), MessageBody=str(number))
    sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=20)
    assert kill_now_and_then(cluster, RUN_S / 2) > 0

    def is_over() -> bool:
        client, _ = workers.client()
        (task,) = retried(lambda: client.list_message_move_tasks(SourceArn=arn)["Results"])
        return bool(task["Status"] == "COMPLETED")

    wait_until(is_over, "all are moved", 300.0, 0.5)
    assert retried(lambda: counts(*queue_url(workers, "dead"))) == (0, 0, 0)
    assert retried(lambda: counts(*queue_url(workers, "source"))) == (POISON, 0, 0)
    sqs, http = workers.client()
    seen: Counter[str] = Counter()
    while sum(seen.values()) < POISON:
        seen.update(message["Body"] for message in receive(sqs, url_at(http, "source"), 10, 5))
    assert seen == Counter(str(number) for number in range(POISON))


class Line:
    """Message groups that are sent in order and must be worked off in order, each message once."""

    def __init__(self, workers: WorkerPool, queue: str) -> None:
        self._workers = workers
        self._queue = queue
        self._lock = threading.Lock()
        self.sent: dict[str, int] = {}
        self.done: dict[str, list[int]] = {}

    def send(self, group: str) -> None:
        sqs, http = self._workers.client()
        number = 0
        while not self._workers.is_over.is_set():
            try:
                sqs.send_message(
                    QueueUrl=url_at(http, self._queue),
                    MessageBody=str(number),
                    MessageGroupId=group,
                    MessageDeduplicationId=f"{group}-{number}",
                )
            except QUIET:
                sqs, http = self._workers.client()  # and the same one again, as an SDK does
                continue
            number += 1
            self.sent[group] = number
            time.sleep(0.05)

    def receive(self) -> None:
        self._workers.work_off(self._queue, 3, self._finish, AttributeNames=["MessageGroupId"])

    def _finish(self, sqs: Any, http: str, message: dict[str, Any]) -> None:
        group, number = message["Attributes"]["MessageGroupId"], int(message["Body"])
        with self._lock:
            seen = self.done.setdefault(group, [])
            # It may come again, if the response to its deletion was lost, but only before the next one.
            assert not seen or number in (seen[-1], seen[-1] + 1), f"{number} of {group} after {seen[-3:]}"
            if not seen or number > seen[-1]:
                seen.append(number)
        sqs.delete_message(QueueUrl=url_at(http, self._queue), ReceiptHandle=message["ReceiptHandle"])


def test_message_groups_stay_in_order_and_are_sent_once(cluster: ClusterProcesses, tmp_path: Path) -> None:
    print(f"SEED={SEED}")  # noqa: T201
    with WorkerPool(cluster, tmp_path) as workers:
        sqs, _ = workers.client()
        scope = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
        sqs.create_queue(
            QueueName="line.fifo", Attributes={"FifoQueue": "true", "VisibilityTimeout": str(VISIBILITY_S), **scope}
        )
        line = Line(workers, "line.fifo")
        for number in range(4):
            workers.join_in(line.send, f"g{number}")
        for _ in range(2):
            workers.join_in(line.receive)
        kills = kill_now_and_then(cluster, RUN_S)
        workers.end()
    print(f"kills={kills} sent={line.sent}")  # noqa: T201
    for group, count in line.sent.items():
        # The last one may have been sent though its response was lost.
        assert line.done[group][:count] == list(range(count))
        assert len(line.done[group]) <= count + 1
    assert retried(lambda: counts(*queue_url(workers, "line.fifo"))) == (0, 0, 0)


def test_every_replica_removes_finished_segments(cluster: ClusterProcesses, tmp_path: Path) -> None:
    sqs, http = WorkerPool(cluster, tmp_path).client()
    url = url_at(http, "jobs")
    sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "600"})
    small = ConfigEntry("segment.bytes", str(1 << 20), incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, "jobs", incremental_configs=[small])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(PATIENCE_S)
    for _ in range(9):  # in each partition one that is never deleted
        sqs.send_message(QueueUrl=url, MessageBody="stuck")
    for _ in range(9):
        receive(sqs, url, 1, 20)
    for _ in range(150):
        sqs.send_message(QueueUrl=url, MessageBody="x" * 100_000)
        (message,) = receive(sqs, url, 1, 20)
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def replicas_bytes() -> list[int]:
        """Of every replica of the queue's partitions, with its delivery state."""
        return [
            sum(path.stat().st_size for path in folder.glob("*.log") if path.exists())
            for broker in cluster.brokers.values()
            for folder in broker.data_dir.glob("logs/jobs/*")
        ]

    # Of 15 MB in segments of 1 MB, in each partition the first segment is left, and the last.
    wait_until(lambda: 0 < max(replicas_bytes()) < 2_500_000, "segments go", PATIENCE_S, 0.5, seen=replicas_bytes())
    assert counts(sqs, url) == (0, 9, 0)
