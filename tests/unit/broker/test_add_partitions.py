"""A batch that begins a transaction just before the marker of the one before arrives."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.transactions.add_partitions import TRIES_MAX, find_first_batches, join
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import ProducerKey
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from ..log.builders import NOW_MS, batch
from ..replication.broker_state import World, world_at

BEFORE = ProducerKey(7, 0)
NOW = ProducerKey(7, 1)
ORDERS = TopicPartition("orders", 0)


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
                partitions=world.partitions, transactions=coordinator, node_id=1, leader_of=lambda *_: 1
            )
            records = batch(transactional=True, producer_id=7, producer_epoch=1, base_sequence=0)
            data = [PartitionProduceData(index=0, records=records)]
            topics = [TopicProduceData(name="orders", partition_data=data)]
            request = ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topic_data=topics)
            answers: list[dict[Any, PenstockError]] = []
            (first_batches,) = find_first_batches(request, broker)
            assert first_batches.producer == NOW
            join(request, 12, [first_batches], broker, answers.append)
            (refused,) = answers
            codes = [error.code for error in refused.values()] or [ErrorCode.NONE]
            assert (coordinator.asked, codes) == (asked, [expected])

    asyncio.run(main())
