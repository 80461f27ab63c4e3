"""The real command against a real broker process."""

import itertools
import signal
from collections.abc import Iterator

import pytest

from .cli_runner import Cli, Direct, ServeProcess

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard() -> None:
    """A suite that runs in the background ignores Ctrl-C, and so would every command that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path_factory.mktemp("broker"))
    yield process
    process.stop()


@pytest.fixture(scope="session")
def cli(broker: ServeProcess) -> Cli:
    """`penstock`, with PENSTOCK_BOOTSTRAP set to the broker."""
    return Cli(broker.bootstrap)


@pytest.fixture(scope="session")
def direct(broker: ServeProcess) -> Direct:
    """The broker without the command, for what a test needs beforehand: starting a process takes its time."""
    return Direct(broker.bootstrap)


@pytest.fixture(scope="session")
def empty(direct: Direct) -> str:
    """A topic of one partition that every test leaves as it is."""
    return direct.create("empty")


@pytest.fixture
def topic(direct: Direct) -> str:
    """A topic of one partition that no other test has."""
    return direct.create(f"topic-{next(_numbers)}")


@pytest.fixture
def lasting(direct: Direct) -> str:
    """The same for messages of long ago, which retention would take away half a minute after the broker's start."""
    return direct.create(f"topic-{next(_numbers)}", retention_ms="-1")


@pytest.fixture
def fresh() -> str:
    """A name that no topic has yet."""
    return f"topic-{next(_numbers)}"
