"""The background producer, and errors of confluent-kafka that mean something else."""

import signal
from collections.abc import Iterator

import pytest

from penstock.api.core.background_producer import BackgroundProducer
from penstock.api.core.delay_topics import DelayTopics
from penstock.api.core.encoding import Encoded
from penstock.api.core.settings import Settings

UNREACHABLE = "127.0.0.1:1"
NOWHERE = DelayTopics(lambda topic, name: "false")


@pytest.fixture
def producer() -> Iterator[BackgroundProducer]:
    producer = BackgroundProducer(
        Settings(servers=UNREACHABLE), {"bootstrap.servers": UNREACHABLE, "log_level": 0}, NOWHERE
    )
    yield producer
    producer.kafka_producer.purge()
    producer.close(1.0)


def _send_interrupted(producer: BackgroundProducer, message: Encoded) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    producer.send(message)  # headers take some 20 ms


def test_an_interrupt_that_comes_while_headers_are_read_is_an_interrupt(producer: BackgroundProducer) -> None:
    many = [("name", b"value")] * 200_000
    message = Encoded(topic="t", value=b"", key=None, headers=many, partition=-1, timestamp_ms=0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            _send_interrupted(producer, message)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_another_error_of_type_stays_what_it_is(producer: BackgroundProducer) -> None:
    message = Encoded(topic="t", value=3, key=None, headers=[], partition=-1, timestamp_ms=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        producer.send(message)
