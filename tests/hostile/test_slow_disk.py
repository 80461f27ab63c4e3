"""A disk whose every fsync takes long: the event loop never waits for one, nor do other clients."""

import time
from collections.abc import Callable, Iterator

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.records.build import Record, build_batch
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.brokers import BrokerProcess
from tests.clients.raw import NOW_MS, RawClient, batch_of
from tests.clients.waiting import wait_until

from .conftest import print_worst
from .probe import Probe

DELAY_S = 0.2
SMALL_SEGMENTS = {"segment.bytes": "1048576"}
SETTINGS = {
    "log.initial.task.delay.ms": 0,
    "log.retention.check.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
}


@pytest.fixture
def slow(own_target: Callable[..., BrokerProcess]) -> Iterator[tuple[BrokerProcess, Probe]]:
    target = own_target(SETTINGS, fsync_delay_s=DELAY_S)
    probe = Probe(target)
    yield target, probe
    target.stop()
    print_worst(probe)
    assert "fsync on the event loop" not in target.log, target.log


def _create(raw: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    created = raw.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 7).topics[0]
    assert created.error_code == ErrorCode.NONE, created.error_message


def _client(target: BrokerProcess) -> RawClient:
    raw = RawClient(target.address)
    raw.socket.settimeout(90.0)
    return raw


def test_topics_are_created_grown_and_deleted(slow: tuple[BrokerProcess, Probe]) -> None:
    target, probe = slow
    with probe.watch("slow disk: create, grow, delete"), _client(target) as raw:
        for number in range(3):
            _create(raw, f"topic-{number}", 20)
        grow = CreatePartitionsTopic(name="topic-0", count=40, assignments=None)
        grown = raw.ask(CreatePartitionsRequest(topics=[grow], timeout_ms=60_000, validate_only=False), 3)
        assert grown.results[0].error_code == ErrorCode.NONE
        gone = [DeleteTopicState(name=f"topic-{number}", topic_id=bytes(16)) for number in range(3)]
        deleted = raw.ask(DeleteTopicsRequest(topics=gone, timeout_ms=60_000), 6)
        assert [topic.error_code for topic in deleted.responses] == [ErrorCode.NONE] * 3
        logs = target.data_dir / "logs"
        wait_until(lambda: not list(logs.glob("topic-*")), "the folders of their logs are gone")


def test_acknowledged_writes_wait_for_the_disk_and_others_do_not(slow: tuple[BrokerProcess, Probe]) -> None:
    target, probe = slow
    with probe.watch("slow disk: flush=group"), _client(target) as raw:
        _create(raw, "synced", flush="group")
        for _ in range(5):
            started_s = time.monotonic()
            assert raw.produce("synced", batch_of([b"x"])).error_code == ErrorCode.NONE
            assert time.monotonic() - started_s >= DELAY_S, "it was acknowledged before it was synced"


def test_segments_are_closed_trimmed_and_expire(slow: tuple[BrokerProcess, Probe]) -> None:
    target, probe = slow
    with probe.watch("slow disk: roll, trim, retention"), _client(target) as raw:
        _create(raw, "rolled", **SMALL_SEGMENTS, **{"retention.bytes": "3000000", "retention.ms": "-1"})
        folder = target.data_dir / "logs" / "rolled"
        batch = batch_of([b"x" * 900_000])
        for _ in range(8):
            assert raw.produce("rolled", bytearray(batch)).error_code == ErrorCode.NONE
        wait_until(lambda: len(list(folder.rglob("*.log"))) <= 4, "retention has removed old segments")
        trim = DeleteRecordsTopic(name="rolled", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
        trimmed = raw.ask(DeleteRecordsRequest(topics=[trim], timeout_ms=60_000), 2)
        assert trimmed.topics[0].partitions[0].error_code == ErrorCode.NONE
        wait_until(lambda: len(list(folder.rglob("*.log"))) == 1, "the segments before are gone")


def test_logs_are_compacted(slow: tuple[BrokerProcess, Probe]) -> None:
    target, probe = slow
    with probe.watch("slow disk: compaction"), _client(target) as raw:
        _create(raw, "compacted", **SMALL_SEGMENTS, **{"cleanup.policy": "compact"})
        folder = target.data_dir / "logs" / "compacted"
        for _ in range(6):
            batch = build_batch([Record(key=b"same", value=b"x" * 900_000, timestamp_ms=NOW_MS)])
            assert raw.produce("compacted", batch).error_code == ErrorCode.NONE
        size = sum(path.stat().st_size for path in folder.rglob("*.log"))
        assert size > 5_000_000
        wait_until(
            lambda: sum(path.stat().st_size for path in folder.rglob("*.log")) < 3_000_000, "the log is compacted"
        )
        first = raw.fetch("compacted", 0)
        assert first.error_code == ErrorCode.NONE
