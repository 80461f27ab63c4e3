"""Celery workers with the SQS transport, as processes."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Self

from penstock import Connection

from .queue_lab import new_name
from .waiting import wait_until

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0
"""Workers take seconds to start, on a machine that does other things too."""


class CeleryRun:
    """A queue with Celery workers, and the tasks that they have done."""

    def __init__(self, http: str, folder: Path) -> None:
        self.queue = new_name()
        self.done = folder / "done"
        self.done.touch()
        self._log = folder / "workers.log"
        self._environment = {
            **os.environ,
            "QUEUES_HTTP": http,
            "QUEUES_NAME": self.queue,
            "TASKS_DONE": str(self.done),
        }
        self._workers: list[subprocess.Popen[bytes]] = []

    def send_tasks(self, count: int, pause_s: float) -> None:
        """Sends tasks from a process of its own, as an application would."""
        code = f"from tests.clients.celery_tasks import note\nfor n in range({count}): note.delay(n, {pause_s})"
        command = [sys.executable, "-W", "ignore", "-c", code]
        subprocess.run(command, cwd=ROOT, env=self._environment, check=True, timeout=PATIENCE_S)

    def start_worker(self) -> None:
        # One process a worker: what is killed is the one that has the task.
        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "tests.clients.celery_tasks", "worker"]
        command += ["--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        command += ["--hostname", f"worker-{len(self._workers)}@test", "--loglevel", "WARNING"]
        with self._log.open("ab") as log:
            self._workers.append(subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log))

    def kill_worker(self, rng: random.Random) -> None:
        victim = rng.choice([worker for worker in self._workers if worker.poll() is None])
        victim.kill()
        victim.wait()

    def numbers(self) -> list[int]:
        """The tasks that were done, in order; one that was done twice is there twice."""
        return [int(line.split()[0]) for line in self.done.read_text().splitlines()]

    def wait_for(self, count: int, what: str) -> None:
        wait_until(lambda: len(set(self.numbers())) >= count, what, PATIENCE_S, 0.05, seen=self)

    def __repr__(self) -> str:
        """The end of the log of the workers, for a test that fails."""
        return self._log.read_text()[-2000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()


def is_empty(mq: Connection, run: CeleryRun) -> bool:
    return mq.queue(run.queue).counts().total == 0
