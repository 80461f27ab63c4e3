"""Requests with large responses: each is worked on for a few milliseconds at a time."""

import resource
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest
from penstock.wire.messages.describe_producers import TopicRequest as ProducersTopic
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.schema import NIL_UUID
from tests.brokers import BrokerProcess

from .conftest import print_worst
from .full_broker import WIDE, FullBroker, ask_all, commit, new_topic
from .probe import MONITOR_SETTINGS, Probe
from .raw_http import call, exchange

FILES = 50_000
"""Descriptors that the largest broker needs for its topics and queues."""
HAS_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= FILES
COUNTS = [
    pytest.param(300, id="300"),
    pytest.param(3000, id="3000", marks=pytest.mark.slow),
    pytest.param(
        10_000,
        id="10000",
        marks=[pytest.mark.slow, pytest.mark.skipif(not HAS_FILES, reason=f"needs {FILES} open files (ulimit -Hn)")],
    ),
]
TOPIC_RESOURCE = 2
Asked = list[tuple[Any, int]]
"""Requests with their versions."""
HELD = ("partitions", "topics", "groups", "offsets", "transactional_ids", "producer_ids", "queues")


@pytest.fixture(scope="module", params=COUNTS)
def full(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FullBroker, Probe]]:
    process = BrokerProcess(tmp_path_factory.mktemp("full"), MONITOR_SETTINGS).start()
    probe = Probe(process)
    broker = FullBroker(process, request.param)
    for held in HELD:
        with probe.watch(f"{request.param:,} {held}: added"):
            getattr(broker, f"add_{held}")()
    yield broker, probe
    print_worst(probe)
    process.finish()


def _wide_list_offsets(broker: FullBroker, timestamp: int) -> Asked:
    partitions = [ListOffsetsPartition(partition_index=n, timestamp=timestamp) for n in range(broker.count)]
    return [(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=WIDE, partitions=partitions)]), 7)]


def _offset_fetch(group: str, topics: list[OffsetFetchRequestTopics] | None) -> Asked:
    return [(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)]), 8)]


def _every_group_offset_fetch(broker: FullBroker) -> Asked:
    groups = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in broker.groups]
    return [(OffsetFetchRequest(groups=groups), 8)]


def _configs(broker: FullBroker) -> Asked:
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        for name in broker.topics[:2000]
    ]
    return [(DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True), 4)]


def _alter_configs(broker: FullBroker) -> Asked:
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="100000000")
    resources = [
        AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[setting])
        for name in broker.topics
    ]
    return [(IncrementalAlterConfigsRequest(resources=resources, validate_only=False), 1)]


def _epochs(broker: FullBroker) -> Asked:
    partitions = [OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in range(broker.count)]
    return [(OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=WIDE, partitions=partitions)]), 4)]


def _reassign(broker: FullBroker, replicas: list[int] | None) -> Asked:
    partitions = [ReassignablePartition(partition_index=n, replicas=replicas) for n in range(broker.count)]
    return [(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=WIDE, partitions=partitions)]), 0)]


def _records(broker: FullBroker) -> Asked:
    partitions = [DeleteRecordsPartition(partition_index=n, offset=-1) for n in range(broker.count)]
    return [
        (DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=WIDE, partitions=partitions)], timeout_ms=60_000), 2)
    ]


def _by_name(broker: FullBroker) -> Asked:
    topics = [MetadataRequestTopic(name=name) for name in broker.topics]
    return [(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)]


def _delete_topics(names: list[str]) -> Asked:
    topics = [DeleteTopicState(name=name, topic_id=NIL_UUID) for name in names]
    return [(DeleteTopicsRequest(topics=topics, timeout_ms=240_000), 6)]


def _listed_log_dirs(broker: FullBroker) -> Asked:
    topic = DescribableLogDirTopic(topic=WIDE, partitions=list(range(broker.count)))
    return [(DescribeLogDirsRequest(topics=[topic]), 4)]


def _listed_reassignments(broker: FullBroker) -> Asked:
    topic = ListPartitionReassignmentsTopics(name=WIDE, partition_indexes=list(range(broker.count)))
    return [(ListPartitionReassignmentsRequest(topics=[topic]), 0)]


