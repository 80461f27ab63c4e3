import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock.broker.registry import APIS, load_handlers
from penstock.client.admin import Admin
from penstock.client.cluster import ClientSettings, KafkaClient, Target
from penstock.client.consumer import Consumer
from penstock.client.errors import ConnectionFailed, ConnectionLost, ServerError, check, error_code, refusal
from penstock.client.offsets import When, list_offsets
from penstock.client.producer import Producer
from penstock.client.retry import Backoff
from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.cluster.topic_changes import Defaults, NewTopic
from penstock.coordination.store import ABSENT, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicPartition
from penstock.node import Node
from penstock.wire.keys import ApiKey
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.ports import free_port
from tests.unit.cluster.topic_plans import plan_create

from .nodes import LOCAL, ForgetfulProxy, running_node
from .nodes import Address as NodeAddress

IMPATIENT = ClientSettings(retry_for_s=0.3, backoff_first_s=0.01, backoff_max_s=0.05)


async def test_a_bootstrap_broker_that_is_down_is_passed_over(bootstrap: str) -> None:
    async with KafkaClient(f"{LOCAL}:{free_port()},{bootstrap}") as client:
        assert list(client.view.brokers) == [1]


async def test_when_no_broker_answers_all_are_named_at_once_without_waiting() -> None:
    first, second = free_port(), free_port()
    with pytest.raises(ConnectionFailed) as caught:
        async with KafkaClient(f"{LOCAL}:{first},{LOCAL}:{second}"):
            pass
    message = str(caught.value)
    assert f"{LOCAL}:{first}: connection refused" in message
    assert f"{LOCAL}:{second}: connection refused" in message
    assert message.count("is `penstock serve` running?") == 1


async def test_a_request_goes_to_any_broker_to_the_controller_or_to_the_one_that_is_named(bootstrap: str) -> None:
    async with KafkaClient(bootstrap) as client:
        for target in (Target.ANY, Target.CONTROLLER, 1):
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            response: DescribeClusterResponse = await client.request(target, request)
            assert response.cluster_id == client.view.cluster_id
        with pytest.raises(ServerError, match="broker 99 is not available"):
            await client.request(99, request)


