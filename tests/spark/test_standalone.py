"""The data source and pipelines on a real standalone cluster. Slow: `make spark`."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import BrokerProcess
from tests.clients.drivers import Outgoing

from .lab import Lab
from .programs import PROGRAM_S, failure_of, run_program
from .standalone import Standalone
from .test_secure import Secure

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

COMMAND = str(Path(sys.executable).with_name("penstock"))


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    yield cluster
    cluster.stop()


def on(cluster: Standalone, folder: Path) -> dict[str, Any]:
    """The arguments of penstock.spark.session."""
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return {"master": cluster.url, "conf": conf}


def test_topics_are_read_and_written_in_batches_and_streams(
    standalone: Standalone, broker: BrokerProcess, lab: Lab, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-copy"):
        lab.create(name, 2)
    given = {"bootstrap": broker.kafka, "topic": topic, "checkpoint": checkpoint}
    found = run_program("topics", where=on(standalone, tmp_path), **given)
    expected = sorted(map(str, range(100)))
    assert found == {"batch": expected, "stream": expected}


def test_topics_are_read_and_written_over_sasl_ssl(
    standalone: Standalone,
    own_broker: Callable[..., BrokerProcess],
    topic: str,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    secure = Secure(tmp_path, own_broker)
    admin = AdminClient({"bootstrap.servers": secure.broker.kafka})
    for name in (topic, f"{topic}-copy"):
        admin.create_topics([NewTopic(name, 2)])[name].result(60)
    given = {"bootstrap": secure.options, "topic": topic, "checkpoint": checkpoint}
    found = run_program("topics", where=on(standalone, tmp_path), **given)
    expected = sorted(map(str, range(100)))
    assert found == {"batch": expected, "stream": expected}


def test_sql_tables_are_created_written_and_read(
    standalone: Standalone, broker: BrokerProcess, lab: Lab, topic: str, tmp_path: Path
) -> None:
    lab.create(topic)
    found = run_program("tables", where=on(standalone, tmp_path), bootstrap=broker.kafka, topic=topic)
    assert found["values"] == ["one", "two"]


def test_workers_whose_python_lacks_the_package_are_named(
    standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    said = failure_of("connected", where=on(standalone, tmp_path))
    assert said.startswith(f"Spark's workers run {python}, which lacks a package: No module named ")
    assert "Install penstock[spark] for it" in said


def test_the_same_file_runs_on_the_cluster(
    broker: BrokerProcess, lab: Lab, topic: str, standalone: Standalone, tmp_path: Path
) -> None:
    lab.create(topic, 4)
    lab.create(f"{topic}-out", 2)
    lab.fill(topic, [Outgoing(key=b"%d" % (n % 99), value=b"%0100d" % n, partition=n % 4) for n in range(20_000)])
    file = tmp_path / "count.yaml"
    file.write_text(
        f"""\
bootstrap: {broker.kafka}
sources:
  numbers: {{topic: {topic}, value: text}}
sql: SELECT key, value FROM numbers
sink: {{topic: {topic}-out, value: columns}}
checkpoint: {tmp_path}/checkpoint
spark: {{spark.executor.memory: 512m, spark.driver.host: 127.0.0.1}}
"""
    )
    command = [COMMAND, "pipeline", "run", str(file), "--once", "--json", "--master", standalone.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == 20_000
    assert standalone.executors == 2
    audit = [COMMAND, "pipeline", "run", "audit", "--json", "--bootstrap", broker.kafka, "--master", standalone.url]
    audit += ["-o", f"expected.topic={topic}", "-o", f"actual.topic={topic}-out"]
    audit += ["-o", "spark={spark.executor.memory: 512m, spark.driver.host: 127.0.0.1}"]
    done = subprocess.run(audit, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["actual"] == 20_000
