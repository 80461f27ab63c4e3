"""One broker for all tests that do not need their own, and boto3 in both protocols."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import BrokerProcess
from tests.sqs_clients import PROTOCOLS, sqs_client

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that most tests share: they differ in their queues."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield process
    process.finish()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session", params=PROTOCOLS)
def sqs(request: pytest.FixtureRequest, broker: BrokerProcess, models: Path) -> Iterator[Any]:
    """A client of the shared broker."""
    client = sqs_client(broker.http, request.param, models)
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"queue-{next(_numbers)}"


@pytest.fixture
def queue(sqs: Any, name: str) -> str:
    """The URL of a queue of the test's own."""
    url: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    return url


@pytest.fixture
def fifo(sqs: Any, name: str) -> str:
    """The URL of a FIFO queue of the test's own."""
    url: str = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    return url


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers that the test has for itself."""
    made: list[BrokerProcess] = []

    def start(**options: Any) -> BrokerProcess:
        folder = tmp_path / f"broker-{len(made)}"
        folder.mkdir()
        made.append(BrokerProcess(folder, **options))
        return made[-1].start()

    yield start
    for process in made:
        process.finish()
