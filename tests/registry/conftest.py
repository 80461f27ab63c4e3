"""A broker for all tests of this folder: they differ in their subjects."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess

from .rest_client import RestClient


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), {"log.cleaner.backoff.ms": 100}).start()
    yield process
    process.finish()


@pytest.fixture
def rest(broker: BrokerProcess) -> RestClient:
    return RestClient(broker.http)


@pytest.fixture(scope="session")
def new_name() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"name{next(numbers)}"


@pytest.fixture
def subject(new_name: Callable[[], str]) -> str:
    """A subject that no other test uses."""
    return f"{new_name()}-value"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker for one test alone, which may kill it."""
    process = BrokerProcess(tmp_path).start()
    yield process
    process.finish()
