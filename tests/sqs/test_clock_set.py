"""The wall clock is set while messages are in flight, and then the broker is restarted: visibility timeouts hold."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import BrokerProcess
from tests.clients.waiting import wait_until
from tests.clusters import ClusterProcesses
from tests.sqs_clients import JSON, sqs_client

from .queue_calls import attributes_of, receive

SET_CLOCK = Path(__file__).parent.parent / "set_clock"
HOUR_S = 3600


class ClockFile:
    """The wall clock of a broker, as its test sets it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(8))

    def set_by(self, seconds: int) -> None:
        with self._path.open("r+b") as file:
            file.write(struct.pack("<q", seconds * 1_000_000_000))

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(SET_CLOCK), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {"PYTHONPATH": path, "PENSTOCK_TEST_CLOCK": str(self._path)}


@pytest.fixture
def clock(tmp_path: Path) -> ClockFile:
    return ClockFile(tmp_path / "clock")


def _in_flight(sqs: Any, url: str) -> int:
    name = "ApproximateNumberOfMessagesNotVisible"
    return int(attributes_of(sqs, url, name)[name])


def test_a_clock_that_is_set_forward_brings_no_message_back_early(
    own_broker: Callable[..., BrokerProcess], clock: ClockFile, models: Path
) -> None:
    broker = own_broker(environment=clock.environment)
    sqs: Any = sqs_client(broker.http, JSON, models)
    url = sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    for number in range(20):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    assert len(receive(sqs, url, 10)) == 10
    clock.set_by(HOUR_S)
    wait_until(lambda: "queue_clock_set" in broker.log, "the broker notices")
    wait_until(lambda: _in_flight(sqs, url) == 10, "they are in flight as before")
    broker.kill()
    broker.start()
    assert _in_flight(sqs, url) == 10, "the deadlines are those of the clock that all brokers have now"
    assert len(receive(sqs, url, 10)) == 10
    assert receive(sqs, url, 10) == []
    sqs.close()


def test_a_clock_that_is_set_back_hides_no_message_for_long(
    own_broker: Callable[..., BrokerProcess], clock: ClockFile, models: Path
) -> None:
    clock.set_by(HOUR_S)
    broker = own_broker(environment=clock.environment)
    sqs: Any = sqs_client(broker.http, JSON, models)
    url = sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "5"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="one")
    assert len(receive(sqs, url)) == 1
    clock.set_by(0)
    wait_until(lambda: "queue_clock_set" in broker.log, "the broker notices")
    broker.kill()
    broker.start()
    (again,) = receive(sqs, url, wait_s=20)
    assert again["Body"] == "one"
    sqs.close()


def test_a_broker_whose_clock_was_set_back_while_it_was_down_hides_no_message_for_long(
    own_broker: Callable[..., BrokerProcess], clock: ClockFile, models: Path
) -> None:
    clock.set_by(HOUR_S)
    broker = own_broker(environment=clock.environment)
    sqs: Any = sqs_client(broker.http, JSON, models)
    url = sqs.create_queue(QueueName="jobs", Attributes={"VisibilityTimeout": "5"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="one")
    assert len(receive(sqs, url)) == 1
    broker.kill()
    clock.set_by(0)
    broker.start()
    (again,) = receive(sqs, url, wait_s=20)
    assert again["Body"] == "one"
    assert "last_leader_clock_ahead" in broker.log
    sqs.close()


@pytest.mark.slow
def test_a_new_leader_whose_clock_is_behind_hides_no_message_for_long(
    tmp_path: Path, clock: ClockFile, models: Path
) -> None:
    clock.set_by(HOUR_S)
    folder = tmp_path / "cluster"
    folder.mkdir()
    settings = {"default.replication.factor": 2}
    cluster = ClusterProcesses(folder, count=1, settings=settings, environment=clock.environment)
    try:
        behind = cluster.add(2, environment={})
        ahead: Any = sqs_client(cluster.brokers[1].http, JSON, models)
        names = [f"jobs-{number}" for number in range(4)]  # both brokers lead some of them
        for name in names:
            url = ahead.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "5"})["QueueUrl"]
            ahead.send_message(QueueUrl=url, MessageBody=name)
            assert len(receive(ahead, url, wait_s=20)) == 1
        ahead.close()
        cluster.lose(1)
        sqs: Any = sqs_client(behind.http, JSON, models)
        for name in names:
            (again,) = receive(sqs, sqs.get_queue_url(QueueName=name)["QueueUrl"], wait_s=20)
            assert again["Body"] == name
        assert "last_leader_clock_ahead" in behind.log
        sqs.close()
    finally:
        cluster.kill()
