"""Queues and their topics: created, attached, repaired, deleted, reclaimed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.queues.messages import NewMessage, Sent
from penstock.cluster.administration import delete_topic, grow_topic
from penstock.cluster.queue_changes import plan_forget_queues
from penstock.cluster.queues import (
    SCOPE_GROUP,
    SCOPE_QUEUE,
    NameTaken,
    NoSuchQueue,
    Queue,
    QueueExists,
    QueueSettings,
)
from penstock.foundation.errors import InvalidPartitions, UnknownTopicOrPartition
from penstock.log.log import Log
from penstock.queues.deduplication import WINDOW_MS
from penstock.records.build import Record, build_batch
from penstock.records.layout import TRANSACTIONAL
from tests.unit.replication.broker_state import DEFAULTS

from .queue_harness import QueueHarness, harness_at, turn, values


def produce(harness: QueueHarness, topic: str, *texts: bytes, producer_id: int = -1, sequence: int = -1) -> None:
    """What a Kafka producer does; with an id, in a transaction."""
    batch = build_batch(
        [Record(key=None, value=text, timestamp_ms=harness.clock.now_ms()) for text in texts],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=producer_id >= 0,
    )
    assert bool(batch[22] & TRANSACTIONAL) == (producer_id >= 0)
    harness.world.partition(topic).append(batch, harness.clock.now_ms(), may_begin=True)


def end(harness: QueueHarness, topic: str, producer_id: int, *, committed: bool) -> None:
    from penstock.foundation.decision import ProducerKey

    harness.world.partition(topic).write_marker(ProducerKey(producer_id, 0), committed, 0, harness.clock.now_ms())


def log_of(harness: QueueHarness, topic: str = "jobs") -> Log:
    return harness.world.partition(topic).log


async def test_a_queue_makes_its_topic_and_takes_it_along(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create(retention_s=600)
        topic = harness.service.image.by_name["jobs"]
        assert (topic.topic_id, topic.is_queue) == (queue.topic_id, True)
        assert topic.configs["retention.ms"] == "600000"
        with pytest.raises(QueueExists):
            await harness.create()
        await harness.service.delete("jobs")
        assert harness.service.image.by_name.get("jobs") is None
        assert harness.service.queue("jobs") is None
        with pytest.raises(NoSuchQueue):
            await harness.service.delete("jobs")
        again = await harness.create()
        assert again.topic_id != queue.topic_id


async def test_a_longer_retention_period_is_set_on_the_topic_too(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.create()
        await harness.advance(1000)
        altered = await harness.service.alter("jobs", lambda settings: QueueSettings(retention_s=60, wait_s=20))
        assert altered.settings == QueueSettings(retention_s=60, wait_s=20)
        assert altered.modified_ms == altered.created_ms + 1000
        assert harness.service.image.by_name["jobs"].configs["retention.ms"] == "60000"
        tagged = await harness.service.tag("jobs", {"a": "1", "b": "2"}, ["a"])
        assert tagged.tags == {"b": "2"}


async def test_a_half_created_queue_is_finished_by_the_next_request(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.world.metadata.change(lambda image: plan_forget_queues(image, [queue]) if image.queues else [])
        assert harness.service.queue("jobs") is None
        again = await harness.create(retention_s=120)
        assert again.topic_id == queue.topic_id
        assert harness.service.image.by_name["jobs"].configs["retention.ms"] == "120000"


async def test_a_name_that_is_a_topics_is_refused(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.world.create("orders")
        with pytest.raises(NameTaken, match="attach a queue"):
            await harness.create("orders")
        with pytest.raises(UnknownTopicOrPartition):
            await harness.create("jobs", topic="nowhere")


async def test_concurrent_creations_of_a_queue_create_one(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        made = await asyncio.gather(
            *(harness.service.create("jobs", QueueSettings(), {}, "me") for _ in range(5)), return_exceptions=True
        )
        (queue,) = harness.service.queues().values()
        assert all(each == queue or isinstance(each, QueueExists) for each in made)
        assert [topic.topic_id for topic in harness.service.image.topics.values()] == [queue.topic_id]


async def test_a_queue_on_a_topic_is_worked_off_beside_its_other_readers(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.world.create("orders")
        produce(harness, "orders", b"before")
        jobs = await harness.create("jobs", topic="orders")
        more = await harness.create("more", topic="orders")
        produce(harness, "orders", b"after")
        got = await harness.receive(jobs, max_messages=10)
        assert values(got) == [b"before", b"after"]
        assert await harness.acknowledge(jobs, got) == [None, None]
        assert values(await harness.receive(more, max_messages=10)) == [b"before", b"after"]
        harness.service.reclaimer.tick()
        assert log_of(harness, "orders").start_offset == 0
        await harness.service.delete("jobs")
        assert harness.service.image.by_name["orders"].topic_id == jobs.topic_id
        assert harness.partition(more).machine.groups == ["more"]
        assert await harness.counts(more) == (0, 2, 0)


async def test_a_topic_that_is_deleted_takes_its_queues_along(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        topic_id = await harness.world.create("orders")
        for name in ("one", "two"):
            await harness.create(name, topic="orders")
        await delete_topic(harness.world.metadata, topic_id)
        assert harness.service.queues() == {}
        assert not [key for key in harness.service.image.versions if key.startswith("queues/")]


async def test_a_queue_that_is_deleted_while_its_topic_is_takes_no_other_of_its_name_along(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        for turns in range(12):  # at every point of the one when the other begins
            topic_id = await harness.world.create("orders")
            await harness.create("jobs", topic="orders")

            async def replace_it(topic_id: bytes, turns: int) -> Queue:
                for _ in range(turns):
                    await asyncio.sleep(0)
                await delete_topic(harness.world.metadata, topic_id)
                return await harness.create("jobs", retention_s=600 + turns)

            deleting = asyncio.ensure_future(harness.service.delete("jobs"))
            made = await replace_it(topic_id, turns)
            await deleting
            assert harness.service.queue("jobs") == made
            assert (await harness.send(made, b"x"))[0].offset == 0
            await harness.service.delete("jobs")
            assert not [key for key in harness.service.image.versions if key.startswith("queues/")]


async def test_a_fifo_queue_has_as_many_partitions_as_its_duplicates_allow(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.world.create("orders", partitions=3)
        with pytest.raises(InvalidPartitions, match="has 3 partitions"):
            await harness.create("jobs.fifo", topic="orders", is_fifo=True)
        queue = await harness.create("jobs.fifo", topic="orders", is_fifo=True, deduplication_scope=SCOPE_GROUP)
        with pytest.raises(InvalidPartitions, match="DeduplicationScope of 'queue' needs one"):
            await harness.service.alter(
                "jobs.fifo", lambda settings: replace(settings, deduplication_scope=SCOPE_QUEUE)
            )
        assert harness.service.queue("jobs.fifo") == queue
        with pytest.raises(InvalidPartitions, match="has the FIFO queue 'jobs"):
            await grow_topic(harness.world.metadata, queue.topic_id, 4, None, DEFAULTS)
        await harness.service.delete("jobs.fifo")
        await grow_topic(harness.world.metadata, queue.topic_id, 4, None, DEFAULTS)
        assert len(harness.service.image.topics[queue.topic_id].partitions) == 4


async def test_aborted_records_are_no_messages_and_open_transactions_wait(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        produce(harness, "jobs", b"plain")
        produce(harness, "jobs", b"no", b"no", producer_id=1, sequence=0)
        produce(harness, "jobs", b"yes", producer_id=2, sequence=0)
        assert await harness.counts(queue) == (1, 0, 0)
        assert values(await harness.receive(queue, max_messages=10)) == [b"plain"]
        waiting = harness.wait(queue, max_messages=10)
        await turn()
        end(harness, "jobs", 1, committed=False)
        await turn()
        assert not waiting.done()
        end(harness, "jobs", 2, committed=True)
        got = await waiting
        assert values(got) == [b"yes"]
        produce(harness, "jobs", b"last")
        assert await harness.counts(queue) == (1, 2, 0)
        assert await harness.acknowledge(queue, got) == [None]
        assert values(await harness.receive(queue)) == [b"last"]
        assert await harness.counts(queue) == (0, 2, 0)


async def test_counts_are_right_over_many_transactions(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        for number in range(200):
            produce(harness, "jobs", b"x", b"y", b"z", producer_id=1, sequence=3 * number)
            end(harness, "jobs", 1, committed=number % 2 == 0)
        assert await harness.counts(queue) == (300, 0, 0)
        got = await harness.receive(queue, max_messages=10)
        assert await harness.acknowledge(queue, got) == [None] * 10
        assert await harness.counts(queue) == (290, 0, 0)
        produce(harness, "jobs", b"x")
        assert await harness.counts(queue) == (291, 0, 0)


async def test_deleted_messages_are_removed_from_the_log(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await configure(harness, segment_bytes=4096)
        for _ in range(40):
            await harness.send(queue, *(b"x" * 100 for _ in range(10)))
        assert len(log_of(harness).segments) > 5
        for _ in range(40):
            assert set(await harness.acknowledge(queue, await harness.receive(queue, max_messages=10))) == {None}
        harness.service.reclaimer.tick()
        assert log_of(harness).start_offset == 400
        assert len(log_of(harness).segments) == 1
        await harness.send(queue, b"next")
        assert values(await harness.receive(queue)) == [b"next"]


async def configure(harness: QueueHarness, **configs: object) -> None:
    topic = harness.service.image.by_name["jobs"]
    kept = {name.replace(".", "_"): value for name, value in topic.configs.items()}
    await harness.world.configure("jobs", **{**kept, **configs})


async def test_one_message_that_is_stuck_keeps_no_others_in_the_log(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await configure(harness, segment_bytes=4096)
        await harness.send(queue, b"stuck")
        for _ in range(40):
            await harness.send(queue, *(b"x" * 100 for _ in range(10)))
        stuck = await harness.receive(queue, visibility_s=3600)
        for _ in range(40):
            assert set(await harness.acknowledge(queue, await harness.receive(queue, max_messages=10))) == {None}
        before = log_of(harness).size_bytes
        await harness.world.disk_threads.idle()
        log_of(harness).sync()
        harness.service.reclaimer.tick()
        await harness.world.disk_threads.idle()
        assert log_of(harness).start_offset == 0
        assert log_of(harness).size_bytes < before / 3
        await harness.send(queue, b"next")
    async with harness_at(tmp_path) as harness:
        assert values(await harness.receive(queue, max_messages=10)) == [b"next"]
        assert await harness.counts(queue) == (0, 2, 0)
        await harness.advance(3_600_000)
        assert b"stuck" in values(await harness.receive(queue, max_messages=10))
        assert stuck[0].offset == 0


async def test_the_log_of_a_fifo_queue_keeps_what_duplicates_are_known_by(tmp_path: Path) -> None:
    def message(number: int) -> NewMessage:
        return NewMessage(b"x" * 100, b"g", (), str(number))

    async def is_duplicate(harness: QueueHarness, number: int) -> bool:
        (sent,) = await harness.service.send(queue, [message(number)])
        assert isinstance(sent, Sent)
        return sent.is_duplicate

    async with harness_at(tmp_path) as harness:
        queue = await harness.create("jobs", is_fifo=True)
        await configure(harness, segment_bytes=4096)
        for first in range(0, 400, 10):
            await harness.service.send(queue, [message(number) for number in range(first, first + 10)])
        for _ in range(40):
            assert set(await harness.acknowledge(queue, await harness.receive(queue, max_messages=10))) == {None}
        log_of(harness).sync()
        for _ in range(3):
            harness.service.reclaimer.tick()
            await harness.world.disk_threads.idle()
        assert log_of(harness).start_offset == 0
    async with harness_at(tmp_path) as harness:
        assert await is_duplicate(harness, 0)
        assert await is_duplicate(harness, 399)
        await harness.advance(WINDOW_MS + 1)
        harness.service.reclaimer.tick()
        assert log_of(harness).start_offset > 300
        assert not await is_duplicate(harness, 0)


async def test_messages_that_are_too_old_are_delivered_no_more(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create(retention_s=60)
        await harness.send(queue, b"held", b"old")
        await harness.receive(queue, visibility_s=3600)
        await harness.advance(30_000)
        await harness.send(queue, b"young")
        await harness.advance(30_001)
        harness.service.reclaimer.tick()
        assert await harness.counts(queue) == (1, 0, 0)
        assert values(await harness.receive(queue, max_messages=10)) == [b"young"]
        await harness.advance(60_000)
        harness.service.reclaimer.tick()
        assert await harness.counts(queue) == (0, 0, 0)
