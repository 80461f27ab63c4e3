"""A broker that stops: long polls are answered, and sent messages are kept."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.sqs_clients import PROTOCOLS, sqs_client

from .queue_calls import bodies, receive


def test_a_long_poll_is_answered_when_the_broker_stops(
    own_broker: Callable[..., BrokerProcess], models: Path
) -> None:
    broker = own_broker()
    url = sqs_client(broker.http, "json", models).create_queue(QueueName="jobs")["QueueUrl"]
    with ThreadPoolExecutor() as threads:
        polls = [
            threads.submit(receive, sqs_client(broker.http, protocol, models), url, 10, 20)
            for protocol in PROTOCOLS * 3
        ]
        wait_until(lambda: broker.metric("penstock_queue_receivers") == len(polls), "all of them wait")
        broker.stop()
        assert [poll.result(60) for poll in polls] == [[]] * len(polls)
    broker.start()
    client = sqs_client(broker.http, "json", models)
    client.send_message(QueueUrl=url, MessageBody="after")
    assert bodies(receive(client, url, 1, 20)) == ["after"]
