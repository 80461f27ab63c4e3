"""Pipelines at size, and killed. Slow: `make spark`.

AUDIT_RECORDS sets how many messages are audited (`1000000,100000000`: one after the other; a hundred thousand and a
million unless it is set), ROUNDS how often an archive is killed.
"""

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pyarrow.dataset
import pytest

from tests.brokers import BrokerProcess

from .lab import Lab

pytestmark = pytest.mark.slow

COMMAND = str(Path(sys.executable).with_name("penstock"))
COUNTS = [int(count) for count in os.environ.get("AUDIT_RECORDS", "100000,1000000").split(",")]
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PATIENCE_S = 7200.0
JVM_MIB_MAX = 1500
"""What the driver may have with a heap of 768 MiB: metaspace, buffers and code come on top."""


def publish(bootstrap: str, topic: str, count: int) -> None:
    """Numbered messages of 100 bytes, by librdkafka."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "zstd",
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(count):
        while True:
            try:
                producer.produce(topic, b"%0100d" % number, key=b"%d" % (number % 1000), partition=number % 1000 % 4)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def publish_twice(bootstrap: str, topic: str, count: int) -> None:
    """The same into a topic and into its copy, by two processes."""
    context = multiprocessing.get_context("spawn")
    names = (topic, f"{topic}-copy")
    writers = [context.Process(target=publish, args=(bootstrap, name, count)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0


def audited(bootstrap: str, topic: str, *more: str) -> tuple[dict, int]:
    """The report of an audit of a topic against its copy, and the most memory that its JVM had, in MiB."""
    command = [COMMAND, "pipeline", "run", "audit", "--json", "--master", "local[2]", "--bootstrap", bootstrap]
    command += ["-o", f"expected.topic={topic}", "-o", f"actual.topic={topic}-copy"]
    command += ["-o", "spark={spark.driver.memory: 768m}", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max([peak, *(_rss_mib(pid) for pid in _children(process.pid))])
        time.sleep(0.25)
    assert process.stdout is not None
    with process.stdout:
        report = json.loads(process.stdout.read().splitlines()[-1])
    assert process.returncode == (0 if report["ok"] else 1)
    return report, peak


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _rss_mib(pid: int) -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except FileNotFoundError:
        return 0
    return int(found[1]) // 1024 if found else 0


@pytest.mark.timeout(PATIENCE_S)
def test_an_audit_costs_the_same_for_each_message_and_no_more_memory(broker: BrokerProcess, lab: Lab) -> None:
    seen = []
    for count in COUNTS:
        topic = f"audit-{count}"
        for name in (topic, f"{topic}-copy"):
            lab.create(name, 4)
        publish_twice(broker.kafka, topic, count)
        report, peak_mib = audited(broker.kafka, topic)
        assert report["ok"], report
        assert report["expected"] == report["actual"] == count
        assert peak_mib < JVM_MIB_MAX
        seen.append((count, report["seconds"]))
        sys.stderr.write(f"audited {count} messages twice in {report['seconds']} s, JVM {peak_mib} MiB\n")
    (few, few_s), *_, (many, many_s) = seen
    # Ten times the messages in at most ten times the time; what is fixed makes the small one dearer.
    assert many_s / many <= few_s / few * 1.5
    topic = f"audit-{COUNTS[-1]}"
    lab.fill(f"{topic}-copy", 1)
    report, peak_mib = audited(broker.kafka, topic)
    assert (report["ok"], report["unknown"], report["missing"]) == (False, 1, 0)
    assert peak_mib < JVM_MIB_MAX
    sys.stderr.write(f"found one of {COUNTS[-1] + 1} in {report['seconds']} s, JVM {peak_mib} MiB\n")


# -- killed


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_an_archive_that_is_killed_over_and_over_has_every_message_once(
    broker: BrokerProcess, lab: Lab, topic: str, tmp_path: Path, kind: str
) -> None:
    seed = int(os.environ.get("SEED", time.time_ns() % 10**6))
    sys.stderr.write(f"SEED={seed}\n")
    rng = Random(seed)
    lab.create(topic, 4)
    archive = [COMMAND, "pipeline", "run", "archive", "--json", "--master", "local[2]", "--bootstrap", broker.kafka]
    archive += [
        "-o",
        f"topics={topic}",
        "-o",
        f"path={tmp_path}/lake",
        "-o",
        f"format={kind}",
        "-o",
        "trigger=100 ms",
    ]
    archive += ["-o", "max_rows=500"]
    batches = 0
    for round_number in range(ROUNDS):
        publish(broker.kafka, topic, 5_000)
        process = subprocess.Popen([*archive, "--continuous"], stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        with process.stdout:
            for _ in range(rng.randrange(1, 6)):
                batches += process.stdout.readline().startswith(b"{")
            time.sleep(rng.random())  # anywhere in the next batch: the moment is what is tried
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if rng.random() < 0.3:
            shutil.rmtree(tmp_path / "lake" / "_penstock" / "checkpoint")
        sys.stderr.write(f"round {round_number}: {batches} batches so far\n")
    assert batches >= ROUNDS
    subprocess.run([*archive, "--once"], stdout=subprocess.DEVNULL, check=True)
    audit = [COMMAND, "pipeline", "run", "audit", "--json", "--bootstrap", broker.kafka, "--master", "local[2]"]
    audit += ["-o", f"expected.topic={topic}", "-o", f"actual.path={tmp_path}/lake"]
    done = subprocess.run(audit, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ok"], report
    assert report["actual"] == ROUNDS * 5_000
    assert _counted(tmp_path / "lake", kind) == ROUNDS * 5_000  # by other means than Spark


def _counted(folder: Path, kind: str) -> int:
    """Different messages in a lake, as another reader sees it; all of them must be different."""
    if kind == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(str(folder)).to_pyarrow_dataset()
    else:
        found = pyarrow.dataset.dataset(folder, partitioning="hive")
    rows = found.to_table(columns=["partition", "offset"]).to_pylist()
    places = {(row["partition"], row["offset"]) for row in rows}
    assert len(places) == len(rows)
    return len(places)
