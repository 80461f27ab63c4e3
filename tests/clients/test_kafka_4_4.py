"""Additions of Kafka 4.4 to existing APIs: see test_streams_group_requests.py for streams groups."""

import pytest

from penstock.foundation.codes import ErrorCode
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.brokers import BrokerProcess

from .driver_confluent import ConfluentDriver
from .raw import RawClient
from .raw_members import TRANSACTION, RawProducer, find_coordinator


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"cluster_id": None, "node_id": -1}, ErrorCode.NONE),
        ({"cluster_id": "another"}, ErrorCode.REBOOTSTRAP_REQUIRED),
        ({"node_id": 77}, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_client_that_expects_another_broker_gets_rebootstrap_required(
    broker: BrokerProcess, other: dict[str, object], code: ErrorCode
) -> None:
    with RawClient(broker.address) as raw:
        cluster = raw.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
        named = {"cluster_id": cluster.cluster_id, "node_id": cluster.brokers[0].broker_id, **other}
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1", **named)
        answer: ApiVersionsResponse = raw.ask(request, 5)
        assert answer.error_code == code
        assert bool(answer.api_keys) == (code == ErrorCode.NONE)


def test_offsets_are_committed_in_a_transaction_by_the_ids_of_topics(broker: BrokerProcess) -> None:
    ConfluentDriver(broker.kafka).create_topic("by-id")
    with RawClient(broker.address) as raw:
        find_coordinator(raw, "by-id")
        find_coordinator(raw, "by-id", TRANSACTION)
        producer = RawProducer(raw, "by-id", version=5)
        assert producer.init() == ErrorCode.NONE
        topic_id = raw.describe("by-id").topic_id

        def commit(topic_id: bytes) -> TxnOffsetCommitResponse:
            place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
            answer: TxnOffsetCommitResponse = raw.ask(
                TxnOffsetCommitRequest(
                    transactional_id="by-id",
                    group_id="by-id",
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    topics=[TxnOffsetCommitRequestTopic(topic_id=topic_id, partitions=[place])],
                ),
                6,
            )
            return answer

        (topic,) = commit(topic_id).topics
        assert (topic.topic_id, topic.partitions[0].error_code) == (topic_id, ErrorCode.NONE)
        (other,) = commit(b"x" * 16).topics
        assert (other.topic_id, other.partitions[0].error_code) == (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID)
        assert producer.commit() == ErrorCode.NONE
        wanted = OffsetFetchRequestTopics(name="by-id", partition_indexes=(0,))
        group = OffsetFetchRequestGroup(group_id="by-id", topics=(wanted,))
        found = raw.ask(OffsetFetchRequest(groups=(group,), require_stable=True), 8)
        assert found.groups[0].topics[0].partitions[0].committed_offset == 5
