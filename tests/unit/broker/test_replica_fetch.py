"""Fetch and Produce for partitions with followers: serving them, waiting for them, redirecting readers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.call import Call
from penstock.broker.handlers.fetch import fetch
from penstock.broker.handlers.produce import produce
from penstock.cluster import keys
from penstock.cluster.administration import add_companion
from penstock.cluster.image import Broker as Registered
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import ABSENT, Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.foundation.ids import TopicIdPartition
from penstock.replication.partition import Partition
from penstock.wire.frames import read_response
from penstock.wire.keys import ApiKey
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..log.builders import NOW_MS, batch, records_in
from ..replication.broker_state import NODE, World, world_at
from .brokers import Timers, broker_of

NEAR, FAR, STRANGER, EPOCH = 2, 3, 4, 7
"""Two followers, and a broker that has no replica."""
FETCH, PRODUCE = 15, 9


class Harness:
    def __init__(self, world: World, topic_id: bytes) -> None:
        self.world = world
        self.topic_id = topic_id
        self.broker = broker_of(world, Timers())

    @property
    def partition(self) -> Partition:
        return self.world.partition("orders")

    def ask(self, handler: Any, key: ApiKey, version: int, request: Any) -> list[Any]:
        """Holds the answer once there is one."""
        answers: list[Any] = []

        def on_answer(call: Call) -> None:
            answers.append(read_response(key, version, b"".join(call.parts or ())[4:])[1])

        call = Call(key, version, 1, "test", 0.0, 0, "127.0.0.1:1", on_answer)
        response = handler(request, call, self.broker)
        if response is not None:
            call.answer(response)
        return answers

    def fetch(
        self,
        offset: int,
        *,
        follower: int = -1,
        epoch: int = EPOCH,
        leader_epoch: int = -1,
        rack: str = "",
        topic_id: bytes = b"",
    ) -> PartitionData:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            rack_id=rack,
            replica_state=ReplicaState(replica_id=follower, replica_epoch=epoch if follower >= 0 else -1),
            topics=[
                FetchTopic(
                    topic_id=topic_id or self.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=0,
                            fetch_offset=offset,
                            log_start_offset=0,
                            partition_max_bytes=1 << 20,
                            current_leader_epoch=leader_epoch,
                        )
                    ],
                )
            ],
        )
        (response,) = self.ask(fetch, ApiKey.FETCH, FETCH, request)
        (found,) = response.responses[0].partitions
        assert isinstance(found, PartitionData)
        return found

    def produce(self, value: bytes, acks: int, timestamp_ms: int = NOW_MS) -> list[Any]:
        data = PartitionProduceData(index=0, records=bytearray(batch(value, timestamp_ms=timestamp_ms)))
        request = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="orders", partition_data=[data])],
        )
        return self.ask(produce, ApiKey.PRODUCE, PRODUCE, request)


@asynccontextmanager
async def harness_at(folder: Path, **configs: object) -> AsyncIterator[Harness]:
    """This broker leads a partition with two followers, one of which is in another rack."""
    async with world_at(folder) as world:
        topic_id = await world.create("orders", **configs)

        def grow(image: ClusterImage) -> list[Op]:
            state = image.topics[topic_id].partitions[0]
            wide = replace(state, replicas=(NODE, NEAR, FAR), isr=(NODE, NEAR, FAR))
            ops: list[Op] = [Put(keys.partition(*TopicIdPartition(topic_id, 0)), wide.dump(), state.version)]
            for node, rack in ((NEAR, "b"), (FAR, "c"), (STRANGER, "d")):
                broker = Registered(node_id=node, host="h", port=node, rack=rack, epoch=EPOCH)
                ops.append(Put(keys.broker(node), broker.dump(), ABSENT))
            return ops

        await world.metadata.change(grow)
        yield Harness(world, topic_id)


@pytest.mark.parametrize(
    ("node", "epoch"),
    [(NEAR, EPOCH - 1), (NEAR, EPOCH + 1), (NEAR, 2**62), (NEAR, -1), (STRANGER, EPOCH), (NODE, EPOCH), (99, EPOCH)],
)
async def test_only_a_registered_replica_counts_as_a_follower(tmp_path: Path, node: int, epoch: int) -> None:
    """A client that says it is a follower at the end of the log would commit what no other broker has."""
    async with harness_at(tmp_path) as harness:
        waiting = harness.produce(b"all", acks=-1)
        found = harness.fetch(1, follower=node, epoch=epoch)
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not found.records
        assert harness.partition.high_watermark == 0
        for follower in (NEAR, FAR):
            assert harness.fetch(1, follower=follower).error_code == 0
        assert harness.partition.high_watermark == 1, "nor does it keep the true ones from being heard"
        assert len(waiting) == 1


async def test_a_follower_whose_new_replica_is_not_known_here_yet_comes_again(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        epoch = harness.partition.leader_epoch
        found = harness.fetch(0, follower=STRANGER, leader_epoch=epoch)
        assert found.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_acks_all_waits_for_all_that_are_in_sync_and_acks_1_does_not(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        assert len(harness.produce(b"one", acks=1)) == 1
        waiting = harness.produce(b"all", acks=-1)
        assert waiting == []
        harness.fetch(2, follower=NEAR)
        assert waiting == []
        harness.fetch(2, follower=FAR)
        (answer,) = waiting
        assert answer.responses[0].partition_responses[0].base_offset == 1


async def test_acks_1_waits_for_this_brokers_own_disk_where_the_topic_wants_it(tmp_path: Path) -> None:
    async with harness_at(tmp_path, flush="group") as harness:
        harness.partition.on_append = lambda partition: None  # the disk takes its time
        waiting = harness.produce(b"one", acks=1)
        assert waiting == []
        log = harness.partition.log
        log.sync()
        harness.partition.mark_durable(log.end_offset)
        assert [answer.responses[0].partition_responses[0].error_code for answer in waiting] == [ErrorCode.NONE]
        assert harness.partition.high_watermark == 0, "no follower has it"


async def test_waiting_requests_get_an_error_when_the_broker_resigns_leadership(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        waiting = harness.produce(b"all", acks=-1)
        place = TopicIdPartition(harness.topic_id, 0)

        def depose(image: ClusterImage) -> list[Op]:
            state = image.topics[harness.topic_id].partitions[0]
            return [Put(keys.partition(*place), replace(state, leader=NEAR, leader_epoch=9).dump(), state.version)]

        await harness.world.metadata.change(depose)
        (answer,) = waiting
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_gets_uncommitted_records_and_the_log_start_offset(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.partition.append(batch(b"a"), NOW_MS)
        found = harness.fetch(0, follower=NEAR)
        assert [record.value for record in records_in(found.records or b"")] == [b"a"]
        assert harness.fetch(0).records == b"", "no consumer sees it yet"
        harness.partition.append(batch(b"b"), NOW_MS)
        harness.partition.log.roll(NOW_MS)
        harness.partition.log.trim(1)
        gone = harness.fetch(0, follower=FAR)
        assert (gone.error_code, gone.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 1)


async def test_a_reader_is_sent_to_a_replica_in_its_rack(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.partition.append(batch(b"a"), NOW_MS)
        for node in (NEAR, FAR):
            harness.fetch(1, follower=node)
        assert harness.fetch(0, rack="b").preferred_read_replica == NEAR
        assert harness.fetch(0, rack="b").records == b""
        assert harness.fetch(0, rack="c").preferred_read_replica == FAR
        here = harness.fetch(0, rack="elsewhere")
        assert here.preferred_read_replica == -1
        assert [record.value for record in records_in(here.records or b"")] == [b"a"]


async def test_a_replica_that_does_not_have_the_offset_is_no_place_to_be_sent_to(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        harness.partition.append(batch(b"a"), NOW_MS)
        harness.fetch(0, follower=NEAR)
        assert harness.fetch(0, rack="b").preferred_read_replica == NEAR, "it has nothing less than that"
        harness.partition.append(batch(b"b"), NOW_MS)
        assert harness.fetch(1, rack="b").preferred_read_replica == -1


async def test_only_followers_find_a_companion(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        companion_id = await add_companion(harness.world.metadata, harness.topic_id)
        companion = harness.partition.companion
        assert companion is not None
        companion.append_own(batch(b"state"), NOW_MS)
        found = harness.fetch(0, follower=NEAR, topic_id=companion_id)
        assert [record.value for record in records_in(found.records or b"")] == [b"state"]
        assert harness.fetch(0, topic_id=companion_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_broker_whose_clock_is_set_refuses_only_what_is_wrong_by_both_its_clocks(tmp_path: Path) -> None:
    day_ms = 86_400_000
    async with harness_at(tmp_path, message_timestamp_before_max_ms=3_600_000) as harness:
        right_ms = harness.world.clock.now_ms()

        def code_of(timestamp_ms: int) -> int:
            (answer,) = harness.produce(b"x", acks=1, timestamp_ms=timestamp_ms)
            return int(answer.responses[0].partition_responses[0].error_code)

        for set_by_ms in (-day_ms, day_ms):
            harness.world.clock.set_by(set_by_ms)
            assert code_of(right_ms) == 0
            assert code_of(right_ms + set_by_ms) == 0
            assert code_of(right_ms + 2 * set_by_ms) == ErrorCode.INVALID_TIMESTAMP
            assert code_of(right_ms - set_by_ms) == ErrorCode.INVALID_TIMESTAMP
