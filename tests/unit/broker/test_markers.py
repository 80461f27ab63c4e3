"""Markers are written until every partition has its own."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.broker.transactions.markers import RETRY_S, MarkerWriter
from penstock.cluster.image import Broker, ClusterImage, PartitionState, Topic
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import CoordinatorNotAvailable
from penstock.foundation.ids import TopicPartition
from penstock.records.batch import batches
from penstock.records.build import read_marker
from penstock.transactions.commands import WriteMarkers
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ..log.builders import NOW_MS, batch
from ..replication.broker_state import World, world_at

PRODUCER = ProducerKey(7, 0)


class Timers:
    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        self.set.append((seconds, action))
        return lambda: None

    def fire(self) -> None:
        due, self.set = self.set, []
        for _, action in due:
            action()


class Coordinators:
    """Takes what the markers' writer reports."""

    def __init__(self) -> None:
        self.reported: list[Any] = []

        self.is_gone = False

    def is_here(self, key: str) -> bool:
        return not self.is_gone

    def submit(self, key: str, command: Any, answer: Callable[[Any], None]) -> None:
        self.reported.append(command)


class Harness:
    def __init__(self, world: World) -> None:
        self.timers = Timers()
        self.coordinators: Any = Coordinators()
        self.asked: list[tuple[int, WriteTxnMarkersRequest, Callable[[Any], None]]] = []
        self.markers = MarkerWriter(
            node_id=1,
            partitions=world.partitions,
            clock=world.clock,
            timer=self.timers,
            image=lambda: self.image or world.metadata.image,
            ask=lambda node, request, answer: self.asked.append((node, request, answer)),
        )
        self.image: ClusterImage | None = None
        self.markers.transactions = self.coordinators

    @property
    def reported(self) -> list[Any]:
        reported: list[Any] = self.coordinators.reported
        return reported


def effect_for(*places: TopicPartition, committed: bool = True) -> WriteMarkers:
    return WriteMarkers(
        transactional_id="t",
        producer=PRODUCER,
        committed=committed,
        coordinator_epoch=0,
        partitions=frozenset(places),
        transaction_version=0,
        number=1,
    )


def markers_in(world: World, topic: str, number: int = 0) -> list[bool]:
    """Whether each marker in a partition says that its transaction was committed."""
    partition = world.partition(topic, number)
    data = partition.read(0, 1 << 20, blocking=True)
    found = []
    for at, header in batches(data):
        if header.is_control:
            marker = read_marker(bytes(data)[at : at + header.size_bytes])
            assert marker is not None
            found.append(marker.committed)
    return found


def run(work: Any) -> None:
    asyncio.run(work)


def test_every_partition_gets_its_marker_and_the_coordinator_is_called_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            await world.create("orders", partitions=2)
            await world.create("bills")
            harness = Harness(world)
            effect = effect_for(
                TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0), committed=False
            )
            harness.markers.write(effect)
            assert harness.reported == [effect.written()]
            assert markers_in(world, "orders", 0) == markers_in(world, "orders", 1) == [False]
            assert markers_in(world, "bills") == [False]
            assert harness.timers.set == []

    run(main())


