"""Topics of any size: visible as a whole or not at all, even if brokers die in between."""

import asyncio

import pytest

from penstock.cluster import keys
from penstock.cluster.administration import (
    COMPANIONS_AT_ONCE,
    add_companions,
    create_topic,
    delete_topic,
    elect_leaders,
    grow_topic,
    reassign,
)
from penstock.cluster.elections import Election
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.reassignment import find_reassignments
from penstock.cluster.rebalance_plans import plan_rebalance
from penstock.cluster.topic_changes import OPERATIONS_MAX, Defaults, NewTopic
from penstock.coordination.store import StoreUnavailable
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import (
    InvalidPartitions,
    InvalidReplicationFactor,
    TopicExists,
    UnknownTopicId,
)
from penstock.foundation.ids import TopicIdPartition
from penstock.log.setting_table import DELAYED_MESSAGES

from .nodes import PATIENCE_S, Node, cluster
from .sessions import Server

DEFAULTS = Defaults(partitions=1, replication_factor=1, partitions_max=2000)
TOPIC_ID, OTHER_ID = b"\7" * 16, b"\10" * 16


async def make(node: Node, name: str, count: int, topic_id: bytes = TOPIC_ID) -> None:
    await create_topic(node.metadata, NewTopic(name=name, partitions=count), topic_id, DEFAULTS)


def sizes_seen(server: Server, topic_id: bytes = TOPIC_ID) -> set[int]:
    """The numbers of partitions of the topic in all published images."""
    image, found = ClusterImage(), set()
    for change in server.changes:
        image = image.with_change(change)
        topic = image.topics.get(topic_id)
        found.add(len(topic.partitions) if topic else 0)
    return found


@pytest.mark.parametrize("count", [1, 50, 96, 97, 200, 1000])
async def test_a_topic_of_any_size_is_seen_whole_or_not_at_all(count: int) -> None:
    async with cluster(1, 2) as (one, two):
        await make(one, "orders", count)
        assert len(one.image.by_name["orders"].partitions) == count
        assert one.image.topics == two.image.topics
        assert not one.image.incomplete
        assert not one.image.unfinished
        server = one.store.server
        assert sizes_seen(server) == {0, count}
        assert max(len(change.states) for change in server.changes) <= OPERATIONS_MAX


async def test_a_topic_that_grows_by_many_is_seen_before_and_after() -> None:
    async with cluster(1, 2) as (one, two):
        await make(one, "orders", 3)
        await grow_topic(one.metadata, TOPIC_ID, 300, None, DEFAULTS)
        assert len(two.image.topics[TOPIC_ID].partitions) == 300
        assert sizes_seen(one.store.server) == {0, 3, 300}


async def test_a_large_topic_is_gone_at_once_and_its_keys_soon_after() -> None:
    async with cluster(1, 2) as (one, two):
        await one.until(lambda image: image.controller is not None)
        before = set(one.store.server.states)
        await make(one, "orders", 500)
        await delete_topic(two.metadata, TOPIC_ID)
        assert TOPIC_ID not in two.image.topics
        await two.until(lambda image: not image.incomplete)
        assert set(one.store.server.states) == before
        with pytest.raises(UnknownTopicId):
            await delete_topic(two.metadata, TOPIC_ID)


async def test_of_two_creations_of_a_large_topic_one_fails() -> None:
    async with cluster(1, 2) as (one, two):
        outcomes = await asyncio.gather(
            make(one, "orders", 300), make(two, "orders", 300, OTHER_ID), return_exceptions=True
        )
        assert sorted(type(outcome) for outcome in outcomes if outcome is not None) == [TopicExists]
        await one.until(lambda image: not image.incomplete and not image.unfinished)
        assert len(one.image.topics) == 1


async def test_concurrent_partition_additions_are_serialised() -> None:
    async with cluster(1, 2) as (one, two):
        await make(one, "orders", 3)
        async with asyncio.timeout(PATIENCE_S):
            outcomes = await asyncio.gather(
                grow_topic(one.metadata, TOPIC_ID, 250, None, DEFAULTS),
                grow_topic(two.metadata, TOPIC_ID, 400, None, DEFAULTS),
                return_exceptions=True,
            )
        assert [
            outcome for outcome in outcomes if outcome is not None and not isinstance(outcome, InvalidPartitions)
        ] == []
        await one.until(lambda image: not image.incomplete)
        assert len(one.image.topics[TOPIC_ID].partitions) == 400


