"""Workers of a queue on three brokers, any of which is killed: they go on at another one, and no message is lost."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Job
from tests.clusters import ClusterProcesses

from .queue_lab import new_name
from .waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE_S = 120.0
SETTINGS = {"default.replication.factor": 3, "min.insync.replicas": 2}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterProcesses]:
    monkeypatch.setattr("tests.brokers.START_S", PATIENCE_S)  # they start beside clients that are at work
    made = ClusterProcesses(tmp_path, settings=SETTINGS)
    yield made
    made.kill()


def test_workers_go_on_whichever_broker_is_killed(cluster: ClusterProcesses, rng: random.Random) -> None:
    count, kills = 600, 3
    handled: Counter[int] = Counter()
    failed: list[BaseException] = []

    def handle(job: Job) -> None:
        handled[job.json()] += 1

    def work(name: str) -> None:
        try:
            with penstock.connect(cluster.bootstrap, timeout_s=PATIENCE_S) as mq:
                mq.queue(name).work(handle, concurrency=4, visibility="5s", idle_timeout_s=15)
        except penstock.ApiError as error:
            failed.append(error)

    with penstock.connect(cluster.bootstrap, timeout_s=PATIENCE_S) as mq:
        queue = mq.create_queue(new_name(), partitions=3)
        workers = [threading.Thread(target=work, args=(queue.name,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for number in range(kills):
            queue.send_many(range(number * count // kills, (number + 1) * count // kills))
            victim = rng.choice([1, 2, 3])
            cluster.lose(victim)
            before = number * count // kills
            wait_until(lambda before=before: len(handled) > before, "work goes on", PATIENCE_S)
            cluster.brokers[victim].start()
        for worker in workers:
            worker.join(PATIENCE_S)
        assert not failed
        assert sorted(handled) == list(range(count))
        assert queue.counts().total == 0
