"""One broker is the controller, and another one when it dies."""

import asyncio
from random import Random

import pytest

from penstock.cluster import keys
from penstock.cluster.image import NO_LEADER, ClusterImage
from penstock.cluster.registration import is_controller

from .nodes import PATIENCE_S, Node, cluster, led
from .sessions import Server


def is_controlled(image: ClusterImage) -> bool:
    found = image.controller
    return found is not None and is_controller(image, found.node_id, found.broker_epoch)


async def test_one_broker_is_the_controller() -> None:
    async with cluster(1, 2, 3) as nodes:
        await nodes[0].until(is_controlled)
        assert [node.controlling.is_active for node in nodes].count(True) == 1
        assert nodes[0].image.controller_epoch == 1


async def test_another_broker_takes_over_when_the_controller_is_gone() -> None:
    async with cluster(1, 2, 3) as (one, two, three):
        await one.until(is_controlled)
        assert one.controlling.is_active
        place = await one.create("orders", assignments={0: [1, 3]})
        await one.kill()
        two.store.server.end(one.store)
        await two.until(lambda image: is_controlled(image) and led(image, place))
        assert two.image.controller_id in (2, 3)
        assert two.image.controller_epoch == 2
        state = three.image.state(place)
        assert state is not None
        assert (state.leader, state.isr) == (3, (3,))


async def test_a_controller_that_was_paused_changes_nothing_when_it_wakes_up() -> None:
    async with cluster(1, 2, 3) as (one, two, three):
        await one.until(is_controlled)
        place = await one.create("orders", assignments={0: [3, 2, 1]})
        one.store.held = asyncio.Event()
        three.store.server.end(three.store)  # something to do, which the controller begins with
        await three.membership.close()
        await asyncio.sleep(0)
        one.store.server.end(one.store)
        await two.until(lambda image: image.controller_id == 2 and led(image, place))
        before = two.image.state(place)
        written = two.store.server.states[keys.partition(*place)]
        one.store.held.set()
        one.registered.clear()
        async with asyncio.timeout(PATIENCE_S):
            await one.registered.wait()
        assert two.image.state(place) == before
        assert two.store.server.states[keys.partition(*place)] == written
        assert not one.controlling.is_active


async def test_a_controller_goes_on_when_the_store_is_back() -> None:
    async with cluster(1, 2) as (one, two):
        await one.until(is_controlled)
        place = await one.create("orders", assignments={0: [2, 1]})
        one.store.failures = 3
        await two.stop()
        await one.until(lambda image: led(image, place))
        state = one.image.state(place)
        assert state is not None
        assert state.leader == 1
        assert one.image.controller_epoch == 1


async def test_a_broker_that_is_not_registered_is_not_the_controller() -> None:
    server = Server()
    one = Node(server, 1)
    await one.metadata.start()
    await one.controlling.run_pending()
    assert one.image.controller is None
    await one.stop()


async def test_pending_work_is_done_when_settling_returns() -> None:
    server = Server()
    one = await Node(server, 1).start()
    place = await one.create("orders", partitions=250)
    cluster_id = one.image.cluster_id
    await one.stop()
    again = Node(server, 1, cluster_id=cluster_id)
    await again.metadata.start()
    await again.membership.prepare()
    await again.membership.join()
    assert not led(again.image, place)
    await again.controlling.run_pending()
    assert again.controlling.is_active
    assert all(led(again.image, place) for place, _ in again.image.find_partitions())
    await again.stop()


@pytest.mark.parametrize("seed", range(8))
async def test_partitions_have_leaders_again_after_random_failures(seed: int) -> None:
    rng = Random(seed)
    server = Server()
    nodes = {node_id: await Node(server, node_id).start() for node_id in (1, 2, 3, 4)}
    cluster_id = nodes[1].image.cluster_id
    for number in range(3):
        await nodes[1].create(f"topic-{number}", bytes([number + 1]) * 16, partitions=20, replication_factor=3)
    for _ in range(40):
        node_id = rng.randint(1, 4)
        node = nodes[node_id]
        match rng.randrange(5):
            case 0:
                node.store.expire()
            case 1:
                node.store.failures, node.store.loses_answers = rng.randint(1, 3), rng.random() < 0.5
            case 2:
                await node.kill()
                nodes[node_id] = await Node(server, node_id, cluster_id=cluster_id).start()
            case 3:
                await node.stop()
                nodes[node_id] = await Node(server, node_id, cluster_id=cluster_id).start()
            case _:
                await node.membership.leave(0.01)
        for _ in range(rng.randint(0, 30)):
            await asyncio.sleep(0)
    for node in nodes.values():
        node.store.failures = 0
    leaving = [node_id for node_id, broker in nodes[1].image.brokers.items() if broker.leaving]
    for node_id in leaving:
        await nodes[node_id].kill()
        nodes[node_id] = await Node(server, node_id, cluster_id=cluster_id).start()
    await nodes[1].until(
        lambda image: len(image.brokers) == 4 and all(led(image, place) for place, _ in image.find_partitions())
    )
    check_epochs(server)
    assert not any(node.refusals for node in nodes.values())
    for node in nodes.values():
        await node.stop()


def check_epochs(server: Server) -> None:
    """One leader an epoch, one broker a registration, one controller an epoch, in everything ever written."""
    image = ClusterImage()
    leaders: dict[object, object] = {}
    for change in server.changes:
        image = image.with_change(change)
        for place, state in image.find_partitions():
            leader = (state.leader, state.leader_broker_epoch)
            assert leaders.setdefault((place, state.leader_epoch), leader) == leader
            assert state.isr
            assert state.leader == NO_LEADER or state.leader in state.isr
        for broker in image.brokers.values():
            assert leaders.setdefault(broker.epoch, broker.node_id) == broker.node_id
        if image.controller is not None:
            assert leaders.setdefault(("controller", image.controller.epoch), image.controller) == image.controller
