"""FIFO queues on the broker that leads: order, one worker per message group, duplicates."""

import asyncio
from dataclasses import replace
from pathlib import Path

from penstock.broker.queues.messages import NewMessage, Sent
from penstock.cluster.queues import SCOPE_GROUP, SCOPE_QUEUE

from .queue_harness import QueueHarness, harness_at, turn, values

FIFO = {"is_fifo": True}


async def send(harness: QueueHarness, *messages: tuple[str, str, str], name: str = "jobs.fifo") -> list[Sent]:
    """Messages of (group, deduplication id, value)."""
    queue = harness.service.queue(name)
    assert queue is not None
    wanted = [NewMessage(text.encode(), group.encode(), (), known) for group, known, text in messages]
    found = await harness.service.send(queue, wanted)
    return [sent for sent in found if isinstance(sent, Sent)]


async def test_a_group_is_in_one_pair_of_hands_and_in_order(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create("jobs.fifo", **FIFO)
        await send(harness, ("a", "1", "a1"), ("a", "2", "a2"), ("b", "3", "b1"))
        first = await harness.receive(queue)
        assert values(first) == [b"a1"]
        second = await harness.receive(queue, max_messages=10)
        assert values(second) == [b"b1"]
        waiting = harness.wait(queue, max_messages=10)
        await turn()
        assert not waiting.done()
        assert await harness.acknowledge(queue, first) == [None]
        assert values(await waiting) == [b"a2"]


async def test_a_duplicate_is_acknowledged_and_not_sent_again(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create("jobs.fifo", **FIFO)
        (first,) = await send(harness, ("a", "same", "one"))
        again = await send(harness, ("b", "same", "two"), ("a", "other", "three"), ("a", "other", "four"))
        assert [(sent.offset, sent.is_duplicate) for sent in again] == [(0, True), (1, False), (1, True)]
        assert again[0].message_id == first.message_id
        assert await harness.counts(queue) == (2, 0, 0)
        await harness.advance(299_000)
        assert (await send(harness, ("a", "same", "five")))[0].is_duplicate
        await harness.advance(1000)
        assert not (await send(harness, ("a", "same", "six")))[0].is_duplicate


async def test_a_new_leader_knows_deduplication_ids(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.create("jobs.fifo", **FIFO)
        await send(harness, *(("a", str(number), "x") for number in range(1000)))
    async with harness_at(tmp_path) as harness:
        again = await send(harness, ("a", "999", "x"), ("a", "1000", "x"), ("a", "0", "x"))
        assert [(sent.offset, sent.is_duplicate) for sent in again] == [(999, True), (1000, False), (0, True)]


async def test_with_groups_for_scope_a_duplicate_is_one_of_its_group(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        settings = {"deduplication_scope": SCOPE_GROUP, "partitions": 3}
        queue = await harness.create("jobs.fifo", is_fifo=True, **settings)
        assert len(harness.service.image.topics[queue.topic_id].partitions) == 3
        sent = await send(harness, *((group, "same", "x") for group in "abcdefabc"))
        assert [each.is_duplicate for each in sent] == [False] * 6 + [True] * 3
        assert len({each.partition for each in sent}) > 1
        assert await harness.counts(queue) == (6, 0, 0)


async def test_a_change_of_scope_forgets_nothing_that_was_sent(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.create("jobs.fifo", **FIFO)
        await send(harness, ("a", "one", "x"), ("b", "two", "x"))
        await scope(harness, SCOPE_GROUP)
        sent = await send(harness, ("a", "one", "x"), ("b", "one", "x"), ("b", "two", "x"), ("a", "two", "x"))
        assert [each.is_duplicate for each in sent] == [True, False, True, False]
        await scope(harness, SCOPE_QUEUE)
        sent = await send(harness, ("c", "one", "x"), ("c", "two", "x"), ("c", "three", "x"))
        assert [each.is_duplicate for each in sent] == [True, True, False]


async def test_a_send_during_a_change_of_the_deduplication_scope_sends_no_duplicate(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.create("jobs.fifo", **FIFO)
        await send(harness, *(("a", str(number), "x" * 1000) for number in range(500)))
    async with harness_at(tmp_path) as harness:
        before = harness.service.queue("jobs.fifo")
        assert before is not None
        await scope(harness, SCOPE_GROUP)
        # A request that knows only the scope before, and waits until five minutes of the log are read for it.
        message = NewMessage(b"x", b"a", (), "new")
        late = asyncio.ensure_future(harness.service.send(before, [message]))
        await asyncio.sleep(0)
        sent = await send(harness, ("a", "new", "x"), ("a", "499", "x"))
        assert [each.is_duplicate for each in sent] == [False, True]
        (again,) = await late
        assert isinstance(again, Sent)
        assert again.is_duplicate
        (again,) = await send(harness, ("a", "new", "x"))
        assert (again.offset, again.is_duplicate) == (500, True)


async def scope(harness: QueueHarness, wanted: str) -> None:
    await harness.service.alter("jobs.fifo", lambda settings: replace(settings, deduplication_scope=wanted))


async def test_an_attempt_that_is_repeated_gets_the_same_messages(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create("jobs.fifo", **FIFO)
        await send(harness, ("a", "1", "a1"), ("b", "2", "b1"), ("c", "3", "c1"))
        first = await harness.receive(queue, max_messages=2, attempt_id="mine")
        again = await harness.receive(queue, max_messages=2, attempt_id="mine")
        assert values(first) == values(again) == [b"a1", b"b1"]
        assert [each.holder for each in first] == [each.holder for each in again]
        assert values(await harness.receive(queue, max_messages=2, attempt_id="other")) == [b"c1"]


async def test_a_queue_with_many_closed_groups_finds_the_one_that_is_open(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create("jobs.fifo", **FIFO)
        for first in range(0, 2000, 100):
            await send(harness, *(("busy", str(number), "x") for number in range(first, first + 100)))
        await send(harness, ("free", "last", "y"))
        assert values(await harness.receive(queue)) == [b"x"]
        assert values(await harness.receive(queue)) == [b"y"]
        assert await harness.receive(queue) == []
        assert await harness.counts(queue) == (1999, 2, 0)


async def test_after_a_purge_a_message_may_have_an_id_from_before(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create("jobs.fifo", **FIFO)
        await send(harness, ("a", "one", "before"), ("a", "two", "before"))
        await harness.service.purge("jobs.fifo")
        sent = await send(harness, ("a", "one", "after"), ("a", "one", "again"))
        assert [(each.offset, each.is_duplicate) for each in sent] == [(2, False), (2, True)]
        assert values(await harness.receive(queue, max_messages=10)) == [b"after"]
        await harness.service.purge("jobs.fifo")
        assert not (await send(harness, ("a", "one", "last")))[0].is_duplicate


async def test_a_new_leader_knows_of_a_purge(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        await harness.create("jobs.fifo", **FIFO)
        await send(harness, ("a", "one", "before"), ("a", "two", "before"))
        await harness.service.purge("jobs.fifo")
        await send(harness, ("a", "two", "after"))
    async with harness_at(tmp_path) as harness:
        sent = await send(harness, ("a", "one", "after"), ("a", "two", "again"))
        assert [(each.offset, each.is_duplicate) for each in sent] == [(3, False), (2, True)]


async def test_a_purge_counts_for_every_partition_and_for_no_other_queue(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        for name in ("jobs.fifo", "other.fifo"):
            settings = {"deduplication_scope": SCOPE_GROUP, "partitions": 3}
            await harness.create(name, is_fifo=True, **settings)
            await send(harness, *((group, "same", "x") for group in "abcdef"), name=name)
        await harness.service.purge("jobs.fifo")
        sent = await send(harness, *((group, "same", "x") for group in "abcdef"))
        assert [each.is_duplicate for each in sent] == [False] * 6
        assert len({each.partition for each in sent}) > 1
        sent = await send(harness, *((group, "same", "x") for group in "abcdef"), name="other.fifo")
        assert [each.is_duplicate for each in sent] == [True] * 6


async def test_after_an_unclean_election_ids_count_from_where_the_log_ends(tmp_path: Path) -> None:
    """Messages that were purged are lost, and others get their offsets."""
    async with harness_at(tmp_path) as harness:
        queue = await harness.create("jobs.fifo", **FIFO)
        for number in range(5):
            await send(harness, ("a", str(number), "x"))
        await harness.service.purge("jobs.fifo")
        harness.partition(queue).partition.log.truncate(1, harness.clock.now_ms())
    async with harness_at(tmp_path) as harness:
        sent = await send(harness, ("a", "1", "new"), ("a", "1", "again"))
        assert [(each.offset, each.is_duplicate) for each in sent] == [(1, False), (1, True)]
        (again,) = await send(harness, ("a", "1", "once more"))
        assert again.is_duplicate
