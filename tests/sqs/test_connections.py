"""More connections than a broker serves: further ones get an error, and metrics are served even then."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.sqs_clients import PROTOCOLS, sqs_client

from .queue_calls import refused

BOUND = 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_beyond_the_limit_is_refused_and_served_when_a_connection_is_free(
    own_broker: Callable[..., BrokerProcess], models: Path, protocol: str
) -> None:
    broker = own_broker(settings={"http.max.connections": BOUND})
    host, _, port = broker.http.rpartition(":")
    with ExitStack() as stack:
        for _ in range(BOUND):
            idle = stack.enter_context(socket.create_connection((host, int(port))))
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert idle.recv(100).startswith(b"HTTP/1.1 200")
        with refused() as raised:
            sqs_client(broker.http, protocol, models).list_queues()
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        assert broker.metric("penstock_refused_total") == 2, "the client, and the request for the metrics"
    patient = sqs_client(broker.http, protocol, models, retries={"total_max_attempts": 9, "mode": "standard"})
    assert patient.create_queue(QueueName="jobs")["QueueUrl"].endswith("/jobs")
