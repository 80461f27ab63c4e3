"""The partitions, segments and connections that one client takes leave file descriptors to the others."""

import socket
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.brokers import BrokerProcess
from tests.clients.drivers import NOW_MS
from tests.clients.raw import RawClient, batch_of
from tests.clients.waiting import wait_until

LIMIT = 400
LIMITED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))
os.execvp(sys.argv[1], sys.argv[1:])
"""
OWN_TOPIC = "bystander"
ROLLING = {"segment.ms": "1", "segment.bytes": "1048576"}


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, prefix=(sys.executable, "-c", LIMITED)).start()
    yield process
    process.finish()


def create(raw: RawClient, name: str, partitions: int, configs: dict[str, str]) -> None:
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    created = raw.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 7).topics[0]
    assert created.error_code == ErrorCode.NONE, created.error_message


def produce(raw: RawClient, topic: str, count: int) -> list[int]:
    """The error codes of so many batches of one message each, all of which are too far apart for one segment."""
    return [
        raw.produce(topic, batch_of([b"x"], timestamp_ms=NOW_MS + 2 * number)).error_code for number in range(count)
    ]


def check_served(target: BrokerProcess, raw: RawClient) -> None:
    """Others can connect and produce, and the broker says that it is well."""
    assert set(produce(raw, OWN_TOPIC, 5)) == {ErrorCode.NONE}
    with RawClient(target.address) as other:
        assert other.fetch(OWN_TOPIC, 0).error_code == ErrorCode.NONE
    with urllib.request.urlopen(f"http://{target.http}/healthz", timeout=60) as answer:
        assert answer.read() == b"ok\n"


def test_a_topic_with_more_partitions_than_descriptors_leaves_some(target: BrokerProcess) -> None:
    with RawClient(target.address) as raw:
        create(raw, OWN_TOPIC, 1, ROLLING)
        create(raw, "wide", 2 * LIMIT, {})
        wait_until(lambda: "partitions_not_created" in target.log, "partitions are put off")
        check_served(target, raw)


def test_segments_that_roll_with_every_batch_leave_some(target: BrokerProcess) -> None:
    with RawClient(target.address) as raw:
        create(raw, OWN_TOPIC, 1, ROLLING)
        create(raw, "rolling", 1, ROLLING)
        assert set(produce(raw, "rolling", 2 * LIMIT)) == {ErrorCode.NONE}
        assert raw.fetch("rolling", 2 * LIMIT - 1).high_watermark == 2 * LIMIT
        check_served(target, raw)
    target.stop()
    target.start()
    with RawClient(target.address) as raw:
        assert raw.fetch("rolling", 2 * LIMIT - 1).high_watermark == 2 * LIMIT


def test_more_connections_than_descriptors_leave_some_to_logs_and_to_health_checks(target: BrokerProcess) -> None:
    with RawClient(target.address) as raw:
        create(raw, OWN_TOPIC, 1, ROLLING)
        connections = [socket.create_connection(target.address) for _ in range(2 * LIMIT)]
        refused = r'penstock_refused_total\{reason="too_many"\}'
        try:
            wait_until(lambda: target.metric(refused) > 0, "connections are refused")
            assert set(produce(raw, OWN_TOPIC, 5)) == {ErrorCode.NONE}
            with urllib.request.urlopen(f"http://{target.http}/healthz", timeout=60) as answer:
                assert answer.read() == b"ok\n"
        finally:
            for one in connections:
                one.close()
        wait_until(lambda: target.metric("penstock_connections") == 1, "they are gone")
        check_served(target, raw)
