"""Clients that disconnect during a long poll take no message: it is visible to others at once.

The visibility timeout is 12 hours, so a message that was given to a client that is gone would be seen as missing.
"""

import json
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses
from tests.sqs_clients import JSON, sqs_client

from .queue_calls import bodies, counts, receive

COUNT = 30
HIDDEN_S = 43_200
PATIENCE_S = 90.0
POLL = {"MaxNumberOfMessages": 1, "WaitTimeSeconds": 20, "VisibilityTimeout": HIDDEN_S}


def request_of(action: str, **params: Any) -> bytes:
    body = json.dumps(params).encode()
    head = f"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def connected(broker: BrokerProcess, request: bytes = b"") -> socket.socket:
    host, _, port = broker.http.rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    client.sendall(request)
    return client


def answer_of(client: socket.socket) -> dict[str, Any]:
    """The answer that comes by a connection; nothing if it is closed before."""
    answer = HTTPResponse(client)
    try:
        answer.begin()
        found: dict[str, Any] = json.loads(answer.read())
    except ConnectionError:  # http.client raises it too when there is no answer
        return {}
    return found


def hang_up(client: socket.socket, how: str) -> None:
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@contextmanager
def paused(broker: BrokerProcess) -> Iterator[None]:
    """The broker is stopped meanwhile; requests are handled at once when it goes on."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        stat = Path(f"/proc/{broker.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(") ")[2].startswith("T"), "it is paused", PATIENCE_S)
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def wait_for_receivers(broker: BrokerProcess, count: int) -> None:
    wait_until(lambda: broker.metric("penstock_queue_receivers") == count, f"{count} wait at it", PATIENCE_S)


def check_all_are_there(sqs: Any, url: str, wanted: list[str]) -> None:
    """At once: without waiting for a visibility timeout, and as if they had not been received."""
    wait_until(lambda: counts(sqs, url)[0] == len(wanted), f"{len(wanted)} messages are visible", PATIENCE_S)
    got: list[dict[str, Any]] = []
    while len(got) < len(wanted):
        some = receive(sqs, url, 10, 20, AttributeNames=["ApproximateReceiveCount"], VisibilityTimeout=HIDDEN_S)
        assert some
        got += some
    assert sorted(bodies(got)) == sorted(wanted)
    assert {message["Attributes"]["ApproximateReceiveCount"] for message in got} <= {"1"}


@pytest.mark.parametrize("is_fifo", [False, True], ids=["standard", "fifo"])
@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("is_first", [True, False], ids=["hang up, then send", "send, then hang up"])
def test_clients_that_disconnect_while_messages_are_sent_take_none(
    broker: BrokerProcess, models: Path, name: str, is_first: bool, how: str, is_fifo: bool
) -> None:
    sqs = sqs_client(broker.http, JSON, models)
    queue = f"{name}.fifo" if is_fifo else name
    url = sqs.create_queue(QueueName=queue, Attributes={"FifoQueue": "true"} if is_fifo else {})["QueueUrl"]
    waiting = [connected(broker, request_of("ReceiveMessage", QueueUrl=url, **POLL)) for _ in range(COUNT)]
    wait_for_receivers(broker, COUNT)
    senders = [connected(broker) for _ in range(COUNT)]
    with paused(broker):
        for client in waiting if is_first else ():
            hang_up(client, how)
        for number, sender in enumerate(senders):
            group = {"MessageGroupId": f"g{number}", "MessageDeduplicationId": str(number)} if is_fifo else {}
            sender.sendall(request_of("SendMessage", QueueUrl=url, MessageBody=str(number), **group))
        for client in () if is_first else waiting:
            hang_up(client, how)
    for sender in senders:
        assert "MessageId" in answer_of(sender)
        sender.close()
    check_all_are_there(sqs, url, [str(number) for number in range(COUNT)])


def test_every_message_is_received_by_a_client_or_is_there_for_others(
    broker: BrokerProcess, models: Path, name: str
) -> None:
    """Clients hang up at any moment of their polls; each knows what it has received."""
    sqs = sqs_client(broker.http, JSON, models)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    received: list[str] = []
    failures: list[BaseException] = []
    is_over = threading.Event()

    def poll(seed: int) -> None:
        rng = Random(seed)
        try:
            while not is_over.is_set():
                with connected(broker, request_of("ReceiveMessage", QueueUrl=url, **POLL)) as client:
                    select.select([client], [], [], rng.choice((0, 0.001, 0.01, 0.05)))
                    client.shutdown(socket.SHUT_WR)
                    received.extend(bodies(answer_of(client).get("Messages", [])))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=poll, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for number in range(300):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    is_over.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures
    assert len(set(received)) == len(received)
    check_all_are_there(sqs, url, [str(number) for number in range(300) if str(number) not in set(received)])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    # A broker that is paused must not be taken for dead.
    made = ClusterProcesses(tmp_path_factory.mktemp("cluster"), count=2)
    yield made
    made.finish()


def test_messages_sent_to_clients_of_another_broker_are_released_if_they_disconnect(
    cluster: ClusterProcesses, models: Path, name: str
) -> None:
    sqs = {node: sqs_client(broker.http, JSON, models) for node, broker in cluster.brokers.items()}
    url = sqs[1].create_queue(QueueName=name, Attributes={"PenstockPartitions": "1"})["QueueUrl"]
    for client in sqs.values():
        wait_until(lambda client=client: client.list_queues(QueueNamePrefix=name).get("QueueUrls"), "it is known")
    leader = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(name).topics[name].partitions[0].leader
    other = cluster.brokers[3 - leader]
    with connected(other, request_of("ReceiveMessage", QueueUrl=url, **POLL)) as client:
        wait_for_receivers(other, 1)
        assert receive(sqs[3 - leader], url) == [], "by the answer to this, the leader knows who waits there"
        sqs[leader].send_message(QueueUrl=url, MessageBody="the first one, for which brokers have to connect")
        (first,) = answer_of(client)["Messages"]
        sqs[leader].delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    waiting = [connected(other, request_of("ReceiveMessage", QueueUrl=url, **POLL)) for _ in range(COUNT)]
    wait_for_receivers(other, COUNT)
    assert receive(sqs[3 - leader], url) == []
    with paused(other):
        for number in range(COUNT):
            sqs[leader].send_message(QueueUrl=url, MessageBody=str(number))
        wait_until(lambda: counts(sqs[leader], url) == (0, COUNT, 0), "all are given to who waits", PATIENCE_S)
        for client in waiting:
            hang_up(client, "close")
    check_all_are_there(sqs[leader], url, [str(number) for number in range(COUNT)])
