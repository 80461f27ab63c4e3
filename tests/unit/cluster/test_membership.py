"""The registration of a broker, from start to stop."""

import asyncio

import pytest

from penstock.cluster import keys
from penstock.cluster.elections import RESERVED_OFFSETS
from penstock.cluster.image import NO_LEADER, Broker, ClusterImage, PartitionState
from penstock.cluster.registration import NodeIdTaken, WrongCluster
from penstock.coordination.store import Put

from .nodes import PATIENCE_S, Node, cluster, led
from .sessions import Server


async def test_the_first_broker_makes_the_cluster_and_others_join_it() -> None:
    async with cluster(1, 2) as (one, two):
        assert one.image.cluster_id
        assert one.clusters == two.clusters == [one.image.cluster_id]
        assert list(one.image.brokers) == [1, 2]
        first, second = one.image.brokers[1], one.image.brokers[2]
        assert (first.host, first.folder, first.epoch) == ("host-1", "folder-1", one.epochs[-1])
        assert 0 < first.epoch < second.epoch
        assert one.image.folders == {1: "folder-1", 2: "folder-2"}
        for broker in (first, second):
            assert keys.incarnation(broker.epoch) in one.image.versions


@pytest.mark.parametrize("known", ["", "that-cluster"])
async def test_another_clusters_data_is_refused(known: str) -> None:
    server = Server()
    if known:
        await server.session().transact([Put(keys.CLUSTER, keys.encode({"cluster_id": known}), 0)])
    stray = Node(server, 1, cluster_id="this-cluster")
    with pytest.raises(WrongCluster, match="belongs to cluster this-cluster"):
        await stray.start()
    assert not stray.image.brokers
    await stray.stop()


async def test_another_folder_with_the_same_node_id_is_refused() -> None:
    async with cluster(1) as (one,):
        stray = Node(one.store.server, 1, folder="another")
        with pytest.raises(NodeIdTaken, match="is registered at host-1:9092 with another data folder"):
            await stray.start()
        assert one.image.brokers[1].epoch == one.epochs[-1]
        assert not one.refusals
        await stray.stop()


async def test_a_broker_that_restarts_before_its_lease_is_over_replaces_itself() -> None:
    server = Server()
    first = await Node(server, 1).start()
    await first.until(lambda image: image.controller_id == 1)
    before = first.image
    await first.kill()
    again = await Node(server, 1, cluster_id=before.cluster_id).start()
    await again.until(lambda image: image.controller is not None and image.controller.epoch == 2)
    assert again.epochs[-1] > first.epochs[-1]
    assert again.image.brokers[1].epoch == again.epochs[-1]
    assert keys.incarnation(first.epochs[-1]) not in again.image.versions
    server.end(first.store)  # the old lease is over: nothing of the new registration was leased to it
    assert again.image.brokers[1].epoch == again.epochs[-1]
    await again.stop()


async def test_a_broker_whose_session_is_lost_registers_again_under_a_new_epoch() -> None:
    async with cluster(1, 2) as (one, two):
        before = two.epochs[-1]
        two.registered.clear()
        two.store.expire()
        async with asyncio.timeout(PATIENCE_S):
            await two.registered.wait()
        assert two.epochs == [before, one.image.brokers[2].epoch]
        assert not two.refusals


@pytest.mark.parametrize("loses_answers", [False, True])
async def test_a_broker_registers_again_when_the_store_is_back(loses_answers: bool) -> None:
    async with cluster(1, 2) as (one, two):
        before = two.epochs[-1]
        two.store.failures, two.store.loses_answers = 3, loses_answers
        two.store.expire()
        two.registered.clear()
        async with asyncio.timeout(PATIENCE_S):
            await two.registered.wait()
        assert one.image.brokers[2].epoch == two.epochs[-1] > before


async def test_a_broker_that_starts_waits_for_a_store_that_does_not_answer() -> None:
    server = Server()
    one = Node(server, 1)
    one.store.failures = 2
    await one.start()
    assert list(one.image.brokers) == [1]
    await one.stop()


async def test_a_removed_registration_is_written_again() -> None:
    async with cluster(1, 2) as (one, two):
        before = two.epochs[-1]
        one.store.server.end(two.store)
        await one.until(lambda image: 2 in image.brokers and image.brokers[2].epoch > before)


async def test_a_broker_that_was_replaced_by_a_copy_of_itself_gives_up() -> None:
    async with cluster(1) as (one,):
        copy = await Node(one.store.server, 1, cluster_id=one.image.cluster_id).start()
        async with asyncio.timeout(PATIENCE_S):
            await one.refused.wait()
        assert isinstance(one.refusals[0], NodeIdTaken)
        assert "another process at host-1:9092 has registered as broker 1" in one.refusals[0].message
        assert one.image.brokers[1].epoch == copy.epochs[-1]
        await copy.stop()


async def test_a_broker_whose_place_was_taken_while_it_was_away_gives_up() -> None:
    async with cluster(1, 2) as (one, two):
        two.store.is_connected = False
        server = one.store.server
        server.end(two.store)
        other = await Node(server, 2, folder="another", cluster_id=one.image.cluster_id).start()
        two.store.is_connected = True
        for callback in two.store.on_session_lost:
            callback()
        async with asyncio.timeout(PATIENCE_S):
            await two.refused.wait()
        assert isinstance(two.refusals[0], NodeIdTaken)
        assert one.image.brokers[2].epoch == other.epochs[-1]
        await other.stop()


# -- brokers that come back without their data


def images_of(server: Server) -> list[ClusterImage]:
    """Every published image."""
    image, found = ClusterImage(), []
    for change in server.changes:
        image = image.with_change(change)
        found.append(image)
    return found


