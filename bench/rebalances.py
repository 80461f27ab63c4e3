"""How long a group takes to share its partitions out: members in a process of their own, over real connections.

python -m bench.rebalances PROTOCOL PORT GROUP TOPIC PARTITIONS MEMBERS BROKER_PID SEED
"""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import uvloop

from bench.blocking_client import BlockingClient
from bench.broker import KafkaBroker, topic_name
from bench.cache import BENCH
from bench.coordinators import committed_offsets, delete_groups
from bench.load import LoadFailed
from bench.measure import fine_cpu_s
from bench.members import HEARTBEAT_S, PROTOCOLS, Member, Shares
from penstock.client.address import Address
from penstock.client.connection import ConnectionSettings, open_connection
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

STEP_S_MAX: Final = 60.0
REHEARSAL: Final = "-rehearsal"
"""A group of two that comes first, so that the members' own code is not met for the first time by the clock."""
QUIET_S: Final = 3 * HEARTBEAT_S
"""The pause between two steps: the one before is over, and the members' heartbeats are spread again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened to a group, until all members had their shares again."""

    seconds: float
    broker_cpu_s: float
    client_cpu_s: float

    @property
    def client_busy(self) -> float:
        return self.client_cpu_s / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalances:
    """`join`: all members at once, into an empty group. `leave`: one of them."""

    join: Step
    leave: Step


def run(broker: KafkaBroker, protocol: str, members: int, topic: str, partitions: int, seed: int) -> Rebalances:
    """Let a new group of so many members live for a moment, in a fresh process."""
    group = f"{protocol}-{topic_name()}"
    with BlockingClient(broker.port) as connection:
        for each in (group, group + REHEARSAL):
            committed_offsets(connection, each, topic, (0,))  # its coordinator is ready when it answers
        words = [protocol, broker.port, group, topic, partitions, members, broker.pid, seed]
        done = subprocess.run(
            [sys.executable, "-m", "bench.rebalances", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=3 * STEP_S_MAX,
            cwd=BENCH.parent,
            check=False,
        )
        if done.returncode:
            raise LoadFailed(f"{members} {protocol} members failed against {broker.name}: {done.stderr[-500:]}")
        delete_groups(connection, [group, group + REHEARSAL])
    return Rebalances(**{name: Step(**seen) for name, seen in json.loads(done.stdout).items()})


# -- in the process of the members


async def live_and_leave(members: Sequence[Member], shares: Shares, port: int, broker_pid: int) -> Rebalances:
    settings = ConnectionSettings(client_id="bench", request_timeout_s=STEP_S_MAX)
    for member in members:
        member.connection = await open_connection(Address("127.0.0.1", port), settings)
    lives: list[asyncio.Task[None]] = []
    last = members[-1]

    async def join_all() -> None:
        lives.extend(asyncio.create_task(member.live()) for member in members)
        await _while_alive(shares.settled(len(members)), lives)

    async def leave_one() -> None:
        await _end(lives.pop())
        await last.leave()
        for member in members[:-1]:
            member.call_on()
        await _while_alive(shares.settled(len(members) - 1), lives)

    joined = await _timed(join_all, broker_pid)
    await asyncio.sleep(QUIET_S)
    left = await _timed(leave_one, broker_pid)
    for life in lives:
        await _end(life)
    await asyncio.gather(*(member.leave() for member in members[:-1]))
    for member in members:
        assert member.connection is not None
        await member.connection.close()
    return Rebalances(join=joined, leave=left)


async def _timed(step: Callable[[], Coroutine[Any, Any, None]], broker_pid: int) -> Step:
    broker_s, client_s, began_s = fine_cpu_s(broker_pid), time.process_time(), time.perf_counter()
    async with asyncio.timeout(STEP_S_MAX):
        await step()
    took_s = time.perf_counter() - began_s
    return Step(
        seconds=took_s,
        client_cpu_s=time.process_time() - client_s,
        broker_cpu_s=fine_cpu_s(broker_pid) - broker_s,
    )


async def _while_alive(event: Coroutine[Any, Any, None], lives: Sequence[asyncio.Task[None]]) -> None:
    """Wait for something that members bring about; one that fails ends the wait."""
    waited = asyncio.create_task(event)
    await asyncio.wait([waited, *lives], return_when=asyncio.FIRST_COMPLETED)
    for life in lives:
        if life.done():
            waited.cancel()
            life.result()
    await waited


async def _end(life: asyncio.Task[None]) -> None:
    life.cancel()
    with suppress(asyncio.CancelledError):
        await life


async def main() -> None:
    protocol, port, group, topic, partitions, count, broker_pid, seed = sys.argv[1:]
    with BlockingClient(int(port)) as connection:
        (found,) = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
    for name, size in ((group + REHEARSAL, 2), (group, int(count))):
        shares = Shares(int(partitions))
        rng = random.Random(f"{seed} {name}")
        members = [
            PROTOCOLS[protocol](number, name, topic, found.topic_id, shares, random.Random(rng.random()))
            for number in range(size)
        ]
        seen = await live_and_leave(members, shares, int(port), int(broker_pid))
    print(json.dumps(asdict(seen)))


if __name__ == "__main__":
    uvloop.run(main())
