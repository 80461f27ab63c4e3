"""Kafka's Java Admin client: topics, configs, records, groups, log folders, elections and reassignments."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.waiting import wait_until

from .conftest import Target
from .java_applications import JavaApplications, compile_applications, create_topic, kafka_artifacts, words_after

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAMS = ("AdminCalls", "SendNumbers", "ReadGroup", "ShareNumbers")
CONSUMERS = "java-admin-consumers"
SHARERS = "java-admin-sharers"
TOPIC = "java-admin-groups"


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compile_applications(kafka_artifacts("kafka-clients"), PROGRAMS, tmp_path_factory.mktemp("classes"))


@pytest.fixture
def applications(classpath: str, tmp_path: Path) -> Iterator[JavaApplications]:
    applications = JavaApplications(classpath, tmp_path)
    yield applications
    applications.end()


def start_groups(target: Target, applications: JavaApplications) -> None:
    """Starts a consumer group and a share group of one member each, and waits until both have read."""
    create_topic(target, TOPIC, 2)
    reader = applications.start("ReadGroup", target.bootstrap, TOPIC, CONSUMERS, "consumer")
    sharer = applications.start("ShareNumbers", target.bootstrap, TOPIC, SHARERS, -1)
    reader.wait_line("assigned 2 ")

    def both_have_read() -> bool:
        # A share group begins at the end of the topic as it is when the member joins: send until it reads.
        applications.run("SendNumbers", target.bootstrap, TOPIC, 1, 9, 0)
        return bool(words_after(sharer, "accepted") and words_after(reader, "read"))

    wait_until(both_have_read, "both groups have read")


EXPECTED = {
    "createTopics": "2",
    "createTopics again": "TopicExistsException",
    "createPartitions to fewer": "InvalidPartitionsException",
    "describeTopics of none": "UnknownTopicOrPartitionException",
    "describeConfigs": "123456789 DYNAMIC_TOPIC_CONFIG",
    "incrementalAlterConfigs": "compact,delete DYNAMIC_TOPIC_CONFIG, 604800000 DEFAULT_CONFIG",
    "incrementalAlterConfigs to nonsense": "InvalidConfigurationException",
    "listOffsets": "0 100 42 99",
    "deleteRecords": "30",
    "listOffsets after deleteRecords": "30",
    "deleteRecords beyond the end": "OffsetOutOfRangeException",
    "listGroups": f"{{{CONSUMERS}=Consumer Stable, {SHARERS}=Share Stable}}",
    "describeConsumerGroups": "Consumer Stable 1 members [0, 1]",
    "describeShareGroups": "Stable 1 members",
    "deleteConsumerGroups": "GroupNotEmptyException",
    "electLeaders": "ElectionNotNeededException",
    "deleteTopics": "false",
    "deleteTopics again": "UnknownTopicOrPartitionException",
}
REASSIGNED = {
    "alterPartitionReassignments": "leader 3 replicas [3, 2] isr [2, 3]",
    "alterPartitionReassignments of the order": "leader 3 replicas [2, 3] isr [2, 3]",
    "electLeaders after it": "elected",
    "describeTopics after electLeaders": "leader 2 replicas [2, 3] isr [2, 3]",
}


def test_the_admin_client_gets_kafka_s_answers(target: Target, applications: JavaApplications) -> None:
    start_groups(target, applications)
    calls = applications.start("AdminCalls", target.bootstrap, target.replicas, CONSUMERS, SHARERS)
    calls.wait()
    assert calls.lines[-1] == "DONE"
    said = [line.removeprefix("answer ") for line in calls.lines if line.startswith("answer ")]
    answers = dict(line.split(": ", 1) for line in said)
    brokers = answers.pop("describeCluster")
    ids = brokers[: brokers.index("]") + 1]
    assert len(ids.split(",")) == target.replicas
    assert brokers == f"{ids} controller=true id=true"
    assert answers.pop("describeTopics") == f"3 partitions, isr of the first {ids}"
    assert answers.pop("describeLogDirs") == ids
    assert answers == EXPECTED | (REASSIGNED if target.replicas > 1 else {})
