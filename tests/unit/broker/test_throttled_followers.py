"""What a follower that lags gets of a throttled leader (KIP-73)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from penstock.cluster import keys
from penstock.cluster.image import ClusterImage
from penstock.coordination.store import Op, Put
from penstock.foundation.ids import TopicIdPartition
from penstock.records.batch import batches
from penstock.replication.throttle import Throttle

from ..replication.worlds import NODE
from .test_replicas import FAR, Desk, desk_at

RATE = 200_000
LEADERS = "leader.replication.throttled.replicas"


@asynccontextmanager
async def lagging(folder: Path, rate: int, **configs: str) -> AsyncIterator[Desk]:
    """The leader is throttled, and no follower is in sync."""
    async with desk_at(folder, **configs) as desk:

        def shrink(image: ClusterImage) -> list[Op]:
            state = image.topics[desk.topic_id].partitions[0]
            return [
                Put(
                    keys.partition(*TopicIdPartition(desk.topic_id, 0)),
                    replace(state, isr=(NODE,)).dump(),
                    state.version,
                )
            ]

        await desk.world.metadata.change(shrink)
        desk.broker.throttle = Throttle(lambda: rate)
        desk.broker.throttle.available(desk.world.clock.steady_ms())
        yield desk


def follow(desk: Desk, offset: int) -> bytes:
    data = desk.fetch(offset, follower=FAR)
    assert data.error_code == 0
    return bytes(data.records or b"")


def next_offset(data: bytes, offset: int) -> int:
    for _, header in batches(data):
        offset = header.next_offset
    return offset


async def test_a_follower_that_lags_gets_no_more_than_the_rate(tmp_path: Path) -> None:
    async with lagging(tmp_path, RATE, **{LEADERS: "0:1"}) as desk:
        for _ in range(30):
            desk.produce(b"x" * 50_000, acks=1)
        clock, got, offset, largest = desk.world.clock, 0, 0, 0
        began_ms = clock.steady_ms()
        while offset < 30:
            data = follow(desk, offset)
            offset, got, largest = next_offset(data, offset), got + len(data), max(largest, len(data))
            # Never more than the rate, a second's worth saved up, and what went whole.
            assert got <= RATE * ((clock.steady_ms() - began_ms) / 1000 + 1) + 60_000
            assert clock.steady_ms() - began_ms < 60_000, "it never gets everything"
            clock.advance(100)
        assert largest <= RATE + 60_000
        assert desk.broker.throttle.taken == got


async def test_by_a_rate_of_nothing_a_follower_gets_nothing_and_a_consumer_everything(tmp_path: Path) -> None:
    async with lagging(tmp_path, 0, **{LEADERS: "*"}) as desk:
        desk.produce(b"hello", acks=1)
        desk.world.clock.advance(60_000)
        assert follow(desk, 0) == b""
        assert desk.fetch(0).records


async def test_a_follower_that_the_topic_does_not_name_is_not_throttled(tmp_path: Path) -> None:
    async with lagging(tmp_path, 0, **{LEADERS: "0:7"}) as desk:
        desk.produce(b"hello", acks=1)
        assert follow(desk, 0)


async def test_a_follower_gets_one_batch_though_there_are_two(tmp_path: Path) -> None:
    async with lagging(tmp_path, 50_000, **{LEADERS: "0:1"}) as desk:
        desk.produce(b"x" * 50_000, acks=1)
        desk.produce(b"y" * 50_000, acks=1)
        desk.world.clock.advance(1000)
        assert next_offset(follow(desk, 0), 0) == 1
        assert follow(desk, 1) == b"", "what it had is more than a second's worth"
        desk.world.clock.advance(1100)
        assert next_offset(follow(desk, 1), 1) == 2
