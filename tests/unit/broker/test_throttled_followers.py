"""How much a lagging follower gets from a throttled leader (KIP-73)."""

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

from ..replication.broker_state import NODE
from .test_replica_fetch import FAR, Harness, harness_at

RATE = 200_000
LEADERS = "leader.replication.throttled.replicas"


@asynccontextmanager
async def lagging(folder: Path, rate: int, **configs: str) -> AsyncIterator[Harness]:
    """The leader is throttled, and no follower is in sync."""
    async with harness_at(folder, **configs) as harness:

        def shrink(image: ClusterImage) -> list[Op]:
            state = image.topics[harness.topic_id].partitions[0]
            return [
                Put(
                    keys.partition(*TopicIdPartition(harness.topic_id, 0)),
                    replace(state, isr=(NODE,)).dump(),
                    state.version,
                )
            ]

        await harness.world.metadata.change(shrink)
        harness.broker.throttle = Throttle(lambda: rate)
        harness.broker.throttle.available(harness.world.clock.steady_ms())
        yield harness


def follow(harness: Harness, offset: int) -> bytes:
    data = harness.fetch(offset, follower=FAR)
    assert data.error_code == 0
    return bytes(data.records or b"")


def next_offset(data: bytes, offset: int) -> int:
    for _, header in batches(data):
        offset = header.next_offset
    return offset


async def test_a_follower_that_lags_gets_no_more_than_the_rate(tmp_path: Path) -> None:
    async with lagging(tmp_path, RATE, **{LEADERS: "0:1"}) as harness:
        for _ in range(30):
            harness.produce(b"x" * 50_000, acks=1)
        clock, got, offset, largest = harness.world.clock, 0, 0, 0
        began_ms = clock.steady_ms()
        while offset < 30:
            data = follow(harness, offset)
            offset, got, largest = next_offset(data, offset), got + len(data), max(largest, len(data))
            # Never more than the rate, a second's worth saved up, and what went whole.
            assert got <= RATE * ((clock.steady_ms() - began_ms) / 1000 + 1) + 60_000
            assert clock.steady_ms() - began_ms < 60_000, "it never gets everything"
            clock.advance(100)
        assert largest <= RATE + 60_000
        assert harness.broker.throttle.taken == got


async def test_by_a_rate_of_nothing_a_follower_gets_nothing_and_a_consumer_everything(tmp_path: Path) -> None:
    async with lagging(tmp_path, 0, **{LEADERS: "*"}) as harness:
        harness.produce(b"hello", acks=1)
        harness.world.clock.advance(60_000)
        assert follow(harness, 0) == b""
        assert harness.fetch(0).records


async def test_a_follower_that_the_topic_does_not_name_is_not_throttled(tmp_path: Path) -> None:
    async with lagging(tmp_path, 0, **{LEADERS: "0:7"}) as harness:
        harness.produce(b"hello", acks=1)
        assert follow(harness, 0)


async def test_a_follower_gets_one_batch_though_there_are_two(tmp_path: Path) -> None:
    async with lagging(tmp_path, 50_000, **{LEADERS: "0:1"}) as harness:
        harness.produce(b"x" * 50_000, acks=1)
        harness.produce(b"y" * 50_000, acks=1)
        harness.world.clock.advance(1000)
        assert next_offset(follow(harness, 0), 0) == 1
        assert follow(harness, 1) == b"", "what it had is more than a second's worth"
        harness.world.clock.advance(1100)
        assert next_offset(follow(harness, 1), 1) == 2
