"""Nodes that start on their own folder, on another's, or on a changed one."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.cluster.administration import create_topic
from penstock.cluster.identity import WrongBroker
from penstock.cluster.image import NO_LEADER, ClusterImage
from penstock.cluster.registration import WrongCluster
from penstock.cluster.topic_changes import Defaults, NewTopic
from penstock.foundation.ids import TopicIdPartition
from penstock.node import Address, Node, NodeSettings

TOPIC_ID = b"\7" * 16
PLACE = TopicIdPartition(TOPIC_ID, 0)
DEFAULTS = Defaults(partitions=1, replication_factor=1, partitions_max=1000)
HERE = Address(host="127.0.0.1", port=0)


@asynccontextmanager
async def running(folder: Path, node_id: int = 1, **settings: str) -> AsyncIterator[Node]:
    values = {name.replace("_", "."): value for name, value in settings.items()}
    node = Node(NodeSettings(data_dir=folder, listen=HERE, http=HERE, node_id=node_id, settings=values))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def image_of(node: Node) -> ClusterImage:
    return node._metadata.image


async def make(node: Node, **wanted: object) -> None:
    topic = NewTopic(name="orders", **wanted)  # type: ignore[arg-type]
    await create_topic(node._metadata, topic, TOPIC_ID, DEFAULTS)


async def test_a_node_is_registered_is_the_controller_and_leads_in_a_new_epoch(tmp_path: Path) -> None:
    async with running(tmp_path, broker_rack="r1", broker_host_id="m1") as node:
        await make(node, partitions=150)
        image = image_of(node)
        assert (image.brokers[1].rack, image.brokers[1].host_id) == ("r1", "m1")
        assert image.brokers[1].port == node.listen.port
        assert image.controller_id == 1
        cluster_id, epoch = image.cluster_id, image.brokers[1].epoch
    async with running(tmp_path) as node:
        image = image_of(node)
        assert image.cluster_id == cluster_id
        assert image.brokers[1].epoch > epoch
        for _, state in image.find_partitions():
            assert (state.leader, state.leader_epoch, state.isr) == (1, 1, (1,))
            assert state.leader_broker_epoch == image.brokers[1].epoch


async def test_another_brokers_folder_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    with pytest.raises(WrongBroker, match="start it with --node-id 1"):
        await Node(NodeSettings(data_dir=tmp_path, listen=HERE, http=HERE, node_id=2)).start()


async def test_a_folder_whose_store_is_gone_is_refused_and_keeps_its_logs(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await make(node)
    for file in tmp_path.glob("metadata.db*"):
        file.unlink()
    before = sorted(tmp_path.glob("logs/**/*"))
    assert before
    with pytest.raises(WrongCluster, match="the store holds no cluster"):
        await Node(NodeSettings(data_dir=tmp_path, listen=HERE, http=HERE)).start()
    assert sorted(tmp_path.glob("logs/**/*")) == before


async def test_a_partition_whose_folder_is_gone_is_offline_until_it_is_brought_back(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await make(node, partitions=2)
    (folder,) = tmp_path.glob("logs/orders/0.*")
    shutil.move(folder, tmp_path / "kept")
    async with running(tmp_path) as node:
        states = image_of(node).topics[TOPIC_ID].partitions
        assert [(state.leader, state.isr) for state in states.values()] == [(NO_LEADER, (1,)), (1, (1,))]
        assert list(image_of(node).brokers[1].lost) == [PLACE]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(tmp_path / "kept", folder)
    async with running(tmp_path) as node:
        assert [state.leader for state in image_of(node).topics[TOPIC_ID].partitions.values()] == [1, 1]
        assert not image_of(node).brokers[1].lost


async def test_a_memory_topic_begins_again_above_its_offsets(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await make(node, configs={"storage": "memory"})
    starts = []
    for _ in range(2):
        async with running(tmp_path) as node:
            state = image_of(node).state(PLACE)
            assert state is not None
            assert state.leader == 1
            starts.append((state.reserved_from, state.reserved_to))
    step = starts[0][0]
    assert starts == [(step, 2 * step), (2 * step, 3 * step)]