def test_a_topic_that_was_deleted_needs_no_marker(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            await world.create("orders")
            harness = Harness(world)
            effect = effect_for(TopicPartition("orders", 0), TopicPartition("gone", 0))
            harness.markers.write(effect)
            assert harness.reported == [effect.written()]

    run(main())


def test_a_partition_that_cannot_be_written_is_tried_until_it_can(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            await world.create("orders", partitions=2)
            harness = Harness(world)
            partition = world.partition("orders", 1)
            log = partition.log
            partition.go_offline("no disk")
            effect = effect_for(TopicPartition("orders", 0), TopicPartition("orders", 1))
            harness.markers.write(effect)
            assert harness.reported == []
            assert [seconds for seconds, _ in harness.timers.set] == [RETRY_S]
            harness.timers.fire()
            assert harness.reported == []
            partition._log = log  # the disk is back
            harness.timers.fire()
            assert harness.reported == [effect.written()]
            assert markers_in(world, "orders", 0) == [True], "a partition that has its marker gets no second one"

    run(main())


def test_a_marker_counts_when_it_is_committed(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            await world.create("orders", flush="group")
            partition = world.partition("orders")
            partition.on_append = lambda appended: None  # the disk takes its time
            harness = Harness(world)
            effect = effect_for(TopicPartition("orders", 0))
            harness.markers.write(effect)
            assert harness.reported == []
            partition.advance(partition.log.end_offset)
            assert harness.reported == [effect.written()]

    run(main())


def test_a_marker_of_an_older_life_of_the_producer_is_not_needed(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            await world.create("orders")
            newer = batch(b"a", producer_id=PRODUCER.producer_id, producer_epoch=PRODUCER.epoch + 1, base_sequence=0)
            world.partition("orders").append(newer, NOW_MS)
            harness = Harness(world)
            effect = effect_for(TopicPartition("orders", 0))
            harness.markers.write(effect)
            assert harness.reported == [effect.written()]
            assert markers_in(world, "orders") == []

    run(main())


# -- partitions that other brokers lead

FAR = TopicPartition("far", 0)


def image_with(world: World, leader: int) -> ClusterImage:
    """As it is, and a topic that broker 1 does not lead."""
    image = world.metadata.image
    state = PartitionState(replicas=(2, 3), leader=leader, leader_epoch=0, isr=(2, 3))
    far = Topic(topic_id=b"f" * 16, name="far", partitions={0: state})
    brokers = {node: Broker(node_id=node, host="h", port=node) for node in (1, 2, 3)}
    return replace(image, brokers=brokers, by_name={**image.by_name, "far": far})


def answer_with(harness: Harness, code: int) -> None:
    _, request, answer = harness.asked.pop()
    (marker,) = request.markers
    answer(
        WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
            ]
        )
    )


def test_a_partition_that_another_broker_leads_gets_its_marker_from_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            await world.create("orders")
            harness = Harness(world)
            harness.image = image_with(world, leader=2)
            effect = effect_for(TopicPartition("orders", 0), FAR)
            harness.markers.write(effect)
            (node, request, _) = harness.asked[0]
            (marker,) = request.markers
            assert (node, marker.producer_id, marker.transaction_result) == (2, PRODUCER.producer_id, True)
            assert [(topic.name, list(topic.partition_indexes)) for topic in marker.topics] == [("far", [0])]
            assert harness.reported == [], "not before the other broker has it"
            answer_with(harness, ErrorCode.NONE)
            assert harness.reported == [effect.written()]
            assert markers_in(world, "orders") == [True]

    run(main())


def test_a_leader_that_has_changed_or_is_not_reached_is_looked_for_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            harness = Harness(world)
            harness.image = image_with(world, leader=2)
            effect = effect_for(FAR)
            harness.markers.write(effect)
            answer_with(harness, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert harness.reported == []
            harness.image = image_with(world, leader=-1)
            harness.timers.fire()
            assert harness.asked == [], "it has no leader now"
            harness.image = image_with(world, leader=3)
            harness.timers.fire()
            node, _, answer = harness.asked.pop()
            assert node == 3
            answer(CoordinatorNotAvailable("no route"))
            harness.timers.fire()
            answer_with(harness, ErrorCode.NONE)
            assert harness.reported == [effect.written()]
            assert harness.timers.set == []

    run(main())


def test_a_transaction_that_a_newer_coordinator_has_ended_is_ended(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            harness = Harness(world)
            harness.image = image_with(world, leader=2)
            harness.markers.write(effect_for(FAR))
            answer_with(harness, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
            assert len(harness.reported) == 1

    run(main())


def test_a_coordinator_that_has_gone_elsewhere_writes_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with world_at(tmp_path) as world:
            harness = Harness(world)
            harness.image = image_with(world, leader=-1)
            harness.markers.write(effect_for(FAR))
            harness.coordinators.is_gone = True
            harness.image = image_with(world, leader=2)
            harness.timers.fire()
            assert (harness.asked, harness.timers.set, harness.reported) == ([], [], [])

    run(main())
