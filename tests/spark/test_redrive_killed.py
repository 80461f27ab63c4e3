"""A redrive whose driver is killed -9, at the worst moments and at any. Each letter goes back once. Slow.

ROUNDS sets how often it is killed at a moment of chance.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until

from .dead_letter_lab import Letters

pytestmark = pytest.mark.slow

DRIVER = Path(__file__).with_name("redrive_driver.py")
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PATIENCE_S = 1800.0


@pytest.fixture
def dead(broker: BrokerProcess, tmp_path: Path) -> Iterator[Letters]:
    found = Letters(broker.kafka, broker.http, tmp_path)
    yield found
    found.close()


def start(bootstrap: str, folder: Path, dies_at: str, **options: object) -> "subprocess.Popen[str]":
    named = {name: str(value) for name, value in options.items()}
    plan = json.dumps({"bootstrap": bootstrap, "dies_at": dies_at, "options": named})
    return subprocess.Popen(
        [sys.executable, str(DRIVER), plan], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
    )


def report_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize(
    ("dies_at", "recovered", "given_back"), [("sending", 0, 6), ("deleting", 6, 0)], ids=["before", "after"]
)
def test_a_driver_that_dies_around_the_decision_leaves_nothing_lost_and_nothing_twice(
    dead: Letters, tmp_path: Path, dies_at: str, recovered: int, given_back: int
) -> None:
    jobs = dead.source()
    dead.kill(jobs, [str(number) for number in range(8)])
    options = {"queue": dead.name, "where": "cast(value AS int) < 6"}
    killed = start(dead.kafka, tmp_path, dies_at, **options)
    killed.communicate(timeout=PATIENCE_S)
    assert killed.returncode == -signal.SIGKILL
    assert dead.counts(dead.name) == (2, 6), "its claims are not delivered to others"
    wait_until(lambda: dead.counts(jobs) == (recovered, 0), "it was sent, or was not")
    report = report_of(start(dead.kafka, tmp_path, "", **options))
    assert (report["recovered"], report["given_back"], report["sent_back"]) == (recovered, given_back, given_back)
    assert sorted(dead.bodies(jobs, 6)) == [str(number) for number in range(6)]
    assert sorted(dead.bodies(dead.name)) == ["6", "7"]


@pytest.mark.timeout(PATIENCE_S * 4)
def test_a_driver_that_is_killed_at_any_moment_over_and_over_sends_each_letter_once(
    dead: Letters, tmp_path: Path, rng: Random
) -> None:
    jobs = dead.source()
    dead.kill(jobs, [str(number) for number in range(120)])
    options = {"queue": dead.name, "max_rows": 10, "where": "cast(value AS int) % 4 != 0"}
    for _ in range(ROUNDS):
        process = start(dead.kafka, tmp_path, "", **options)
        try:
            process.wait(rng.uniform(8.0, 30.0))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate(timeout=PATIENCE_S)
    report_of(start(dead.kafka, tmp_path, "", **options))
    wanted = [number for number in range(120) if number % 4]
    assert sorted(map(int, dead.bodies(jobs, len(wanted)))) == wanted
    assert sorted(map(int, dead.bodies(dead.name))) == [number for number in range(120) if number % 4 == 0]
