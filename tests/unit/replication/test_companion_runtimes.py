"""State machines on companion logs: loaded, closed, and following."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.cluster import keys
from penstock.cluster.administration import add_companion
from penstock.coordination.store import Put
from penstock.foundation.ids import TopicIdPartition
from penstock.queues.commands import SetPosition
from penstock.queues.machine import QueueMachine
from penstock.replication.companions import CompanionRuntimes
from penstock.replication.runtime import StateRuntime

from .broker_state import World, world_at


class Office:
    """A broker's companion machines, and what they were seen to do."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: list[tuple[str, TopicIdPartition]] = []
        self.runtimes = CompanionRuntimes(
            make=lambda partition: QueueMachine(),
            partitions=world.partitions,
            clock=world.clock,
            timer=lambda seconds, action: asyncio.get_running_loop().call_later(seconds, action).cancel,
            threads=world.threads,
            perform=lambda place, effect: None,
            on_ready=lambda place, runtime: self.events.append(("ready", place)),
            on_gone=lambda place, runtime: self.events.append(("gone", place)),
        )
        world.metadata.listeners.append(self.runtimes.apply)
        self.runtimes.apply(world.metadata.image)

    async def settle(self) -> None:
        await self.runtimes.wait_loaded()
        await asyncio.sleep(0)

    def runtime(self, place: TopicIdPartition) -> StateRuntime:
        found = self.runtimes.find(place)
        assert found is not None
        return found

    async def lead(self, place: TopicIdPartition, node: int) -> None:
        """Have a broker lead a partition that both have."""
        state = self.world.metadata.image.state(place)
        assert state is not None
        led = replace(state, replicas=(1, 2), isr=(node,), leader=node, leader_epoch=state.leader_epoch + 1)
        put = Put(keys.partition(*place), led.dump(), state.version)
        await self.world.metadata.change(lambda image: [put] if image.state(place) == state else [])
        await self.settle()


@asynccontextmanager
async def office_at(folder: Path) -> AsyncIterator[Office]:
    async with world_at(folder) as world:
        office = Office(world)
        yield office
        office.runtimes.close()


def positions(runtime: StateRuntime) -> dict[str, int]:
    machine: Any = runtime.machine
    return {name: machine.group(name).end for name in machine.groups}


async def test_a_machine_is_there_as_long_as_its_companion_is(tmp_path: Path) -> None:
    async with office_at(tmp_path) as office:
        topic_id = await office.world.create("orders", 2)
        places = [TopicIdPartition(topic_id, number) for number in range(2)]
        assert office.runtimes.all == []
        await add_companion(office.world.metadata, topic_id)
        await office.settle()
        assert sorted(office.events) == [("ready", place) for place in places]
        answers: list[object] = []
        office.runtime(places[0]).submit(SetPosition("jobs", 7), answers.append)
        assert answers == [None]
        office.events.clear()
        await office.world.drop_companion(topic_id)
        assert sorted(office.events) == [("gone", place) for place in places]
        await add_companion(office.world.metadata, topic_id)
        await office.settle()
        assert positions(office.runtime(places[0])) == {}


async def test_decisions_are_read_back_by_the_next_process(tmp_path: Path) -> None:
    async with office_at(tmp_path) as office:
        topic_id = await office.world.create("orders")
        await add_companion(office.world.metadata, topic_id)
        await office.settle()
        office.runtime(TopicIdPartition(topic_id, 0)).post(SetPosition("jobs", 7))
    async with office_at(tmp_path) as office:
        await office.settle()
        assert positions(office.runtime(TopicIdPartition(topic_id, 0))) == {"jobs": 7}


async def test_a_machine_that_stands_by_decides_when_its_broker_leads_again(tmp_path: Path) -> None:
    async with office_at(tmp_path) as office:
        topic_id = await office.world.create("orders")
        await add_companion(office.world.metadata, topic_id)
        await office.settle()
        place = TopicIdPartition(topic_id, 0)
        office.runtime(place).post(SetPosition("jobs", 7))
        before = office.runtime(place)
        await office.lead(place, 2)
        assert office.runtimes.find(place) is None
        standing = office.runtimes.standbys[place]
        assert standing is not before
        while positions(standing) != {"jobs": 7}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await office.lead(place, 1)
        assert office.runtime(place) is standing
        answers: list[object] = []
        standing.submit(SetPosition("jobs", 9), answers.append)
        assert answers == [None]
        assert [event for event, _ in office.events] == ["ready", "gone", "ready"]


async def test_the_state_of_an_uncompacted_log_is_written_again(tmp_path: Path) -> None:
    async with office_at(tmp_path) as office:
        topic_id = await office.world.create("orders", storage="memory")
        await add_companion(office.world.metadata, topic_id)
        await office.settle()
        runtime = office.runtime(TopicIdPartition(topic_id, 0))
        for end in range(100):
            runtime.post(SetPosition("jobs", end))
            runtime.post(SetPosition("more", 2 * end))
        machine: Any = runtime.machine
        runtime.append_snapshot(machine.summary())
        log = runtime.partition.log
        assert log.start_offset == log.end_offset - 2
        again = StateRuntime(
            partition=runtime.partition,
            machine=QueueMachine(),
            clock=office.world.clock,
            timer=lambda seconds, action: lambda: None,
            threads=office.world.threads,
            perform=lambda effect: None,
        )
        assert again.read_back()
        assert positions(again) == positions(runtime) == {"jobs": 99, "more": 198}
