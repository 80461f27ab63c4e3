"""Celery with its SQS transport, unchanged. With killed workers: tests/compatibility/test_celery.py."""

from pathlib import Path

from tests.brokers import BrokerProcess

from .api_lab import connect
from .celery_lab import CeleryRun, is_empty
from .waiting import wait_until


def test_celery_runs_its_tasks_and_deletes_them(broker: BrokerProcess, tmp_path: Path) -> None:
    with CeleryRun(broker.http, tmp_path) as run, connect(broker.kafka) as mq:
        run.start_worker()
        run.send_tasks(10, 0.0)
        run.wait_for(10, "ten tasks are done")
        wait_until(lambda: is_empty(mq, run), "nothing is left in the queue")
        assert sorted(run.numbers()) == list(range(10))
