"""Dead letters and move tasks, between queues of one broker."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.queues.messages import MoveTaskRunning, NoRedriveSource, NoSuchMoveTask
from penstock.cluster.queues import MoveStatus, Queue, Redrive
from penstock.queues.commands import AckType

from .queue_harness import QueueHarness, harness_at, turn, values


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Look again and again; the test's own time limit is the patience."""
    while not await condition():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def pair(harness: QueueHarness, limit: int = 2, **settings: Any) -> tuple[Queue, Queue]:
    """A queue, and the one that its dead letters go to."""
    suffix = ".fifo" if settings.get("is_fifo") else ""
    dead = await harness.create(f"dead{suffix}", **settings)
    redrive = Redrive(queue=dead.name, max_receive_count=limit)
    return await harness.create(f"jobs{suffix}", redrive=redrive, **settings), dead


async def fail(harness: QueueHarness, queue: Queue, times: int) -> None:
    """Receives all messages so often, and never deletes them."""
    for _ in range(times):
        got = await harness.receive(queue, max_messages=10)
        assert all(error is None for error in await harness.acknowledge(queue, got, AckType.RELEASE))


async def test_a_poison_message_goes_to_the_dead_letters_with_its_history(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue, dead = await pair(harness)
        (sent,) = await harness.send(queue, b"poison", key=b"k", headers=(("color", b"red"),))
        await fail(harness, queue, 2)
        assert await harness.receive(queue) == []

        async def arrived() -> bool:
            return await harness.counts(dead) == (1, 0, 0)

        await until(arrived)
        assert await harness.counts(queue) == (0, 0, 0)
        (got,) = await harness.receive(dead)
        assert (got.value, got.key, got.count, got.message_id) == (b"poison", b"k", 1, sent.message_id)
        headers = dict(got.headers)
        assert headers["color"] == b"red"
        assert headers["penstock-source-arn"] == b"arn:aws:sqs:us-east-1:000000000000:jobs"
        assert headers["penstock-receive-count"] == b"2"
        assert headers["penstock-sent-at"] == str(harness.clock.now_ms()).encode()


async def test_a_dead_letter_of_dead_letters_has_been_received_as_often_as_in_both(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        grave = await harness.create("grave")
        dead = await harness.create("dead", redrive=Redrive(queue=grave.name, max_receive_count=3))
        queue = await harness.create("jobs", redrive=Redrive(queue=dead.name, max_receive_count=2))
        await harness.send(queue, b"poison")
        for start, end, times in ((queue, dead, 2), (dead, grave, 3)):
            await fail(harness, start, times)
            assert await harness.receive(start) == []

            async def arrived(end: Queue = end) -> bool:
                return await harness.counts(end) == (1, 0, 0)

            await until(arrived)
        (got,) = await harness.receive(grave)
        assert dict(got.headers)["penstock-receive-count"] == b"5"


async def test_many_dead_letters_arrive_each_once(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue, dead = await pair(harness, limit=1)
        await harness.send(queue, *(str(number).encode() for number in range(30)))
        for _ in range(6):
            await fail(harness, queue, 1)

        async def arrived() -> bool:
            return await harness.counts(dead) == (30, 0, 0)

        await until(arrived)
        got = [each for _ in range(3) for each in await harness.receive(dead, max_messages=10)]
        assert sorted(int(each.value) for each in got) == list(range(30))


async def test_a_move_that_was_under_way_is_finished_after_a_restart(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue, dead = await pair(harness, limit=1)
        await harness.send(queue, b"a", b"b", b"c")
        await fail(harness, queue, 1)
        await harness.receive(queue)  # they are to be moved from now on
    async with harness_at(tmp_path) as harness:

        async def arrived() -> bool:
            await harness.advance(1000)
            return (await harness.counts(dead))[0] == 3

        await until(arrived)
        assert await harness.counts(queue) == (0, 0, 0)
        assert sorted(values(await harness.receive(dead, max_messages=10))) == [b"a", b"b", b"c"]


async def test_dead_letters_go_back_to_where_they_came_from(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue, dead = await pair(harness, limit=1)
        await harness.send(queue, b"a", b"b")
        await fail(harness, queue, 2)

        async def dead_are(count: int) -> bool:
            return (await harness.counts(dead))[0] == count

        await until(lambda: dead_are(2))
        task = await harness.service.start_move(dead, None, 0)
        assert (task.status, task.to_move) == (MoveStatus.RUNNING, 2)

        async def is_over() -> bool:
            await turn()
            return (await harness.service.moves(dead))[0].status is MoveStatus.COMPLETED

        await until(is_over)
        (done,) = await harness.service.moves(dead)
        assert (done.moved, done.failure) == (2, "")
        got = await harness.receive(queue, max_messages=10)
        assert values(got) == [b"a", b"b"]
        assert [each.count for each in got] == [1, 1]
        assert "penstock-source-arn" not in dict(got[0].headers)
        assert await harness.counts(dead) == (0, 0, 0)
        with pytest.raises(NoSuchMoveTask):
            await harness.service.cancel_move(task.handle)


async def test_a_task_that_is_cancelled_leaves_the_rest_where_it_is(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        _, dead = await pair(harness)
        other = await harness.create("other")
        await harness.send(dead, *(b"x" for _ in range(100)))
        task = await harness.service.start_move(dead, other, 1)
        with pytest.raises(MoveTaskRunning):
            await harness.service.start_move(dead, other, 1)

        async def has_begun() -> bool:
            return sum(await harness.counts(other)) > 0

        await until(has_begun)
        cancelled = await harness.service.cancel_move(task.handle)
        assert 0 < cancelled.moved < 100
        (listed,) = await harness.service.moves(dead)
        assert listed.status is MoveStatus.CANCELLED
        assert sum(await harness.counts(dead)) + sum(await harness.counts(other)) == 100


async def test_the_last_ten_tasks_are_remembered(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        _, dead = await pair(harness)
        handles = []
        for _ in range(12):
            handles.append((await harness.service.start_move(dead, None, 0)).handle)
            await harness.service.cancel_move(handles[-1])
        assert [task.handle for task in await harness.service.moves(dead)] == handles[:1:-1]
        await harness.service.delete("dead")
        assert not [key for key in harness.service.image.versions if key.startswith("queue") and "dead" in key]


async def test_a_task_whose_messages_came_from_nowhere_fails_and_loses_none(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue, dead = await pair(harness)
        with pytest.raises(NoRedriveSource):
            await harness.service.start_move(queue, None, 0)
        await harness.create("second", redrive=Redrive(queue="dead", max_receive_count=3))
        await harness.send(dead, b"stray")
        await harness.service.start_move(dead, None, 0)

        async def has_failed() -> bool:
            return (await harness.service.moves(dead))[0].status is MoveStatus.FAILED

        await until(has_failed)
        assert (await harness.service.moves(dead))[0].failure == "CouldNotDetermineMessageSource"
        (got,) = await harness.receive(dead)
        assert (got.value, got.count) == (b"stray", 1)


async def test_a_dead_letter_of_a_group_lets_the_next_of_its_group_pass(tmp_path: Path) -> None:
    async with harness_at(tmp_path) as harness:
        queue, dead = await pair(harness, limit=1, is_fifo=True)
        await harness.send(queue, b"bad", key=b"g", deduplication_id="1")
        await harness.send(queue, b"good", key=b"g", deduplication_id="2")
        assert await harness.acknowledge(queue, await harness.receive(queue), AckType.RELEASE) == [None]

        async def next_one() -> bool:
            return values(await harness.receive(queue)) == [b"good"]

        await until(next_one)

        async def arrived() -> bool:
            return (await harness.counts(dead))[0] == 1

        await until(arrived)
        (got,) = await harness.receive(dead)
        assert (got.value, got.key) == (b"bad", b"g")
