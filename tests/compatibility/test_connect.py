"""Kafka Connect: file connectors in a standalone worker and in two distributed workers, some of which are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.waiting import wait_until

from .conftest import Target
from .connect_workers import START_S, Lines, Worker, sink_config, source_config, write_properties
from .java_applications import JavaApplications, compile_applications, create_topic, kafka_artifacts, read_values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ARTIFACTS = [*kafka_artifacts("connect-runtime", "connect-file", "connect-mirror"), "org.slf4j:slf4j-simple:1.7.36"]
SINK_S = 240.0


@pytest.fixture
def applications(tmp_path: Path) -> Iterator[JavaApplications]:
    applications = JavaApplications(compile_applications(ARTIFACTS, (), tmp_path), tmp_path)
    yield applications
    applications.end()


def wait_copied(lines: Lines, sink: Path) -> None:
    """Waits until every line is in the sink's file. Lines may be there again, but their order is the source's."""

    def copied() -> bool:
        found = sink.read_text().splitlines() if sink.exists() else []
        return set(found) >= set(lines.all)

    wait_until(copied, "every line is in the sink's file", SINK_S)
    assert list(dict.fromkeys(sink.read_text().splitlines())) == lines.all


def wait_begun(line: str, sink: Path) -> None:
    """Waits until a line is in the sink's file: then those after it are on their way."""
    wait_until(lambda: f"{line}\n" in sink.read_text(), f"{line} is in the sink's file", SINK_S)


def test_a_standalone_worker_that_is_killed_loses_no_line(
    target: Target, applications: JavaApplications, tmp_path: Path
) -> None:
    topic = create_topic(target, "connect-lines", 1)
    lines, sink = Lines(tmp_path / "source.txt"), tmp_path / "sink.txt"
    connectors = [
        write_properties(tmp_path / "source.properties", source_config("file-source", lines.path, topic)),
        write_properties(tmp_path / "sink.properties", sink_config("file-sink", sink, topic)),
    ]
    worker = Worker(
        applications, "standalone", target.bootstrap, {"offset.storage.file.filename": tmp_path / "offsets"}
    )
    lines.append(500)
    worker.start("ConnectStandalone", *connectors)
    wait_copied(lines, sink)
    lines.append(500)
    wait_copied(lines, sink)
    for _ in range(2):
        lines.append(2000)
        wait_begun(lines.all[-2000], sink)
        worker.kill()
        lines.append(100)
        worker.start("ConnectStandalone", *connectors)
        wait_copied(lines, sink)
    worker.stop()
    stored = read_values(target.bootstrap, topic, 1)
    assert list(dict.fromkeys(stored)) == lines.all


def distributed_settings(target: Target, group: str) -> dict[str, object]:
    """Returns settings of workers that notice soon when one of them is gone, and whose sources are exactly-once."""
    topics = {
        f"{name}.storage.{setting}": value
        for name in ("config", "offset", "status")
        for setting, value in (("topic", f"{group}-{name}"), ("replication.factor", target.replicas))
    }
    return topics | {
        "group.id": group,
        "offset.storage.partitions": 4,
        "status.storage.partitions": 2,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 1000,
        "exactly.once.source.support": "enabled",
    }


def test_connectors_go_on_at_the_other_worker_when_one_is_killed(
    target: Target, applications: JavaApplications, tmp_path: Path
) -> None:
    topic = create_topic(target, "connect-distributed-lines", 1)
    lines, sink = Lines(tmp_path / "source.txt"), tmp_path / "sink.txt"
    settings = distributed_settings(target, "connect-workers")
    workers = [Worker(applications, f"worker-{number}", target.bootstrap, settings) for number in (1, 2)]
    for worker in workers:
        worker.start("ConnectDistributed")
    workers[0].put_connector(source_config("moved-source", lines.path, topic))
    workers[1].put_connector(sink_config("moved-sink", sink, topic))
    lines.append(500)
    wait_copied(lines, sink)
    address = wait_until(lambda: workers[0].task_worker("moved-source"), "the source's task runs", START_S)
    killed = next(worker for worker in workers if worker.address == address)
    other = next(worker for worker in workers if worker is not killed)
    lines.append(2000)
    wait_begun(lines.all[-2000], sink)
    killed.kill()
    lines.append(500)
    for connector in ("moved-source", "moved-sink"):
        wait_until(
            lambda connector=connector: other.task_worker(connector) == other.address,
            f"{connector} runs at the other worker",
            START_S,
        )
    wait_copied(lines, sink)
    lines.append(100)
    wait_copied(lines, sink)
    other.stop()
    # The source commits its offsets in the transactions of its records: no line is there twice.
    assert read_values(target.bootstrap, topic, 1) == lines.all
