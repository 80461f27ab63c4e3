"""Clients that send slowly, or very much at a time: others are served meanwhile."""

import socket
import threading
from collections.abc import Callable

from penstock.wire.frames import LENGTH, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.api_versions import ApiVersionsRequest
from tests.brokers import BrokerProcess
from tests.clients.raw import PRODUCE_VERSION, RawClient, batch_of, produce_request

from .probe import Probe

MIB = 1 << 20
TOPIC = "senders"


def test_slow_senders_of_large_requests_do_not_keep_others_from_sending_theirs(
    target: BrokerProcess, probe: Probe
) -> None:
    """The budget for half-received requests is 512 MiB: seven that announce 100 MiB each would use it up."""
    with RawClient(target.address) as raw:
        raw.describe(TOPIC, allow_auto_topic_creation=True)
    announced = LENGTH.pack(99 * MIB) + b"\0\0\0\x09" + bytes(100)
    slow = [socket.create_connection(target.address) for _ in range(12)]
    try:
        for each in slow:
            each.sendall(announced)
        with probe.watch("slow-senders"), RawClient(target.address) as raw:
            for _ in range(3):
                for each in slow:
                    each.sendall(b"x")
                assert raw.produce(TOPIC, batch_of([bytes(900_000)])).error_code == 0
    finally:
        for each in slow:
            each.close()


def test_large_requests_beyond_the_budget_wait_for_their_turn(own_target: Callable[..., BrokerProcess]) -> None:
    target = own_target({"queued.max.request.bytes": 2 * MIB, "message.max.bytes": 8 * MIB})
    with RawClient(target.address) as raw:
        raw.describe(TOPIC, allow_auto_topic_creation=True)
    frame = b"".join(
        request_frame(produce_request(TOPIC, batch_of([bytes(4 * MIB)]), acks=1), PRODUCE_VERSION, 1, "large")
    )
    clients = [RawClient(target.address) for _ in range(6)]
    half = len(frame) // 2
    for client in clients:
        client.socket.sendall(frame[: half // 2])
    for client in clients:
        client.expect(ApiKey.PRODUCE, PRODUCE_VERSION, 1)
        client.socket.settimeout(60.0)
    # The oldest goes on though the others hold buffers; each that is done lets others go on.
    for client in clients:
        client.socket.sendall(frame[half // 2 :])
        assert client.receive().responses[0].partition_responses[0].error_code == 0
        client.socket.close()


def test_thousands_of_requests_in_one_read_let_others_have_their_turn(target: BrokerProcess, probe: Probe) -> None:
    hello = b"".join(request_frame(ApiVersionsRequest(), 0, 7, ""))
    count = 20_000
    with probe.watch("pipelined-requests"), RawClient(target.address) as raw:
        raw.socket.settimeout(90.0)
        sender = threading.Thread(target=raw.socket.sendall, args=(hello * count,))
        sender.start()
        answer = raw.receive_frame()
        left = (4 + len(answer)) * (count - 1)
        while left:
            left -= len(raw.socket.recv(min(left, MIB)))
        sender.join()
