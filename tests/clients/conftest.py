"""One broker for all tests that do not need their own, and a driver for every client library."""

import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import BrokerProcess

from .driver_aiokafka import AiokafkaDriver
from .driver_confluent import ConfluentDriver
from .driver_kafka_python import KafkaPythonDriver
from .driver_kcat import KcatDriver
from .drivers import AdminDriver, Driver
from .raw import RawClient

NO_KCAT = pytest.mark.skipif(not KcatDriver.is_installed, reason="kcat is not installed: apt-get install kcat")
ADMIN_DRIVERS = (ConfluentDriver, AiokafkaDriver, KafkaPythonDriver)
EVERY_DRIVER = (*ADMIN_DRIVERS, pytest.param(KcatDriver, marks=NO_KCAT))
INSTALLED_DRIVERS = (*ADMIN_DRIVERS, *([KcatDriver] if KcatDriver.is_installed else []))

LEFT_OPEN = "unclosed <socket"
"""kafka-python leaves a socket open when it connects again. Python warns of that when it collects garbage, in any
test that runs then: it is ignored in all tests of this folder, and collected before those of another one run."""

QUICK_MAINTENANCE = {"log.retention.check.interval.ms": 100, "log.cleaner.backoff.ms": 100}
"""Retention and compaction run at every tick, so that tests need not wait minutes for them."""

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
"""Rebalances and transactions time out sooner than in production, so that tests need not wait. Sessions last as long
as in production: a busy machine may stop for seconds, and its members must not be taken for dead."""

SHORT_SESSIONS = {"group.consumer.session.timeout.ms": 3000}
"""For tests of members that are never heard of again."""

QUICK_SHARING = {
    "group.share.min.session.timeout.ms": 500,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.min.record.lock.duration.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
"""The same for share groups, and for how long their members may keep messages."""


def name_of(value: Any) -> str | None:
    return value.name if isinstance(value, type) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{LEFT_OPEN}:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def no_sockets_left() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", LEFT_OPEN, ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that most tests share: they differ in their topics."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), QUICK_MAINTENANCE).start()
    yield process
    process.finish()


@pytest.fixture(scope="session")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that tests of groups and transactions share: they differ in their groups and topics."""
    process = BrokerProcess(tmp_path_factory.mktemp("group-broker"), QUICK_GROUPS | QUICK_MAINTENANCE).start()
    yield process
    process.finish()


@pytest.fixture(scope="session")
def share_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that tests of share groups share: they differ in their groups and topics."""
    process = BrokerProcess(tmp_path_factory.mktemp("share-broker"), QUICK_SHARING | QUICK_MAINTENANCE).start()
    yield process
    process.finish()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start a broker for one test alone: `own_broker({"num.partitions": 3})`."""
    started: list[BrokerProcess] = []

    def start(settings: dict[str, object] | None = None, **options: Any) -> BrokerProcess:
        folder = tmp_path / f"broker-{len(started)}"
        folder.mkdir()
        started.append(BrokerProcess(folder, settings, **options).start())
        return started[-1]

    yield start
    for process in started:
        process.finish()


@pytest.fixture(params=EVERY_DRIVER, ids=name_of)
def client(request: pytest.FixtureRequest, broker: BrokerProcess) -> Driver:
    """Each client library in turn."""
    return request.param(broker.kafka)


@pytest.fixture(params=ADMIN_DRIVERS, ids=name_of)
def admin_client(request: pytest.FixtureRequest, broker: BrokerProcess) -> AdminDriver:
    """Each client library that can administer, in turn: not kcat (see driver_kcat.py)."""
    return request.param(broker.kafka)


@pytest.fixture
def confluent(broker: BrokerProcess) -> ConfluentDriver:
    """For tests of the broker that one client library is enough for."""
    return ConfluentDriver(broker.kafka)


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.address) as client:
        yield client


@pytest.fixture
def group_raw(group_broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(group_broker.address) as client:
        yield client


_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"
