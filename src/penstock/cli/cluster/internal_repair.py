"""Repairs __consumer_offsets or __transaction_state in place: first its settings, then its partitions.

Nothing is deleted before it has been copied and read back, and every step is idempotent: after an interruption, the
next run finishes the repair.
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
from penstock.client.cluster_admin import ClusterAdmin
from penstock.client.configs import ConfigChange, Resource
from penstock.client.errors import refusal
from penstock.client.metadata import NO_NODE, TopicInfo
from penstock.client.offsets import When, list_offsets
from penstock.client.partition_reader import read_partition
from penstock.client.restore_state import restore_state
from penstock.foundation.codes import ErrorCode
from penstock.foundation.errors import PenstockError
from penstock.foundation.ids import TopicPartition
from penstock.replication.replay import Replay

POLL_S: Final = 0.2
CONFIRM_S: Final = 30.0
"""Maximum wait, in seconds, until all brokers have applied a metadata change."""

Report = Callable[[str, str, dict[str, object]], None]
"""Callback after each repair step; its arguments: topic name, name of the finished step, facts such as counts."""


class Repair:
    """Repairs one internal topic: corrects its settings, adds missing partitions, and moves each key to the
    partition that it hashes to. `wait_s`: maximum wait, in seconds, until open transactions have ended."""

    def __init__(self, client: KafkaClient, found: Diagnosis, report: Report, wait_s: float) -> None:
        self._client = client
        self._admin = ClusterAdmin(client)
        self._found = found
        self._name = found.name
        self._report = report
        self._wait_s = wait_s

    def _report_step(self, done: str, **numbers: object) -> None:
        self._report(self._name, done, numbers)

    async def repair_settings(self) -> None:
        """Repairs wrong topic settings. Runs first, because wrong settings may cause further data loss."""
        faults = self._found.repairable
        if not faults:
            return
        values = {fault.setting: fault.repair for fault in faults if fault.repair is not None}
        gone = [fault.setting for fault in faults if fault.repair is None and fault.found is not None]
        await Admin(self._client).alter(self._name, configs={**self._found.own, **values}, delete=gone)
        self._report_step("settings repaired", settings=[fault.setting for fault in faults])

    async def repair_partitions(self) -> None:
        """Adds missing partitions and moves every key to the partition that the key hashes to."""
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
        """Pauses the coordinators while the block runs. They stay paused if it fails after partitions were added."""
        await self._pause(True)
        self._report_step("coordinators paused")
        try:
            if self._found.partitions < self._found.partitions_wanted:
                await self._await_transactions()
            yield
        except BaseException:
            await self._resume_after_error()
            raise
        await self._pause(False)
        self._report_step("coordinators resumed")

    async def _resume_after_error(self) -> None:
        """Resumes the coordinators, unless partitions were already added: state has not been moved to them yet."""
        is_resumed = False
        with contextlib.suppress(PenstockError):
            topic = (await self._client.refresh([self._name])).topics[self._name]
            if len(topic.partitions) < self._found.partitions_wanted:
                await self._pause(False)
                is_resumed = True
        if not is_resumed:
            click.echo(
                f"The coordinators of {self._name} are still paused; no data is lost. Run `penstock cluster "
                "repair-internal-topics` again to finish.",
                err=True,
            )

    async def _pause(self, is_paused: bool) -> None:
        """Pauses this topic's coordinators (`is_paused`) or resumes them; returns when every broker has done so."""
        topics = await self._paused_topics()
        names = set.intersection(*topics.values()) | {self._name}
        wanted = names if is_paused else names - {self._name}
        text = ",".join(sorted(wanted)) or None
        await self._admin.alter_configs([ConfigChange(kind=Resource.BROKER, name="", values={PAUSED: text})])

        async def is_known() -> bool:
            reported = await self._paused_topics()
            return all((self._name in names) == is_paused for names in reported.values())

        await self._until(is_known, CONFIRM_S, f"not all brokers {'paused' if is_paused else 'resumed'}")

    async def _paused_topics(self) -> dict[str, set[str]]:
        """Returns for each broker the topics whose coordinators it has paused; raises if a broker does not answer."""
        brokers = [str(node) for node in (await self._admin.describe()).brokers]
        reported = await self._admin.configs(Resource.BROKER, brokers, [PAUSED])
        silent = [node for node in brokers if PAUSED not in reported.get(node, {})]
        if silent:
            raise refusal(
                ErrorCode.BROKER_NOT_AVAILABLE,
                self._name,
                f"brokers {', '.join(silent)} do not answer, or do not support {PAUSED}; all must, so that none "
                "continues to write: start or upgrade them, and try again",
            )
        return {node: paused_in(values[PAUSED]) for node, values in reported.items()}

    async def _await_transactions(self) -> None:
        """Waits until no transaction is open, because offset commits of open transactions cannot be moved."""
        names = (await Admin(self._client).topic(self._name)).tps

        async def are_over() -> bool:
            ends = await list_offsets(self._client, names, When.LATEST)
            stable = await list_offsets(self._client, names, When.LATEST, committed=True)
            return all(stable[name].offset >= ends[name].offset for name in names)

        await self._until(are_over, self._wait_s, "transactions with offset commits are open; end them, or wait")

    async def _until(self, is_done: Callable[[], Awaitable[bool]], wait_s: float, why: str) -> None:
        deadline_s = asyncio.get_running_loop().time() + wait_s
        while not await is_done():
            if asyncio.get_running_loop().time() > deadline_s:
                raise refusal(ErrorCode.REQUEST_TIMED_OUT, self._name, f"{self._name}: {why}; waited {wait_s:g} s")
            await asyncio.sleep(POLL_S)

    # -- moving

    async def _grow(self) -> TopicInfo:
        wanted = max(self._found.partitions, self._found.partitions_wanted)
        if self._found.partitions < wanted:
            await Admin(self._client).create_partitions(self._name, wanted)
            self._report_step("partitions added", partitions=wanted)

        async def are_led() -> bool:
            topic = (await self._client.refresh([self._name])).topics.get(self._name)
            return topic is not None and _is_led(topic, wanted)

        await self._until(are_led, CONFIRM_S, "not all partitions have a leader")
        return self._client.view.topics[self._name]

    async def _read(self, topic: TopicInfo) -> dict[int, StateTable]:
        tables = {}
        skipped = 0
        for name in topic.tps:
            table = tables[name.partition] = StateTable(self._name)
            replay = Replay(table, name, _ignore)
            async for batch, header in read_partition(self._client, name):
                replay.apply(batch, header)
                while replay.is_busy:
                    replay.resume()
            skipped += replay.skipped_count
        self._report_step("state read", keys=sum(len(table.values) for table in tables.values()), skipped=skipped)
        return tables

    async def _copy(self, topic: TopicInfo, moves: Iterable[Move]) -> None:
        left = [move for move in moves if not move.is_copied]
        by_target: dict[int, list[Move]] = {}
        for move in left:
            by_target.setdefault(move.home, []).append(move)
        for target, some in sorted(by_target.items()):
            pairs = [(move.key, move.value) for move in some]
            await restore_state(
                self._client, TopicPartition(self._name, target), pairs, partitions=len(topic.partitions)
            )
            self._report_step("state copied", partition=target, keys=len(some))

    async def _verify(self, topic: TopicInfo, moves: Iterable[Move]) -> None:
        """Reads the copied state back, before anything is deleted; raises if a copied key is missing."""
        tables = await self._read(topic)
        missing = [move for move in moves if not _is_copied(move, tables)]
        if missing:
            raise refusal(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                self._name,
                f"{len(missing)} copied keys were not found when read back; nothing was deleted, try again",
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
            self._report_step("copied state deleted", partition=source, keys=len(some))


def _ignore(count: int) -> None:
    """Does nothing. Callback for the number of unreadable records, which are skipped here, as brokers skip them."""


def _is_led(topic: TopicInfo, count: int) -> bool:
    return len(topic.partitions) >= count and all(one.leader != NO_NODE for one in topic.partitions.values())


def _is_copied(move: Move, tables: Mapping[int, StateTable]) -> bool:
    values = tables[move.home].values
    return values.get(move.key) == move.value if not move.is_copied else move.key in values
