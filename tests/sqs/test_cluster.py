"""Queues of three brokers: any of them answers, leaders do the work, and acknowledgements survive a leader."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses
from tests.sqs_clients import JSON, sqs_client

from .queue_calls import attributes_of, bodies, counts, receive, receive_all

SETTINGS = {"default.replication.factor": 3, "min.insync.replicas": 2}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    made = ClusterProcesses(tmp_path_factory.mktemp("cluster"), settings=SETTINGS)
    yield made
    made.finish()


def clients(cluster: ClusterProcesses, folder: Path) -> dict[int, Any]:
    """A client of each broker that runs."""
    return {
        node_id: sqs_client(broker.http, JSON, folder)
        for node_id, broker in cluster.brokers.items()
        if broker.is_running
    }


def urls(sqs: dict[int, Any], name: str) -> dict[int, str]:
    """The queue's URL at each broker, once each knows of it."""

    def find(client: Any) -> str | None:
        try:
            return str(client.get_queue_url(QueueName=name)["QueueUrl"])
        except ClientError:
            return None

    return {node: wait_until(partial(find, client), f"{node} knows {name}") for node, client in sqs.items()}


def test_any_broker_answers_any_request(cluster: ClusterProcesses, tmp_path: Path) -> None:
    sqs = clients(cluster, tmp_path)
    sqs[1].create_queue(QueueName="any")
    url = urls(sqs, "any")
    sent = [
        sqs[node].send_message(QueueUrl=url[node], MessageBody=f"{node}-{number}")["MessageId"]
        for node in sqs
        for number in range(4)
    ]
    for node in sqs:
        assert counts(sqs[node], url[node]) == (12, 0, 0)
    got = receive_all(sqs[2], url[2], 12)
    assert sorted(message["MessageId"] for message in got) == sorted(sent)
    assert counts(sqs[3], url[3]) == (0, 12, 0)
    for number, message in enumerate(got):
        node = 1 + number % 3
        sqs[node].delete_message(QueueUrl=url[node], ReceiptHandle=message["ReceiptHandle"])
    assert counts(sqs[1], url[1]) == (0, 0, 0)


def test_a_long_poll_at_one_broker_gets_what_is_sent_to_another(cluster: ClusterProcesses, tmp_path: Path) -> None:
    sqs = clients(cluster, tmp_path)
    sqs[1].create_queue(QueueName="waiting")
    url = urls(sqs, "waiting")
    got: dict[int, list[dict[str, Any]]] = {}

    def wait(node: int) -> None:
        got[node] = receive(sqs_client(cluster.brokers[node].http, JSON, tmp_path), url[node], 1, 20)

    threads = [threading.Thread(target=wait, args=(node,)) for node in sqs]
    for thread in threads:
        thread.start()
    for number in range(3):
        sqs[3].send_message(QueueUrl=url[3], MessageBody=str(number))
    for thread in threads:
        thread.join()
    assert sorted(body for messages in got.values() for body in bodies(messages)) == ["0", "1", "2"]
    for node, messages in got.items():
        for message in messages:
            sqs[node].delete_message(QueueUrl=url[node], ReceiptHandle=message["ReceiptHandle"])
    # If two leaders had a message for the same long poll, one of them has released its own.
    assert counts(sqs[1], url[1]) == (0, 0, 0)


