"""The data source on a real YARN cluster, with executors in containers. Slow: `make spark`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess

from .connect_server import SPARK_HOME
from .lab import Lab
from .programs import run_program
from .yarn import YarnCluster

CONF = {
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",  # or they are copied into every container
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    "spark.yarn.am.memory": "384m",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture
def yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[YarnCluster]:
    cluster = YarnCluster(tmp_path / "yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.configuration))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    yield cluster
    cluster.kill()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_topics_are_read_and_written_in_batches_and_streams(
    yarn: YarnCluster, broker: BrokerProcess, lab: Lab, topic: str, checkpoint: str
) -> None:
    for name in (topic, f"{topic}-copy"):
        lab.create(name, 2)
    given = {"bootstrap": broker.kafka, "topic": topic, "checkpoint": checkpoint}
    found = run_program("topics", where={"master": "yarn", "conf": CONF}, **given)
    expected = sorted(map(str, range(100)))
    assert found == {"batch": expected, "stream": expected}
