"""Rare situations of queues: a cold page cache, slow commits, limits, disconnected clients."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from penstock.broker.queues.message_reader import MessageLookup
from penstock.broker.queues.messages import NewMessage, QueueUnavailable, Sent
from penstock.broker.queues.partition import ReceiveRequest
from penstock.cluster.queues import Redrive
from penstock.foundation.eager_task import start
from penstock.foundation.errors import OffsetNotAvailable
from penstock.log.disk import ColdRead
from penstock.queues.commands import AckType
from penstock.queues.errors import OverLimit
from penstock.queues.settings import DeliverySettings
from penstock.records.batch import assemble
from penstock.records.build import Record, build_batch
from penstock.records.columns import INLINE_BODY_BYTES
from penstock.records.compression import Codec, compress

from .queue_harness import QueueHarness, harness_at, turn, values
from .test_queues_and_topics import configure, end, log_of, produce


class Shy:
    """A log's reads, of which each is cold the first time it is tried."""

    def __init__(self, harness: QueueHarness) -> None:
        self._log = log_of(harness)
        self._read = self._log.read
        self._warmed: set[int] = set()
        self.cold = 0
        self._log.read = self.read  # type: ignore[method-assign]

    def read(self, offset: int, *args: object, **options: object) -> object:
        if offset not in self._warmed:
            self.cold += 1
            raise ColdRead("not in the page cache", lambda: self._warmed.add(offset))
        self._warmed.discard(offset)
        return self._read(offset, *args, **options)  # type: ignore[arg-type]


