"""Celery with its SQS transport, unchanged; its workers are killed."""

import random
from pathlib import Path

import pytest

from tests.clients.api_lab import connect
from tests.clients.celery_lab import PATIENCE_S, CeleryRun, is_empty
from tests.clients.waiting import wait_until

from .conftest import Target

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 200
KILLS = 8


def test_no_task_is_lost_when_workers_are_killed(target: Target, tmp_path: Path, rng: random.Random) -> None:
    with CeleryRun(target.http, tmp_path) as run, connect(target.bootstrap) as mq:
        for _ in range(4):
            run.start_worker()
        run.send_tasks(COUNT, 0.1)
        for number in range(1, KILLS + 1):
            run.wait_for(number * COUNT // (KILLS + 2), f"enough is done to kill worker {number}")
            run.kill_worker(rng)
            run.start_worker()
        run.wait_for(COUNT, "every task is done")
        wait_until(lambda: is_empty(mq, run), "nothing is left in the queue", PATIENCE_S)
        found = run.numbers()
        assert sorted(set(found)) == list(range(COUNT))
        # A task is done twice at most if its worker was killed between doing it and deleting it.
        assert len(found) - COUNT <= KILLS
