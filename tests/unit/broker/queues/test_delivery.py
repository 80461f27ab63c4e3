"""Messages sent, received and acknowledged on the leader."""

import asyncio
from pathlib import Path

import pytest

from penstock.broker.queues.messages import MessageAck, NewMessage
from penstock.cluster.queues import NoSuchQueue
from penstock.foundation.eager_task import start
from penstock.queues.commands import AckType
from penstock.queues.errors import NotHeld

from .queue_harness import QueueHarness, harness_at, turn, values


async def test_a_message_that_is_sent_is_received_once_and_deleted(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        sent = await harness.send(queue, b"hello")
        assert [(each.partition, each.offset) for each in sent] == [(0, 0)]
        got = await harness.receive(queue)
        assert values(got) == [b"hello"]
        assert got[0].count == 1
        assert got[0].message_id == sent[0].message_id
        assert await harness.receive(queue) == []
        assert await harness.acknowledge(queue, got) == [None]
        await harness.advance(60_000)
        assert await harness.receive(queue) == []
        assert await harness.counts(queue) == (0, 0, 0)


async def test_on_the_leader_nothing_waits(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        service = harness.service
        assert isinstance(start(service.send(queue, [NewMessage(b"a"), NewMessage(b"b")])), list)
        got = start(service.receive(queue, max_messages=10, visibility_ms=1000, wait_ms=20_000))
        assert isinstance(got, list)
        assert values(got) == [b"a", b"b"]
        items = [MessageAck(each.partition, each.offset, each.holder, AckType.DONE) for each in got]
        assert start(service.acknowledge(queue, items)) == [None, None]


async def test_a_worker_that_dies_gives_its_message_back(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, b"a")
        first = await harness.receive(queue, visibility_s=5)
        assert await harness.counts(queue) == (0, 1, 0)
        await harness.advance(5000)
        assert await harness.counts(queue) == (1, 0, 0)
        again = await harness.receive(queue)
        assert [(each.value, each.count) for each in again] == [(b"a", 2)]
        refused = await harness.acknowledge(queue, first)
        assert isinstance(refused[0], NotHeld)
        assert await harness.acknowledge(queue, again) == [None]


async def test_a_long_poll_gets_the_first_message_that_is_sent(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        first, second = harness.wait(queue), harness.wait(queue)
        await turn()
        assert not first.done()
        await harness.send(queue, b"a")
        await turn()
        assert values(await first) == [b"a"]
        assert not second.done()
        await harness.send(queue, b"b")
        assert values(await second) == [b"b"]


async def test_a_long_poll_gets_expired_and_released_messages(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, b"a")
        held = await harness.receive(queue, visibility_s=5)
        waiting = harness.wait(queue)
        await turn()
        await harness.advance(5000)
        got = await waiting
        assert [(each.value, each.count) for each in got] == [(b"a", 2)]
        waiting = harness.wait(queue)
        await turn()
        assert await harness.acknowledge(queue, held, AckType.RELEASE) != [None]
        assert await harness.acknowledge(queue, got, AckType.RELEASE) == [None]
        assert values(await waiting) == [b"a"]


async def test_waiting_ends_with_nothing_when_the_time_is_up(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        waiting = harness.wait(queue, wait_ms=3000)
        await turn()
        await harness.advance(2999)
        assert not waiting.done()
        await harness.advance(1)
        assert await waiting == []


async def test_a_disconnected_client_takes_no_message(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        gone, stays = harness.wait(queue), harness.wait(queue)
        await turn()
        gone.cancel()
        await harness.send(queue, b"a")
        got = await stays
        assert [(each.value, each.count) for each in got] == [(b"a", 1)]
        assert len(harness.service.receivers) == 0


async def test_messages_are_shared_out_among_partitions_and_received_from_all(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create(partitions=4)
        for number in range(20):
            await harness.send(queue, str(number).encode())
        got = await harness.receive(queue, max_messages=10)
        assert len(got) == 10
        got += await harness.receive(queue, max_messages=10)
        assert sorted(int(each.value) for each in got) == list(range(20))
        assert {each.partition for each in got} == {0, 1, 2, 3}
        assert await harness.counts(queue) == (0, 20, 0)
        assert await harness.acknowledge(queue, got) == [None] * 20
        assert await harness.counts(queue) == (0, 0, 0)


async def test_a_delayed_message_lets_others_pass(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, b"late", headers=(("penstock-delay-ms", b"10000"),))
        assert await harness.counts(queue) == (0, 0, 1)
        assert await harness.receive(queue) == []
        await harness.send(queue, b"now")
        assert await harness.counts(queue) == (1, 0, 1)
        assert values(await harness.receive(queue)) == [b"now"]
        waiting = harness.wait(queue)
        await turn()
        await harness.advance(9000)
        assert not waiting.done()
        await harness.advance(2000)
        assert values(await waiting) == [b"late"]


async def test_a_queue_that_delays_all_messages_delivers_them_in_their_time(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create(delay_s=5)
        await harness.send(queue, b"a")
        await harness.advance(1000)
        await harness.send(queue, b"b", b"c")
        assert await harness.counts(queue) == (0, 0, 3)
        waiting = harness.wait(queue, max_messages=10)
        await turn()
        await harness.advance(4000)
        assert values(await waiting) == [b"a"]
        assert await harness.counts(queue) == (0, 1, 2)
        await harness.advance(1000)
        assert await harness.counts(queue) == (2, 1, 0)
        assert values(await harness.receive(queue, max_messages=10)) == [b"b", b"c"]


async def test_receipts_counts_and_deadlines_outlive_the_process(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, b"done", b"held", b"waiting")
        got = await harness.receive(queue, max_messages=2, visibility_s=30)
        assert await harness.acknowledge(queue, got[:1]) == [None]
    async with harness_at(tmp_path) as harness:
        found = harness.service.queue("jobs")
        assert found == queue
        assert await harness.counts(queue) == (1, 1, 0)
        assert values(await harness.receive(queue, max_messages=10)) == [b"waiting"]
        assert await harness.acknowledge(queue, got[1:], AckType.RENEW, 60_000) == [None]
        await harness.advance(31_000)
        assert values(await harness.receive(queue, max_messages=10)) == [b"waiting"]
        assert await harness.acknowledge(queue, got[1:]) == [None]


async def test_one_message_that_is_due_is_found_behind_thousands_that_are_not(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        for _ in range(30):
            await harness.send(queue, *(b"late" for _ in range(100)), headers=(("penstock-delay-ms", b"600000"),))
        await harness.send(queue, b"now")
        assert await harness.counts(queue) == (1, 0, 3000)
        assert values(await harness.receive(queue)) == [b"now"]
        assert await harness.counts(queue) == (0, 1, 3000)
        await harness.advance(601_000)
        assert await harness.counts(queue) == (3001, 0, 0)


async def test_a_long_poll_fails_when_the_queue_is_deleted(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        waiting = harness.wait(queue)
        await turn()
        await harness.service.delete("jobs")
        with pytest.raises(NoSuchQueue):
            await waiting
        assert len(harness.service.receivers) == 0


async def drained(harness: QueueHarness, name: str = "jobs") -> bool:
    queue = harness.service.queue(name)
    assert queue is not None
    return await harness.counts(queue) == (0, 0, 0)


async def test_a_purged_queue_is_empty_even_if_it_was_never_received_from(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue = await harness.create()
        await harness.send(queue, b"a", b"b")
        await harness.service.purge("jobs")
        assert await drained(harness)
        await harness.send(queue, b"c", b"d")
        await harness.receive(queue)
        await harness.service.purge("jobs")
        assert await drained(harness)
        await asyncio.sleep(0)
        await harness.send(queue, b"e")
        assert values(await harness.receive(queue)) == [b"e"]
