"""The fast path of OffsetCommit never answers differently from the handler, in a real broker."""

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.fastpath.offset_commit import TEMPLATES_MAX, VERSIONS, OffsetCommitFastPath
from penstock.cluster.image import PartitionState
from penstock.foundation.codes import ErrorCode
from penstock.foundation.decision import RepeatedDecision
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.offsets.committed import Committed
from penstock.network.kafka_connection import KafkaConnection
from penstock.node import Node
from penstock.records.batch import batches
from penstock.replication.partition import Partition
from penstock.replication.runtime import StateRuntime
from penstock.wire.frames import read_response, request_frame
from penstock.wire.keys import ApiKey
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.schema import message_of

from ..client.nodes import running_node

VERSION = 9
TOPIC = "orders"
PARTITIONS = 8
PATIENCE_S = 30.0
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
Rows = Mapping[int, tuple[int, int]]
"""By partition, an offset and a leader epoch."""


@dataclass(frozen=True)
class Membership:
    group: str
    member_id: str = ""
    generation: int = -1


def commit_of(
    membership: Membership, rows: Rows, *, metadata: str | None = "", topic: str = TOPIC, topic_id: bytes = bytes(16)
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=epoch,
            committed_metadata=metadata,
        )
        for number, (offset, epoch) in rows.items()
    ]
    return OffsetCommitRequest(
        group_id=membership.group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)],
    )


