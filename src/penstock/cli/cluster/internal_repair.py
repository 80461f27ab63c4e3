"""Repairs an internal topic in place: its settings, then its partitions, then its replicas.

Nothing is deleted before it has been copied and read back, and every step can be done twice: whatever is interrupted,
the next run finishes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Final

import click

from penstock.broker.internal_state import Move, StateTable, find_moves
from penstock.broker.settings import PAUSED
from penstock.cli.cluster.internal_topics import Diagnosis, paused_in
from penstock.client.admin import Admin
from penstock.client.cluster import KafkaClient
from penstock.client.cluster_admin import ClusterAdmin, ConfigChange, Resource
from penstock.client.errors import refusal
from penstock.client.metadata import NO_NODE, TopicInfo
from penstock.client.offsets import When, list_offsets
from penstock.client.partition_reader import read_partition
from penstock.client.state import restore_state
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.replication.replay import Replay

POLL_S: Final = 0.2
CONFIRM_S: Final = 30.0
"""How long brokers may take to follow a change of the cluster's metadata."""

Report = Callable[[str, str, dict[str, object]], None]
"""Takes a topic, what was done, and numbers that go with it."""


class Repair:
    """The repair of one topic. `wait_s`: how long open transactions may hold it up."""

    def __init__(self, client: KafkaClient, found: Diagnosis, report: Report, wait_s: float) -> None:
        self._client = client
        self._admin = ClusterAdmin(client)
        self._found = found
        self._name = found.name
        self._report = report
        self._wait_s = wait_s

    def _say(self, done: str, **numbers: object) -> None:
        self._report(self._name, done, numbers)

    async def repair_settings(self) -> None:
        """Stops the loss first: this takes effect at once."""
        faults = self._found.repairable
        if not faults:
            return
        values = {fault.setting: fault.repair for fault in faults if fault.repair is not None}
        gone = [fault.setting for fault in faults if fault.repair is None and fault.found is not None]
        await Admin(self._client).alter(self._name, configs={**self._found.own, **values}, delete=gone)
        self._say("settings repaired", settings=[fault.setting for fault in faults])

    async def repair_partitions(self) -> None:
        """Adds the partitions that are missing and moves every key to the one that it belongs to."""
        if not self._found.must_move:
            return
        async with self._paused():
            topic = await self._grow()
            tables = await self._read(topic)
            moves = list(find_moves(self._name, tables))
            await self._copy(topic, moves)
            await self._verify(topic, moves)
            await self._delete(topic, moves)

    # -- pausing

    @contextlib.asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        """Pauses the coordinators. They go on when all is done, or if no partition was added."""
        await self._pause(True)
        self._say("coordinators paused")
        try:
            if self._found.partitions < self._found.partitions_wanted:
                await self._await_transactions()
            yield
        except BaseException:
            await self._leave()
            raise
        await self._pause(False)
        self._say("coordinators resumed")

    async def _leave(self) -> None:
        """Something went wrong: once partitions are there, coordinators would look for state where it is not yet."""
        is_resumed = False
        with contextlib.suppress(PenstockError):
            topic = (await self._client.refresh([self._name])).topics[self._name]
            if len(topic.partitions) < self._found.partitions_wanted:
                await self._pause(False)
                is_resumed = True
        if not is_resumed:
            click.echo(
                f"The coordinators of {self._name} are still paused, and nothing is lost: run `penstock cluster "
                "repair-internal-topics` again to finish.",
                err=True,
            )

    async def _pause(self, is_paused: bool) -> None:
        """Returns when every broker knows."""
        topics = await self._told_by_brokers()
        names = set.intersection(*topics.values()) | {self._name}
        wanted = names if is_paused else names - {self._name}
        text = ",".join(sorted(wanted)) or None
        await self._admin.alter_configs([ConfigChange(kind=Resource.BROKER, name="", values={PAUSED: text})])

        async def is_known() -> bool:
            told = await self._told_by_brokers()
            return all((self._name in names) == is_paused for names in told.values())

        await self._until(is_known, CONFIRM_S, f"not all brokers {'paused' if is_paused else 'resumed'}")

    async def _told_by_brokers(self) -> dict[str, set[str]]:
        """What each broker says is paused; all of them must answer."""
        brokers = [str(node) for node in (await self._admin.describe()).brokers]
        told = await self._admin.configs(Resource.BROKER, brokers, [PAUSED])
        silent = [node for node in brokers if PAUSED not in told.get(node, {})]
        if silent:
            raise refusal(
                ErrorCode.BROKER_NOT_AVAILABLE,
                self._name,
                f"brokers {', '.join(silent)} do not answer, or do not know {PAUSED}; all must, so that none goes on "
                "writing: start or upgrade them, and try again",
            )
        return {node: paused_in(values[PAUSED]) for node, values in told.items()}

    async def _await_transactions(self) -> None:
        """Offsets that were committed within a transaction count when it ends, on the partition they are on."""
        names = (await Admin(self._client).topic(self._name)).names

        async def are_over() -> bool:
            ends = await list_offsets(self._client, names, When.LATEST)
            stable = await list_offsets(self._client, names, When.LATEST, committed=True)
            return all(stable[name].offset >= ends[name].offset for name in names)

        await self._until(are_over, self._wait_s, "transactions with offsets of groups are open; end them, or wait")

    async def _until(self, is_so: Callable[[], Awaitable[bool]], wait_s: float, why: str) -> None:
        deadline_s = asyncio.get_running_loop().time() + wait_s
        while not await is_so():
            if asyncio.get_running_loop().time() > deadline_s:
                raise refusal(ErrorCode.REQUEST_TIMED_OUT, self._name, f"{self._name}: {why}; waited {wait_s:g} s")
            await asyncio.sleep(POLL_S)

    # -- moving

    async def _grow(self) -> TopicInfo:
        wanted = max(self._found.partitions, self._found.partitions_wanted)
        if self._found.partitions < wanted:
            await Admin(self._client).grow(self._name, wanted)
            self._say("partitions added", partitions=wanted)

        async def are_led() -> bool:
            topic = (await self._client.refresh([self._name])).topics.get(self._name)
            return topic is not None and _is_led(topic, wanted)

        await self._until(are_led, CONFIRM_S, "not all partitions have a leader")
        return self._client.view.topics[self._name]

    async def _read(self, topic: TopicInfo) -> dict[int, StateTable]:
        tables = {}
        skipped = 0
        for name in topic.names:
            table = tables[name.partition] = StateTable(self._name)
            replay = Replay(table, name, _ignore)
            async for batch, header in read_partition(self._client, name):
                replay.apply(batch, header)
                while replay.is_busy:
                    replay.go_on()
            skipped += replay.skipped_count
        self._say("state read", keys=sum(len(table.values) for table in tables.values()), skipped=skipped)
        return tables

    async def _copy(self, topic: TopicInfo, moves: Iterable[Move]) -> None:
        left = [move for move in moves if not move.is_copied]
        by_home: dict[int, list[Move]] = {}
        for move in left:
            by_home.setdefault(move.home, []).append(move)
        for home, some in sorted(by_home.items()):
            pairs = [(move.key, move.value) for move in some]
            await restore_state(
                self._client, TopicPartition(self._name, home), pairs, partitions=len(topic.partitions)
            )
            self._say("state copied", partition=home, keys=len(some))

    async def _verify(self, topic: TopicInfo, moves: Iterable[Move]) -> None:
        """What was copied is read back before anything is deleted."""
        tables = await self._read(topic)
        missing = [move for move in moves if not _is_there(move, tables)]
        if missing:
            raise refusal(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                self._name,
                f"{len(missing)} keys were copied and are not there; nothing was deleted, try again",
            )

    async def _delete(self, topic: TopicInfo, moves: Iterable[Move]) -> None:
        by_source: dict[int, list[Move]] = {}
        for move in moves:
            by_source.setdefault(move.source, []).append(move)
        for source, some in sorted(by_source.items()):
            pairs = [(move.key, None) for move in some]
            await restore_state(
                self._client, TopicPartition(self._name, source), pairs, partitions=len(topic.partitions)
            )
            self._say("copied state deleted", partition=source, keys=len(some))


def _ignore(count: int) -> None:
    """Records that cannot be read are no state: brokers skip them, too."""


def _is_led(topic: TopicInfo, count: int) -> bool:
    return len(topic.partitions) >= count and all(one.leader != NO_NODE for one in topic.partitions.values())


def _is_there(move: Move, tables: Mapping[int, StateTable]) -> bool:
    values = tables[move.home].values
    return values.get(move.key) == move.value if not move.is_copied else move.key in values
