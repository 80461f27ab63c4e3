"""Celery with its SQS transport, unchanged, on a queue of ours; its workers are killed with -9."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Connection
from tests.brokers import BrokerProcess

from .api_lab import connect
from .queue_lab import new_name
from .waiting import wait_until

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0
"""Workers take seconds to start, on a machine that does other things too."""


class Shop:
    """A queue, workers that come and go, and what they have done."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.queue = new_name()
        self.done = folder / "done"
        self.done.touch()
        self._log = folder / "workers.log"
        self._environment = {
            **os.environ,
            "QUEUES_HTTP": broker.http,
            "QUEUES_NAME": self.queue,
            "TASKS_DONE": str(self.done),
        }
        self._workers: list[subprocess.Popen[bytes]] = []

    def send(self, count: int, pause_s: float) -> None:
        """From a process of its own, as an application would."""
        code = f"from tests.clients.celery_tasks import note\nfor n in range({count}): note.delay(n, {pause_s})"
        command = [sys.executable, "-W", "ignore", "-c", code]
        subprocess.run(command, cwd=ROOT, env=self._environment, check=True, timeout=PATIENCE_S)

    def hire(self) -> None:
        # One process a worker: what is killed is the one that has the task.
        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "tests.clients.celery_tasks", "worker"]
        command += ["--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        command += ["--hostname", f"worker-{len(self._workers)}@test", "--loglevel", "WARNING"]
        with self._log.open("ab") as log:
            self._workers.append(subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log))

    def kill(self, rng: random.Random) -> None:
        victim = rng.choice([worker for worker in self._workers if worker.poll() is None])
        victim.kill()
        victim.wait()

    def numbers(self) -> list[int]:
        """What was done, in order; more than once, if it was done more than once."""
        return [int(line.split()[0]) for line in self.done.read_text().splitlines()]

    def wait_for(self, count: int, what: str) -> None:
        wait_until(lambda: len(set(self.numbers())) >= count, what, PATIENCE_S, 0.05, seen=self)

    def __repr__(self) -> str:
        """For a test that has waited in vain."""
        return self._log.read_text()[-2000:]

    def close(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()


@pytest.fixture(scope="module")
def mq(broker: BrokerProcess) -> Iterator[Connection]:
    with connect(broker.kafka) as connection:
        yield connection


@pytest.fixture
def shop(broker: BrokerProcess, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(broker, tmp_path)
    yield made
    made.close()


def all_finished(mq: Connection, shop: Shop) -> bool:
    counts = mq.queue(shop.queue).counts()
    assert isinstance(counts, penstock.QueueCounts)
    return counts.total == 0


def test_celery_runs_its_tasks_and_deletes_them(mq: Connection, shop: Shop) -> None:
    shop.hire()
    shop.send(10, 0.0)
    shop.wait_for(10, "ten tasks are done")
    wait_until(lambda: all_finished(mq, shop), "nothing is left in the queue")
    assert sorted(shop.numbers()) == list(range(10))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_task_is_lost_whoever_of_its_workers_is_killed(mq: Connection, shop: Shop, rng: random.Random) -> None:
    count, kills = 200, 8
    for _ in range(4):
        shop.hire()
    shop.send(count, 0.1)
    for number in range(1, kills + 1):
        shop.wait_for(number * count // (kills + 2), f"enough is done to kill worker {number}")
        shop.kill(rng)
        shop.hire()
    shop.wait_for(count, "every task is done")
    wait_until(lambda: all_finished(mq, shop), "nothing is left in the queue", PATIENCE_S)
    found = shop.numbers()
    assert sorted(set(found)) == list(range(count))
    # Twice, at most, what a killed worker had done and not yet deleted.
    assert len(found) - count <= kills
