"""Companion logs: state that belongs to a partition, in its own log under the same store key."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.administration import add_companion
from penstock.cluster.image import PartitionState
from penstock.foundation.errors import NotLeaderOrFollower, PenstockError, StorageError
from penstock.foundation.ids import TopicPartition
from penstock.log.folder import LogFolder
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime
from tests.simulation.cluster_ledger import Ledger

from ..log.builders import NOW_MS, batch, open_at
from .broker_state import World, world_at

LEADER, FOLLOWER = 1, 2


def companion_of(world: World, name: str = "orders", number: int = 0) -> Partition:
    found = world.partition(name, number).companion
    assert found is not None
    return found


async def ledger_on(partition: Partition, world: World) -> StateRuntime:
    runtime = StateRuntime(
        partition=partition,
        machine=Ledger(),
        clock=world.clock,
        timer=lambda seconds, action: lambda: None,
        threads=world.threads,
        perform=lambda effect: None,
    )
    await runtime.load()
    return runtime


def count(runtime: StateRuntime, key: bytes) -> Any:
    answers: list[Any] = []
    runtime.submit(key, answers.append)
    (answer,) = answers
    return answer


# -- on one broker


async def test_a_state_machine_in_a_companion_log_survives_a_restart(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders", partitions=2)
        await add_companion(world.metadata, topic_id)
        ledger = await ledger_on(companion_of(world, number=1), world)
        assert [count(ledger, b"red"), count(ledger, b"red"), count(ledger, b"green")] == [1, 2, 1]
    async with world_at(tmp_path) as world:
        ledger = await ledger_on(companion_of(world, number=1), world)
        assert count(ledger, b"red") == 3
        assert count(await ledger_on(companion_of(world, number=0), world), b"red") == 1


async def test_only_brokers_find_a_companion(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders")
        companion_id = await add_companion(world.metadata, topic_id)
        assert companion_id != topic_id
        assert companion_id not in world.partitions.by_id
        assert companion_id not in world.partitions.replicas
        assert world.partitions.companions[companion_id][0] is companion_of(world)
        assert [partition.name.partition for partition in world.partitions] == [0]
        assert len(list(world.partitions.with_companions())) == 2


async def test_messages_and_state_have_offsets_of_their_own(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await add_companion(world.metadata, await world.create("orders"))
        world.partition("orders").append(batch(b"a", b"b"), NOW_MS)
        count(await ledger_on(companion_of(world), world), b"red")
        assert world.partition("orders").log.end_offset == 2
        assert companion_of(world).log.end_offset == 1


async def test_a_companion_that_is_dropped_is_gone_and_the_next_one_is_new(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        topic_id = await world.create("orders")
        first = await add_companion(world.metadata, topic_id)
        assert await add_companion(world.metadata, topic_id) == first, "there is one already"
        count(await ledger_on(companion_of(world), world), b"red")
        folder = tmp_path / LogFolder.path(TopicPartition("orders", 0), first)
        assert folder.is_dir()
        await world.drop_companion(topic_id)
        await world.disk_threads.idle()
        assert world.partition("orders").companion is None
        assert not folder.exists()
        assert first not in world.partitions.companions
        assert await add_companion(world.metadata, topic_id) != first
        assert count(await ledger_on(companion_of(world), world), b"red") == 1


async def test_a_topic_takes_its_companions_with_it(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        companion_id = await add_companion(world.metadata, await world.create("orders"))
        companion = companion_of(world)
        await world.delete("orders")
        assert not companion.is_online
        assert companion_id not in world.partitions.companions
        assert not (tmp_path / "logs" / "orders").exists()


async def test_a_partition_whose_companion_is_lost_is_offline(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        companion_id = await add_companion(world.metadata, await world.create("orders"))
    shutil.rmtree(tmp_path / LogFolder.path(TopicPartition("orders", 0), companion_id))
    async with world_at(tmp_path) as world:
        with pytest.raises(StorageError, match="companion"):
            world.partition("orders").append(batch(b"a"), NOW_MS)


async def test_settings_of_the_topic_are_the_companions_where_they_make_it_safe(tmp_path: Path) -> None:
    async with world_at(tmp_path) as world:
        await add_companion(world.metadata, await world.create("orders", flush="group", retention_ms=1))
        settings = companion_of(world).log.settings
        assert (settings.flush, settings.deleted, settings.compacted) == ("group", False, True)


# -- with followers


def led_with(*isr: int, version: int = 1) -> PartitionState:
    return PartitionState(
        replicas=(LEADER, FOLLOWER), leader=LEADER, leader_epoch=4, isr=isr or (LEADER, FOLLOWER), version=version
    )


def pair() -> tuple[Partition, Partition]:
    name = TopicPartition("orders", 0)
    main = Partition(topic_id=b"m" * 16, name=name, leader_epoch=-1, log=open_at(), high_watermark=0)
    companion = Partition(
        topic_id=b"c" * 16, name=name, leader_epoch=-1, log=open_at(), high_watermark=0, companion_of=main
    )
    main.take_companion(companion)
    return main, companion


def test_each_log_is_committed_as_far_as_the_follower_has_it() -> None:
    main, companion = pair()
    main.lead(led_with(), LEADER, 1000, 0)
    main.append(batch(b"a"), NOW_MS)
    companion.append_own(batch(b"state"), NOW_MS)
    assert (main.high_watermark, companion.high_watermark) == (0, 0)
    main.fetched(FOLLOWER, 7, 1, 0, 0)
    assert (main.high_watermark, companion.high_watermark) == (1, 0)
    companion.fetched(FOLLOWER, 7, 1, 0, 0)
    assert (main.high_watermark, companion.high_watermark) == (1, 1)


def test_a_follower_is_in_sync_when_it_is_in_both_logs() -> None:
    main, companion = pair()
    main.lead(led_with(LEADER), LEADER, 1000, 0)
    main.append(batch(b"a"), NOW_MS)
    companion.append_own(batch(b"state"), NOW_MS)
    assert main.leadership is companion.leadership is not None
    main.fetched(FOLLOWER, 7, 1, 0, 0)
    companion.fetched(FOLLOWER, 7, 0, 0, 0)
    assert main.leadership.propose_isr(0, {FOLLOWER: 7}) is None
    companion.fetched(FOLLOWER, 7, 1, 0, 0)
    proposed = main.leadership.propose_isr(0, {FOLLOWER: 7})
    assert proposed is not None
    assert proposed.isr == (LEADER, FOLLOWER)


def test_a_companion_that_comes_later_waits_for_all_that_are_in_sync() -> None:
    name = TopicPartition("orders", 0)
    main = Partition(topic_id=b"m" * 16, name=name, leader_epoch=-1, log=open_at(), high_watermark=0)
    main.lead(led_with(), LEADER, 1000, 0)
    main.fetched(FOLLOWER, 7, 0, 0, 0)
    companion = Partition(
        topic_id=b"c" * 16, name=name, leader_epoch=-1, log=open_at(), high_watermark=0, companion_of=main
    )
    main.take_companion(companion)
    main.lead(led_with(), LEADER, 1000, 10)
    companion.append_own(batch(b"state"), NOW_MS)
    assert companion.high_watermark == 0, "the follower may not even know of it"
    companion.fetched(FOLLOWER, 7, 1, 0, 20)
    assert companion.high_watermark == 1
    main.drop_companion()
    main.lead(led_with(version=2), LEADER, 1000, 30)
    assert main.leadership is not None
    assert len(main.leadership.logs) == 1


def test_records_written_while_the_companion_becomes_leader_are_committed() -> None:
    """A waiter of the first log that is woken when the new epoch begins may append to both logs."""
    main, companion = pair()
    main.lead(led_with(), LEADER, 1000, 10)
    main.append(batch(b"message"), NOW_MS)
    assert main.high_watermark == 0

    def write() -> None:
        main.append_own(batch(b"delivered"), NOW_MS)
        companion.append_own(batch(b"noted"), NOW_MS)

    main.watch(write)
    alone = replace(led_with(version=2), leader_epoch=led_with().leader_epoch + 1, isr=(LEADER,))
    main.lead(alone, LEADER, 1000, 20)
    assert [one.log.end_offset for one in (main, companion)] == [2, 1]
    assert [one.high_watermark for one in (main, companion)] == [2, 1]


def test_both_follow_when_another_leads_and_go_offline_together() -> None:
    main, companion = pair()
    main.become_follower(replace(led_with(), leader=FOLLOWER), LEADER)
    assert main.following is not None
    assert companion.following is not None
    assert not companion.is_leader
    companion.go_offline("no disk")
    assert not main.is_online
    assert main.offline_reason == "no disk"


def test_a_former_leader_writes_nothing_even_when_it_wakes_waiting_calls() -> None:
    """It would be in its successor's epoch, so that the two logs could not be distinguished."""
    main, companion = pair()
    refused: list[PenstockError] = []

    def write() -> None:
        for one in (main, companion):
            if not one.is_leader:
                for append in (one.append, one.append_own):
                    with pytest.raises(NotLeaderOrFollower) as caught:
                        append(batch(b"late"), NOW_MS)
                    refused.append(caught.value)

    for one in (main, companion):
        one.watch(write)
    ends = [one.log.end_offset for one in (main, companion)]
    main.become_follower(replace(led_with(), leader=FOLLOWER, leader_epoch=led_with().leader_epoch + 1), LEADER)
    write()
    assert len(refused) == 2 + 4 + 4
    assert [one.log.end_offset for one in (main, companion)] == ends
