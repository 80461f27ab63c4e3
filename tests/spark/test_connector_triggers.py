"""Spark's own Kafka connector on our brokers, with the triggers that Spark does not allow for Python sources."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clients.drivers import Outgoing
from tests.clients.waiting import wait_until

from .connector import ROOT, connector_jars
from .lab import Lab

JOB_S_MAX = 500.0
ROUND = 20


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("trigger", "mode"), [({"realTime": "5 seconds"}, "update"), ({"continuous": "1 second"}, "append")]
)
def test_records_pass_while_the_stream_runs(
    broker: BrokerProcess, lab: Lab, topic: str, tmp_path: Path, trigger: dict[str, str], mode: str
) -> None:
    for name in (topic, f"{topic}-out"):
        lab.create(name, 2)
    plan = {"trigger": trigger, "mode": mode, "bootstrap": broker.kafka, "source": topic, "target": f"{topic}-out"}
    plan |= {"folder": str(tmp_path), "jars": connector_jars()}
    log = tmp_path / "job.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tests.spark.connector_stream", json.dumps(plan)]
        job = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
    try:
        for number in range(3):
            sent = [b"row %d" % each for each in range(number * ROUND, (number + 1) * ROUND)]
            lab.fill(topic, [Outgoing(value=value, partition=at % 2) for at, value in enumerate(sent)])
            expected = sorted(b"ROW %d" % each for each in range((number + 1) * ROUND))

            def has_arrived(expected: list[bytes] = expected) -> bool:
                assert job.poll() is None, log.read_text()[-3000:]
                # These triggers promise at least once.
                return set(lab.values(f"{topic}-out")) == set(expected)

            wait_until(has_arrived, f"round {number} has passed", JOB_S_MAX)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