async def restarted(old: Node, node_id: int, **about: object) -> Node:
    """The same broker in a new process, before its lease is over."""
    await old.kill()
    return await Node(old.store.server, node_id, cluster_id=old.image.cluster_id, **about).start()  # type: ignore[arg-type]


async def test_a_memory_replica_is_out_of_the_isr_before_its_broker_registers_again() -> None:
    async with cluster(1, 2) as (one, two):
        everything = {number: [2, 1] for number in range(150)}
        await one.create("memory", assignments=everything, configs={"storage": "memory"})
        old = two.epochs[-1]
        again = await restarted(two, 2)
        topic_id = b"\7" * 16
        for image in images_of(one.store.server):
            broker = image.brokers.get(2)
            if broker is not None and broker.epoch != old and topic_id in image.topics:
                assert all(2 not in state.isr for state in image.topics[topic_id].partitions.values())
        await again.until(lambda image: all(state.leader == 1 for _, state in image.find_partitions()))
        await again.stop()


async def test_the_last_memory_replica_begins_above_every_offset_it_gave() -> None:
    async with cluster(1) as (one,):
        place = await one.create("memory", configs={"storage": "memory"})
        again = await restarted(one, 1)
        await again.until(lambda image: led(image, place))
        state = again.image.state(place)
        assert state is not None
        assert (state.reserved_from, state.reserved_to) == (RESERVED_OFFSETS, 2 * RESERVED_OFFSETS)
        assert (state.leader, state.isr, state.leader_broker_epoch) == (1, (1,), again.epochs[-1])
        await again.stop()


async def test_a_memory_replica_keeps_its_place_when_only_its_session_was_lost() -> None:
    async with cluster(1) as (one,):
        place = await one.create("memory", configs={"storage": "memory"})
        before = one.epochs[-1]
        one.store.expire()
        await one.until(lambda image: one.epochs[-1] > before and led(image, place))
        state = one.image.state(place)
        assert state is not None
        assert (state.reserved_from, state.isr) == (0, (1,))


async def test_the_last_replica_on_disk_that_was_lost_stays_offline_until_it_is_brought_back() -> None:
    async with cluster(1, 2) as (one, two):
        lost = await one.create("lost", assignments={0: [2, 1]})
        kept = await one.create("kept", b"\10" * 16, assignments={0: [2]})
        await two.set_isr(lost, 2)
        again = await restarted(two, 2, is_lost=lambda topic, number: topic.name == "lost")
        await one.until(lambda image: led(image, kept))
        state = one.image.state(lost)
        assert state is not None
        assert (state.leader, state.isr) == (NO_LEADER, (2,))
        assert one.image.brokers[2].lost == {lost: state.leader_epoch}
        found = await restarted(again, 2)
        await one.until(lambda image: led(image, lost))
        assert one.image.brokers[2].lost == {}
        await found.stop()


async def test_a_broker_whose_machine_has_stopped_leaves_the_isrs_that_have_others() -> None:
    async with cluster(1, 2) as (one, two):
        shared = await one.create("shared", assignments={0: [2, 1]})
        alone = await one.create("alone", b"\10" * 16, assignments={0: [2]})
        again = await restarted(two, 2, may_lack=lambda topic, number: True)
        await one.until(lambda image: led(image, shared) and led(image, alone))
        states = [one.image.state(place) for place in (shared, alone)]
        assert [state and (state.leader, state.isr) for state in states] == [(1, (1,)), (2, (2,))]
        assert one.image.brokers[2].lost == {}, "it has the best there is"
        await again.stop()


async def test_a_broker_with_an_empty_folder_counts_for_nothing_that_it_had() -> None:
    async with cluster(1, 2) as (one, two):
        shared = await one.create("shared", assignments={0: [2, 1]})
        alone = await one.create("alone", b"\10" * 16, assignments={0: [2]})
        await two.kill()
        one.store.server.end(two.store)
        new = await Node(one.store.server, 2, folder="new").start()
        await one.until(lambda image: led(image, shared))
        states: list[PartitionState | None] = [one.image.state(shared), one.image.state(alone)]
        assert [state and (state.leader, state.isr) for state in states] == [(1, (1,)), (NO_LEADER, (2,))]
        assert list(one.image.brokers[2].lost) == [alone]
        assert one.image.folders[2] == "new"
        await new.stop()


# -- leaving


async def test_a_broker_that_leaves_waits_until_others_do_without_it() -> None:
    async with cluster(1, 2, 3) as (one, two, three):
        await one.create("orders", assignments={number: [2, 3] for number in range(120)})
        await two.membership.leave(PATIENCE_S)
        assert two.image.brokers[2].leaving
        for _, state in two.image.find_partitions():
            assert (state.leader, state.isr) == (3, (3,))
        assert three.image.may_stop(2)


async def test_a_broker_that_is_alone_just_stops() -> None:
    async with cluster(1) as (one,):
        place = await one.create("orders")
        before = one.image
        await one.membership.leave(PATIENCE_S)
        assert one.image is before
        assert led(one.image, place)


async def test_a_broker_stops_even_if_its_partitions_have_no_other_leader() -> None:
    async with cluster(1, 2) as (one, two):
        await one.create("orders", assignments={0: [2, 1]})
        assert one.image.controller_id == 1
        one.store.is_connected = False  # the controller cannot do anything
        await two.membership.leave(0.05)
        assert two.image.brokers[2].leaving
        one.store.is_connected = True


async def test_a_session_that_closes_takes_the_registration_with_it() -> None:
    server = Server()
    one, two = await Node(server, 1).start(), await Node(server, 2).start()
    await two.stop()
    assert list(one.image.brokers) == [1]
    assert isinstance(one.image.brokers[1], Broker)
    await one.stop()
    assert set(server.leases) == set()
