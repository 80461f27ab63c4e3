"""Ten thousand partitions: created, listed, opened at start, written to and deleted, without a long stall."""

from collections.abc import Callable

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.metadata import MetadataRequest
from tests.brokers import BrokerProcess
from tests.clients.raw import RawClient, batch_of
from tests.clients.waiting import wait_until

from .conftest import print_worst
from .probe import Probe

COUNTS = [pytest.param(1000, id="1000"), pytest.param(10_000, id="10000", marks=pytest.mark.slow)]
WAIT_S = 240.0


def _create(raw: RawClient, name: str, count: int) -> None:
    wanted = CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
    created = raw.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=240_000), 7).topics[0]
    assert created.error_code == ErrorCode.NONE, created.error_message


def _delete(raw: RawClient, name: str) -> None:
    wanted = DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=bytes(16))], timeout_ms=240_000)
    assert raw.ask(wanted, 6).responses[0].error_code == ErrorCode.NONE


def _can_write(raw: RawClient, name: str, partition: int) -> bool:
    """Produces a record. Returns False while the partition is not open yet: CreateTopics waits only for a time."""
    code = raw.produce(name, batch_of([b"x"]), partition=partition).error_code
    assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER), code
    return code == ErrorCode.NONE


@pytest.mark.parametrize("count", COUNTS)
def test_many_partitions_come_stay_and_go(count: int, own_target: Callable[..., BrokerProcess]) -> None:
    target = own_target(by_exec=True)
    probe = Probe(target)
    with RawClient(target.address) as raw:
        raw.socket.settimeout(WAIT_S)
        with probe.watch(f"{count:,} partitions: created"):
            _create(raw, "many", count)
            wait_until(lambda: _can_write(raw, "many", count - 1), "the last partition is open", WAIT_S)
        with probe.watch(f"{count:,} partitions: listed, and in /metrics"):
            listed = raw.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9).topics
            assert {topic.name: len(topic.partitions) for topic in listed}["many"] == count
            assert target.metric("penstock_replicas") >= count
    target.stop()
    target.start()
    with RawClient(target.address) as raw:
        raw.socket.settimeout(WAIT_S)
        again = Probe(target)
        with again.watch(f"{count:,} partitions: opened at start", since_start=True):
            assert raw.fetch("many", 0, partition=count - 1).high_watermark == 1
        with again.watch(f"{count:,} partitions: written to"):
            for number in range(0, count, 10):
                assert raw.produce("many", batch_of([b"y"]), partition=number).error_code == ErrorCode.NONE
        with again.watch(f"{count:,} partitions: deleted"):
            _delete(raw, "many")
            logs = target.data_dir / "logs" / "many"
            wait_until(lambda: not logs.exists(), "the folders of its logs are gone", WAIT_S)
    print_worst(probe)
    print_worst(again)
