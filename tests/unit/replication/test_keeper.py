"""Keeping ISRs: what was decided before another broker was elected is not written."""

from pathlib import Path
from typing import cast

from penstock.replication.keeper import IsrKeeper
from penstock.replication.leadership import IsrWish, Leadership
from tests.unit.replication.worlds import NODE, world_at


async def test_an_isr_is_left_alone_if_another_leader_was_elected_before_the_change_began(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        partition = world.partition("orders")
        before = world.metadata.image.state(partition.place)
        assert before is not None
        keeper = IsrKeeper(partitions=world.partitions, metadata=world.metadata, store=world.store, clock=world.clock)
        lost = cast(Leadership, object())
        await keeper._ask(partition, lost, IsrWish(isr=(NODE,), version=before.version, joining={}))
        assert world.metadata.image.state(partition.place) is before
        assert keeper.shrinks == keeper.grows == 0
