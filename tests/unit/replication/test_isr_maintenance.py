"""ISR changes are written in groups, and not if another leader was elected after they were decided."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from penstock.cluster import keys
from penstock.coordination.store import Op, Put
from penstock.foundation.ids import TopicIdPartition
from penstock.replication.isr_changes import IsrChange, due_change
from penstock.replication.isr_maintenance import GROUP_SIZE, IsrMaintenance
from penstock.replication.leadership import Leadership, ProposedIsr
from penstock.replication.partition import Partition
from tests.unit.replication.broker_state import NODE, World, world_at

OFFLINE = 2
LAG_MS = 30_001
TOPICS = ("one", "two")
COUNT = 70


async def replicated(world: World) -> list[Partition]:
    """Partitions whose other replica is in the ISR, on an offline broker."""
    for name in TOPICS:
        await world.create(name, COUNT)
    for partition in world.partitions:
        state = world.metadata.image.state(partition.tp)
        assert state is not None
        both = replace(state, replicas=(NODE, OFFLINE), isr=(NODE, OFFLINE))
        await world.store.transact([Put(keys.partition(*partition.tp), both.dump(), state.version)])
    await world.rest()
    return list(world.partitions)


def keeper_of(world: World) -> IsrMaintenance:
    return IsrMaintenance(partitions=world.partitions, metadata=world.metadata, store=world.store, clock=world.clock)


def count_transactions(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    sizes: list[int] = []
    transact = world.store.transact

    async def counted(ops: Sequence[Op]) -> int:
        sizes.append(len(ops))
        return await transact(ops)

    monkeypatch.setattr(world.store, "transact", counted)
    return lambda: len(sizes)


def isrs(world: World) -> set[tuple[int, ...]]:
    image = world.metadata.image
    return {state.isr for place in places(world) if (state := image.state(place)) is not None}


def places(world: World) -> list[TopicIdPartition]:
    return [partition.tp for partition in world.partitions]


async def test_many_isrs_are_changed_in_few_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world_at(tmp_path) as world:
        partitions = await replicated(world)
        keeper, transactions = keeper_of(world), count_transactions(world, monkeypatch)
        assert len(partitions) == len(TOPICS) * COUNT
        assert isrs(world) == {(NODE, OFFLINE)}
        world.clock.advance(LAG_MS)
        await keeper.tick()
        await keeper.close()
        assert isrs(world) == {(NODE,)}
        assert transactions() == -(-len(partitions) // GROUP_SIZE)
        assert (keeper.shrinks, keeper.grows) == (len(partitions), 0)


async def test_one_outdated_change_keeps_no_other_from_being_written(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        partitions = await replicated(world)
        keeper = keeper_of(world)
        world.clock.advance(LAG_MS)
        now_ms, eligible = world.clock.steady_ms(), world.metadata.image.eligible()
        due = [change for one in partitions if (change := due_change(one, now_ms, eligible)) is not None][:5]
        late = due[2]
        due[2] = late._replace(proposed=replace(late.proposed, version=late.proposed.version - 1))
        await keeper._write_all(due)
        image = world.metadata.image
        found = [state.isr for change in due if (state := image.state(change.partition.tp)) is not None]
        assert found == [(NODE,)] * 5
        assert keeper.shrinks == 5


async def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await replicated(world)
        keeper = keeper_of(world)
        world.clock.advance(LAG_MS)
        world.store.is_down = True
        await keeper.tick()
        await keeper.close()
        assert isrs(world) == {(NODE, OFFLINE)}
        world.store.is_down = False
        await keeper.tick()
        await keeper.close()
        assert isrs(world) == {(NODE,)}


async def test_partitions_whose_logs_are_offline_are_left_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_at(tmp_path) as world:
        partitions = await replicated(world)
        keeper, transactions = keeper_of(world), count_transactions(world, monkeypatch)
        for partition in partitions:
            partition.go_offline("its disk is gone")
        for _ in range(2):  # nothing is left to be done the second time
            await keeper.tick()
            await keeper.close()
        assert isrs(world) == {(OFFLINE,)}
        assert transactions() == -(-len(partitions) // GROUP_SIZE)


async def test_an_isr_is_left_alone_if_another_leader_was_elected_before_the_change_began(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await world.create("orders")
        partition = world.partition("orders")
        before = world.metadata.image.state(partition.tp)
        assert before is not None
        keeper = keeper_of(world)
        lost = cast(Leadership, object())
        proposed = ProposedIsr(isr=(NODE,), version=before.version, joining={})
        await keeper._write_all([IsrChange(partition, lost, proposed)])
        assert world.metadata.image.state(partition.tp) is before
        assert keeper.shrinks == keeper.grows == 0
