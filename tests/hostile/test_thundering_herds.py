"""One small event wakes very many clients at the same time."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from penstock.wire.messages.api_versions import ApiVersionsRequest
from tests.brokers import BrokerProcess
from tests.clients.raw import FETCH_VERSION, RawClient, batch_of, by_partition, fetch_request

from .conftest import print_worst
from .probe import Probe
from .raw_http import call, exchange

SIZES = [pytest.param(400, id="400"), pytest.param(4000, id="4000", marks=pytest.mark.slow)]
WAIT_S = 240.0
TOPIC = "herd"
ROUND_TRIPS = 20
"""After that many the broker has read what was sent before."""


@contextmanager
def connected_clients(target: BrokerProcess, size: int) -> Iterator[list[RawClient]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(target.address)) for _ in range(size)]
        for client in clients:
            client.socket.settimeout(WAIT_S)
        yield clients


def let_arrive(raw: RawClient) -> None:
    for _ in range(ROUND_TRIPS):
        assert raw.ask(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("size", SIZES)
def test_many_consumers_of_one_partition_are_woken(size: int, own_target: Callable[..., BrokerProcess]) -> None:
    target = own_target()
    probe = Probe(target)
    waits = fetch_request(TOPIC, {0: 0}, max_wait_ms=200_000)
    with RawClient(target.address) as raw, connected_clients(target, size) as clients:
        raw.describe(TOPIC, allow_auto_topic_creation=True)
        for client in clients:
            client.send(waits, FETCH_VERSION)
        let_arrive(raw)
        with probe.watch(f"{size:,} consumers of a partition: woken"):
            assert raw.produce(TOPIC, batch_of([b"x"])).error_code == 0
            assert {by_partition(client.receive())[0].error_code for client in clients} == {0}
    print_worst(probe)


@pytest.mark.parametrize("size", SIZES)
def test_many_receivers_of_one_queue_are_served(size: int, own_target: Callable[..., BrokerProcess]) -> None:
    target = own_target({"http.max.connections": 2 * size})
    probe = Probe(target)
    host, _, port = target.http.rpartition(":")
    assert exchange(target.http, call("CreateQueue", {"QueueName": "jobs"}))[0].status == 200
    url = f"http://{target.http}/000000000000/jobs"
    waits = call("ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 20})
    with RawClient(target.address) as raw, ExitStack() as stack:
        receivers = [stack.enter_context(socket.create_connection((host, int(port)), WAIT_S)) for _ in range(size)]
        for receiver in receivers:
            receiver.sendall(waits)
        let_arrive(raw)
        with probe.watch(f"{size:,} receivers of a queue: served"):
            entries = [{"Id": str(number), "MessageBody": "x"} for number in range(10)]
            for _ in range(size // 10):
                sent = exchange(target.http, call("SendMessageBatch", {"QueueUrl": url, "Entries": entries}))
                assert sent[0].status == 200
            for receiver in receivers:
                assert receiver.recv(15) == b"HTTP/1.1 200 OK"
    print_worst(probe)