async def test_a_topic_that_does_not_exist_is_not_made_by_asking_for_it(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        with pytest.raises(ServerError, match=f"there is no topic '{topic}'; create it with"):
            await client.topic(topic)
        assert topic not in [known.name for known in await Admin(client).topics()]


async def test_a_partition_that_a_topic_lacks_is_named_with_how_many_there_are(bootstrap: str, topic: str) -> None:
    async with KafkaClient(bootstrap) as client:
        await Admin(client).create(topic, partitions=3)
        with pytest.raises(ServerError, match=f"topic '{topic}' has 3 partitions, asked for partition 7"):
            await client.leader(TopicPartition(topic, 7))


async def test_metadata_of_a_topic_expires(bootstrap: str, topic: str) -> None:
    async with (
        KafkaClient(bootstrap, settings=ClientSettings(topic_age_max_s=0)) as client,
        KafkaClient(bootstrap) as slow,
    ):
        await Admin(client).create(topic, partitions=1)
        assert len((await slow.topic(topic)).partitions) == 1
        await Admin(client).create_partitions(topic, 4)
        assert len((await client.topic(topic)).partitions) == 4
        assert len((await slow.topic(topic)).partitions) == 1


async def test_a_broker_that_comes_back_at_another_address_is_found_and_work_goes_on(tmp_path: Path) -> None:
    """Connections are lost, the address is another, and the leader epoch is a new one."""
    first, second = free_port(), free_port()
    name = TopicPartition("orders", 0)
    async with running_node(tmp_path, port=first):
        client = KafkaClient(f"{LOCAL}:{first},{LOCAL}:{second}")
        await client.refresh()
        await Admin(client).create("orders")
        producer, consumer = Producer(client), Consumer(client)
        consumer.assign({name: 0})
        assert (await (await producer.send("orders", b"before"))).offset == 0
        assert [record.value for _, record in await consumer.poll()] == [b"before"]
        epoch = (await client.leader(name)).leader_epoch
    async with running_node(tmp_path, port=second):
        assert (await (await producer.send("orders", b"after"))).offset == 1
        assert [record.value for _, record in await consumer.poll()] == [b"after"]
        assert (await client.leader(name)).leader_epoch > epoch
        await producer.close()
        await consumer.close()
        await client.close()


async def test_a_leader_epoch_that_is_out_of_date_is_looked_up_again(tmp_path: Path) -> None:
    port = free_port()
    name = TopicPartition("orders", 0)
    async with running_node(tmp_path, port=port):
        client = KafkaClient(f"{LOCAL}:{port}")
        await Admin(client).create("orders")
        before = await client.leader(name)
    async with running_node(tmp_path, port=port):
        # Only the connection is new; that the epoch is old, the broker says (FENCED_LEADER_EPOCH).
        await client.connection()
        found = await list_offsets(client, [name], When.LATEST)
        assert found[name].offset == 0
        assert (await client.leader(name)).leader_epoch > before.leader_epoch
        await client.close()


async def test_a_topic_that_was_deleted_and_made_again_is_written_to_under_its_new_id(
    bootstrap: str, topic: str
) -> None:
    async with KafkaClient(bootstrap) as client, KafkaClient(bootstrap) as other:
        await Admin(client).create(topic)
        async with Producer(client) as producer:
            await (await producer.send(topic, b"old"))
            old_id = (await client.topic(topic)).topic_id
            await Admin(other).delete(topic)
            await Admin(other).create(topic)
            assert (await (await producer.send(topic, b"new"))).offset == 0
        assert (await client.topic(topic)).topic_id not in (old_id, bytes(16))


async def test_a_broker_too_old_for_topic_ids_is_written_to_and_read_from_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_handlers()
    api = APIS[ApiKey.METADATA]
    monkeypatch.setitem(APIS, ApiKey.METADATA, replace(api, versions=range(api.versions[0], 10)))
    async with running_node(tmp_path) as node, KafkaClient(str(node.listen)) as client:
        await Admin(client).create("orders")
        assert not (await client.topic("orders")).has_id
        async with Producer(client) as producer:
            assert (await (await producer.send("orders", b"hello"))).offset == 0
        consumer = Consumer(client)
        consumer.assign({TopicPartition("orders", 0): 0})
        assert [record.value for _, record in await consumer.poll()] == [b"hello"]
        await consumer.close()


async def test_trying_again_ends_when_its_time_is_up(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        client = KafkaClient(str(node.listen), settings=IMPATIENT)
        await Admin(client).create("orders")
    started_s = asyncio.get_running_loop().time()
    with pytest.raises(ConnectionFailed, match="connection refused"):
        await Admin(client).topic("orders")
    assert 0.1 < asyncio.get_running_loop().time() - started_s < 5
    await client.close()


async def test_a_request_that_is_not_idempotent_is_not_retried_after_a_lost_response(tmp_path: Path) -> None:
    async with ForgetfulProxy(ApiKey.CREATE_TOPICS) as proxy:
        address = NodeAddress(host=LOCAL, port=proxy.port)
        async with running_node(tmp_path, advertise=address) as node:
            proxy.target = node.listen.port
            async with KafkaClient(str(address)) as client:
                proxy.lose = 1
                with pytest.raises(ConnectionLost, match="requests in flight may have been carried out"):
                    await Admin(client).create("orders")
                assert [known.name for known in await Admin(client).topics()] == ["orders"]


# -- several brokers: two real nodes that know each other


@asynccontextmanager
async def two_brokers(folder: Path) -> AsyncIterator[tuple[Node, Node]]:
    """Partition 0 of `shared` is led by broker 1, partition 1 by broker 2, and both know that."""
    async with running_node(folder / "1", node_id=1) as one, running_node(folder / "2", node_id=2) as two:
        for node, other_id, other in ((one, 2, two), (two, 1, one)):
            await node._metadata.change(lambda image, i=other_id, n=other: _registration(image, i, n))
            await node._metadata.change(
                lambda image: plan_create(
                    image,
                    NewTopic(name="shared", assignments={0: [1], 1: [2]}),
                    b"the-same-id-here",
                    Defaults(partitions=1, replication_factor=1, partitions_max=10),
                )
            )
        yield one, two


def _registration(image: ClusterImage, node_id: int, node: Node) -> list[Op]:
    about = {"host": LOCAL, "port": node.listen.port, "http": str(node.http), "incarnation": "x"}
    return [Put(keys.broker(node_id), keys.encode(about), ABSENT)]


async def test_records_go_to_the_leader_of_their_partition_and_come_from_it(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (one, two), KafkaClient(str(one.listen)) as client:
        names = [TopicPartition("shared", 0), TopicPartition("shared", 1)]
        async with Producer(client) as producer:
            for number in range(2):
                await producer.send("shared", b"to %d" % number, partition=number)
        held = {}
        for node in (one, two):
            async with KafkaClient(str(node.listen)) as direct:
                described = await Admin(direct).describe("shared")
                held[node] = [entry.held.end if entry.held else None for entry in described]
        assert held == {one: [1, 1], two: [1, 1]}
        consumer = Consumer(client)
        consumer.assign(dict.fromkeys(names, 0))
        values = set()
        while len(values) < 2:
            values |= {record.value for _, record in await consumer.poll()}
        assert values == {b"to 0", b"to 1"}
        await consumer.close()


async def test_one_broker_that_is_gone_does_not_keep_the_partitions_of_the_other_from_being_read(
    tmp_path: Path,
) -> None:
    async with two_brokers(tmp_path) as (one, two), KafkaClient(str(one.listen)) as client:
        async with Producer(client) as producer:
            await producer.send("shared", b"here", partition=0)
        consumer = Consumer(client)
        consumer.assign({TopicPartition("shared", 0): 0, TopicPartition("shared", 1): 0})
        await two.stop()
        assert [record.value for _, record in await consumer.poll()] == [b"here"]
        described = await Admin(client).describe("shared")
        assert described[0].held == (0, 1)
        assert described[1].held is None
        assert "cannot reach" in (described[1].problem or "")
        await consumer.close()


# -- errors and waits


def test_a_refusal_says_what_the_server_said_or_else_what_to_do() -> None:
    said = refusal(ErrorCode.INVALID_CONFIG, "topic 'a'", "flush=x is not allowed")
    assert (said.code, str(said)) == (ErrorCode.INVALID_CONFIG, "flush=x is not allowed")
    unsaid = refusal(ErrorCode.LEADER_NOT_AVAILABLE, "partition a-0")
    assert str(unsaid) == (
        "partition a-0: it has no leader now; start the brokers that hold its replicas (LEADER_NOT_AVAILABLE)"
    )
    newer = refusal(31_000, "topic 'a'")
    assert newer.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "error 31000" in str(newer)
    assert error_code(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    check(0, "nothing")


def test_backoff_doubles_up_to_a_limit_with_jitter_of_the_given_rng() -> None:
    waits = [Backoff(Random(3), first_s=0.1, max_s=0.8).next_s() for _ in range(2)]
    assert waits[0] == waits[1]
    backoff = Backoff(Random(3), first_s=0.1, max_s=0.8)
    for full_s in (0.1, 0.2, 0.4, 0.8, 0.8):
        assert full_s / 2 <= backoff.next_s() <= full_s