@pytest.mark.parametrize("after", range(6))
async def test_an_interrupted_topic_creation_leaves_nothing_behind(after: int) -> None:
    async with cluster(1, 2) as (one, two):
        await one.until(lambda image: image.controller_id == 1)
        making = asyncio.create_task(make(two, "orders", 450))
        revision = one.image.revision
        await one.until(lambda image: image.revision >= revision + after)
        await two.kill()
        one.store.server.end(two.store)
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)
        await one.until(lambda image: not image.incomplete and not image.unfinished)
        assert len(one.image.topics) in (0, 1)
        left = [key for key in one.store.server.states if key.startswith(keys.PARTITIONS)]
        assert len(left) == (450 if one.image.topics else 0)


@pytest.mark.parametrize("loses_answers", [False, True])
async def test_a_topic_whose_making_failed_is_there_whole_or_removed(loses_answers: bool) -> None:
    async with cluster(1) as (one,):
        await one.until(lambda image: image.controller_id == 1)
        one.store.failures, one.store.loses_answers = 1, loses_answers
        with pytest.raises(StoreUnavailable):
            await make(one, "orders", 300)
        await one.until(lambda image: not image.incomplete and not image.unfinished)
        assert "orders" not in one.image.by_name
        await make(one, "orders", 300, OTHER_ID)
        assert len(one.image.by_name["orders"].partitions) == 300


async def test_a_broker_that_lost_its_session_halfway_does_not_go_on_with_what_it_had() -> None:
    async with cluster(1, 2) as (one, two):
        await one.until(lambda image: image.controller_id == 1)
        making = asyncio.create_task(make(two, "orders", 450))
        await one.until(lambda image: bool(image.unfinished))
        two.store.expire()
        async with asyncio.timeout(PATIENCE_S):
            await making
        assert sizes_seen(one.store.server) == {0, 450}
        await one.until(lambda image: not image.incomplete and not image.unfinished)
        assert len(one.image.topics[TOPIC_ID].partitions) == 450


async def test_invalid_requests_are_refused_as_in_kafka_and_leave_nothing() -> None:
    async with cluster(1) as (one,):
        before = set(one.store.server.states)
        with pytest.raises(InvalidPartitions):
            await make(one, "orders", 2001)
        wanted = NewTopic(name="orders", partitions=300, replication_factor=2)
        with pytest.raises(InvalidReplicationFactor):
            await create_topic(one.metadata, wanted, TOPIC_ID, DEFAULTS)
        assert set(one.store.server.states) - before <= {keys.CONTROLLER, keys.CONTROLLER_EPOCH}
        with pytest.raises(UnknownTopicId):
            await grow_topic(one.metadata, TOPIC_ID, 5, None, DEFAULTS)


async def test_many_topics_get_their_companions_in_few_transactions() -> None:
    """A share group may subscribe to a thousand: every image that changes is work for all brokers."""
    async with cluster(1) as (one,):
        topic_ids = [bytes([number]) * 16 for number in range(100, 101 + 2 * COMPANIONS_AT_ONCE)]
        for number, topic_id in enumerate(topic_ids):
            await make(one, f"topic-{number}", 1, topic_id)
        delayed = b"\xee" * 16
        wanted = NewTopic(name="delayed", configs={DELAYED_MESSAGES: "true"})
        await create_topic(one.metadata, wanted, delayed, DEFAULTS)
        before = len(one.store.server.changes)
        refused = await add_companions(one.metadata, [*topic_ids, OTHER_ID, delayed])
        assert {topic_id: error.code for topic_id, error in refused.items()} == {
            OTHER_ID: ErrorCode.UNKNOWN_TOPIC_ID,
            delayed: ErrorCode.POLICY_VIOLATION,
        }
        assert len({one.image.topics[topic_id].companion for topic_id in topic_ids} - {b""}) == len(topic_ids)
        changes = one.store.server.changes[before:]
        assert [len(change.states) for change in changes] == [COMPANIONS_AT_ONCE, COMPANIONS_AT_ONCE, 1]
        assert not await add_companions(one.metadata, topic_ids)
        assert len(one.store.server.changes) == before + 3, "those that have one keep it"


