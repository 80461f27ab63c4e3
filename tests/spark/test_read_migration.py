"""Migrating from Spark's own Kafka connector by changing the format: same job, same broker, same rows."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.drivers import COMPRESSIONS, NOW_MS, Outgoing
from tests.clients.transactional_producers import ConfluentTransactor

from .connector import ROOT, connector_jars
from .lab import Lab

JOB_S_MAX = 400


def fill(lab: Lab, topic: str) -> None:
    """Something of everything: codecs, nulls, headers, transactions that were committed and aborted."""
    lab.create(topic, 3)
    for number, codec in enumerate(COMPRESSIONS):
        messages = [
            Outgoing(
                key=None if n % 7 == 0 else b"%d" % n,
                value=None if n % 11 == 0 else b"%s %d" % (codec.encode(), n),
                headers=() if n % 3 else (("a", b"%d" % n), ("ü", b"")),
                timestamp_ms=NOW_MS + 100 * number + n,
                partition=n % 3,
            )
            for n in range(60)
        ]
        lab.fill(topic, messages, compression=codec)
    producer = ConfluentTransactor(lab.bootstrap, f"tx-{topic}")
    for value, ends in ((b"aborted", producer.abort), (b"committed", producer.commit)):
        producer.begin()
        for n in range(9):
            producer.send(topic, value, partition=n % 3)
        producer.flush()
        ends()
    producer.close()


def run(source: str, lab: Lab, topic: str, folder: Path, jars: str = "") -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, "-m", "tests.spark.migrated_job", source, lab.bootstrap, topic, str(folder), jars]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=JOB_S_MAX, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.timeout(2 * JOB_S_MAX + 700)
def test_the_same_job_reads_the_same_rows_with_both_formats(lab: Lab, topic: str, tmp_path: Path) -> None:
    fill(lab, topic)
    theirs = run("kafka", lab, topic, tmp_path / "kafka", connector_jars())
    ours = run("penstock", lab, topic, tmp_path / "penstock")
    assert len(theirs["batch, headers true"]) == 5 * 60 + 9
    assert ours.keys() == theirs.keys()
    for part in theirs:
        assert ours[part] == theirs[part], part
