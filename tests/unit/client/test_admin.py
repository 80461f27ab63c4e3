from pathlib import Path

import pytest

from penstock.client.admin import TO_THE_END, Admin, ConfigSource
from penstock.client.cluster import KafkaClient
from penstock.client.errors import ServerError
from penstock.client.producer import Producer
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition

from .nodes import running_node


async def test_a_topic_is_made_with_what_was_asked_for_and_the_clusters_defaults_for_the_rest(
    bootstrap: str, topic: str
) -> None:
    async with KafkaClient(bootstrap) as client:
        admin = Admin(client)
        assert await admin.create(topic, partitions=5, configs={"retention.ms": "1000"}) == (5, 1)
        assert await admin.create(f"{topic}-default") == (1, 1)
        assert len((await admin.topic(topic)).partitions) == 5
        (own,) = [entry for entry in await admin.configs(topic) if entry.source is ConfigSource.TOPIC]
        assert (own.name, own.value) == ("retention.ms", "1000")
        assert own.doc


async def test_a_topic_that_would_be_refused_is_refused_when_only_checked_too(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        admin = Admin(client)
        assert await admin.create(topic, partitions=2, validate_only=True) == (2, 1)
        with pytest.raises(ServerError) as caught:
            await admin.create(topic, configs={"flush": "never"}, validate_only=True)
        assert caught.value.code is ErrorCode.INVALID_CONFIG
        with pytest.raises(ServerError, match="there is no topic"):
            await admin.topic(topic)


async def test_a_topic_that_exists_is_not_made_again(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        with pytest.raises(ServerError, match="exists already") as caught:
            await Admin(client).create(topic)
        assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_description_has_leaders_offsets_and_sizes(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        admin = Admin(client)
        await admin.create(topic, partitions=2)
        async with Producer(client) as producer:
            for _ in range(3):
                await producer.send(topic, b"hello", partition=1)
        empty, full = await admin.describe(topic)
        assert (empty.leader, empty.held, empty.size_bytes, empty.problem) == (1, (0, 0), 0, None)
        assert (full.tp, full.held, full.replicas, full.isr) == (TopicPartition(topic, 1), (0, 3), (1,), (1,))
        assert full.size_bytes is not None
        assert full.size_bytes > 60


async def test_a_partition_that_is_offline_is_described_with_its_problem(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node, KafkaClient(str(node.listen)) as client:
        await Admin(client).create("orders", partitions=2)
        async with Producer(client) as producer:
            await producer.send("orders", b"hello", partition=0)
    for file in tmp_path.glob("logs/orders/0.*/*"):
        file.unlink()
    async with running_node(tmp_path) as node, KafkaClient(str(node.listen)) as client:
        lost, fine = await Admin(client).describe("orders")
        assert (lost.held, lost.size_bytes) == (None, None)
        assert "it has no leader now" in (lost.problem or "")
        assert (fine.held, fine.problem) == ((0, 0), None)


async def test_a_setting_that_is_set_and_deleted_at_once_is_refused(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic)
        with pytest.raises(ServerError, match="twice") as caught:
            await Admin(client).alter(topic, configs={"flush": "group"}, delete=["flush"])
        assert caught.value.code is ErrorCode.INVALID_REQUEST


async def test_settings_are_changed_one_by_one_and_brought_back(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        admin = Admin(client)
        await admin.create(topic, configs={"retention.ms": "1000", "segment.ms": "500"})
        await admin.alter(topic, configs={"flush": "group"}, delete=["retention.ms"])
        own = {entry.name: entry.value for entry in await admin.configs(topic) if entry.source is ConfigSource.TOPIC}
        assert own == {"segment.ms": "500", "flush": "group"}
        with pytest.raises(ServerError, match="unknown setting 'colour'"):
            await admin.alter(topic, configs={"colour": "red"})


async def test_a_topic_grows_and_never_shrinks(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        admin = Admin(client)
        await admin.create(topic)
        await admin.create_partitions(topic, 3)
        assert len((await admin.topic(topic)).partitions) == 3
        with pytest.raises(ServerError, match="has 3 partitions; expected a larger number, got 2"):
            await admin.create_partitions(topic, 2)


async def test_a_deleted_topic_is_gone_and_cannot_be_deleted_twice(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        admin = Admin(client)
        await admin.create(topic)
        await admin.delete(topic)
        assert topic not in [known.name for known in await admin.topics()]
        with pytest.raises(ServerError) as caught:
            await admin.delete(topic)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_trim_tells_the_first_offset_that_is_left(bootstrap: str, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with KafkaClient(bootstrap) as client:
        admin = Admin(client)
        await admin.create(topic, partitions=2)
        async with Producer(client) as producer:
            for number in range(20):
                await producer.send(topic, b"hello", partition=number % 2)
        assert await admin.trim({first: 4, second: TO_THE_END}) == {first: 4, second: 10}
        assert await admin.trim({first: 2}) == {first: 4}
        with pytest.raises(ServerError, match="cannot be trimmed: it does not hold that offset"):
            await admin.trim({first: 11})


async def test_a_topic_that_is_only_compacted_cannot_be_trimmed(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, configs={"cleanup.policy": "compact"})
        with pytest.raises(ServerError, match=r"only compacted; add delete to the topic's cleanup\.policy"):
            await Admin(client).trim({TopicPartition(topic, 0): TO_THE_END})