# -- moving and electing


def never(topic: Topic) -> bool:
    return False


async def test_many_partitions_are_moved_and_each_is_answered_for() -> None:
    async with cluster(1, 2, 3) as (one, two, _):
        await make(one, "orders", 250)
        wanted = {TopicIdPartition(TOPIC_ID, number): [3, 2] for number in range(250)}
        unknown, impossible = TopicIdPartition(OTHER_ID, 0), TopicIdPartition(TOPIC_ID, 17)
        results = await reassign(two.metadata, {**wanted, unknown: [1], impossible: [9]}, is_unclean=never)
        codes = {place: error and error.code for place, error in results.items() if error is not None}
        assert codes == {
            unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            impossible: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        }
        assert len(results) == 251
        moving = {entry.tp for entry in find_reassignments(one.image)}
        assert moving == wanted.keys() - {impossible}
        for place in moving:
            await one.set_isr(place, 1, 2, 3)
        await one.until(lambda image: not list(find_reassignments(image)))
        assert {one.image.state(place).replicas for place in moving} == {(3, 2)}  # type: ignore[union-attr]


async def test_a_reassignment_is_cancelled() -> None:
    async with cluster(1, 2) as (one, _):
        place = await one.create("orders", assignments={0: [1]})
        await reassign(one.metadata, {place: [2]}, is_unclean=never)
        assert list(find_reassignments(one.image))
        assert await reassign(one.metadata, {place: None}, is_unclean=never) == {place: None}
        assert not list(find_reassignments(one.image))
        (error,) = (await reassign(one.metadata, {place: None}, is_unclean=never)).values()
        assert error is not None
        assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_plan_is_carried_out_by_reassigning() -> None:
    server = Server()
    nodes = [await Node(server, node_id).start() for node_id in (1, 2, 3)]
    await create_topic(
        nodes[0].metadata, NewTopic(name="orders", partitions=60, replication_factor=2), TOPIC_ID, DEFAULTS
    )
    nodes.append(await Node(server, 4).start())
    moves = plan_rebalance(nodes[0].image)
    assert sum(move.copies for move in moves) == 30
    await reassign(nodes[0].metadata, {move.tp: move.after for move in moves}, is_unclean=never)
    for entry in list(find_reassignments(nodes[0].image)):
        await nodes[0].set_isr(entry.tp, *entry.replicas)
    await nodes[0].until(lambda image: not list(find_reassignments(image)))
    assert plan_rebalance(nodes[0].image) == []
    assert len(list(nodes[0].image.held_by(4))) == 30
    for node in nodes:
        await node.stop()


async def test_leaders_are_elected_and_each_election_is_answered_for() -> None:
    async with cluster(1, 2) as (one, two):
        place = await one.create("orders", assignments={0: [1, 2], 1: [2, 1]})
        other = TopicIdPartition(TOPIC_ID, 1)
        await reassign(one.metadata, {place: [2, 1]}, is_unclean=never)
        results = await elect_leaders(two.metadata, [place, other], Election.PREFERRED)
        assert results[place] is None
        assert results[other] is not None
        assert results[other].code is ErrorCode.ELECTION_NOT_NEEDED
        state = one.image.state(place)
        assert state is not None
        assert (state.leader, state.leader_epoch) == (2, 1)


async def test_partitions_are_led_from_the_beginning() -> None:
    async with cluster(1, 2, 3) as (one, _, three):
        await make(one, "orders", 120)
        for number, state in three.image.topics[TOPIC_ID].partitions.items():
            assert three.image.state(TopicIdPartition(TOPIC_ID, number)) is state
            assert state.leader_broker_epoch == three.image.brokers[state.leader].epoch