async def test_messages_that_lie_on_the_device_only_are_read_on_a_thread(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        for text in (b"a", b"b"):
            await harness.send(queue, text)
        shy = Shy(harness)
        held = await harness.receive(queue, max_messages=1, visibility_s=1)
        assert values(held) == [b"a"]
        for _ in range(2):
            harness.partition(queue).evict_unused()
        await harness.advance(1000)
        got = await harness.receive(queue, max_messages=10)
        assert sorted((each.value, each.count) for each in got) == [(b"a", 2), (b"b", 1)]
        produce(harness, "jobs", b"c", producer_id=1, sequence=0)
        end(harness, "jobs", 1, committed=True)
        assert await harness.counts(queue) == (1, 2, 0)
        assert shy.cold > 3


async def slow(harness: QueueHarness) -> None:
    """Messages and delivery state are synced before they are acknowledged."""
    await configure(harness, flush="group")


async def test_slow_commits_are_acknowledged_when_they_are_committed(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await slow(harness)
        sent = start(harness.service.send(queue, [NewMessage(b"a"), NewMessage(b"b")]))
        assert not isinstance(sent, list)
        assert [each.offset for each in await sent if isinstance(each, Sent)] == [0, 1]
        received = start(harness.service.receive(queue, max_messages=10, visibility_ms=1000, wait_ms=0))
        assert not isinstance(received, list)
        got = await received
        assert values(got) == [b"a", b"b"]
        assert await harness.acknowledge(queue, got) == [None, None]
        assert await harness.counts(queue) == (0, 0, 0)


async def test_messages_acquired_for_a_disconnected_client_do_not_count_as_delivered(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await slow(harness)
        await harness.send(queue, b"a")
        for wait_ms in (0, 20_000):
            gone = start(harness.service.receive(queue, max_messages=1, visibility_ms=30_000, wait_ms=wait_ms))
            assert isinstance(gone, asyncio.Task)
            assert await harness.counts(queue) == (0, 1, 0)
            if not gone.cancel():  # it was committed meanwhile
                harness.service.undo(queue, gone.result())
            while await harness.counts(queue) != (1, 0, 0):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (got,) = await harness.receive(queue)
        assert (got.value, got.count) == (b"a", 1)


async def test_a_message_that_compaction_took_is_passed_over(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.world.create("latest", cleanup_policy="compact", segment_bytes=1024)
        queue = await harness.create("jobs", topic="latest")
        for number in range(40):
            record = Record(key=b"k%d" % (number % 3), value=b"%d" % number, timestamp_ms=harness.clock.now_ms())
            harness.world.partition("latest").append(build_batch([record]), harness.clock.now_ms())
        held = await harness.receive(queue, max_messages=10, visibility_s=1)
        assert [int(each.value) for each in held] == list(range(10))
        log = log_of(harness, "latest")
        log.roll(harness.clock.now_ms())
        log.sync()
        await harness.world.maintenance._compact(1000)
        assert log.checkpoint.has_holes
        for _ in range(2):
            harness.partition(queue).evict_unused()  # what was read ahead before is forgotten
        await harness.advance(1000)
        got = await harness.receive(queue, max_messages=10)
        assert sorted(int(each.value) for each in got) == [37, 38, 39]
        assert await harness.counts(queue) == (0, 3, 0)


async def test_with_as_many_in_flight_as_may_be_a_receive_is_refused_and_a_waiting_one_waits(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, *(b"x" for _ in range(4)))
        partition = harness.partition(queue)
        receive_request = ReceiveRequest("jobs", "me", 10, 30_000, DeliverySettings(in_flight_max=3))
        replies: list[object] = []
        partition.receive(receive_request, replies.append)
        partition.receive(receive_request._replace(holder="other"), replies.append)
        held, refused = replies
        assert isinstance(held, list)
        assert len(held) == 3
        assert isinstance(refused, OverLimit)


async def test_messages_of_a_kafka_producer_are_batches_that_are_taken_one_by_one(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        produce(harness, "jobs", *(b"%d" % number for number in range(500)))
        seen = []
        for _ in range(50):
            got = await harness.receive(queue, max_messages=10)
            seen += values(got)
            assert await harness.acknowledge(queue, got[::2]) == [None] * 5
        assert seen == [b"%d" % number for number in range(500)]
        assert await harness.counts(queue) == (0, 250, 0)
        await harness.advance(30_000)
        again = [each for _ in range(25) for each in await harness.receive(queue, max_messages=10)]
        assert [int(each.value) for each in again] == list(range(1, 500, 2))


async def test_an_unreachable_leader_is_reported(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.service.delete("jobs")
        with pytest.raises(QueueUnavailable):
            await harness.service.counts(queue)


async def test_long_polls_are_served_in_order(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        waiting = [harness.wait(queue) for _ in range(20)]
        await turn()
        await harness.send(queue, *(b"%d" % number for number in range(10)))
        for number, each in enumerate(waiting[:10]):
            assert values(await each) == [b"%d" % number]
        assert not any(each.done() for each in waiting[10:])
        for each in waiting[10:]:
            each.cancel()
        await turn()
        await harness.send(queue, b"last")
        (got,) = await harness.receive(queue)
        assert (got.value, got.count) == (b"last", 1)
        assert await harness.acknowledge(queue, [got], AckType.DONE) == [None]


async def test_an_unreadable_batch_does_not_block_other_messages(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        produce(harness, "jobs", b"before")
        nonsense = assemble(
            compress(Codec.GZIP, b"\xff" * 50),
            count=3,
            attributes=Codec.GZIP,
            base_offset=0,
            last_offset_delta=2,
            leader_epoch=-1,
            base_timestamp=harness.clock.now_ms(),
            max_timestamp=harness.clock.now_ms(),
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
        harness.world.partition("jobs").append(nonsense, harness.clock.now_ms())
        for number in range(200):
            produce(harness, "jobs", b"%0200d" % number)
        assert values(await harness.receive(queue)) == [b"before"]
        for number in range(200):
            assert values(await harness.receive(queue)) == [b"%0200d" % number]
        assert await harness.counts(queue) == (0, 201, 0)


async def test_reserved_headers_written_by_clients_do_no_harm(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        for name, value in (
            ("penstock-delay-ms", b"9" * 5000),
            ("penstock-delay-ms", b"-5"),
            ("penstock-delay-ms", b"soon"),
            ("penstock-message-id", b"\xff\xfe"),
            ("penstock-message-id", b""),
        ):
            await harness.send(queue, name.encode(), headers=((name, value),))
        got = await harness.receive(queue, max_messages=10)
        assert len(got) == 4
        assert all(each.message_id for each in got)
        assert await harness.counts(queue) == (0, 4, 1)


async def test_large_batches_that_are_compressed_are_decoded_on_a_thread(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create(redrive=Redrive(queue="dead", max_receive_count=1))
        dead = await harness.create("dead")
        rng = Random(5)
        texts = [rng.randbytes(2000) + bytes(1000) for _ in range(100)]
        now_ms = harness.clock.now_ms()
        records = [Record(key=None, value=text, timestamp_ms=now_ms) for text in texts]
        batch = build_batch(records, codec=Codec.GZIP)
        assert sum(map(len, texts)) > INLINE_BODY_BYTES
        harness.world.partition("jobs").append(batch, now_ms)
        received = start(harness.service.receive(queue, max_messages=10, visibility_ms=1000, wait_ms=0))
        assert not isinstance(received, list)
        assert values(await received) == texts[:10]
        assert await harness.counts(queue) == (90, 10, 0)
        for _ in range(2):
            harness.partition(queue).evict_unused()
        await harness.advance(1000)
        got = await harness.receive(queue, max_messages=10)
        assert values(got) == texts[10:20]
        while (await harness.counts(dead))[0] < 10:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert sorted(values(await harness.receive(dead, max_messages=10))) == sorted(texts[:10])


async def test_messages_lost_in_an_unclean_election_do_not_hide_later_ones(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        for number in range(10):
            await harness.send(queue, b"%d" % number)
        got = await harness.receive(queue, max_messages=10)
        assert await harness.acknowledge(queue, [*got[:3], *got[4:]]) == [None] * 9
        log_of(harness).truncate(5, harness.clock.now_ms())
    async with harness_at(tmp_path) as harness:
        for text in (b"new", b"newer"):
            await harness.send(queue, text)
        again = await harness.receive(queue, max_messages=10)
        assert values(again) == [b"3", b"4", b"new", b"newer"]
        assert await harness.counts(queue) == (0, 4, 0)


async def test_a_message_that_arrives_during_a_scan_is_not_missed(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.create("dead")
        queue = await harness.create(redrive=Redrive(queue="dead", max_receive_count=1))
        await slow(harness)
        await harness.send(queue, b"poison")
        assert values(await harness.receive(queue, visibility_s=5)) == [b"poison"]
        waiting = harness.wait(queue)
        while not len(harness.service.receivers):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await turn()
        # The scan that is due now moves the poison message, for no client, and takes as long as a sync does.
        await harness.advance(5000)
        await harness.send(queue, b"good")
        assert values(await waiting) == [b"good"]


async def test_a_new_leader_serves_when_its_messages_are_known_to_be_committed(tmp_path: Path) -> None:
    """Before that it cannot read what was delivered by the leader before, and took it for removed: it was deleted."""
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, b"a")
        await harness.receive(queue, visibility_s=1)
        queue_partitions, found = harness.service.queue_partitions, harness.partition(queue)
        partition, end = found.partition, found.partition.high_watermark
        queue_partitions._on_gone(partition.tp, found.runtime)
        partition.high_watermark = 0  # as of a follower that is elected before it has heard of the last commit
        queue_partitions._on_ready(partition.tp, found.runtime)
        assert queue_partitions.find(queue.topic_id, 0) is None
        partition.advance(end)
        assert queue_partitions.find(queue.topic_id, 0) is not None
        await harness.advance(1000)
        assert values(await harness.receive(queue)) == [b"a"]


async def test_a_message_that_cannot_be_read_yet_is_not_taken_for_removed(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, b"a", b"b")
        partition = harness.partition(queue).partition
        partition.high_watermark = 1
        lookup = MessageLookup(partition)
        with pytest.raises(OffsetNotAvailable, match="offset 1 of jobs-0 is not known to be committed"):
            lookup.message(1)
        assert lookup.message(2) is None