class Client:
    """One connection, from both of its ends."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, served: KafkaConnection, fast: bool
    ) -> None:
        self._reader = reader
        self.writer = writer
        self.served = served
        self._fast = fast
        self._ids = 0

    def send(self, request: Any, version: int) -> None:
        if not self._fast:
            self.served.report()
            self.served.fast_paths.clear()
        self._ids += 1
        self.writer.write(b"".join(request_frame(request, version, self._ids, "test")))

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await asyncio.wait_for(self._reader.readexactly(4), PATIENCE_S))
        return await self._reader.readexactly(size)

    async def exchange(self, request: Any, version: int) -> bytes:
        self.send(request, version)
        return await self.receive()

    async def ask(self, request: Any, version: int | None = None) -> Any:
        kind = message_of(type(request))
        version = kind.versions[-1] if version is None else version
        return read_response(kind.key, version, await self.exchange(request, version))[1]

    async def commit(self, request: OffsetCommitRequest, version: int = VERSION) -> set[ErrorCode]:
        answer = await self.ask(request, version)
        return {ErrorCode(one.error_code) for topic in answer.topics for one in topic.partitions}


class Harness:
    def __init__(self, node: Node) -> None:
        self.node = node
        self._clients: list[Client] = []
        self._taken = 0

    def watch(self) -> None:
        """Counts commits on the fast path from now on."""
        repeat = self.runtime.repeat

        def watched(repeated: RepeatedDecision, values: Any) -> bool:
            is_done = repeat(repeated, values)
            self._taken += is_done
            return is_done

        self.runtime.repeat = watched  # type: ignore[method-assign]

    def taken(self) -> int:
        """The number of commits on the fast path since the last call."""
        taken, self._taken = self._taken, 0
        return taken

    async def connect(self, *, fast: bool = True) -> Client:
        before = set(self.node._listener.connections)
        reader, writer = await asyncio.open_connection(self.node.listen.host, self.node.listen.port)
        client = Client(reader, writer, KafkaConnection(self.node._listener, "PLAINTEXT"), fast)
        await client.ask(FindCoordinatorRequest(key="any", key_type=0), 1)
        (client.served,) = set(self.node._listener.connections) - before
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()

    @property
    def runtime(self) -> StateRuntime:
        return self.node._coordinators.groups.find("any")

    @property
    def machine(self) -> GroupCoordinator:
        machine = self.runtime.machine
        assert isinstance(machine, GroupCoordinator)
        return machine

    @property
    def partition(self) -> Partition:
        return self.runtime.partition

    def offsets(self, group: str) -> dict[int, Committed]:
        """But for the times and their turns."""
        found = self.machine.offsets.of_group(group).get(TOPIC, {})
        return {number: one._replace(committed_ms=0, sequence=0) for number, one in found.items()}

    def check_log(self, *groups: str) -> None:
        """A coordinator that is loaded from the log has the same state."""
        other = GroupCoordinator(
            settings=self.machine.settings, image=self.machine.image, new_member_id=lambda name: name
        )
        runtime = StateRuntime(
            partition=self.partition,
            machine=other,
            clock=self.runtime._clock,
            timer=self.runtime._timer,
            threads=self.runtime._threads,
            perform=lambda effect: None,
        )
        data = bytes(self.partition.log.read(0, 1 << 30, self.partition.log.end_offset, blocking=True))
        for at, header in batches(data):
            runtime._replay.apply(memoryview(data)[at : at + header.size_bytes], header)
        for group in groups:
            assert other.offsets.of_group(group) == self.machine.offsets.of_group(group)

    async def join(self, client: Client, group: str, known: Membership | None = None) -> Membership:
        """The only member of a classic group, in its next generation."""
        propose_isr = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=known.member_id if known else "",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_subscription())],
        )
        joined = await client.ask(propose_isr, 3)
        assert joined.error_code == 0
        share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        synced = await client.ask(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[share],
            ),
            3,
        )
        assert synced.error_code == 0
        return Membership(group, joined.member_id, joined.generation_id)

    async def learnt(self, client: Client, membership: Membership, **options: Any) -> None:
        """Makes the fast path know the commits of this member."""
        for offset in (1, 2, 3):
            assert await client.commit(commit_of(membership, {0: (offset, 0)}, **options)) == {ErrorCode.NONE}
        assert self.taken() >= 1


def _subscription() -> bytes:
    return struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", -1)


@asynccontextmanager
async def harness_in(folder: Path, **settings: str) -> AsyncIterator[Harness]:
    async with running_node(folder, settings={**SETTINGS, **settings}) as node:
        harness = Harness(node)
        try:
            client = await harness.connect()
            topics = [
                CreatableTopic(
                    name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=(), configs=()
                )
            ]
            await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
            async with asyncio.timeout(PATIENCE_S):
                while (await client.ask(FindCoordinatorRequest(key="any", key_type=0), 1)).error_code:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                await node._coordinators.groups.wait_loaded()
            harness.watch()
            yield harness
        finally:
            harness.close()


def run(folder: Path, work: Callable[[Harness], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def main() -> None:
        async with harness_in(folder, **settings) as harness:
            await work(harness)

    asyncio.run(main())


# -- the fast path is taken, and does what the handler does


@pytest.mark.parametrize("version", VERSIONS)
def test_repeated_commits_take_the_fast_path_in_every_version(tmp_path: Path, version: int) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        membership = await harness.join(client, "readers")
        topic_id = harness.machine.image.by_name[TOPIC].topic_id
        for offset in range(10):
            wanted = commit_of(membership, {1: (offset, 5), 3: (2 * offset, 6)}, topic_id=topic_id)
            assert await client.commit(wanted, version) == {ErrorCode.NONE}
        assert harness.taken() == 8
        found = harness.offsets("readers")
        assert {number: (one.offset, one.leader_epoch) for number, one in found.items()} == {1: (9, 5), 3: (18, 6)}
        harness.check_log("readers")

    run(tmp_path, work)


@pytest.mark.parametrize("seed", range(4))
def test_responses_and_state_are_those_of_the_handler(tmp_path: Path, seed: int) -> None:
    """Two members of separate groups send the same requests, one of them without the fast path."""
    rng = random.Random(seed)

    async def work(harness: Harness) -> None:
        clients = [await harness.connect(fast=True), await harness.connect(fast=False)]
        groups = ["fast", "general"]
        memberships = [await harness.join(client, group) for client, group in zip(clients, groups, strict=True)]
        shapes = [sorted(rng.sample(range(PARTITIONS + 1), rng.randint(1, 4))) for _ in range(3)]
        texts: list[str | None] = ["", None, "here"]
        template, metadata, taken = shapes[0], texts[0], 0
        for _ in range(300):
            if rng.random() < 0.05:
                template, metadata = rng.choice(shapes), rng.choice(texts)
            if rng.random() < 0.02:
                memberships = [
                    await harness.join(client, membership.group, membership)
                    for client, membership in zip(clients, memberships, strict=True)
                ]
            late = rng.random() < 0.03
            rows = {number: (rng.getrandbits(40), rng.randrange(9)) for number in template}
            asked = [replace(membership, generation=membership.generation - late) for membership in memberships]
            answers = [
                await client.exchange(commit_of(membership, rows, metadata=metadata), VERSION)
                for client, membership in zip(clients, asked, strict=True)
            ]
            assert answers[0][4:] == answers[1][4:], "but for the correlation id"
            assert harness.offsets("fast") == harness.offsets("general")
            taken += harness.taken()
        assert taken > 100, "the fast path was hardly taken"
        harness.check_log(*groups)

    run(tmp_path, work)


def test_several_requests_at_once_are_answered_in_order(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        for offset in range(50):
            client.send(commit_of(membership, {0: (offset, 1)}), VERSION)
            client.send(commit_of(membership, {5: (offset, 1)}, metadata=f"at {offset}"), VERSION)
        ids = [struct.unpack_from(">i", await client.receive())[0] for _ in range(100)]
        assert ids == list(range(ids[0], ids[0] + 100))
        assert harness.taken() == 50
        assert {number: one.offset for number, one in harness.offsets("readers").items()} == {0: 49, 5: 49}

    run(tmp_path, work)


def test_a_client_that_is_not_a_member_takes_the_fast_path_too(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        await harness.learnt(client, Membership("standalone"))
        assert isinstance(harness.machine.groups["standalone"], ClassicGroup)

    run(tmp_path, work)


def test_a_commit_puts_off_the_end_of_the_session(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        key = ("readers", "session", membership.member_id)
        before = harness.machine.timers._due[key]
        clock = harness.runtime._clock
        start_ms = clock.steady_ms()
        async with asyncio.timeout(PATIENCE_S):
            while clock.steady_ms() == start_ms:  # noqa: ASYNC110 - there is no event for the time
                await asyncio.sleep(0)
        await client.commit(commit_of(membership, {0: (7, 0)}))
        assert harness.taken() == 1
        assert harness.machine.timers._due[key] > before

    run(tmp_path, work)


def test_commits_on_the_fast_path_are_counted(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        membership = await harness.join(client, "readers")
        sizes = [
            len(await client.exchange(commit_of(membership, {0: (offset, 0)}), VERSION)) for offset in range(100)
        ]
        harness.node._listener.report()
        text = b"".join(harness.node._metrics.text()).decode()
        assert 'penstock_request_seconds_count{api="offset_commit"} 100.0' in text
        assert f'penstock_response_bytes_total{{api="offset_commit"}} {sum(sizes) + 400}.0' in text

    run(tmp_path, work)


def test_no_more_shapes_are_remembered_than_there_is_room_for(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        for count in range(3 * TEMPLATES_MAX):
            for _ in range(3):
                wanted = commit_of(Membership("standalone"), {0: (count, 0)}, metadata="x" * count)
                assert await client.commit(wanted) == {ErrorCode.NONE}
        fast_path = client.served.fast_paths[ApiKey.OFFSET_COMMIT << 16 | VERSION]
        assert isinstance(fast_path, OffsetCommitFastPath)
        assert len(fast_path._templates) <= TEMPLATES_MAX
        assert harness.taken() == 3 * TEMPLATES_MAX

    run(tmp_path, work)


# -- unusual commits take the handler


def test_a_member_of_another_generation_is_refused(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client, other = await harness.connect(), await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        again = await harness.join(other, "readers", membership)
        assert await client.commit(commit_of(membership, {0: (9, 0)})) == {ErrorCode.ILLEGAL_GENERATION}
        assert harness.taken() == 0
        assert harness.offsets("readers")[0].offset == 3
        await harness.learnt(client, again)

    run(tmp_path, work)


def test_a_member_that_was_removed_is_refused(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client, admin = await harness.connect(), await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        gone = LeaveGroupRequest(group_id="readers", members=[MemberIdentity(member_id=membership.member_id)])
        await admin.ask(gone)
        assert await client.commit(commit_of(membership, {0: (9, 0)})) == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert harness.taken() == 0

    run(tmp_path, work)


def test_a_topic_that_was_deleted_is_not_committed_to(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client, admin = await harness.connect(), await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        await admin.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC, topic_id=bytes(16))], timeout_ms=30_000), 6
        )
        wanted = commit_of(membership, {0: (9, 0)})
        assert await client.commit(wanted) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert harness.taken() == 0
        assert harness.offsets("readers") == {}
        topics = [CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=())]
        await admin.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        await harness.learnt(client, membership)
        assert harness.offsets("readers")[0].topic_id == harness.machine.image.by_name[TOPIC].topic_id

    run(tmp_path, work)


def test_a_group_that_becomes_one_of_the_newer_protocol_answers_by_its_rules(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client, newer = await harness.connect(), await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        joins = ConsumerGroupHeartbeatRequest(
            group_id="readers",
            member_id="newer",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        joined = await newer.ask(joins)
        assert joined.error_code == 0
        assert isinstance(harness.machine.groups["readers"], ConsumerGroup)
        assert await client.commit(commit_of(membership, {0: (9, 0)})) == {ErrorCode.NONE}, "it was not asked to join"
        assert harness.taken() == 1
        own = Membership("readers", "newer", joined.member_epoch)
        await harness.learnt(newer, own)
        stale = replace(own, generation=own.generation + 1)
        assert await newer.commit(commit_of(stale, {0: (9, 0)})) == {ErrorCode.STALE_MEMBER_EPOCH}
        assert harness.taken() == 0

    run(tmp_path, work)


def test_other_metadata_and_other_partitions_go_the_general_way(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        for wanted in (
            commit_of(membership, {0: (4, 0)}, metadata="here"),
            commit_of(membership, {1: (4, 0)}),
            commit_of(membership, {0: (4, 0), 1: (4, 0)}),
            commit_of(membership, {PARTITIONS: (4, 0)}),
            commit_of(membership, {0: (4, 0)}, metadata=None),
        ):
            await client.commit(wanted)
            assert harness.taken() == 0
        assert {number: one.metadata for number, one in harness.offsets("readers").items()} == {0: "", 1: ""}
        assert await client.commit(commit_of(membership, {0: (5, 0)})) == {ErrorCode.NONE}
        assert harness.taken() == 1, "the first shape is known still"

    run(tmp_path, work)


def test_a_log_that_cannot_be_written_is_answered_as_ever(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        log = harness.partition.log
        limit, log.offset_limit = log.offset_limit, log.end_offset
        assert await client.commit(commit_of(membership, {0: (9, 0)})) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert harness.taken() == 0
        assert harness.offsets("readers")[0].offset == 3
        log.offset_limit = limit
        assert await client.commit(commit_of(membership, {0: (10, 0)})) == {ErrorCode.NONE}
        assert harness.taken() == 1
        harness.check_log("readers")
        harness.partition.go_offline("the disk is gone")
        assert await client.commit(commit_of(membership, {0: (11, 0)})) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert harness.taken() == 0

    run(tmp_path, work)


def test_where_followers_must_have_it_first_a_commit_waits(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        membership = await harness.join(client, "readers")
        await harness.learnt(client, membership)
        partition = harness.partition
        state = PartitionState(replicas=(1, 2), leader=1, leader_epoch=partition.leader_epoch, isr=(1, 2))
        partition.lead(state, 1, 30_000, harness.runtime._clock.now_ms())
        for _ in range(3):
            end = partition.log.end_offset
            client.send(commit_of(membership, {0: (9, 0)}), VERSION)
            async with asyncio.timeout(PATIENCE_S):
                while partition.log.end_offset == end:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0)
            assert partition.log.end_offset == end + 1, "it is written once"
            assert len(client.served.calls) == 1, "and waits"
            partition.advance(partition.log.end_offset)
            await client.receive()
            assert harness.taken() == 0
        harness.check_log("readers")

    run(tmp_path, work)


def test_a_coordinator_with_unsynced_records_does_not_use_the_fast_path(tmp_path: Path) -> None:
    async def work(harness: Harness) -> None:
        client = await harness.connect()
        membership = await harness.join(client, "readers")
        for offset in range(6):
            assert await client.commit(commit_of(membership, {0: (offset, 0)})) == {ErrorCode.NONE}
        assert harness.taken() == 0

    run(tmp_path, work, **{"log.flush": "group"})
