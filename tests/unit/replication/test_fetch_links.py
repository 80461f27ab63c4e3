"""Which broker is fetched from: follows the image, at a cost that depends on the changes."""

from dataclasses import replace
from pathlib import Path

from penstock.cluster import keys
from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.coordination.store import Put
from penstock.replication.fetch_links import FetchLinks
from penstock.replication.partition import Partition
from tests.unit.replication.broker_state import NODE, World, world_at

COUNT = 20


async def change(world: World, partition: Partition, **values: object) -> PartitionState:
    """Give a partition another state, as a controller does."""
    state = world.metadata.image.state(partition.tp)
    assert state is not None
    fresh = replace(state, **values)  # type: ignore[arg-type]
    await world.store.transact([Put(keys.partition(*partition.tp), fresh.dump(), state.version)])
    await world.rest()
    return fresh


def asked(links: FetchLinks, leader: int) -> set[int]:
    """The partitions that a leader is asked for."""
    request = links.by_leader[leader].request(broker_epoch=1, max_wait_ms=0, max_bytes=1 << 20, now_ms=0)
    return set() if request is None else {one.partition for topic in request.topics for one in topic.partitions}


async def followed_by(world: World, leaders: dict[int, int]) -> FetchLinks:
    """`leaders`: by partition."""
    await world.create("orders", COUNT)
    links = FetchLinks(node_id=NODE, partitions=world.partitions, uses_sessions=False)
    for partition in list(world.partitions):
        leader = leaders[partition.name.partition]
        await change(world, partition, replicas=(leader, NODE), isr=(leader, NODE), leader=leader, leader_epoch=1)
    links.apply(world.metadata.image)
    return links


def replica(world: World, number: int) -> Partition:
    return next(one for one in world.partitions if one.name.partition == number)


async def test_a_partition_moves_to_the_link_of_its_new_leader(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        links = await followed_by(world, {number: 2 + number % 2 for number in range(COUNT)})
        odd = set(range(1, COUNT, 2))
        assert (asked(links, 2), asked(links, 3)) == (set(range(COUNT)) - odd, odd)
        await change(world, replica(world, 1), leader=2, leader_epoch=2)
        assert links.apply(world.metadata.image) == {2, 3}
        assert asked(links, 3) == odd - {1}
        assert 1 in asked(links, 2)


async def test_only_what_has_changed_is_looked_at(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        links = await followed_by(world, dict.fromkeys(range(COUNT), 2))
        assert world.partitions.take_changed() == []
        one = replica(world, 7)
        await change(world, one, isr=(2,))
        assert world.partitions.take_changed() == [one.tp]
        assert links.apply(world.metadata.image) == set()


async def test_a_partition_that_is_led_here_or_offline_or_deleted_is_not_followed(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        links = await followed_by(world, dict.fromkeys(range(COUNT), 2))
        await change(world, replica(world, 0), leader=NO_LEADER, leader_epoch=2)
        await change(
            world,
            replica(world, 1),
            leader=NODE,
            leader_epoch=2,
            leader_broker_epoch=world.partitions.broker_epoch,
        )
        assert links.apply(world.metadata.image) == {2}
        assert asked(links, 2) == set(range(2, COUNT))
        await world.delete("orders")
        assert links.apply(world.metadata.image) == {2}
        assert links.by_leader == {}
