"""Quotas of users apply to their requests for queues, together with those to topics."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.client_limits import REQUEST_THROTTLE_MS_MAX, WINDOW_S
from penstock.client.cluster import KafkaClient
from penstock.client.quotas import ClientQuotas
from penstock.cluster.client_quotas import CONSUMER_RATE, PRODUCER_RATE, REQUEST_PERCENTAGE
from penstock.foundation.quota_entities import USER, Entity
from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.sqs_clients import PROTOCOLS, sqs_client

from .queue_calls import code_of, message_of, receive, refused
from .test_credentials import with_credentials

SECRET = "the-right-secret"
LIMITED = [f"AK{what}{protocol.upper()}" for what in ("SENDER", "RECEIVER", "SPENDER") for protocol in PROTOCOLS]
"""A user for each test: what one has taken too much is remembered for a while."""
FREE = "AKFREE"
KEYS = "keys:\n" + "".join(f"  - {{access_key: {key}, secret: {SECRET}}}\n" for key in (*LIMITED, FREE))
RATE = 1000.0
"""Bytes per second; at once, a client may take what it may take in WINDOW_S."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = with_credentials(tmp_path_factory.mktemp("quotas"), KEYS).start()
    yield broker
    broker.finish()


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(protocol: str, guarded: BrokerProcess, models: Any) -> Any:
    def make(key: str) -> Any:
        return sqs_client(guarded.http, protocol, models, key=key, secret=SECRET)

    return make


def limit(broker: BrokerProcess, user: str, **values: float | None) -> None:
    async def change() -> None:
        async with KafkaClient(broker.kafka) as connected:
            entity: Entity = ((USER, user),)
            await ClientQuotas(connected).change(entity, values)

    asyncio.run(change())


def test_a_user_that_sends_too_much_is_refused_for_a_while_and_others_are_not(
    guarded: BrokerProcess, client: Any, protocol: str, name: str
) -> None:
    user = f"AKSENDER{protocol.upper()}"
    small, free = client(user), client(FREE)
    url = free.create_queue(QueueName=name)["QueueUrl"]
    limit(guarded, user, **{PRODUCER_RATE: RATE})
    body = "x" * int(RATE * WINDOW_S * 1.5)

    def is_throttled() -> bool:
        try:
            small.send_message(QueueUrl=url, MessageBody=body)
        except small.exceptions.ClientError as error:
            return bool(error.response["Error"]["Code"] == "RequestThrottled")
        return False

    wait_until(is_throttled, "the quota applies")
    (taken,) = receive(small, url, 1, 20)
    small.delete_message(QueueUrl=url, ReceiptHandle=taken["ReceiptHandle"])
    with refused() as raised:
        small.send_message(QueueUrl=url, MessageBody="x")
    assert code_of(raised) == "RequestThrottled"
    assert "Rate exceeded; try again in" in message_of(raised)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    free.send_message(QueueUrl=url, MessageBody=body)
    limit(guarded, user, **{PRODUCER_RATE: None})
    wait_until(lambda: not is_throttled(), "the quota is gone")


def test_a_user_that_receives_too_much_is_refused_for_a_while(
    guarded: BrokerProcess, client: Any, protocol: str, name: str
) -> None:
    user = f"AKRECEIVER{protocol.upper()}"
    small, free = client(user), client(FREE)
    url = free.create_queue(QueueName=name)["QueueUrl"]
    for _ in range(3):
        free.send_message(QueueUrl=url, MessageBody="x" * int(RATE * WINDOW_S * 1.5))
    limit(guarded, user, **{CONSUMER_RATE: RATE})

    def is_throttled() -> bool:
        try:
            receive(small, url, 1, VisibilityTimeout=0)
        except small.exceptions.ClientError as error:
            return bool(error.response["Error"]["Code"] == "RequestThrottled")
        return False

    (held,) = receive(small, url, 1, 20)
    wait_until(is_throttled, "the quota applies")
    small.send_message(QueueUrl=url, MessageBody="x")
    small.delete_message(QueueUrl=url, ReceiptHandle=held["ReceiptHandle"])
    assert receive(free, url, 1, 20)
    limit(guarded, user, **{CONSUMER_RATE: None})
    wait_until(lambda: not is_throttled(), "the quota is gone")


def test_requests_of_a_user_that_has_used_too_much_of_the_brokers_time_are_delayed(
    guarded: BrokerProcess, client: Any, protocol: str, name: str
) -> None:
    user = f"AKSPENDER{protocol.upper()}"
    small = client(user)
    url = client(FREE).create_queue(QueueName=name)["QueueUrl"]
    limit(guarded, user, **{REQUEST_PERCENTAGE: 0.0001})
    delay_s = REQUEST_THROTTLE_MS_MAX / 1000

    def elapsed_s() -> float:
        started_s = time.monotonic()
        small.get_queue_attributes(QueueUrl=url)
        return time.monotonic() - started_s

    wait_until(lambda: elapsed_s() >= delay_s, "the quota applies")
    assert min(elapsed_s() for _ in range(2)) >= delay_s
    limit(guarded, user, **{REQUEST_PERCENTAGE: None})
    wait_until(lambda: elapsed_s() < delay_s, "the quota is gone")
