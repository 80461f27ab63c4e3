"""HTTP clients that announce large bodies and send them slowly: others are served meanwhile."""

import contextlib
import socket
from urllib.parse import urlsplit

from tests.brokers import BrokerProcess

from .probe import Probe
from .raw_http import MIB, call, exchange

SLOW_SENDERS = 70
"""Each announces 4 MiB; the budget for large bodies is 256 MiB."""


def test_slow_senders_of_large_bodies_do_not_keep_others_from_sending_theirs(
    target: BrokerProcess, probe: Probe
) -> None:
    assert exchange(target.http, call("CreateQueue", {"QueueName": "slow"}))[0].status == 200
    send = call("SendMessage", {"QueueUrl": f"http://{target.http}/000000000000/slow", "MessageBody": "x" * 200_000})
    parts = urlsplit(f"http://{target.http}")
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (4 * MIB)
    with contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection((parts.hostname, parts.port))) for _ in range(SLOW_SENDERS)
        ]
        for each in slow:
            each.sendall(head)
        with probe.watch("slow-http-senders"):
            for _ in range(3):
                for each in slow:
                    each.sendall(b"x")
                assert exchange(target.http, send)[0].status == 200
        for each in slow:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                raise AssertionError(f"the broker answered a sender that is still slow: {each.recv(100)!r}")