CASES: dict[str, Callable[[FullBroker], Asked]] = {
    "Metadata of all": lambda broker: [(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)],
    "Metadata of the wide topic": lambda broker: [
        (MetadataRequest(topics=[MetadataRequestTopic(name=WIDE)], allow_auto_topic_creation=False), 12)
    ],
    "Metadata by name": _by_name,
    "DescribeTopicPartitions of all": lambda broker: [(DescribeTopicPartitionsRequest(topics=[]), 0)],
    "DescribeTopicPartitions by name": lambda broker: [
        (DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in broker.topics]), 0)
    ],
    "ListOffsets, latest": lambda broker: _wide_list_offsets(broker, -1),
    "ListOffsets, by time": lambda broker: _wide_list_offsets(broker, 1),
    "OffsetForLeaderEpoch": _epochs,
    "DescribeLogDirs of all": lambda broker: [(DescribeLogDirsRequest(topics=None), 4)],
    "DescribeLogDirs by name": _listed_log_dirs,
    "ListPartitionReassignments of all": lambda broker: [(ListPartitionReassignmentsRequest(topics=None), 0)],
    "ListPartitionReassignments by name": _listed_reassignments,
    "AlterPartitionReassignments, none changes": lambda broker: _reassign(broker, [0]),
    "AlterPartitionReassignments, all refused": lambda broker: _reassign(broker, [0, 77]),
    "AlterPartitionReassignments, cancelled": lambda broker: _reassign(broker, None),
    "ElectLeaders of all": lambda broker: [(ElectLeadersRequest(topic_partitions=None), 2)],
    "DeleteRecords": _records,
    "ListGroups": lambda broker: [(ListGroupsRequest(), 5)],
    "FindCoordinator of all groups": lambda broker: [(FindCoordinatorRequest(coordinator_keys=broker.groups), 4)],
    "DescribeGroups": lambda broker: [(DescribeGroupsRequest(groups=broker.groups), 5)],
    "ConsumerGroupDescribe": lambda broker: [
        (ConsumerGroupDescribeRequest(group_ids=broker.groups, include_authorized_operations=False), 1)
    ],
    "OffsetCommit": lambda broker: [(commit(WIDE, {WIDE: range(broker.count)}), 8)],
    "OffsetFetch of one group, all": lambda broker: _offset_fetch(WIDE, None),
    "OffsetFetch of one group, by name": lambda broker: _offset_fetch(
        WIDE, [OffsetFetchRequestTopics(name=WIDE, partition_indexes=list(range(broker.count)))]
    ),
    "OffsetFetch before version 8": lambda broker: [(OffsetFetchRequest(group_id=WIDE, topics=None), 7)],
    "OffsetFetch of all groups": _every_group_offset_fetch,
    "DescribeConfigs": _configs,
    "IncrementalAlterConfigs": _alter_configs,
    "ListTransactions": lambda broker: [(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 2)],
    "DescribeTransactions": lambda broker: [
        (DescribeTransactionsRequest(transactional_ids=broker.transactional_ids), 0)
    ],
    "DescribeProducers": lambda broker: [
        (DescribeProducersRequest(topics=[ProducersTopic(name=WIDE, partition_indexes=[0])]), 0)
    ],
    "DescribeProducers, one partition many times": lambda broker: [
        (DescribeProducersRequest(topics=[ProducersTopic(name=WIDE, partition_indexes=[0] * 20)]), 0)
    ],
    "CreateTopics, all there": lambda broker: [
        (CreateTopicsRequest(topics=[new_topic(name, 1) for name in broker.topics]), 7)
    ],
    "CreatePartitions": lambda broker: [
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in broker.topics],
                timeout_ms=240_000,
                validate_only=False,
            ),
            3,
        )
    ],
    "DeleteGroups": lambda broker: [(DeleteGroupsRequest(groups_names=broker.groups), 2)],
    "DeleteGroups of one with many offsets": lambda broker: [(DeleteGroupsRequest(groups_names=[WIDE]), 2)],
    "DeleteTopics": lambda broker: _delete_topics(broker.topics),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_about_much_do_not_hold_the_loop(case: str, full: tuple[FullBroker, Probe]) -> None:
    broker, probe = full
    asked = CASES[case](broker)
    with broker.connect() as raw, probe.watch(f"{broker.count:,}: {case}"):
        ask_all(raw, asked)


SQS_CASES: dict[str, Callable[[FullBroker], bytes]] = {
    "ListQueues": lambda broker: call("ListQueues", {"MaxResults": 1000}),
    "ListQueues with a prefix": lambda broker: call("ListQueues", {"QueueNamePrefix": "queue-0"}),
    "GetQueueAttributes": lambda broker: call(
        "GetQueueAttributes", {"QueueUrl": _url(broker, 0), "AttributeNames": ["All"]}
    ),
    "ListDeadLetterSourceQueues": lambda broker: call(
        "ListDeadLetterSourceQueues", {"QueueUrl": _url(broker, 0), "MaxResults": 1000}
    ),
    "CreateQueue": lambda broker: call("CreateQueue", {"QueueName": "one-more"}),
    "PurgeQueue": lambda broker: call("PurgeQueue", {"QueueUrl": _url(broker, 1)}),
    "DeleteQueue": lambda broker: call("DeleteQueue", {"QueueUrl": _url(broker, 2)}),
    "SendMessage": lambda broker: call("SendMessage", {"QueueUrl": _url(broker, 3), "MessageBody": "x"}),
    "ListMessageMoveTasks": lambda broker: call(
        "ListMessageMoveTasks", {"SourceArn": "arn:aws:sqs:us-east-1:000000000000:queue-00003"}
    ),
}


def _url(broker: FullBroker, number: int) -> str:
    return f"http://{broker.process.http}/000000000000/{broker.queues[number]}"


@pytest.mark.parametrize("case", SQS_CASES)
def test_queues_among_many_are_asked_without_holding_the_loop(case: str, full: tuple[FullBroker, Probe]) -> None:
    broker, probe = full
    with probe.watch(f"{broker.count:,}: {case}"):
        (answer,) = exchange(broker.process.http, SQS_CASES[case](broker))
        assert answer.status == 200, answer
