"""FIFO queues on the broker that leads: order, one pair of hands, duplicates."""

import asyncio
from dataclasses import replace
from pathlib import Path

from penstock.broker.queues.messages import NewMessage, Sent
from penstock.cluster.queues import SCOPE_GROUP, SCOPE_QUEUE

from .shop import Shop, shop_at, turn, values

FIFO = {"is_fifo": True}


async def send(shop: Shop, *messages: tuple[str, str, str], name: str = "jobs.fifo") -> list[Sent]:
    """Messages of (group, deduplication id, value)."""
    queue = shop.service.queue(name)
    assert queue is not None
    wanted = [NewMessage(text.encode(), group.encode(), (), known) for group, known, text in messages]
    found = await shop.service.send(queue, wanted)
    return [sent for sent in found if isinstance(sent, Sent)]


async def test_a_group_is_in_one_pair_of_hands_and_in_order(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        queue = await shop.create("jobs.fifo", **FIFO)
        await send(shop, ("a", "1", "a1"), ("a", "2", "a2"), ("b", "3", "b1"))
        first = await shop.receive(queue)
        assert values(first) == [b"a1"]
        second = await shop.receive(queue, max_messages=10)
        assert values(second) == [b"b1"]
        waiting = shop.wait(queue, max_messages=10)
        await turn()
        assert not waiting.done()
        assert await shop.acknowledge(queue, first) == [None]
        assert values(await waiting) == [b"a2"]


async def test_a_duplicate_is_told_of_and_not_sent_again(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        queue = await shop.create("jobs.fifo", **FIFO)
        (first,) = await send(shop, ("a", "same", "one"))
        again = await send(shop, ("b", "same", "two"), ("a", "other", "three"), ("a", "other", "four"))
        assert [(sent.offset, sent.is_duplicate) for sent in again] == [(0, True), (1, False), (1, True)]
        assert again[0].message_id == first.message_id
        assert await shop.counts(queue) == (2, 0, 0)
        await shop.advance(299_000)
        assert (await send(shop, ("a", "same", "five")))[0].is_duplicate
        await shop.advance(1000)
        assert not (await send(shop, ("a", "same", "six")))[0].is_duplicate


async def test_whoever_takes_over_knows_what_was_sent_before(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        await shop.create("jobs.fifo", **FIFO)
        await send(shop, *(("a", str(number), "x") for number in range(1000)))
    async with shop_at(tmp_path) as shop:
        again = await send(shop, ("a", "999", "x"), ("a", "1000", "x"), ("a", "0", "x"))
        assert [(sent.offset, sent.is_duplicate) for sent in again] == [(999, True), (1000, False), (0, True)]


async def test_with_groups_for_scope_a_duplicate_is_one_of_its_group(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        settings = {"deduplication_scope": SCOPE_GROUP, "partitions": 3}
        queue = await shop.create("jobs.fifo", is_fifo=True, **settings)
        assert len(shop.service.image.topics[queue.topic_id].partitions) == 3
        sent = await send(shop, *((group, "same", "x") for group in "abcdefabc"))
        assert [each.is_duplicate for each in sent] == [False] * 6 + [True] * 3
        assert len({each.partition for each in sent}) > 1
        assert await shop.counts(queue) == (6, 0, 0)


async def test_a_change_of_scope_forgets_nothing_that_was_sent(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        await shop.create("jobs.fifo", **FIFO)
        await send(shop, ("a", "one", "x"), ("b", "two", "x"))
        await scope(shop, SCOPE_GROUP)
        sent = await send(shop, ("a", "one", "x"), ("b", "one", "x"), ("b", "two", "x"), ("a", "two", "x"))
        assert [each.is_duplicate for each in sent] == [True, False, True, False]
        await scope(shop, SCOPE_QUEUE)
        sent = await send(shop, ("c", "one", "x"), ("c", "two", "x"), ("c", "three", "x"))
        assert [each.is_duplicate for each in sent] == [True, True, False]


async def test_who_waits_for_the_duplicates_while_the_scope_changes_sends_nothing_twice(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        await shop.create("jobs.fifo", **FIFO)
        await send(shop, *(("a", str(number), "x" * 1000) for number in range(500)))
    async with shop_at(tmp_path) as shop:
        before = shop.service.queue("jobs.fifo")
        assert before is not None
        await scope(shop, SCOPE_GROUP)
        # One who knows only the scope of before, and waits until five minutes of the log are read back for it.
        message = NewMessage(b"x", b"a", (), "new")
        late = asyncio.ensure_future(shop.service.send(before, [message]))
        await asyncio.sleep(0)
        sent = await send(shop, ("a", "new", "x"), ("a", "499", "x"))
        assert [each.is_duplicate for each in sent] == [False, True]
        (again,) = await late
        assert isinstance(again, Sent)
        assert again.is_duplicate
        (again,) = await send(shop, ("a", "new", "x"))
        assert (again.offset, again.is_duplicate) == (500, True)


async def scope(shop: Shop, wanted: str) -> None:
    await shop.service.alter("jobs.fifo", lambda settings: replace(settings, deduplication_scope=wanted))


async def test_an_attempt_that_is_repeated_gets_the_same_messages(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        queue = await shop.create("jobs.fifo", **FIFO)
        await send(shop, ("a", "1", "a1"), ("b", "2", "b1"), ("c", "3", "c1"))
        first = await shop.receive(queue, max_messages=2, attempt_id="mine")
        again = await shop.receive(queue, max_messages=2, attempt_id="mine")
        assert values(first) == values(again) == [b"a1", b"b1"]
        assert [each.holder for each in first] == [each.holder for each in again]
        assert values(await shop.receive(queue, max_messages=2, attempt_id="other")) == [b"c1"]


async def test_a_queue_with_many_closed_groups_finds_the_one_that_is_open(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        queue = await shop.create("jobs.fifo", **FIFO)
        for first in range(0, 2000, 100):
            await send(shop, *(("busy", str(number), "x") for number in range(first, first + 100)))
        await send(shop, ("free", "last", "y"))
        assert values(await shop.receive(queue)) == [b"x"]
        assert values(await shop.receive(queue)) == [b"y"]
        assert await shop.receive(queue) == []
        assert await shop.counts(queue) == (1999, 2, 0)


async def test_after_a_purge_a_message_may_have_an_id_from_before(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        queue = await shop.create("jobs.fifo", **FIFO)
        await send(shop, ("a", "one", "before"), ("a", "two", "before"))
        await shop.service.purge("jobs.fifo")
        sent = await send(shop, ("a", "one", "after"), ("a", "one", "again"))
        assert [(each.offset, each.is_duplicate) for each in sent] == [(2, False), (2, True)]
        assert values(await shop.receive(queue, max_messages=10)) == [b"after"]
        await shop.service.purge("jobs.fifo")
        assert not (await send(shop, ("a", "one", "last")))[0].is_duplicate


async def test_a_new_leader_knows_of_a_purge(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        await shop.create("jobs.fifo", **FIFO)
        await send(shop, ("a", "one", "before"), ("a", "two", "before"))
        await shop.service.purge("jobs.fifo")
        await send(shop, ("a", "two", "after"))
    async with shop_at(tmp_path) as shop:
        sent = await send(shop, ("a", "one", "after"), ("a", "two", "again"))
        assert [(each.offset, each.is_duplicate) for each in sent] == [(3, False), (2, True)]


async def test_a_purge_counts_for_every_partition_and_for_no_other_queue(tmp_path: Path) -> None:
    async with shop_at(tmp_path) as shop:
        for name in ("jobs.fifo", "other.fifo"):
            settings = {"deduplication_scope": SCOPE_GROUP, "partitions": 3}
            await shop.create(name, is_fifo=True, **settings)
            await send(shop, *((group, "same", "x") for group in "abcdef"), name=name)
        await shop.service.purge("jobs.fifo")
        sent = await send(shop, *((group, "same", "x") for group in "abcdef"))
        assert [each.is_duplicate for each in sent] == [False] * 6
        assert len({each.partition for each in sent}) > 1
        sent = await send(shop, *((group, "same", "x") for group in "abcdef"), name="other.fifo")
        assert [each.is_duplicate for each in sent] == [True] * 6


async def test_after_an_unclean_election_ids_count_from_where_the_log_ends(tmp_path: Path) -> None:
    """Messages that were purged are lost, and others get their offsets."""
    async with shop_at(tmp_path) as shop:
        queue = await shop.create("jobs.fifo", **FIFO)
        for number in range(5):
            await send(shop, ("a", str(number), "x"))
        await shop.service.purge("jobs.fifo")
        shop.partition(queue).partition.log.truncate(1, shop.clock.now_ms())
    async with shop_at(tmp_path) as shop:
        sent = await send(shop, ("a", "1", "new"), ("a", "1", "again"))
        assert [(each.offset, each.is_duplicate) for each in sent] == [(1, False), (1, True)]
        (again,) = await send(shop, ("a", "1", "once more"))
        assert again.is_duplicate
