"""One broker and one Spark session for all tests of this folder: they differ in their topics and checkpoints."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.spark.worker_python import worker_python
from tests.brokers import BrokerProcess

from .lab import Lab
from .typed_lab import TypedLab

QUICK: Mapping[str, object] = {
    "log.retention.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 100,
    "group.initial.rebalance.delay.ms": 100,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}
"""Maintenance runs at every tick, so that tests need not wait minutes for it."""

SESSION: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Short runs: what the second compiler gains is less than what it costs.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
ENVIRONMENT: Mapping[str, str] = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": worker_python()}
"""The environment of Spark's JVM. It looks for data sources with that Python."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that most tests share."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), QUICK).start()
    yield process
    process.finish()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start a broker for one test alone, which may kill it: `own_broker({"num.partitions": 3})`."""
    started: list[BrokerProcess] = []

    def start(settings: Mapping[str, object] | None = None, **options: Any) -> BrokerProcess:
        folder = tmp_path / f"broker-{len(started)}"
        folder.mkdir()
        started.append(BrokerProcess(folder, {**QUICK, **(settings or {})}, **options).start())
        return started[-1]

    yield start
    for process in started:
        process.finish()


class SparkSessions:
    """The Spark session that all tests share, and another one when a test has left it unusable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._session: SparkSession | None = None

    def current(self) -> SparkSession:
        """Returns a session on two threads. It finds the data source: pyspark_penstock is installed."""
        if self._session is None:
            os.environ.update(ENVIRONMENT)
            builder = SparkSession.builder.appName("tests").master("local[2]")
            for name, value in {**SESSION, "spark.sql.warehouse.dir": str(self._folder / "warehouse")}.items():
                builder = builder.config(name, value)
            self._session = builder.getOrCreate()
        return self._session

    def discard(self) -> None:
        """Kills the JVM. A test that times out while it waits for an answer of the JVM leaves the answer unread: the
        next call would get it."""
        gateway = SparkContext._gateway
        if gateway is not None:
            gateway.proc.kill()
            gateway.proc.communicate()  # closes its standard input, too
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        self._session = None

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()


_SESSIONS: Final = pytest.StashKey[SparkSessions]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A test that times out fails alone: the tests after it get another session."""
    report = yield
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        sessions = item.config.stash.get(_SESSIONS, None)
        if sessions is not None:
            sessions.discard()
    return report


@pytest.fixture(scope="session")
def spark_sessions(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SparkSessions]:
    sessions = request.config.stash[_SESSIONS] = SparkSessions(tmp_path_factory.mktemp("spark"))
    yield sessions
    sessions.stop()


@pytest.fixture
def spark(spark_sessions: SparkSessions) -> SparkSession:
    return spark_sessions.current()


_numbers = itertools.count()


@pytest.fixture
def lab(broker: BrokerProcess) -> Iterator[Lab]:
    """Topics on the shared broker, and what is in them."""
    lab = Lab(broker.kafka)
    yield lab
    lab.stop_streams()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Where a streaming query keeps what it has done."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def typed(lab: Lab, broker: BrokerProcess, topic: str) -> Iterator[TypedLab]:
    """A topic, and the registry of the shared broker."""
    with SchemaRegistryClient({"url": f"http://{broker.http}/registry"}) as registry:
        yield TypedLab(lab, registry, broker.http, topic)
