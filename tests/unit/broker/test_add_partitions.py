"""A batch that begins a transaction just before the marker of the one before arrives."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.call import Call
from penstock.broker.produce.produced_batch import find_partitions
from penstock.broker.produce.transaction import find_first_batches, verify_first_batches
from penstock.broker.transactions.add_partitions import TRIES_MAX
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.ids import TopicPartition
from penstock.wire.keys import ApiKey
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..log.builders import NOW_MS, batch
from ..replication.broker_state import World, world_at

BEFORE = ProducerKey(7, 0)
NOW = ProducerKey(7, 1)
ORDERS = TopicPartition("orders", 0)

CALL = Call(ApiKey.PRODUCE, 12, 1, "test", 0.0, 0, "127.0.0.1:1", lambda call: None)


class Coordinator:
    """Lets a marker come to the partition between each of the first questions and its answer; then says the last."""

    def __init__(self, world: World, markers: int, last: ErrorCode) -> None:
        self._partition = world.partition("orders")
        self._markers = markers
        self._last = last
        self.asked = 0

    def submit(self, key: str, command: Any, answer: Callable[[Any], None]) -> None:
        self.asked += 1
        if self.asked <= self._markers:
            self._partition.write_marker(BEFORE, True, 1, NOW_MS)
            answer({ORDERS: ErrorCode.NONE})
        else:
            answer({ORDERS: self._last})


@pytest.mark.parametrize(
    ("markers", "last", "asked", "expected"),
    [
        (0, ErrorCode.NONE, 1, ErrorCode.NONE),
        (1, ErrorCode.NONE, 2, ErrorCode.NONE),
        (1, ErrorCode.INVALID_TXN_STATE, 2, ErrorCode.INVALID_TXN_STATE),
        (TRIES_MAX, ErrorCode.NONE, TRIES_MAX, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_marker_that_comes_meanwhile_is_asked_about(
    tmp_path: Path, markers: int, last: ErrorCode, asked: int, expected: ErrorCode
) -> None:
    """The marker is that of the transaction before, which is fine; or of this one, which the coordinator reports."""

    async def main() -> None:
        async with world_at(tmp_path) as world:
            await world.create("orders")
            partition = world.partition("orders")
            partition.append(
                batch(transactional=True, producer_id=7, producer_epoch=0, base_sequence=0), NOW_MS, True
            )
            coordinator = Coordinator(world, markers, last)
            broker: Any = SimpleNamespace(
                partition=lambda *_: partition, transactions=coordinator, node_id=1, leader_of=lambda *_: 1
            )
            records = batch(transactional=True, producer_id=7, producer_epoch=1, base_sequence=0)
            data = [PartitionProduceData(index=0, records=records)]
            topics = [TopicProduceData(name="orders", partition_data=data)]
            request = ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topic_data=topics)
            (sent,) = find_partitions(request, CALL, broker)
            assert find_first_batches([sent]) == {NOW: [sent]}
            done: list[bool] = []
            verify_first_batches("id", 12, [sent], broker, lambda: done.append(sent.may_begin))
            code = sent.result.error_code if sent.result is not None else ErrorCode.NONE
            assert (coordinator.asked, code) == (asked, expected)
            assert done == [expected is ErrorCode.NONE]

    asyncio.run(main())
