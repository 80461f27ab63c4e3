"""Kafka requests that claim, or have, very many elements: each costs the event loop a few milliseconds at a time."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.frames import LENGTH
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.brokers import BrokerProcess
from tests.clients.raw import Closed, RawClient, batch_of

from .probe import Probe

MANY = 40_000
TOPIC = "hostile"


@pytest.fixture(scope="module", autouse=True)
def topic(target: BrokerProcess) -> str:
    """A topic with one record, and the group coordinator ready."""
    with RawClient(target.address) as raw:
        raw.describe(TOPIC, allow_auto_topic_creation=True)
        assert raw.produce(TOPIC, batch_of([b"x"])).error_code == 0
        raw.ask(FindCoordinatorRequest(key="", key_type=0, coordinator_keys=["g"]), 4)
    return TOPIC


def _ask(target: BrokerProcess, request: Any, version: int) -> Any:
    with RawClient(target.address) as raw:
        raw.socket.settimeout(90.0)
        return raw.ask(request, version)


def _produce_many() -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=None) for number in range(MANY)]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


def _fetch_many() -> FetchRequest:
    partitions = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1) for number in range(MANY)]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=0,
        topics=[FetchTopic(topic=TOPIC, partitions=partitions)],
        forgotten_topics_data=(),
    )


def _list_many(timestamp: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=number, timestamp=timestamp) for number in range(MANY)]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)]
    )


def _commit_many() -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=1, committed_metadata="")
        for number in range(MANY)
    ]
    return OffsetCommitRequest(
        group_id="g",
        member_id="",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )


def _delete_records_many() -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=number, offset=0) for number in range(MANY)]
    return DeleteRecordsRequest(timeout_ms=1000, topics=[DeleteRecordsTopic(name=TOPIC, partitions=partitions)])


NAMES = [f"name-{number}" for number in range(MANY)]
REQUESTS: dict[str, tuple[Callable[[], Any], int, Callable[[Any], int]]] = {
    "produce-partitions": (_produce_many, 9, lambda got: len(got.responses[0].partition_responses)),
    "produce-empty-topics": (
        lambda: ProduceRequest(
            acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="", partition_data=())] * MANY
        ),
        9,
        lambda got: len(got.responses),
    ),
    "fetch-partitions": (_fetch_many, 12, lambda got: len(got.responses[0].partitions)),
    "metadata-of-unknown-topics": (
        lambda: MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False
        ),
        9,
        lambda got: len(got.topics),
    ),
    "list-offsets-latest": (lambda: _list_many(-1), 6, lambda got: len(got.topics[0].partitions)),
    "list-offsets-by-time": (lambda: _list_many(1), 6, lambda got: len(got.topics[0].partitions)),
    "offset-commit": (_commit_many, 8, lambda got: len(got.topics[0].partitions)),
    "offset-fetch": (
        lambda: OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(MANY)))],
                )
            ]
        ),
        8,
        lambda got: len(got.groups[0].topics[0].partitions),
    ),
    "find-coordinator": (
        lambda: FindCoordinatorRequest(key="", key_type=0, coordinator_keys=NAMES),
        4,
        lambda got: len(got.coordinators),
    ),
    "describe-groups": (
        lambda: DescribeGroupsRequest(groups=NAMES, include_authorized_operations=False),
        5,
        lambda got: len(got.groups),
    ),
    "consumer-group-describe": (
        lambda: ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False),
        0,
        lambda got: len(got.groups),
    ),
    "delete-groups": (lambda: DeleteGroupsRequest(groups_names=NAMES), 2, lambda got: len(got.results)),
    "describe-transactions": (
        lambda: DescribeTransactionsRequest(transactional_ids=NAMES),
        0,
        lambda got: len(got.transaction_states),
    ),
    "delete-unknown-topics": (
        lambda: DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1000),
        5,
        lambda got: len(got.responses),
    ),
    "delete-records": (_delete_records_many, 2, lambda got: len(got.topics[0].partitions)),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_a_request_with_many_elements_is_answered_in_slices(target: BrokerProcess, probe: Probe, case: str) -> None:
    make, version, count = REQUESTS[case]
    request = make()
    with probe.watch(case):
        assert count(_ask(target, request, version)) == MANY


def test_configs_of_many_topics_are_described_in_slices(target: BrokerProcess, probe: Probe) -> None:
    count = 2_000
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None) for _ in range(count)
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    with probe.watch("describe-configs"):
        answer = _ask(target, request, 4)
    assert [result.error_code for result in answer.results] == [ErrorCode.NONE] * count
    assert answer.results[0] == answer.results[-1]


HEADER = struct.pack(">hhih", 0, 9, 7, -1) + b"\0"
HOSTILE_FRAMES = {
    "a-million-empty-topics": HEADER + b"\0\xff\xff" + bytes(4) + b"\xc1\x84\x3d" + b"\1\1\0" * 1_000_000 + b"\0",
    "thirty-million-empty-topics": HEADER + b"\0\xff\xff" + bytes(4) + b"\x81\x87\xa7\x0e" + b"\1\1\0" * 30_000_000,
    "empty-partitions-of-many-topics": (
        HEADER + b"\0\xff\xff" + bytes(4) + b"\xe9\x07" + (b"\1\xe9\x07" + bytes(6) * 1000 + b"\0") * 1000 + b"\0"
    ),
}


@pytest.mark.parametrize("case", HOSTILE_FRAMES)
def test_more_elements_than_any_request_has_close_the_connection(
    target: BrokerProcess, probe: Probe, case: str
) -> None:
    frame = HOSTILE_FRAMES[case]
    before_kib = target.rss_anon_kib()
    with probe.watch(case), RawClient(target.address) as raw:
        raw.socket.settimeout(90.0)
        raw.socket.sendall(LENGTH.pack(len(frame)) + frame)
        with pytest.raises(Closed):
            raw.receive_frame()
    assert target.rss_anon_kib() - before_kib < 150 << 10
