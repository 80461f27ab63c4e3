"""The real command, run as its users run it, against a real broker in a process of its own."""

import itertools
from collections.abc import Iterator

import pytest

from .running import Cli, ServeProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path_factory.mktemp("broker"))
    yield process
    process.stop()


@pytest.fixture(scope="session")
def cli(broker: ServeProcess) -> Cli:
    """`penstock`, with PENSTOCK_BOOTSTRAP set to the broker."""
    return Cli(broker.bootstrap)


@pytest.fixture
def topic(cli: Cli) -> str:
    """A topic of one partition that no other test has."""
    name = f"topic-{next(_numbers)}"
    cli.ok("topic", "create", name)
    return name


@pytest.fixture
def fresh() -> str:
    """A name that no topic has yet."""
    return f"topic-{next(_numbers)}"