def test_a_fifo_queue_is_in_order_at_every_broker(cluster: ClusterProcesses, tmp_path: Path) -> None:
    sqs = clients(cluster, tmp_path)
    attributes = {
        "FifoQueue": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    sqs[1].create_queue(QueueName="order.fifo", Attributes=attributes)
    url = urls(sqs, "order.fifo")
    for number in range(12):
        node = 1 + number % 3
        for _ in range(2):  # the second one is a duplicate, at another broker
            sqs[node].send_message(
                QueueUrl=url[node],
                MessageBody=str(number),
                MessageGroupId=f"g{number % 4}",
                MessageDeduplicationId=str(number),
            )
            node = 1 + node % 3
    seen: dict[str, list[int]] = {}
    for turn in range(100):
        node = 1 + turn % 3
        for message in receive(sqs[node], url[node], 3, 1, AttributeNames=["MessageGroupId"]):
            seen.setdefault(message["Attributes"]["MessageGroupId"], []).append(int(message["Body"]))
            sqs[node].delete_message(QueueUrl=url[node], ReceiptHandle=message["ReceiptHandle"])
        if sum(map(len, seen.values())) >= 12:
            break
    assert seen == {f"g{group}": [group, group + 4, group + 8] for group in range(4)}
    assert counts(sqs[1], url[1]) == (0, 0, 0)


def test_dead_letters_cross_from_broker_to_broker_and_back(cluster: ClusterProcesses, tmp_path: Path) -> None:
    sqs = clients(cluster, tmp_path)
    sqs[1].create_queue(QueueName="dead")
    dead = urls(sqs, "dead")
    arn = attributes_of(sqs[1], dead[1], "QueueArn")["QueueArn"]
    policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}'
    sqs[2].create_queue(QueueName="source", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"})
    url = urls(sqs, "source")
    for number in range(20):
        sqs[1].send_message(QueueUrl=url[1], MessageBody=str(number))

    def all_dead() -> bool:
        receive(sqs[3], url[3])
        return counts(sqs[1], dead[1]) == (20, 0, 0)

    wait_until(all_dead, "all are dead letters", PATIENCE_S)
    assert counts(sqs[1], url[1]) == (0, 0, 0)
    sqs[1].set_queue_attributes(QueueUrl=url[1], Attributes={"RedrivePolicy": "", "VisibilityTimeout": "30"})
    sqs[1].set_queue_attributes(
        QueueUrl=url[1], Attributes={"RedrivePolicy": policy.replace(":1}", ":5}"), "VisibilityTimeout": "30"}
    )

    def is_known() -> bool:
        return '":5}' in attributes_of(sqs[2], url[2], "RedrivePolicy").get("RedrivePolicy", "").replace(" ", "")

    wait_until(is_known, "the second broker knows the queue's new policy")
    sqs[2].start_message_move_task(SourceArn=arn)

    def is_over() -> bool:
        (task,) = sqs[3].list_message_move_tasks(SourceArn=arn)["Results"]
        return bool(task["Status"] == "COMPLETED" and task["ApproximateNumberOfMessagesMoved"] == 20)

    wait_until(is_over, "all are back", PATIENCE_S)
    got = receive_all(sqs[1], url[1], 20)
    assert sorted(map(int, bodies(got))) == list(range(20))


def test_receipts_counts_and_deletes_outlive_a_killed_process(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker()
    sqs = sqs_client(broker.http, JSON, tmp_path)
    url = sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    for number in range(6):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    got = receive_all(sqs, url, 4)
    for message in got[:2]:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    broker.kill()
    broker.start()
    assert counts(sqs, url) == (2, 2, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got[2]["ReceiptHandle"])
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=got[3]["ReceiptHandle"], VisibilityTimeout=0)
    rest = receive_all(sqs, url, 3, AttributeNames=["ApproximateReceiveCount"])
    found = {message["Body"]: message["Attributes"]["ApproximateReceiveCount"] for message in rest}
    assert found == {got[3]["Body"]: "2", "4": "1", "5": "1"}


def test_a_purge_outlives_a_killed_process(own_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = own_broker()
    sqs = sqs_client(broker.http, JSON, tmp_path)
    url = sqs.create_queue(QueueName="jobs.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    message = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "same"}
    sqs.send_message(MessageBody="before", **message)
    sqs.purge_queue(QueueUrl=url)
    broker.kill()
    broker.start()
    sqs.send_message(MessageBody="after", **message)
    broker.kill()
    broker.start()
    sqs.send_message(MessageBody="again", **message)
    assert bodies(receive(sqs, url, 10, 20)) == ["after"]


def retried(call: Any) -> Any:
    """As an SDK does it: until it is answered."""

    def attempt() -> Any:
        try:
            return (call(),)
        except (BotoCoreError, ClientError):
            return None

    return wait_until(attempt, "an answer", PATIENCE_S)[0]


def test_receipts_counts_and_deletes_outlive_the_leader(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, settings=SETTINGS)
    try:
        sqs = clients(cluster, tmp_path)
        sqs[1].create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "600"})
        url = urls(sqs, "jobs")
        for number in range(30):
            sqs[1 + number % 3].send_message(QueueUrl=url[1 + number % 3], MessageBody=str(number))
        got = receive_all(sqs[1], url[1], 20)
        for message in got[:10]:
            sqs[1].delete_message(QueueUrl=url[1], ReceiptHandle=message["ReceiptHandle"])
        cluster.lose(2)
        waited = retried(lambda: counts(sqs[1], url[1]))
        assert waited == (10, 10, 0)
        for message in got[10:15]:
            held = {"QueueUrl": url[3], "ReceiptHandle": message["ReceiptHandle"]}
            retried(partial(sqs[3].delete_message, **held))
        for message in got[15:]:
            held = {"QueueUrl": url[3], "ReceiptHandle": message["ReceiptHandle"]}
            retried(partial(sqs[3].change_message_visibility, VisibilityTimeout=0, **held))
        rest = receive_all(sqs[1], url[1], 15, AttributeNames=["ApproximateReceiveCount"])
        finished = set(bodies(got[:15]))
        assert sorted(bodies(rest), key=int) == [str(number) for number in range(30) if str(number) not in finished]
        twice = {message["Body"] for message in rest if message["Attributes"]["ApproximateReceiveCount"] == "2"}
        assert twice == set(bodies(got[15:]))
        cluster.brokers[2].start()
        assert retried(lambda: counts(sqs[3], url[3])) == (0, 15, 0)
    finally:
        cluster.finish()


def test_a_purge_outlives_the_leader(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, settings=SETTINGS)
    try:
        sqs = clients(cluster, tmp_path)
        scope = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
        attributes = {"FifoQueue": "true", "PenstockPartitions": "6", **scope}
        sqs[1].create_queue(QueueName="jobs.fifo", Attributes=attributes)
        url = urls(sqs, "jobs.fifo")
        groups = [f"g{number}" for number in range(12)]

        def send(node: int, body: str) -> None:
            for group in groups:
                message = {"QueueUrl": url[node], "MessageGroupId": group, "MessageDeduplicationId": "same"}
                retried(partial(sqs[node].send_message, MessageBody=f"{body}-{group}", **message))

        send(1, "before")
        sqs[3].purge_queue(QueueUrl=url[3])
        cluster.lose(2)
        send(1, "after")
        send(3, "again")
        got = receive_all(sqs[1], url[1], len(groups))
        assert sorted(bodies(got)) == sorted(f"after-{group}" for group in groups)
        assert retried(lambda: counts(sqs[3], url[3])) == (0, len(groups), 0)
    finally:
        cluster.finish()
