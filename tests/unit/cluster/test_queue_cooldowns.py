"""Cooldowns of recently deleted or purged queues, shared by all brokers."""

from pathlib import Path

from penstock.cluster import keys, queue_cooldowns
from penstock.cluster.queue_cooldowns import COOLDOWN_MS, DELETED, ENTRIES_MAX, PURGED, QueueCooldowns
from tests.simulation.clock import FakeClock

from .test_metadata import followed, store_at


async def test_a_cooldown_is_over_after_a_minute_for_every_broker(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        clock = FakeClock()
        one, other = [QueueCooldowns(await followed(store), clock) for _ in range(2)]
        assert await one.is_over(DELETED, "jobs")
        await one.begin(DELETED, "jobs")
        assert not await other.is_over(DELETED, "jobs")
        assert await other.is_over(PURGED, "jobs"), "each kind on its own"
        assert await other.is_over(DELETED, "jobs2")
        clock.advance(COOLDOWN_MS - 1)
        assert not await other.is_over(DELETED, "jobs")
        clock.advance(1)
        assert await other.is_over(DELETED, "jobs")


async def test_expired_cooldowns_are_removed_and_the_rest_is_bounded(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        clock = FakeClock()
        metadata = await followed(store)
        cooldowns = QueueCooldowns(metadata, clock)
        await metadata.edit(
            keys.QUEUE_COOLDOWNS,
            lambda known: {f"{PURGED}/q{number}": clock.now_ms() - 1 for number in range(ENTRIES_MAX)},
        )
        await cooldowns.begin(PURGED, "newest")
        assert not await cooldowns.is_over(PURGED, "newest")
        assert len(await metadata.stored(keys.QUEUE_COOLDOWNS)) == ENTRIES_MAX
        clock.advance(COOLDOWN_MS)
        await cooldowns.begin(PURGED, "later")
        assert list(await metadata.stored(keys.QUEUE_COOLDOWNS)) == [f"{PURGED}/later"]


async def test_a_clock_that_is_ahead_holds_a_name_no_longer_than_a_minute(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        clock = FakeClock()
        cooldowns = QueueCooldowns(await followed(store), clock)
        clock.advance(10 * queue_cooldowns.COOLDOWN_MS)
        await cooldowns.begin(DELETED, "jobs")
        clock.advance(-10 * queue_cooldowns.COOLDOWN_MS)
        assert await cooldowns.is_over(DELETED, "jobs")
