"""The administrator of brokers and replicas, against one real broker."""

import pytest

from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin, Election
from penstock.client.configs import ConfigChange, Resource
from penstock.client.errors import ServerError
from penstock.client.producer import Producer
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition


async def test_a_cluster_is_described(bootstrap: str) -> None:
    async with KafkaClient(bootstrap) as client:
        found = await ClusterAdmin(client).describe()
        assert found.cluster_id
        assert found.controller == 1
        assert [(node, f"{each.host}:{each.port}") for node, each in found.brokers.items()] == [(1, bootstrap)]


async def test_each_partition_that_cannot_be_reassigned_is_reported_by_its_name(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=3)
        names = [TopicPartition(topic, number) for number in range(3)]
        failures = await ClusterAdmin(client).reassign({names[0]: [1], names[1]: [1, 2], names[2]: None})
        assert {name: error.code for name, error in failures.items()} == {
            names[1]: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            names[2]: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        }
        assert str(failures[names[1]]).startswith(
            f"{topic}-1: the assignment [1, 2] names unknown or offline brokers"
        )


async def test_more_partitions_than_one_request_names_are_all_asked_for(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        admin = ClusterAdmin(client)
        names = [TopicPartition(topic, number) for number in range(2500)]
        assert set(await admin.reassign(dict.fromkeys(names))) == set(names)
        assert set(await admin.elect_leaders(names)) == set(names)
        assert await admin.reassignments(names) == {}
        assert await admin.reassignments() == {}


async def test_the_outcome_of_each_election_is_returned(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        admin, name = ClusterAdmin(client), TopicPartition(topic, 0)
        await Admin(client).create(topic)
        for election in Election:
            found = (await admin.elect_leaders([name], election))[name]
            assert found is not None
            assert found.code is ErrorCode.ELECTION_NOT_NEEDED
        assert name not in await admin.elect_leaders()


async def test_log_sizes_of_brokers_that_answer_are_returned(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=2)
        async with Producer(client) as producer:
            await producer.send(topic, b"x" * 1000, partition=1)
        sizes = await ClusterAdmin(client).sizes([1, 9], [TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert list(sizes) == [1]
        assert sizes[1][TopicPartition(topic, 0)] == 0
        assert sizes[1][TopicPartition(topic, 1)] > 1000
        assert TopicPartition(topic, 1) in (await ClusterAdmin(client).sizes([1]))[1]


async def test_settings_of_topics_and_brokers_are_set_asked_for_and_brought_back(bootstrap: str, topic: str) -> None:
    rate, replicas = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
    async with KafkaClient(bootstrap) as client:
        admin = ClusterAdmin(client)
        await Admin(client).create(topic)
        await admin.alter_configs(
            [
                ConfigChange(kind=Resource.TOPIC, name=topic, values={replicas: "0:1"}),
                ConfigChange(kind=Resource.BROKER, name="1", values={rate: "1000"}),
            ]
        )
        assert await admin.configs(Resource.TOPIC, [topic, "no-such"], [replicas]) == {topic: {replicas: "0:1"}}
        assert await admin.configs(Resource.BROKER, ["1", "9"], [rate]) == {"1": {rate: "1000"}}
        await admin.alter_configs(
            [
                ConfigChange(kind=Resource.TOPIC, name=topic, values={replicas: None}),
                ConfigChange(kind=Resource.BROKER, name="1", values={rate: None}),
            ]
        )
        assert (await admin.configs(Resource.TOPIC, [topic], [replicas]))[topic] == {replicas: ""}
        assert (await admin.configs(Resource.BROKER, ["1"], [rate]))["1"] == {rate: str(2**63 - 1)}
        with pytest.raises(ServerError, match=r"expected \* or a list of partition:broker"):
            await admin.alter_configs([ConfigChange(kind=Resource.TOPIC, name=topic, values={replicas: "all"})])
