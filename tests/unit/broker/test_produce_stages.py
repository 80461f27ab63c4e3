"""Produce requests that wait between their stages: for the transaction coordinator, or for decompression."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from inspect import isawaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.call import Call
from penstock.broker.handlers.produce import produce
from penstock.broker.produce.validation import DECOMPRESS_INLINE_BYTES_MAX
from penstock.cluster import keys
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.coordination.store import Op, Put
from penstock.foundation.codes import ErrorCode
from penstock.records.compression import Codec
from penstock.transactions.commands import JoinTransaction
from penstock.wire.frames import read_response
from penstock.wire.keys import ApiKey
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

from ..log.builders import batch, records_in
from ..replication.broker_state import NODE, World, world_at
from .brokers import Timers, broker_of

VERSION = 12
ELSEWHERE = 2


class Coordinator:
    """A transaction coordinator that replies when a test calls `accept`."""

    def __init__(self) -> None:
        self.asked: list[tuple[JoinTransaction, Callable[[Any], None]]] = []
        self.is_asked = asyncio.Event()

    def submit(self, key: str, command: JoinTransaction, answer: Callable[[Any], None]) -> None:
        self.asked.append((command, answer))
        self.is_asked.set()

    def accept(self) -> None:
        command, answer = self.asked.pop(0)
        answer(dict.fromkeys(command.partitions, ErrorCode.NONE))


LARGE = b"x" * (2 * DECOMPRESS_INLINE_BYTES_MAX)
"""A value that is decompressed on a thread."""


def begins(sequence: int = 0, value: bytes = b"a") -> bytearray:
    codec = Codec.ZSTD if value == LARGE else Codec.NONE
    return batch(value, transactional=True, producer_id=7, producer_epoch=1, base_sequence=sequence, codec=codec)


def send(broker: Any, *batches: tuple[int, bytearray], name: str | None = None) -> tuple[Any, list[Any]]:
    """What the handler returned, and the results by partition once there are some."""
    data = [PartitionProduceData(index=number, records=records) for number, records in batches]
    topics = [TopicProduceData(name="orders", partition_data=data)]
    results: list[PartitionProduceResponse] = []

    def on_answer(call: Call) -> None:
        response = read_response(ApiKey.PRODUCE, VERSION, b"".join(call.parts or ())[4:])[1]
        results.extend(response.responses[0].partition_responses)

    call = Call(ApiKey.PRODUCE, VERSION, 1, "test", 0.0, 0, "127.0.0.1:1", on_answer)
    request = ProduceRequest(transactional_id=name, acks=1, timeout_ms=1000, topic_data=topics)
    return produce(request, call, broker), results


def coordinated(broker: Broker) -> tuple[Any, Coordinator]:
    """The broker, with a coordinator that waits."""
    coordinator = Coordinator()
    names = ("partition", "partitions", "topic", "clock", "produce_order", "run", "threads")
    found = {name: getattr(broker, name) for name in names}
    return SimpleNamespace(**found, transactions=coordinator, node_id=NODE, leader_of=lambda *_: NODE), coordinator


async def change(world: World, topic_id: bytes, number: int, **values: Any) -> None:
    def planned(image: ClusterImage) -> list[Op]:
        state: PartitionState = image.topics[topic_id].partitions[number]
        return [Put(keys.partition(topic_id, number), replace(state, **values).dump(), state.version)]

    await world.metadata.change(planned)
    await world.rest()


async def test_a_partition_that_is_led_only_after_the_request_arrived_is_not_written(tmp_path: Path) -> None:
    """The coordinator was not asked about it: nothing may begin a transaction there."""
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders", 2)
        await change(world, topic_id, 1, replicas=(NODE, ELSEWHERE), leader=ELSEWHERE, leader_epoch=5)
        broker, coordinator = coordinated(broker_of(world, Timers()))
        _, results = send(broker, (0, begins()), (1, begins()), name="one")
        await change(world, topic_id, 1, replicas=(NODE,), leader=NODE, leader_epoch=6)
        coordinator.accept()
        assert [each.error_code for each in results] == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert world.partition("orders", 1).log.end_offset == 0
        assert coordinator.asked == []


async def test_requests_of_a_transactional_id_wait_for_the_one_that_asks_the_coordinator(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        broker, coordinator = coordinated(broker_of(world, Timers()))
        _, first = send(broker, (0, begins(0)), name="one")
        _, second = send(broker, (0, begins(1)), name="one")
        assert (first, second) == ([], [])
        assert len(coordinator.asked) == 1
        coordinator.accept()
        assert [each.base_offset for each in (*first, *second)] == [0, 1]
        assert not broker.produce_order.is_busy("one")


async def test_the_coordinator_is_asked_after_decompression(tmp_path: Path) -> None:
    """Nothing may happen between its answer and the append: the transaction could end, and this batch begin one."""
    async with world_at(tmp_path) as world:
        await world.create("orders", cleanup_policy="compact")
        broker, coordinator = coordinated(broker_of(world, Timers()))
        _, results = send(broker, (0, begins(value=LARGE)), name="one")
        assert coordinator.asked == []
        await coordinator.is_asked.wait()
        assert results == []
        coordinator.accept()
        assert [each.base_offset for each in results] == [0]
        assert not broker.produce_order.is_busy("one")


async def test_two_batches_of_one_partition_that_must_be_decompressed_are_both_appended(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders", cleanup_policy="compact")
        broker = broker_of(world, Timers())
        values = [LARGE + name for name in (b"a", b"b")]
        waiting, results = send(broker, *((0, batch(value, codec=Codec.ZSTD)) for value in values))
        assert isawaitable(waiting)
        await waiting
        assert [each.base_offset for each in results] == [0, 1]
        found = world.partition("orders").read(0, 1 << 20)
        assert [record.value for record in records_in(found)] == values
