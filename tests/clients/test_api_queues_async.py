"""Queues through the Python API, for tasks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

import penstock
from penstock import AsyncConnection, AsyncJob, AsyncQueue, OutgoingJob
from tests.brokers import BrokerProcess

from .queue_lab import new_name
from .waiting import PATIENCE_S

PATIENCE = "20s"
LONG = "10m"
Use = Callable[[AsyncConnection, AsyncQueue], Awaitable[None]]


def with_queue(broker: BrokerProcess, use: Use, name: str | None = None, **options: object) -> None:
    async def work() -> None:
        async with penstock.connect_async(broker.kafka) as mq:
            await use(mq, await mq.create_queue(name or new_name(), **options))  # type: ignore[arg-type]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_message_is_sent_received_and_deleted(broker: BrokerProcess) -> None:
    async def use(mq: AsyncConnection, queue: AsyncQueue) -> None:
        await queue.send({"id": 1}, attributes={"tenant": "eu"})
        (job,) = await queue.receive(max=10, wait=PATIENCE)
        assert (job.json(), job.attributes, job.receive_count) == ({"id": 1}, {"tenant": "eu"}, 1)
        await job.release()
        (job,) = await queue.receive(wait=PATIENCE, visibility=LONG)
        await job.extend()
        async with job:
            pass
        assert (await queue.counts()).total == 0
        with pytest.raises(penstock.SendFailed, match="1 of 2"):
            await queue.send_many(["good", OutgoingJob("bad", attributes={"no blanks": "x"})])
        await queue.purge()
        assert queue.name in await mq.queues()
        await mq.delete_queue(queue.name)
        with pytest.raises(penstock.UnknownQueue):
            await queue.send("x")

    with_queue(broker, use)


async def fail(queue: AsyncQueue) -> None:
    async with queue.work(visibility=LONG, backoff="1s") as jobs:
        async for _ in jobs:
            raise ZeroDivisionError


def test_a_loop_deletes_holds_and_releases_messages(broker: BrokerProcess) -> None:
    async def use(mq: AsyncConnection, queue: AsyncQueue) -> None:
        await queue.send_many(range(3))
        found = [job.json() async for job in queue.work(limit=3)]
        assert sorted(found) == [0, 1, 2]
        await queue.send("slow")
        async for _ in queue.work(visibility="1s", limit=1):
            assert await queue.receive(wait="3s") == []
        await queue.send("poison")
        with pytest.raises(ZeroDivisionError):
            await fail(queue)
        (job,) = await queue.receive(wait=PATIENCE)
        assert (job.body, job.receive_count) == ("poison", 2)

    with_queue(broker, use)


def test_a_loop_that_is_forgotten_gives_its_message_back(broker: BrokerProcess) -> None:
    async def use(mq: AsyncConnection, queue: AsyncQueue) -> None:
        await queue.send("x")
        async for _ in queue.work(visibility=LONG):
            break
        assert (await queue.receive(wait=PATIENCE))[0].receive_count == 2

    with_queue(broker, use)


def test_handlers_run_side_by_side_and_failures_come_again(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(mq: AsyncConnection, queue: AsyncQueue) -> None:
        await queue.send_many(range(8))
        together = asyncio.Barrier(4)
        handled: list[tuple[int, int]] = []

        async def handle(job: AsyncJob) -> None:
            handled.append((job.json(), job.receive_count))
            if job.receive_count == 1:
                await asyncio.wait_for(together.wait(), PATIENCE_S)
            if job.json() == 5 and job.receive_count == 1:
                raise ValueError("once")

        assert await queue.work(handle, concurrency=4, limit=9, backoff=1) == 8
        assert sorted(handled) == sorted([*((n, 1) for n in range(8)), (5, 2)])
        assert (await queue.counts()).total == 0

    with caplog.at_level(logging.WARNING, "penstock.api"):
        with_queue(broker, use)
    assert "job_failed" in caplog.text


def test_a_cancelled_worker_releases_its_messages(broker: BrokerProcess) -> None:
    async def use(mq: AsyncConnection, queue: AsyncQueue) -> None:
        await queue.send_many(range(2))
        begun = asyncio.Barrier(3)

        async def handle(job: AsyncJob) -> None:
            await begun.wait()
            await asyncio.Event().wait()

        working = asyncio.ensure_future(queue.work(handle, concurrency=2, visibility=LONG))
        await begun.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert (await queue.counts()).available == 2

    with_queue(broker, use)


def test_a_cancelled_receive_takes_no_message(broker: BrokerProcess) -> None:
    async def use(mq: AsyncConnection, queue: AsyncQueue) -> None:
        waiting = asyncio.ensure_future(queue.receive(wait="20s", visibility=LONG))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.wait([waiting])
        await queue.counts()
        await queue.send("x")
        assert [job.receive_count for job in await queue.receive(wait=PATIENCE)] == [1]

    with_queue(broker, use)


def test_closing_the_connection_ends_workers_after_what_they_have_begun(broker: BrokerProcess) -> None:
    async def work() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def handle(job: AsyncJob) -> None:
            begun.set()
            await go_on.wait()

        mq = penstock.connect_async(broker.kafka)
        queue = await mq.create_queue(new_name())
        await queue.send("x")
        working = asyncio.ensure_future(queue.work(handle, visibility=LONG))
        await begun.wait()
        closing = asyncio.ensure_future(mq.close())
        await asyncio.sleep(0)
        go_on.set()
        assert await working == 1
        await closing
        with pytest.raises(penstock.Closed):
            mq.queue("jobs")

    asyncio.run(asyncio.wait_for(work(), 60))


def test_groups_of_a_fifo_queue_stay_in_order(broker: BrokerProcess) -> None:
    async def use(mq: AsyncConnection, queue: AsyncQueue) -> None:
        await queue.send_many([OutgoingJob({"n": n}, group=f"g{n % 2}") for n in range(12)])
        handled: list[tuple[str | None, int]] = []

        async def handle(job: AsyncJob) -> None:
            await asyncio.sleep(0)
            handled.append((job.group, job.json()["n"]))

        assert await queue.work(handle, concurrency=4, limit=12) == 12
        for group in ("g0", "g1"):
            numbers = [n for of, n in handled if of == group]
            assert numbers == sorted(numbers)

    with_queue(broker, use, f"{new_name()}.fifo", content_based_deduplication=True)
